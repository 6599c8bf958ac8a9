package fileio

import (
	"context"

	"golang.org/x/sys/unix"
)

// compareBytes is how much of an existing file is read at a time.
const compareBytes = 256 << 10

// comparison remembers an answer of compare for as long as the file is the same, so that
// the last look before a rename does not read it again.
type comparison struct {
	id           identity
	size         int64
	mtime, ctime unix.Timespec
	known, same  bool
}

// compare reports whether the existing file st has the draft's size and
// checksum, for which it may read all of it.
func (d *draft) compare(ctx context.Context, st unix.Stat_t) (bool, error) {
	if st.Size != d.size {
		return false, nil
	}
	c := comparison{id: identityOf(st), size: st.Size, mtime: st.Mtim, ctime: st.Ctim, known: true}
	if was := d.compared; was.known {
		c.same = was.same
		if c == was {
			return was.same, nil
		}
	}
	fd, err := d.k.openat(d.dirFD, d.name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return false, d.failure("open for comparison", err)
	}
	defer d.k.close(fd)
	// Replaced since it was looked at: then it is no file that was asked about,
	// and the last look will find the new one.
	if now, err := d.k.fstat(fd); err != nil || identityOf(now) != c.id {
		return false, nil
	}
	sum := uint32(0)
	p := make([]byte, min(compareBytes, max(st.Size, 1)))
	for off := int64(0); off < st.Size; {
		if err := ctx.Err(); err != nil {
			return false, d.failure("compare", err)
		}
		n, err := d.k.pread(fd, p[:min(int64(len(p)), st.Size-off)], off)
		if err != nil {
			return false, d.failure("read for comparison", err)
		}
		if n == 0 {
			return false, nil
		}
		sum = d.sum(sum, p[:n])
		off += int64(n)
	}
	c.same = sum == d.crc
	d.compared = c
	return c.same, nil
}
