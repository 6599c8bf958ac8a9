package node

import (
	"context"

	"mover/engine"
	"mover/fileio"
	"mover/job"
	"mover/reason"
)

// file carries out an attempt at a single file.
func (sh *shipping) file(ctx context.Context, root *fileio.Root) (job.Result, error) {
	src, err := root.OpenSource(sh.spec.Source.Sub())
	if err != nil {
		return job.Result{}, err
	}
	defer src.Close()
	if err := sh.notItself(src); err != nil {
		return job.Result{}, err
	}
	sh.attempt.Progress.SetTotal(src.Size(), 1)
	m, err := sh.manifest(ctx, src)
	if err != nil {
		return job.Result{}, err
	}
	if d := sh.spec.Destination; d.Buffer != "" {
		if err := intoBuffer(&m, d, src.Size()); err != nil {
			return job.Result{}, err
		}
	} else {
		m.Root, m.Path = d.Root(), []byte(d.Sub())
	}
	item, err := sh.item(m, &checkedFile{src, &sh.spec})
	if err != nil {
		return job.Result{}, err
	}
	r := sh.sendOne(ctx, item)
	if r.Err != nil {
		return job.Result{}, r.Err
	}
	return sh.result(r)
}

// notItself refuses a local copy onto the source, by whatever name.
func (sh *shipping) notItself(src *fileio.Source) error {
	if !sh.local || sh.spec.Destination.Buffer != "" {
		return nil
	}
	to, err := sh.roots.writable(sh.spec.Destination.Root(), sh.cfg.Node.Name)
	if err != nil {
		return err
	}
	return fileio.SameFile(src, to, sh.spec.Destination.Sub())
}

// manifest describes a file; where it goes is added by the caller.
func (sh *shipping) manifest(ctx context.Context, src *fileio.Source) (job.Manifest, error) {
	m := job.Manifest{
		Job: sh.attempt.Job.ID, Attempt: uint32(sh.attempt.Number), Owner: sh.attempt.Job.Owner,
		SourceNode: sh.cfg.Node.Name, SourceRoot: sh.spec.Source.Root(),
		Overwrite: sh.spec.Overwrite, Durable: sh.durable(), Preserve: sh.spec.Preserve, Compare: sh.spec.Compare,
		Mode: uint32(src.Mode().Perm()), MtimeNS: job.MtimeNS(src.MTime()), Size: src.Size(),
	}
	if sh.spec.Preserves(job.PreserveOwner) {
		uid, gid := src.Owner()
		m.UID, m.GID = uint32(uid), uint32(gid)
	}
	if sh.spec.Preserves(job.PreserveXattrs) {
		list, err := src.Xattrs()
		if err != nil {
			return m, err
		}
		if err := xattrsTravel(list); err != nil {
			return m, err
		}
		m.Xattrs = jobXattrs(list)
	}
	if sh.spec.Compare == job.CompareCRC {
		crc, err := checksumFile(ctx, src)
		if err != nil {
			return m, err
		}
		m.CRC32C = job.FormatCRC32C(crc)
	}
	return m, nil
}

// checksumFile reads a whole file.
func checksumFile(ctx context.Context, src *fileio.Source) (crc uint32, err error) {
	buf := blocks.Get().(*block)
	if buf == nil {
		return 0, reason.New(reason.Internal, "no memory for a checksum")
	}
	defer blocks.Put(buf)
	for at := int64(0); at < src.Size(); at += localBytes {
		if err := ctxReason(ctx); err != nil {
			return 0, err
		}
		p := buf.bytes[:min(localBytes, src.Size()-at)]
		if _, err := src.ReadAt(p, at); err != nil {
			return 0, err
		}
		crc = sum(crc, p)
	}
	return crc, nil
}

// item describes a file, or a range that goes the way of a file, to the engine.
func (sh *shipping) item(m job.Manifest, src engine.Source) (*engine.Item, error) {
	meta, err := m.Encode()
	if err != nil {
		return nil, reason.New(reason.Internal, "%w", err)
	}
	return &engine.Item{Attempt: m.Attempt, Kind: engine.Staged, Bytes: m.Size, Verify: sh.verify(), Meta: meta, Source: src}, nil
}

// checkedFile adds to a file what the job expects of it.
type checkedFile struct {
	*fileio.Source
	spec *job.Spec
}

// Verify implements engine.Source.
func (s *checkedFile) Verify(crc uint32) error {
	if err := s.Source.Verify(); err != nil {
		return err
	}
	return checkExpected(s.spec, crc)
}

// jobXattrs are a file's extended attributes as they travel.
func jobXattrs(in []fileio.Xattr) []job.Xattr {
	var out []job.Xattr
	for _, x := range in {
		out = append(out, job.Xattr(x))
	}
	return out
}
