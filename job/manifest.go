package job

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ManifestVersion is the version of Manifest and DoneMeta that is written. The
// first version has no predecessor, so it is also the only one that is read.
const ManifestVersion = 1

// Limits of what travels.
const (
	MaxManifestBytes = 16 << 10 // a path of PATH_MAX in base64, and the rest
	MaxDoneMetaBytes = 4 << 10
)

// ErrManifestVersion is a manifest of a version that this node does not read.
var ErrManifestVersion = errors.New("the peer describes its items in a version that this node does not read; update the older of the two")

// Manifest is what the destination must know of an item before its bytes
// arrive: the opaque bytes of the engine's item offer. Decoded from a peer it
// has been validated for form; whether the peer may write there is not its
// business.
type Manifest struct {
	Version    int    `json:"v"`
	Job        ID     `json:"job"`
	Item       uint32 `json:"item"`    // number within the job, from 0
	Attempt    uint32 `json:"attempt"` // of the job, from 1
	Owner      string `json:"owner"`   // of the job, "node/token-name"
	SourceNode string `json:"source_node"`
	SourceRoot string `json:"source_root"`
	Root       string `json:"root"` // at the destination
	// Path is below Root, any bytes but NUL, clean: no empty, "." or ".."
	// component, no slash at either end.
	Path      []byte   `json:"path"`
	Overwrite string   `json:"overwrite"` // OverwriteFail, OverwriteSkip or OverwriteAlways
	Durable   bool     `json:"durable"`
	Preserve  []string `json:"preserve"` // of PreserveMode, PreserveMtime
	// Mode has permission bits alone: a peer must not plant a set-uid file.
	Mode    uint32 `json:"mode"`
	MtimeNS int64  `json:"mtime_ns"` // since the epoch
	Size    int64  `json:"size"`     // bytes, 0 or more
}

// Encode returns the bytes that travel, of the current version. The error is a
// *FieldError: the caller filled something in that no peer would accept.
func (m Manifest) Encode() ([]byte, error) {
	m.Version = ManifestVersion
	if m.Preserve == nil {
		m.Preserve = []string{}
	}
	if err := m.validate(); err != nil {
		return nil, fmt.Errorf("describe the item: %w", err)
	}
	data, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("describe the item: %w", err)
	}
	return data, nil
}

// DecodeManifest reads what Encode wrote. The input is a peer's and trusted in
// nothing. Errors: ErrManifestVersion, *FieldError.
func DecodeManifest(data []byte) (Manifest, error) {
	var m Manifest
	if err := readVersioned(data, &m, MaxManifestBytes); err != nil {
		return Manifest{}, err
	}
	if err := m.validate(); err != nil {
		return Manifest{}, fmt.Errorf("read the item's description: %w", err)
	}
	return m, nil
}

// readVersioned looks at the version first: a later one may have fields that
// the strict reading would call unknown.
func readVersioned(data []byte, into any, maxBytes int) error {
	if len(data) <= maxBytes {
		var head struct {
			Version *int `json:"v"`
		}
		if json.Unmarshal(data, &head) == nil && head.Version != nil && *head.Version != ManifestVersion {
			return ErrManifestVersion
		}
	}
	if err := decodeStrict(data, into, maxBytes); err != nil {
		return fmt.Errorf("read the item's description: %w", err)
	}
	return nil
}

func (m *Manifest) validate() error {
	switch {
	case m.Version != ManifestVersion:
		return refuse("v", "is missing")
	case m.Job == ID{}:
		return refuse("job", "is missing")
	case m.Attempt == 0:
		return refuse("attempt", "must be 1 or more")
	case !ownerShape.MatchString(m.Owner):
		return refuse("owner", "must be node/name")
	case m.Mode&^0o777 != 0:
		return refuse("mode", "must be permission bits alone")
	case m.Size < 0:
		return refuse("size", "must not be negative")
	}
	for _, n := range []struct{ field, name string }{
		{"source_node", m.SourceNode}, {"source_root", m.SourceRoot}, {"root", m.Root},
	} {
		if !ValidName(n.name) {
			return refuse(n.field, nameRule)
		}
	}
	if err := checkSub("path", string(m.Path)); err != nil {
		return err
	}
	if !slices.Contains([]string{OverwriteFail, OverwriteSkip, OverwriteAlways}, m.Overwrite) {
		return refuse("overwrite", "must be fail, skip or always")
	}
	for i, p := range m.Preserve {
		if p != PreserveMode && p != PreserveMtime || slices.Contains(m.Preserve[:i], p) {
			return refuse("preserve", "must be of mode and mtime, each once")
		}
	}
	return nil
}

// Preserves reports whether the destination gets what, such as PreserveMode,
// from the source.
func (m Manifest) Preserves(what string) bool { return slices.Contains(m.Preserve, what) }

// DoneMeta is what the source must know of an item that the destination
// published or skipped: the opaque bytes of the engine's last word on it.
type DoneMeta struct {
	Version  int    `json:"v"`
	Bytes    int64  `json:"bytes"`
	CRC32C   string `json:"crc32c"` // 8 hex digits; "" was not computed
	Durable  bool   `json:"durable"`
	Verified bool   `json:"verified"`
	Skipped  bool   `json:"skipped"` // the destination existed, and overwrite is skip
}

// Encode returns the bytes that travel, of the current version.
func (d DoneMeta) Encode() ([]byte, error) {
	d.Version = ManifestVersion
	if err := d.validate(); err != nil {
		return nil, fmt.Errorf("describe the item's end: %w", err)
	}
	data, err := json.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("describe the item's end: %w", err)
	}
	return data, nil
}

// DecodeDoneMeta reads what Encode wrote; errors as of DecodeManifest.
func DecodeDoneMeta(data []byte) (DoneMeta, error) {
	var d DoneMeta
	if err := readVersioned(data, &d, MaxDoneMetaBytes); err != nil {
		return DoneMeta{}, err
	}
	if err := d.validate(); err != nil {
		return DoneMeta{}, fmt.Errorf("read the item's end: %w", err)
	}
	return d, nil
}

func (d *DoneMeta) validate() error {
	switch {
	case d.Version != ManifestVersion:
		return refuse("v", "is missing")
	case d.Bytes < 0:
		return refuse("bytes", "must not be negative")
	case d.Verified && d.CRC32C == "":
		return refuse("verified", "needs a checksum")
	case d.Skipped && (d.Verified || d.Bytes != 0):
		return refuse("skipped", "an item that was skipped has neither bytes nor a checksum")
	}
	if d.CRC32C != "" {
		if _, ok := ParseCRC32C(d.CRC32C); !ok || d.CRC32C != strings.ToLower(d.CRC32C) {
			return refuse("crc32c", "must be 8 hexadecimal digits in lower case")
		}
	}
	return nil
}
