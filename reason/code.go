package reason

// Code is a reason's stable name, as the HTTP API, logs and events show it.
// The empty Code means "no reason" and is not Valid.
type Code string

// The reasons. Comments say when an attempt ends with it, not how it is found.
const (
	SourceNotFound        Code = "SOURCE_NOT_FOUND"       // the source path or buffer does not exist
	SourceChanged         Code = "SOURCE_CHANGED"         // the source grew, shrank, was replaced or rewritten during the attempt
	PermissionDenied      Code = "PERMISSION_DENIED"      // the operating system refused access (EACCES, EPERM, EROFS)
	DestExists            Code = "DEST_EXISTS"            // the policy does not overwrite, or a directory stands where a file should be (or the reverse)
	NoSpace               Code = "NO_SPACE"               // the destination's file system, or the root's min_free, has no room
	Quota                 Code = "QUOTA"                  // the root's quota or the user's disk quota is used up
	ChecksumMismatch      Code = "CHECKSUM_MISMATCH"      // bytes at the destination differ from the sender's CRC
	PathOutsideRoot       Code = "PATH_OUTSIDE_ROOT"      // the path leaves its root, or names no configured root
	UnsupportedFileType   Code = "UNSUPPORTED_FILE_TYPE"  // not a type of file that can be moved (FIFO, socket, device)
	NameTooLong           Code = "NAME_TOO_LONG"          // a name or the whole path is longer than the file system takes
	SameFile              Code = "SAME_FILE"              // source and destination are one file
	PeerUnreachable       Code = "PEER_UNREACHABLE"       // no control connection or no common rail
	PeerRefused           Code = "PEER_REFUSED"           // the peer answered and declined for now (no free share, draining)
	TransportError        Code = "TRANSPORT_ERROR"        // a work completion with an error, or a lost session
	Stalled               Code = "STALLED"                // no progress for stall_after
	Deadline              Code = "DEADLINE"               // the job's deadline passed
	Canceled              Code = "CANCELED"               // someone canceled the job
	IOError               Code = "IO_ERROR"               // a read, write or fsync failed
	UnsupportedFilesystem Code = "UNSUPPORTED_FILESYSTEM" // the file system cannot publish a name without a race
	DestNotFound          Code = "DEST_NOT_FOUND"         // the destination buffer, or the directory it needs, does not exist
	BufferBusy            Code = "BUFFER_BUSY"            // another transfer leases the buffer's range
	NotAuthorized         Code = "NOT_AUTHORIZED"         // the token, the root or the peer's list does not allow it
	Internal              Code = "INTERNAL"               // a defect in this program
)

// decision is whether trying again, with nothing changed by a person, can
// help. Its zero value is "undecided", so that a code added to the table
// without a decision fails the table test instead of becoming "no".
type decision uint8

const (
	undecided decision = iota
	retry              // the job returns to queued, with back-off
	final              // the job ends
)

// row is one reason: its number in binary records and protobuf, and whether
// it is retryable.
type row struct {
	code Code
	wire uint16
	when decision
}

// table is the closed list. The wire numbers travel between nodes of different
// versions and are kept in journals: NEVER renumber, never reuse; append only.
// 0 is reserved for "no reason", so that a zeroed record is not a reason.
var table = [...]row{
	{SourceNotFound, 1, final},
	{SourceChanged, 2, retry},
	{PermissionDenied, 3, final},
	{DestExists, 4, final},
	{NoSpace, 5, final},
	{Quota, 6, final},
	{ChecksumMismatch, 7, retry},
	{PathOutsideRoot, 8, final},
	{UnsupportedFileType, 9, final},
	{NameTooLong, 10, final},
	{SameFile, 11, final},
	{PeerUnreachable, 12, retry},
	{PeerRefused, 13, retry},
	{TransportError, 14, retry},
	{Stalled, 15, retry},
	{Deadline, 16, final},
	{Canceled, 17, final},
	{IOError, 18, final},
	{UnsupportedFilesystem, 19, final},
	{DestNotFound, 20, final},
	{BufferBusy, 21, retry},
	{NotAuthorized, 22, final},
	{Internal, 23, final},
}

// find returns the row of c. The list is short and no caller is on a data
// path, so a linear search needs no second table that could disagree.
func find(c Code) (row, bool) {
	for _, r := range table {
		if r.code == c {
			return r, true
		}
	}
	return row{}, false
}

// Valid reports whether c is in the closed list. Anything from a peer, a
// client or a database is checked with it before it is shown or stored.
func (c Code) Valid() bool {
	_, ok := find(c)
	return ok
}

// Retryable reports whether an attempt that ended with c may be tried again
// with back-off. It is false for a code that is not Valid.
func (c Code) Retryable() bool {
	r, ok := find(c)
	return ok && r.when == retry
}

// Wire returns c's number in binary records and protobuf messages. The empty
// code, "no reason", is 0. A code outside the list is a defect of the caller
// and travels as INTERNAL, so that the failure it stood for is not lost.
func (c Code) Wire() uint16 {
	if c == "" {
		return 0
	}
	if r, ok := find(c); ok {
		return r.wire
	}
	r, _ := find(Internal)
	return r.wire
}

// FromWire returns the code with the number n. It reports false for 0 and for
// numbers this version does not know, which a newer peer may send: treat the
// latter as INTERNAL and show the number.
func FromWire(n uint16) (Code, bool) {
	for _, r := range table {
		if r.wire == n {
			return r.code, true
		}
	}
	return "", false
}

// All returns every code, in the order of the wire numbers. The slice is the
// caller's own.
func All() []Code {
	codes := make([]Code, len(table))
	for i, r := range table {
		codes[i] = r.code
	}
	return codes
}
