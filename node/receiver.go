package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"mover/engine"
	"mover/fileio"
	"mover/job"
	"mover/peer"
	"mover/reason"
)

// receiver decides on the items that one peer offers, as files below this
// node's roots. It implements engine.Receiver: every call returns at once and
// is answered from a goroutine of its own, for a file system may hang.
type receiver struct {
	node *Node
	peer peer.PeerInfo
}

// inbound is an item that is being received.
type inbound struct {
	key      itemKey
	manifest job.Manifest
	sink     *fileio.Sink
	inflow   *job.Inflow
	over     chan struct{} // closed once it is published or discarded
}

// countedSink tells the receiving list how far an item is.
type countedSink struct {
	sink   *fileio.Sink
	inflow *job.Inflow
}

// WriteAt implements engine.Sink.
func (c *countedSink) WriteAt(p []byte, offset int64) (int, error) {
	n, err := c.sink.WriteAt(p, offset)
	c.inflow.Add(int64(n))
	return n, err
}

// Open implements engine.Receiver.
func (r *receiver) Open(s *engine.Session, ref engine.ItemRef, offer *engine.ItemOffer) {
	go func() {
		target, published, meta, err := r.open(ref, offer)
		s.Opened(ref, target, published, meta, refusal(err))
	}()
}

func (r *receiver) open(ref engine.ItemRef, offer *engine.ItemOffer) (target *engine.Target, published bool, meta []byte, err error) {
	if offer.Kind != engine.Staged {
		return nil, false, nil, reason.New(reason.DestNotFound, "this node has no buffer for memory sent directly")
	}
	m, err := job.DecodeManifest(offer.Meta)
	if err != nil {
		return nil, false, nil, reason.New(reason.PeerRefused, "%v", err)
	}
	if m.SourceNode != r.peer.Name || m.Size != offer.Bytes || m.Attempt != ref.Attempt {
		return nil, false, nil, reason.New(reason.NotAuthorized, "the item's description contradicts its offer or its node")
	}
	root, err := r.node.roots.writable(m.Root, r.peer.Name)
	if err != nil {
		return nil, false, nil, err
	}
	in := &inbound{key: itemKey{peer: r.peer.Name, job: m.Job, item: m.Item}, manifest: m, over: make(chan struct{})}
	meta, err = r.node.inbounds.begin(in, r.node.cfg.Jobs.StallAfter)
	if err != nil || meta != nil {
		return nil, meta != nil, meta, err
	}
	defer func() {
		if err != nil || published {
			r.end(in, meta, err)
		}
	}()
	if in.inflow, err = r.node.receiving.Begin(r.node.cfg.Node.Name, r.peer.Name, m); err != nil {
		return nil, false, nil, reason.New(reason.PeerRefused, "%v", err)
	}
	spec, err := createSpec(m)
	if err != nil {
		return nil, false, nil, err
	}
	r.node.journal.put(newEntry(r.peer.Name, m))
	ctx, cancel := context.WithTimeout(context.Background(), r.node.cfg.Jobs.StallAfter)
	defer cancel()
	in.sink, err = root.Create(ctx, spec)
	if errors.Is(err, fileio.ErrSkipped) {
		meta, err = job.DoneMeta{Skipped: true}.Encode()
		return nil, err == nil, meta, err
	}
	if err != nil {
		return nil, false, nil, err
	}
	in.inflow.Phase(job.Running)
	return &engine.Target{Sink: &countedSink{in.sink, in.inflow}, Handle: in}, false, nil, nil
}

// Publish implements engine.Receiver.
func (r *receiver) Publish(s *engine.Session, ref engine.ItemRef, target *engine.Target, crc uint32, verified bool) {
	go func() {
		in := target.Handle.(*inbound)
		meta, err := r.publish(in, crc, verified)
		if err == nil {
			r.end(in, meta, nil)
		}
		s.Published(ref, meta, asReason(err))
	}()
}

func (r *receiver) publish(in *inbound, crc uint32, verified bool) ([]byte, error) {
	in.inflow.Phase(job.Verifying)
	in.inflow.Phase(job.Publishing)
	ctx, cancel := context.WithTimeout(context.Background(), publishTimeout)
	defer cancel()
	done := job.DoneMeta{Bytes: in.manifest.Size, Durable: in.manifest.Durable, Verified: verified}
	if verified {
		done.CRC32C = job.FormatCRC32C(crc)
	}
	meta, err := done.Encode()
	if err != nil {
		return nil, err
	}
	// Before the name appears: from then on a killed process must be able to
	// say that the file is this item's.
	e := newEntry(r.peer.Name, in.manifest)
	e.Done, e.Inode = meta, in.sink.Inode()
	r.node.journal.put(e)
	if err := in.sink.Publish(ctx); errors.Is(err, fileio.ErrSkipped) {
		return job.DoneMeta{Skipped: true}.Encode()
	} else if err != nil {
		return nil, err
	}
	return meta, nil
}

// publishTimeout bounds a publication's wait for writes in progress; the sync
// itself takes as long as the disk does.
const publishTimeout = time.Minute

// Discard implements engine.Receiver.
func (r *receiver) Discard(s *engine.Session, ref engine.ItemRef, target *engine.Target, why *reason.Error) {
	go func() {
		in := target.Handle.(*inbound)
		if err := in.sink.Discard(); err != nil {
			r.node.log.Warn("a partial file could not be removed", "error", err)
		}
		r.end(in, nil, fmt.Errorf("discarded: %w", why))
		s.Discarded(ref)
	}()
}

// end forgets an item, or remembers that it was published.
func (r *receiver) end(in *inbound, meta []byte, err error) {
	if in.inflow != nil {
		in.inflow.End(err)
	}
	if err != nil {
		meta = nil
	}
	// The record goes before the item can be begun again, and that of a
	// published file stays as long as the file is remembered.
	if meta == nil || in.sink == nil || !in.sink.Published() {
		r.node.journal.remove(in.key)
	}
	if forgotten := r.node.inbounds.end(in, meta); forgotten != nil {
		r.node.journal.remove(*forgotten)
	}
}

// refusal is asReason for a file that could not be begun. A process without
// descriptors has no room for now, and the sender should try again.
func refusal(err error) *reason.Error {
	if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
		return reason.New(reason.PeerRefused, "%w; raise the limit of open files (LimitNOFILE, ulimit -n) at the destination", err)
	}
	return asReason(err)
}

// asReason gives every failure a reason.
func asReason(err error) *reason.Error {
	if err == nil {
		return nil
	}
	var r *reason.Error
	if errors.As(err, &r) {
		return r
	}
	return &reason.Error{Code: reason.Internal, Detail: err.Error(), Err: err}
}
