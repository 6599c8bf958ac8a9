package fileio

import "mover/reason"

// GroupSource presents the bytes of many small files one after the other, as
// one engine item reads them. It holds one descriptor, of the base directory;
// files are opened inside ReadAt and closed at once. ReadAt may be called by
// several goroutines, which wait for each other, Close at any time.
type GroupSource struct{}

// OpenGroup takes the entries of a group as a walk of base found them. Entries
// that are no files have no bytes: they may be in the list, so that its indices
// are those of the group's description. sum, unless nil, continues a checksum
// over more bytes, beginning with 0 (as hash/crc32.Update does), and is
// called on each file's bytes while they are in the cache; see CRC.
//
// Nothing but base is opened here. Errors: those of opening a directory,
// INTERNAL for a malformed entry.
func (r *Root) OpenGroup(base string, entries []Entry, sum func(sum uint32, p []byte) uint32) (*GroupSource, error) {
	return nil, reason.New(reason.Internal, "open a group in %q: not in this build", base)
}

// Size is the sum of the files' sizes, in bytes.
func (g *GroupSource) Size() int64 { return 0 }

// ReadAt fills p with the bytes at off of all files in a row. A file that is not
// what the entry says any more, or cannot be read, fails: ReadAt goes on with
// the others in the range, so that Failed knows them all, and then returns how
// many bytes before the first failed one are good, and its error. A failed file
// stays failed. Ranges may be read again.
func (g *GroupSource) ReadAt(p []byte, off int64) (int, error) { return 0, nil }

// Verify looks at every file again by its name, after the last read, and
// returns the first error of those that failed now or before: SOURCE_CHANGED
// for another size, modification time or inode, or none at all.
func (g *GroupSource) Verify() error { return nil }

// Failed lists the entries that failed so far, by index.
func (g *GroupSource) Failed() []EntryError { return nil }

// CRC returns the checksum of entry i, and false if it was not read whole, in
// ascending pieces, or there is no sum.
func (g *GroupSource) CRC(i int) (uint32, bool) { return 0, false }

// Close releases the base directory once reads in progress have returned, for
// which it does not wait.
func (g *GroupSource) Close() {}
