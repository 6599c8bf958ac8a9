package node

import (
	"context"
	"fmt"

	"mover/buffer"
	"mover/engine"
	"mover/job"
	"mover/reason"
)

// bufferArrival is a range of a buffer, leased for the attempt. It may be
// seen while it is written: a buffer has no name to give at the end, but its
// generation changes.
type bufferArrival struct {
	lease  *buffer.Lease
	memory []byte // Direct
	inflow *job.Inflow
}

func (r *receiver) arriveInBuffer(in *inbound, o offered, kind engine.ItemKind) (_ arrival, _ []byte, err error) {
	if err := r.node.buffers.Writable(o.Buffer, r.peer); err != nil {
		return nil, nil, err
	}
	lease, err := r.node.buffers.Lease(buffer.LeaseRequest{Name: o.Buffer, Offset: o.Offset, Length: o.Size, Exclusive: true,
		Holder: "job:" + o.Job.String()})
	if err != nil {
		return nil, nil, err
	}
	a := &bufferArrival{lease: lease, inflow: in.inflow}
	if err := lease.Dirty(); err != nil {
		lease.Release()
		return nil, nil, err
	}
	if kind == engine.Direct && o.Size > 0 {
		if a.memory, err = lease.Pages(); err != nil {
			lease.Release()
			return nil, nil, reason.New(reason.PeerRefused, "%w; the source should have sent it another way", err)
		}
	}
	return a, nil, nil
}

func (a *bufferArrival) target() engine.Target {
	if a.memory != nil {
		return engine.Target{Memory: a.memory}
	}
	return engine.Target{Sink: countedSink{a.lease, a.inflow}}
}

func (a *bufferArrival) publish(_ context.Context, crc uint32, verified bool) ([]byte, error) {
	done := job.DoneMeta{Bytes: a.lease.Info().Length, Verified: verified}
	if verified {
		done.CRC32C = job.FormatCRC32C(crc)
	}
	meta, err := done.Encode()
	if err != nil {
		return nil, fmt.Errorf("describe the buffer: %w", err)
	}
	if a.memory != nil {
		a.inflow.Add(a.lease.Info().Length)
	}
	a.lease.Release()
	return meta, nil
}

func (a *bufferArrival) discard() error {
	a.lease.Release()
	return nil
}

func (a *bufferArrival) lasting() bool { return false }
