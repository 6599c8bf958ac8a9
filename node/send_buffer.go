package node

import (
	"context"
	"errors"

	"mover/buffer"
	"mover/engine"
	"mover/job"
	"mover/reason"
)

// buffer carries out an attempt at a range of a buffer.
func (sh *shipping) buffer(ctx context.Context) (job.Result, error) {
	src, dst := sh.spec.Source, sh.spec.Destination
	if err := sh.buffers.Readable(src.Buffer, dst.Node); err != nil {
		return job.Result{}, err
	}
	offset, length, err := sh.rangeOf(src)
	if err != nil {
		return job.Result{}, err
	}
	if err := sh.apart(offset, length); err != nil {
		return job.Result{}, err
	}
	lease, err := sh.buffers.Lease(buffer.LeaseRequest{Name: src.Buffer, Offset: offset, Length: length, Holder: "job:" + sh.attempt.Job.ID.String()})
	if err != nil {
		return job.Result{}, err
	}
	defer lease.Release()
	sh.attempt.Progress.SetTotal(length, 1)
	m := job.Manifest{
		Job: sh.attempt.Job.ID, Attempt: uint32(sh.attempt.Number), Owner: sh.attempt.Job.Owner, SourceNode: sh.cfg.Node.Name,
		SourceBuffer: src.Buffer, Overwrite: sh.spec.Overwrite, Durable: sh.durable(), Size: length,
	}
	if dst.Buffer == "" {
		m.Root, m.Path = dst.Root(), []byte(dst.Sub())
	} else if err := intoBuffer(&m, dst, length); err != nil {
		return job.Result{}, err
	}
	item, err := sh.item(m, &checkedRange{lease, &sh.spec})
	if err != nil {
		return job.Result{}, err
	}
	if memory, err := lease.Pages(); err == nil && length > 0 && mayGoDirect(&m) {
		// Memory to memory: nobody copies.
		item.Kind, item.Memory, item.Source = engine.Direct, memory, nil
		if err := expectRange(lease, &sh.spec); err != nil {
			return job.Result{}, err
		}
	}
	r := sh.sendOne(ctx, item)
	if r.Err != nil {
		return job.Result{}, r.Err
	}
	return sh.result(r)
}

// apart refuses a copy from a range of a buffer to one that overlaps it. The
// leases would refuse it too, as if another transfer had the range and would
// release it.
func (sh *shipping) apart(offset, length int64) error {
	src, dst := sh.spec.Source, sh.spec.Destination
	if !sh.local || dst.Buffer != src.Buffer {
		return nil
	}
	to := int64(0)
	if dst.Offset != nil {
		to = int64(*dst.Offset)
	}
	if distance := max(to-offset, offset-to); distance >= length {
		return nil
	}
	return reason.New(reason.SameFile, "the ranges at %d and %d of buffer %s overlap, which are to have %d bytes each; choose ranges apart", offset, to, src.Buffer, length)
}

// expectRange compares a range with what the job expects of it before it goes:
// at the end of a direct transfer the destination has it already.
func expectRange(lease *buffer.Lease, spec *job.Spec) error {
	if _, ok := spec.ExpectedCRC32C(); !ok {
		return nil
	}
	crc, err := lease.Checksum()
	if err != nil {
		return err
	}
	return checkExpected(spec, crc)
}

// rangeOf is the range of a source, whose length may be left out.
func (sh *shipping) rangeOf(p job.Place) (offset, length int64, err error) {
	if p.Offset != nil {
		offset = int64(*p.Offset)
	}
	if p.Length != nil {
		return offset, int64(*p.Length), nil
	}
	info, err := sh.buffers.Get(p.Buffer)
	if err != nil {
		return 0, 0, reason.New(reason.SourceNotFound, "%w", err)
	}
	return offset, max(info.Bytes-offset, 0), nil
}

// intoBuffer says in a manifest which range of a buffer it is for.
func intoBuffer(m *job.Manifest, to job.Place, bytes int64) error {
	m.Buffer, m.Overwrite, m.Durable, m.Preserve, m.Compare = to.Buffer, job.OverwriteAlways, false, nil, ""
	if to.Offset != nil {
		m.Offset = int64(*to.Offset)
	}
	if to.Length != nil && int64(*to.Length) != bytes {
		return &reason.Error{Code: reason.NoSpace, Detail: "the source has another length than destination.length; leave it out, or make them equal",
			Err: errors.New("lengths differ")}
	}
	return nil
}

// pageBytes is what a direct transfer into a buffer begins with, and ends with
// unless the buffer ends there: the destination may be written to in whole
// pages alone, of which no other transfer has a part.
const pageBytes = 4096

// mayGoDirect reports whether the destination can take the range as memory. A
// range that ends in the middle of a page might end with its buffer, but only
// the destination knows.
func mayGoDirect(m *job.Manifest) bool {
	return m.Buffer != "" && m.Offset%pageBytes == 0 && m.Size%pageBytes == 0
}

// checkedRange adds to a range what the job expects of it.
type checkedRange struct {
	*buffer.Lease
	spec *job.Spec
}

// Verify implements engine.Source.
func (s *checkedRange) Verify(crc uint32) error {
	if err := s.Lease.Verify(crc); err != nil {
		return err
	}
	return checkExpected(s.spec, crc)
}
