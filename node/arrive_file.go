package node

import (
	"context"
	"errors"

	"mover/engine"
	"mover/fileio"
	"mover/job"
)

// fileArrival is a file below a root.
type fileArrival struct {
	journal  *journal
	entry    entry
	manifest job.Manifest
	sink     *fileio.Sink
	inflow   *job.Inflow
}

func (r *receiver) arriveFile(ctx context.Context, in *inbound, o offered) (arrival, []byte, error) {
	root, err := r.node.roots.writable(o.Root, r.peer)
	if err != nil {
		return nil, nil, err
	}
	spec, err := createSpec(&o.Manifest)
	if err != nil {
		return nil, nil, err
	}
	a := &fileArrival{journal: r.node.journal, entry: newEntry(in.key, &o.Manifest), manifest: o.Manifest, inflow: in.inflow}
	a.journal.put(a.entry)
	a.sink, err = root.Create(ctx, spec)
	if errors.Is(err, fileio.ErrSkipped) {
		meta, err := job.DoneMeta{Skipped: true}.Encode()
		return nil, meta, err
	}
	return a, nil, err
}

func (a *fileArrival) target() engine.Target {
	return engine.Target{Sink: countedFile{countedSink{a.sink, a.inflow}, a.sink}}
}

// countedFile can also be read back.
type countedFile struct {
	countedSink
	file *fileio.Sink
}

// ReadAt reads what was written.
func (c countedFile) ReadAt(p []byte, offset int64) (int, error) { return c.file.ReadAt(p, offset) }

func (a *fileArrival) publish(ctx context.Context, crc uint32, verified bool) ([]byte, error) {
	done := job.DoneMeta{Bytes: a.manifest.Size, Durable: a.manifest.Durable, Verified: verified}
	if verified {
		done.CRC32C = job.FormatCRC32C(crc)
	}
	meta, err := done.Encode()
	if err != nil {
		return nil, err
	}
	// Before the name appears: from then on a killed process must be able to
	// say that the file is this item's.
	a.entry.Done, a.entry.Inode = meta, a.sink.Inode()
	a.journal.put(a.entry)
	err = a.sink.Publish(ctx)
	if errors.Is(err, fileio.ErrSkipped) {
		return job.DoneMeta{Skipped: true}.Encode()
	}
	return meta, err
}

func (a *fileArrival) discard() error { return a.sink.Discard() }

func (a *fileArrival) lasting() bool { return a.sink.Published() }
