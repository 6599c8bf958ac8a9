package job

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// ManifestVersion is the version of Manifest and DoneMeta. The one before is
// read too, and written of what it can say: a node speaks N and N-1.
const ManifestVersion = 2

// Limits of what travels.
const (
	MaxManifestBytes = 64 << 10 // a path of PATH_MAX and xattrs in base64, and the rest
	MaxDoneMetaBytes = 4 << 10
	MaxXattrs        = 64
	MaxXattrBytes    = 32 << 10 // names and values of one entry together
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
	SourceRoot string `json:"source_root"` // "" if the source is a buffer
	Root       string `json:"root"`        // at the destination; "" if that is a buffer
	// Path is below Root, any bytes but NUL, clean: no empty, "." or ".."
	// component, no slash at either end. Empty if the destination is a buffer.
	Path      []byte   `json:"path"`
	Overwrite string   `json:"overwrite"` // one of the Overwrite constants; OverwriteAlways for a buffer
	Durable   bool     `json:"durable"`
	Preserve  []string `json:"preserve"` // of the Preserve constants
	// Mode has permission bits alone: a peer must not plant a set-uid file.
	Mode    uint32 `json:"mode"`
	MtimeNS int64  `json:"mtime_ns"` // since the epoch
	Size    int64  `json:"size"`     // bytes, 0 or more

	// Since version 2. A zero value does not travel.

	Compare string `json:"compare,omitempty"` // CompareMtime ("" is the same) or CompareCRC
	// CRC32C is the source's, for CompareCRC: 8 hex digits; "" is not known.
	CRC32C string  `json:"crc32c,omitempty"`
	UID    uint32  `json:"uid,omitempty"` // counts with PreserveOwner
	GID    uint32  `json:"gid,omitempty"`
	Xattrs []Xattr `json:"xattrs,omitempty"` // with PreserveXattrs, sorted by name, no name twice
	// SourceBuffer and Buffer name buffers; Offset is in Buffer, in bytes, and
	// the length there is Size.
	SourceBuffer string `json:"source_buffer,omitempty"`
	Buffer       string `json:"buffer,omitempty"`
	Offset       int64  `json:"offset,omitempty"`
}

// Xattr is one extended attribute, see xattr(7). Only names that begin with
// "user." travel: the other namespaces hold privileges.
type Xattr struct {
	Name  string `json:"name"`
	Value []byte `json:"value"`
}

// lowest is the oldest version that can say what m says.
func (m *Manifest) lowest() int {
	if m.Compare != "" || m.CRC32C != "" || m.UID != 0 || m.GID != 0 || len(m.Xattrs) > 0 ||
		m.SourceBuffer != "" || m.Buffer != "" || m.Offset != 0 ||
		m.Overwrite == OverwriteIfNewer || m.Overwrite == OverwriteIfDifferent ||
		slices.ContainsFunc(m.Preserve, func(p string) bool { return p != PreserveMode && p != PreserveMtime }) {
		return 2
	}
	return 1
}

// Encode returns the bytes that travel, of the oldest version that can say it.
// The error is a *FieldError: the caller filled something in that no peer would
// accept.
func (m Manifest) Encode() ([]byte, error) {
	for i, x := range m.Xattrs {
		if x.Value == nil {
			m.Xattrs = slices.Clone(m.Xattrs)
			m.Xattrs[i].Value = []byte{}
		}
	}
	if m.Compare == CompareMtime {
		m.Compare = "" // as version 1 means it
	}
	m.Version = m.lowest()
	if m.Preserve == nil {
		m.Preserve = []string{}
	}
	if m.Path == nil {
		m.Path = []byte{} // the strict reading knows no null
	}
	if err := m.validate(); err != nil {
		return nil, fmt.Errorf("describe the item: %w", err)
	}
	data, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("describe the item: %w", err)
	}
	if len(data) > MaxManifestBytes {
		return nil, fmt.Errorf("describe the item: %w", refuse("xattrs", "are too large to travel"))
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
		if json.Unmarshal(data, &head) == nil && head.Version != nil && (*head.Version < ManifestVersion-1 || *head.Version > ManifestVersion) {
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
	case m.Version == 0:
		return refuse("v", "is missing")
	case m.Version < m.lowest():
		return refuse("v", "does not know all of the fields")
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
	if !ValidName(m.SourceNode) {
		return refuse("source_node", nameRule)
	}
	if err := m.validateSides(); err != nil {
		return err
	}
	if !slices.Contains(overwrites[:], m.Overwrite) {
		return refuse("overwrite", "must be one of %s", strings.Join(overwrites[:], ", "))
	}
	if m.Compare != "" && m.Compare != CompareMtime && m.Compare != CompareCRC {
		return refuse("compare", "must be mtime or crc")
	}
	if !validCRC32C(m.CRC32C) {
		return refuse("crc32c", "must be 8 hexadecimal digits in lower case")
	}
	for i, p := range m.Preserve {
		if !slices.Contains(preserves[:], p) || slices.Contains(m.Preserve[:i], p) {
			return refuse("preserve", "must be of %s, each once", strings.Join(preserves[:], ", "))
		}
	}
	return checkXattrs(m.Xattrs)
}

// validateSides: each side is a file or a buffer.
func (m *Manifest) validateSides() error {
	if m.SourceBuffer != "" {
		if !ValidName(m.SourceBuffer) || m.SourceRoot != "" {
			return refuse("source_buffer", "must be a buffer's name, and source_root empty")
		}
	} else if !ValidName(m.SourceRoot) {
		return refuse("source_root", nameRule)
	}
	if m.Buffer == "" {
		if !ValidName(m.Root) {
			return refuse("root", nameRule)
		}
		if m.Offset != 0 {
			return refuse("offset", "belongs to a buffer")
		}
		return checkSub("path", string(m.Path))
	}
	switch {
	case !ValidName(m.Buffer) || m.Root != "" || len(m.Path) > 0:
		return refuse("buffer", "must be a buffer's name, and root and path empty")
	case m.Offset < 0 || m.Size > math.MaxInt64-m.Offset:
		return refuse("offset", "must not be negative, and the range must end below 2^63")
	case m.Overwrite != OverwriteAlways:
		return refuse("overwrite", "must be always for a buffer")
	}
	return nil
}

// checkXattrs bounds what a peer can plant.
func checkXattrs(list []Xattr) error {
	if len(list) > MaxXattrs {
		return refuse("xattrs", "has more than %d entries", MaxXattrs)
	}
	total := 0
	for i, x := range list {
		total += len(x.Name) + len(x.Value)
		switch {
		case len(x.Name) > 255 || !strings.HasPrefix(x.Name, "user.") || len(x.Name) == len("user.") ||
			strings.IndexByte(x.Name, 0) >= 0:
			return refuse("xattrs", "a name must begin with user. and have at most 255 bytes")
		case i > 0 && list[i-1].Name >= x.Name:
			return refuse("xattrs", "must be sorted by name, each once")
		case total > MaxXattrBytes:
			return refuse("xattrs", "come to more than %d bytes", MaxXattrBytes)
		}
	}
	return nil
}

func validCRC32C(s string) bool {
	if s == "" {
		return true
	}
	_, ok := ParseCRC32C(s)
	return ok && s == strings.ToLower(s)
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
	Skipped  bool   `json:"skipped"` // the destination existed, and the overwrite policy kept it
}

// Encode returns the bytes that travel. Version 2 says nothing new, so it is
// version 1, which every peer reads.
func (d DoneMeta) Encode() ([]byte, error) {
	d.Version = ManifestVersion - 1
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
	case d.Version == 0:
		return refuse("v", "is missing")
	case d.Bytes < 0:
		return refuse("bytes", "must not be negative")
	case d.Verified && d.CRC32C == "":
		return refuse("verified", "needs a checksum")
	case d.Skipped && (d.Verified || d.Bytes != 0):
		return refuse("skipped", "an item that was skipped has neither bytes nor a checksum")
	}
	if !validCRC32C(d.CRC32C) {
		return refuse("crc32c", "must be 8 hexadecimal digits in lower case")
	}
	return nil
}

// MtimeNS is a modification time as a Manifest and a GroupEntry have it. Times
// before 1678 or after 2262 do not fit: they travel as the nearest that does,
// where UnixNano would make 2446 a year of 1861.
func MtimeNS(t time.Time) int64 {
	const least, most = math.MinInt64 / int64(time.Second), math.MaxInt64 / int64(time.Second)
	switch s := t.Unix(); {
	case s <= least:
		return least * int64(time.Second)
	case s >= most:
		return most * int64(time.Second)
	}
	return t.UnixNano()
}
