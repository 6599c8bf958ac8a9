package job

import (
	"encoding/json"
	"unicode/utf8"
)

// ItemState is what became of an item.
type ItemState string

// The states of an item; the names are part of the HTTP API.
const (
	ItemSucceeded ItemState = "succeeded" // published
	ItemSkipped   ItemState = "skipped"   // kept as it was by the overwrite policy
	ItemFailed    ItemState = "failed"
)

// Valid reports whether s is one of the states.
func (s ItemState) Valid() bool {
	return s == ItemSucceeded || s == ItemSkipped || s == ItemFailed
}

// ItemRecord is what became of one item in one attempt. In JSON a path that is
// not UTF-8 is in path_b64 instead of path.
type ItemRecord struct {
	Path    []byte // below the source; of a job of one file, its name
	Kind    EntryKind
	State   ItemState
	Reason  *Reason // of a failed one
	Bytes   int64   // published
	CRC32C  string  // 8 hex digits; "" was not computed
	Attempt int     // of the job, from 1
}

type itemJSON struct {
	Path    string    `json:"path,omitempty"`
	PathB64 []byte    `json:"path_b64,omitempty"`
	Kind    string    `json:"kind"`
	State   ItemState `json:"state"`
	Reason  *Reason   `json:"reason"`
	Bytes   int64     `json:"bytes"`
	CRC32C  string    `json:"crc32c,omitempty"`
	Attempt int       `json:"attempt"`
}

// MarshalJSON implements json.Marshaler.
func (r ItemRecord) MarshalJSON() ([]byte, error) {
	j := itemJSON{Kind: r.Kind.String(), State: r.State, Reason: r.Reason, Bytes: r.Bytes, CRC32C: r.CRC32C, Attempt: r.Attempt}
	if utf8.Valid(r.Path) {
		j.Path = string(r.Path)
	} else {
		j.PathB64 = r.Path
	}
	return json.Marshal(j)
}

// UnmarshalJSON implements json.Unmarshaler.
func (r *ItemRecord) UnmarshalJSON(data []byte) error {
	var j itemJSON
	if err := json.Unmarshal(data, &j); err != nil {
		return err
	}
	*r = ItemRecord{Path: j.PathB64, State: j.State, Reason: j.Reason, Bytes: j.Bytes, CRC32C: j.CRC32C, Attempt: j.Attempt}
	if len(r.Path) == 0 {
		r.Path = []byte(j.Path)
	}
	for k := EntryDir; k.Valid(); k++ {
		if k.String() == j.Kind {
			r.Kind = k
		}
	}
	return nil
}

// ItemSink takes what became of an attempt's items. Any goroutine may call it
// until Run returns; what comes later is dropped.
type ItemSink interface {
	// Add keeps a record. It may wait for the disk, and never fails towards
	// the caller: what cannot be kept is counted and logged. Path may be
	// reused after it returns. Attempt is filled in.
	Add(r ItemRecord)
	// Done reports whether an earlier attempt of this job published path.
	Done(path []byte) bool
}

// ItemFilter selects items. Its zero value selects all.
type ItemFilter struct{ State ItemState }
