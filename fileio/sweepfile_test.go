package fileio

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var t0 time.Time

// fileTransfer moves one file of three chunks.
func fileTransfer(name, source string, spec CreateSpec, old []byte, prepare func(dir string)) transfer {
	content := must1(os.ReadFile(filepath.Join(source, "f")))
	spec.Size, spec.Job = int64(len(content)), "job"
	spec.Preserve, spec.Mode, spec.MTime = spec.Preserve|PreserveMode|PreserveMTime, 0o640, time.Unix(1_700_000_000, 5)
	spec.CRC = crc32c(0, content)
	e := expect{rel: spec.Rel, content: content, old: old, mode: 0o640, mtime: spec.MTime}
	if spec.Overwrite == OverwriteSkip && old != nil {
		e.content, e.mode, e.mtime = old, 0o644, t0
	}
	return transfer{name: name, durable: spec.Durable, entries: []expect{e},
		prepare: func(dir string) {
			if old != nil {
				full := filepath.Join(dir, spec.Rel)
				must(os.MkdirAll(filepath.Dir(full), 0o755))
				must(os.WriteFile(full, old, 0o644))
				must(os.Chtimes(full, t0, time.Unix(1_600_000_000, 7)))
			}
			if prepare != nil {
				prepare(dir)
			}
		},
		run: func(a attempt) []result {
			if a.published[spec.Rel] {
				return []result{{done: true}}
			}
			return []result{moveFile(source, a, spec)}
		},
		recover: func(r *Root, known records) []string {
			n, ok := known[spec.Rel]
			if !ok {
				return nil
			}
			if there := must1(r.Published(spec.Rel, n.Inode, n.Size, spec.Durable)); !there {
				return nil
			}
			return []string{spec.Rel}
		},
	}
}

// moveFile is what the two nodes do for a file: read, checksum, write, verify,
// publish. The source's calls go wrong like the destination's.
func moveFile(source string, a attempt, spec CreateSpec) result {
	ctx := context.Background()
	spec.Attempt = a.number
	from := rootOn(source, a.root.k)
	defer from.Close()
	src, err := from.OpenSource("f")
	if err != nil {
		return result{err: err}
	}
	defer src.Close()
	dst, err := a.root.Create(ctx, spec)
	if err != nil {
		return ending(err)
	}
	defer dst.Discard()
	const chunk = 4096
	buf := make([]byte, chunk)
	for _, off := range []int64{chunk, 0, 2 * chunk} {
		p := buf[:min(chunk, spec.Size-off)]
		if _, err := src.ReadAt(p, off); err != nil {
			return result{err: err}
		}
		if _, err := dst.WriteAt(p, off); err != nil {
			return result{err: err}
		}
	}
	if err := src.Verify(); err != nil {
		return result{err: err}
	}
	a.records[spec.Rel] = NameInode{Rel: spec.Rel, Inode: dst.Inode(), Size: spec.Size}
	err = dst.Publish(ctx)
	if err != nil && !dst.Published() && a.alive() {
		delete(a.records, spec.Rel) // as the node does
	}
	return ending(err)
}

// ending is a result: that the policy keeps what is there is one, too.
func ending(err error) result {
	if err == nil || errors.Is(err, ErrSkipped) {
		return result{done: true}
	}
	return result{err: err}
}

// fileTransfers are one of each overwrite policy and surrounding.
func fileTransfers(t *testing.T) []transfer {
	source := t.TempDir()
	content := noise(t, 2*4096+1000, 1)
	must(os.WriteFile(filepath.Join(source, "f"), content, 0o644))
	older := noise(t, 5000, 2)
	sameSize := noise(t, len(content), 3)
	dressed := CreateSpec{Rel: "a/f", Durable: true, Preserve: PreserveOwner, UID: os.Getuid(), GID: os.Getgid()}
	if probe := filepath.Join(sweepDir(), fmt.Sprintf("mover-xattr-%d", os.Getpid())); os.WriteFile(probe, nil, 0o600) == nil {
		if unix.Setxattr(probe, "user.probe", []byte("1"), 0) == nil {
			dressed.Preserve, dressed.Xattrs = dressed.Preserve|PreserveXattrs, []Xattr{{Name: "user.a", Value: []byte("1")}}
		}
		must(os.Remove(probe))
	}
	limited := fileTransfer("with a quota, an owner and attributes", source, dressed, nil, nil)
	limited.quota = 1 << 20
	return []transfer{
		limited,
		fileTransfer("into new directories", source, CreateSpec{Rel: "a/b/f", Durable: true}, nil, nil),
		fileTransfer("into an empty root", source, CreateSpec{Rel: "f", Durable: true}, nil, nil),
		fileTransfer("always over a file", source, CreateSpec{Rel: "a/f", Durable: true, Overwrite: OverwriteAlways}, older, nil),
		fileTransfer("if_newer over a file", source, CreateSpec{Rel: "f", Durable: true, Overwrite: OverwriteIfNewer}, older, nil),
		fileTransfer("if_different by time", source, CreateSpec{Rel: "f", Durable: true, Overwrite: OverwriteIfDifferent}, sameSize, nil),
		fileTransfer("if_different by checksum", source, CreateSpec{Rel: "f", Durable: true, Overwrite: OverwriteIfDifferent, Sum: crc32c}, sameSize, nil),
		fileTransfer("skip without a file", source, CreateSpec{Rel: "f", Durable: true, Overwrite: OverwriteSkip}, nil, nil),
		fileTransfer("skip over a file", source, CreateSpec{Rel: "f", Durable: true, Overwrite: OverwriteSkip}, older, nil),
		fileTransfer("not durable", source, CreateSpec{Rel: "a/f"}, nil, nil),
		fileTransfer("not durable over a file", source, CreateSpec{Rel: "f", Overwrite: OverwriteAlways}, older, nil),
	}
}

func TestSweepFile(t *testing.T) { sweepAllOf(t, fileTransfers(t), 1) }
