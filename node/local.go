package node

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"golang.org/x/sys/unix"

	"mover/engine"
	"mover/fileio"
	"mover/job"
	"mover/reason"
)

// localBytes is how much a copy within the node reads at a time.
const localBytes = 1 << 20

// copyLocally carries out an attempt whose source and destination are both
// here: no session, the same rules and the same publication.
func (n *Node) copyLocally(ctx context.Context, a *job.Attempt) (job.Result, error) {
	spec := a.Job.Spec
	from, err := n.roots.readable(spec.Source.Root(), n.cfg.Node.Name)
	if err != nil {
		return job.Result{}, err
	}
	to, err := n.roots.writable(spec.Destination.Root(), n.cfg.Node.Name)
	if err != nil {
		return job.Result{}, err
	}
	src, err := from.OpenSource(spec.Source.Sub())
	if err != nil {
		return job.Result{}, err
	}
	defer src.Close()
	if err := fileio.SameFile(src, to, spec.Destination.Sub()); err != nil {
		return job.Result{}, err
	}
	a.Progress.SetTotal(src.Size(), 1)
	item, err := n.item(a, src)
	if err != nil {
		return job.Result{}, err
	}
	m, err := job.DecodeManifest(item.Meta)
	if err != nil {
		return job.Result{}, reason.New(reason.Internal, "%v", err)
	}
	create, err := createSpec(m)
	if err != nil {
		return job.Result{}, err
	}
	e := newEntry(n.cfg.Node.Name, m)
	n.journal.put(e)
	defer n.journal.remove(e.key())
	sink, err := to.Create(ctx, create)
	if errors.Is(err, fileio.ErrSkipped) {
		return job.Result{Skipped: true, Providers: []string{"local"}}, nil
	}
	if err != nil {
		return job.Result{}, err
	}
	defer func() { _ = sink.Discard() }() // nothing after a Publish
	a.Phase(job.Running)
	crc, err := copyBytes(ctx, a, src, sink, item.Verify)
	if err != nil {
		return job.Result{}, err
	}
	a.Phase(job.Verifying)
	if err := item.Source.Verify(crc); err != nil {
		return job.Result{}, err
	}
	a.Phase(job.Publishing)
	if err := sink.Publish(ctx); errors.Is(err, fileio.ErrSkipped) {
		return job.Result{Skipped: true, Providers: []string{"local"}}, nil
	} else if err != nil {
		return job.Result{}, err
	}
	a.Progress.AddItems(1)
	r := job.Result{Bytes: src.Size(), Durable: m.Durable, Verified: item.Verify, Providers: []string{"local"}}
	if item.Verify {
		r.CRC32C = job.FormatCRC32C(crc)
	}
	return r, nil
}

// createSpec is what a manifest asks of the file system.
func createSpec(m job.Manifest) (fileio.CreateSpec, error) {
	spec := fileio.CreateSpec{
		Rel: string(m.Path), Size: m.Size, Job: m.Job.String(), Item: uint64(m.Item), Attempt: m.Attempt,
		Durable: m.Durable, Mode: fs.FileMode(m.Mode), MTime: time.Unix(0, m.MtimeNS),
	}
	var err error
	if spec.Overwrite, err = fileio.ParseOverwrite(m.Overwrite); err != nil {
		return spec, err
	}
	if m.Preserves(job.PreserveMode) {
		spec.Preserve |= fileio.PreserveMode
	}
	if m.Preserves(job.PreserveMtime) {
		spec.Preserve |= fileio.PreserveMTime
	}
	return spec, nil
}

// copyBytes copies and checksums. With verify, what was written is read back
// and compared before it is published.
func copyBytes(ctx context.Context, a *job.Attempt, src *fileio.Source, sink *fileio.Sink, verify bool) (crc uint32, err error) {
	// Page aligned and not in the Go heap, for O_DIRECT.
	buf, err := unix.Mmap(-1, 0, localBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return 0, reason.New(reason.Internal, "no memory for the copy: %v", err)
	}
	defer func() { _ = unix.Munmap(buf) }()
	var whole engine.Whole
	for at := int64(0); at < src.Size(); at += localBytes {
		if err := ctx.Err(); err != nil {
			return 0, asReason(context.Cause(ctx))
		}
		p := buf[:min(localBytes, src.Size()-at)]
		if _, err := src.ReadAt(p, at); err != nil {
			return 0, err
		}
		sum := engine.Checksum(p)
		if _, err := sink.WriteAt(p, at); err != nil {
			return 0, err
		}
		if verify {
			if _, err := sink.ReadAt(p, at); err != nil {
				return 0, err
			}
			if back := engine.Checksum(p); back != sum {
				return 0, reason.New(reason.ChecksumMismatch, "bytes %d..%d read back with CRC32C %08x, written with %08x", at, at+int64(len(p)), back, sum)
			}
		}
		whole.Append(sum, int64(len(p)))
		a.Progress.Add(int64(len(p)))
	}
	return whole.CRC, nil
}
