package job

import (
	"crypto/sha256"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits of a Spec.
const (
	MaxSpecBytes  = 1 << 20 // of its JSON
	MaxPriority   = 100     // and -MaxPriority is the lowest
	MaxLabels     = 32
	maxLabelBytes = 255
	maxDeadline   = 365 * 24 * time.Hour
	maxOwnerBytes = 255
)

// The values of Spec's enumerations; the first of each group is the default.
const (
	OverwriteFail        = "fail"
	OverwriteSkip        = "skip"
	OverwriteAlways      = "always"
	OverwriteIfNewer     = "if_newer"
	OverwriteIfDifferent = "if_different"

	CompareMtime = "mtime"
	CompareCRC   = "crc"

	VerifyCRC32C = "crc32c"
	VerifyNone   = "none"

	TransportRC = "rc"
	TransportUC = "uc"

	OnErrorStop     = "stop"
	OnErrorContinue = "continue"

	PreserveMode      = "mode"
	PreserveMtime     = "mtime"
	PreserveOwner     = "owner"
	PreserveXattrs    = "xattrs"
	PreserveHardlinks = "hardlinks"
)

// Spec is a job as submitted. The zero value of a field is its default, which
// Normalize writes out. A Spec is a value; its slices, map and pointers are
// shared with copies and must not be changed after Submit.
type Spec struct {
	Source      Place    `json:"source"`
	Destination Place    `json:"destination"`
	Recursive   bool     `json:"recursive,omitempty"`
	Include     []string `json:"include,omitempty"`
	Exclude     []string `json:"exclude,omitempty"`
	Overwrite   string   `json:"overwrite,omitempty"`
	Compare     string   `json:"compare,omitempty"`
	Verify      string   `json:"verify,omitempty"`
	Expect      string   `json:"expect,omitempty"`  // "crc32c:" and 8 hex digits: what the source must have
	Durable     *bool    `json:"durable,omitempty"` // nil is true
	// Preserve is what of the source's metadata the destination gets; nil is
	// mode and mtime, an empty list is nothing.
	Preserve       []string          `json:"preserve,omitzero"`
	Transport      string            `json:"transport,omitempty"`
	Priority       int               `json:"priority,omitempty"` // -MaxPriority..MaxPriority, higher first
	Owner          string            `json:"owner,omitempty"`    // "" is who submits
	Labels         map[string]string `json:"labels,omitempty"`
	BandwidthLimit Rate              `json:"bandwidth_limit,omitempty"`
	Deadline       Duration          `json:"deadline,omitempty"` // after the submit; 0 is none
	OnError        string            `json:"on_error,omitempty"`
}

// ParseSpec reads the JSON of a job, strictly (see FieldError). It does not
// Normalize. The error is a *FieldError.
func ParseSpec(data []byte) (Spec, error) {
	var s Spec
	if err := decodeStrict(data, &s, MaxSpecBytes); err != nil {
		return Spec{}, err
	}
	return s, nil
}

// unsupported is right input that this version cannot do. subject is the
// beginning of a sentence, with its verb.
func unsupported(field, subject string) *FieldError {
	return &FieldError{Field: field, Problem: subject + " not supported by this version", Unsupported: true}
}

var (
	expectShape = regexp.MustCompile(`^crc32c:[0-9a-fA-F]{8}$`)
	labelShape  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}$`)
	ownerShape  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}/[A-Za-z0-9][A-Za-z0-9._:-]{0,62}$`)
)

// Validate reports what Normalize would refuse.
func (s Spec) Validate(node string) error {
	_, err := s.Normalize(node)
	return err
}

// Normalize returns s with every default written out, paths clean and the rule
// of the trailing slash applied, or a *FieldError for the first thing that is
// wrong or that this version cannot do; nothing is ignored. node is the name
// of the node asked. Normalizing twice changes nothing.
func (s Spec) Normalize(node string) (Spec, error) {
	var err error
	if s.Source, err = s.Source.check("source", node); err != nil {
		return Spec{}, err
	}
	if s.Destination, err = s.Destination.check("destination", node); err != nil {
		return Spec{}, err
	}
	if s.Source.Buffer != "" || s.Destination.Buffer != "" {
		err = s.buffers()
	} else {
		s.Source, s.Destination, err = land(s.Source, s.Destination, s.Recursive)
	}
	if err != nil {
		return Spec{}, err
	}
	if err := s.choices(); err != nil {
		return Spec{}, err
	}
	if err := s.selection(); err != nil {
		return Spec{}, err
	}
	if err := s.integrity(); err != nil {
		return Spec{}, err
	}
	if err := s.handling(); err != nil {
		return Spec{}, err
	}
	return s, nil
}

// choices fills in and checks the enumerations.
func (s *Spec) choices() error {
	for _, c := range []struct {
		field   string
		value   *string
		allowed []string
		later   []string // known, and not in this version
	}{
		{"overwrite", &s.Overwrite, overwrites[:], nil},
		{"compare", &s.Compare, []string{CompareMtime, CompareCRC}, nil},
		{"verify", &s.Verify, []string{VerifyCRC32C, VerifyNone}, nil},
		{"transport", &s.Transport, []string{TransportRC}, []string{TransportUC}},
		{"on_error", &s.OnError, []string{OnErrorStop, OnErrorContinue}, nil},
	} {
		switch {
		case *c.value == "" && c.field == "overwrite" && s.Destination.Buffer != "":
			// A buffer has bytes already: there is no policy for that.
		case *c.value == "":
			*c.value = c.allowed[0]
		case slices.Contains(c.allowed, *c.value):
		case slices.Contains(c.later, *c.value):
			// *c.value is one of our own words here, so it may be shown.
			return unsupported(c.field, "the value "+*c.value+" is")
		default:
			return refuse(c.field, "must be one of %s", strings.Join(slices.Concat(c.allowed, c.later), ", "))
		}
	}
	if s.Compare == CompareCRC && s.Overwrite != OverwriteIfDifferent {
		return refuse("compare", "the value crc needs overwrite: if_different")
	}
	return nil
}

var (
	overwrites = [...]string{OverwriteFail, OverwriteSkip, OverwriteAlways, OverwriteIfNewer, OverwriteIfDifferent}
	preserves  = [...]string{PreserveMode, PreserveMtime, PreserveOwner, PreserveXattrs, PreserveHardlinks}
)

// buffers checks a job with a buffer on one side or both.
func (s *Spec) buffers() error {
	src, dst := &s.Source, &s.Destination
	switch {
	case s.Recursive:
		return refuse("recursive", "a buffer is not a directory")
	case len(s.Include) > 0:
		return refuse("include", "a buffer has no entries to choose from")
	case len(s.Exclude) > 0:
		return refuse("exclude", "a buffer has no entries to choose from")
	case len(s.Preserve) > 0:
		return refuse("preserve", "a buffer has no metadata; leave it out")
	case dst.Buffer != "" && s.Overwrite != "":
		return refuse("overwrite", "does not apply to a buffer, whose range is always written; leave it out")
	case s.Overwrite == OverwriteIfNewer || s.Overwrite == OverwriteIfDifferent:
		return refuse("overwrite", "must be fail, skip or always: a buffer has no time of modification")
	case src.Length != nil && dst.Length != nil && *src.Length != *dst.Length:
		return refuse("destination.length", "must be the source's length; give one of the two")
	}
	s.Preserve = []string{}
	if src.Buffer == "" {
		if err := fileAlone(*src, "source.path", "a buffer holds one file"); err != nil {
			return err
		}
	}
	if dst.Buffer == "" {
		return fileAlone(*dst, "destination.path", "a buffer needs a full name")
	}
	return nil
}

// fileAlone refuses a path that can only be a directory.
func fileAlone(p Place, field, why string) error {
	if path := p.FullPath(); p.Sub() == "" || path[len(path)-1] == '/' {
		return refuse(field, "names a directory; %s", why)
	}
	return nil
}

// selection checks what is taken from the source.
func (s *Spec) selection() error {
	if !s.Recursive && len(s.Include) > 0 {
		return refuse("include", "needs recursive: true")
	}
	if !s.Recursive && len(s.Exclude) > 0 {
		return refuse("exclude", "needs recursive: true")
	}
	if _, err := ParseSelection(s.Include, s.Exclude); err != nil {
		return err
	}
	if len(s.Include) == 0 {
		s.Include = nil
	}
	if len(s.Exclude) == 0 {
		s.Exclude = nil
	}
	if s.Preserve == nil {
		s.Preserve = preserves[:2:2]
	}
	for i, p := range s.Preserve {
		if !slices.Contains(preserves[:], p) {
			return refuse("preserve", "must be a list of %s", strings.Join(preserves[:], ", "))
		}
		if slices.Contains(s.Preserve[:i], p) {
			return refuse("preserve", "has an entry twice")
		}
	}
	s.Preserve = slices.Sorted(slices.Values(s.Preserve))
	if s.Preserve == nil {
		s.Preserve = []string{}
	}
	return nil
}

// integrity checks what makes the result trustworthy.
func (s *Spec) integrity() error {
	if s.Durable == nil {
		durable := true
		s.Durable = &durable
	}
	if s.Expect != "" {
		if !expectShape.MatchString(s.Expect) {
			return refuse("expect", "must be crc32c: and 8 hexadecimal digits")
		}
		if s.Verify == VerifyNone {
			return refuse("expect", "needs verify: crc32c")
		}
		if s.Recursive {
			return refuse("expect", "is the checksum of one file; leave it out with recursive: true")
		}
		s.Expect = strings.ToLower(s.Expect)
	}
	return nil
}

// handling checks how and for whom the job is done.
func (s *Spec) handling() error {
	if s.Priority < -MaxPriority || s.Priority > MaxPriority {
		return refuse("priority", "must be between -%d and %d", MaxPriority, MaxPriority)
	}
	if s.Owner != "" && (len(s.Owner) > maxOwnerBytes || !ownerShape.MatchString(s.Owner)) {
		return refuse("owner", "must be node/name, as jobs show it")
	}
	if err := checkLabels(s.Labels); err != nil {
		return err
	}
	s.Labels = maps.Clone(s.Labels)
	if len(s.Labels) == 0 {
		s.Labels = nil
	}
	if s.BandwidthLimit < 0 {
		return refuse("bandwidth_limit", "must be more than 0")
	}
	if s.Deadline < 0 || time.Duration(s.Deadline) > maxDeadline {
		return refuse("deadline", "must be at most 365d; leave it out for none")
	}
	return nil
}

func checkLabels(labels map[string]string) error {
	if len(labels) > MaxLabels {
		return refuse("labels", "has more than %d entries", MaxLabels)
	}
	for k, v := range labels {
		if !labelShape.MatchString(k) {
			return refuse("labels", "a key must be 1 to 63 of the characters A-Z a-z 0-9 . _ / - and begin with a letter or digit")
		}
		if len(v) > maxLabelBytes || !utf8.ValidString(v) || strings.ContainsFunc(v, isControl) {
			return refuse("labels", "a value must be at most %d bytes of UTF-8 without control characters", maxLabelBytes)
		}
	}
	return nil
}

func isControl(r rune) bool { return r < 0x20 || r >= 0x7f && r < 0xa0 || r == 0x2028 || r == 0x2029 }

// Preserves reports whether the destination gets what, such as PreserveMode,
// from the source.
func (s Spec) Preserves(what string) bool { return slices.Contains(s.Preserve, what) }

// ExpectedCRC32C returns the checksum the source must have, if Expect says so.
func (s Spec) ExpectedCRC32C() (crc uint32, ok bool) {
	hex, ok := strings.CutPrefix(s.Expect, "crc32c:")
	if !ok {
		return 0, false
	}
	return ParseCRC32C(hex)
}

// fingerprint identifies a normalized Spec: equal bodies, whatever their
// spelling, have equal ones. json.Marshal sorts map keys.
func (s Spec) fingerprint() [sha256.Size]byte {
	data, err := json.Marshal(s)
	if err != nil {
		// Every field is a plain value; only a defect here can fail.
		panic("job: marshal spec: " + err.Error())
	}
	return sha256.Sum256(data)
}
