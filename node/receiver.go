package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"mover/engine"
	"mover/job"
	"mover/reason"
)

// receiver decides on the items that one node offers: files and groups of tree
// entries below this node's roots, and ranges of its buffers. It implements
// engine.Receiver: every call returns at once and is answered from a goroutine
// of its own, for a file system may hang. Items within this node come to it
// through local.
type receiver struct {
	node    *Node
	peer    string // who offers: a peer as it proved to be, or this node
	session string // its name, for the log; "" within the node
}

// arrival is what an item becomes here, from its offer to its end.
type arrival interface {
	// target is where the bytes go.
	target() engine.Target
	// publish makes it appear and returns what the source is told. verified
	// says that crc is the item's CRC32C at both ends.
	publish(ctx context.Context, crc uint32, verified bool) (meta []byte, err error)
	// discard removes what was not published.
	discard() error
	// lasting says that the record of what was published must stay as long as
	// the item is remembered.
	lasting() bool
}

// inbound is an item that is being received.
type inbound struct {
	key     itemKey
	attempt uint32
	item    uint32
	arrival arrival
	inflow  *job.Inflow
	over    chan struct{} // closed once it is published or discarded
}

// Open implements engine.Receiver.
func (r *receiver) Open(s *engine.Session, ref engine.ItemRef, offer *engine.ItemOffer) {
	go func() {
		in, meta, err := r.open(ref, offer)
		if in == nil {
			s.Opened(ref, nil, meta != nil, meta, refusal(err))
			return
		}
		target := in.arrival.target()
		target.Handle = in
		s.Opened(ref, &target, false, nil, nil)
	}()
}

// open begins to receive an item. Without error it returns the item, or, where
// there is nothing to send, what the source is told.
func (r *receiver) open(ref engine.ItemRef, offer *engine.ItemOffer) (in *inbound, meta []byte, err error) {
	o, err := readOffered(offer)
	if err != nil {
		err = reason.New(reason.PeerRefused, "%w", err)
		r.warn("an item was refused: its description cannot be read", nil, "error", err)
		return nil, nil, err
	}
	in, meta, err = r.begin(ref, offer, o)
	about := itemLine{o.Job, o.Attempt, o.Item}
	switch {
	case err != nil:
		r.warn("an item was refused", &about, "code", asReason(err).Code, "error", err)
	case in == nil:
		r.tell("an item ended without bytes", &about)
	default:
		r.tell("receiving an item", &about, "bytes", offer.Bytes)
	}
	return in, meta, err
}

// begin is open for an offer that can be read.
func (r *receiver) begin(ref engine.ItemRef, offer *engine.ItemOffer, o offered) (in *inbound, meta []byte, err error) {
	if o.SourceNode != r.peer || o.Size != offer.Bytes || o.Attempt != ref.Attempt {
		return nil, nil, reason.New(reason.NotAuthorized, "the item's description contradicts its offer or its node")
	}
	in = &inbound{key: o.key(r.peer), attempt: o.Attempt, item: o.Item, over: make(chan struct{})}
	meta, err = r.node.inbounds.begin(in, r.node.cfg.Jobs.StallAfter)
	if err != nil || meta != nil {
		return nil, meta, err
	}
	if in.inflow, err = r.node.receiving.Begin(r.node.cfg.Node.Name, r.peer, o.Manifest); err != nil {
		err = reason.New(reason.PeerRefused, "%w", err)
	} else {
		in.arrival, meta, err = r.arrive(in, o, offer)
	}
	if err != nil || meta != nil {
		r.end(in, meta, err)
		return nil, meta, err
	}
	in.inflow.Phase(job.Running)
	return in, nil, nil
}

// arrive makes the item's target. meta, if not nil, says that the item has
// ended already: it is kept as it is, or has no bytes.
func (r *receiver) arrive(in *inbound, o offered, offer *engine.ItemOffer) (a arrival, meta []byte, err error) {
	if offer.Kind == engine.Direct && o.Buffer == "" {
		return nil, nil, reason.New(reason.PeerRefused, "the peer sends a file as if it were memory; update the older of the two nodes")
	}
	ctx, cancel := context.WithTimeout(context.Background(), r.node.cfg.Jobs.StallAfter)
	defer cancel()
	switch {
	case o.Buffer != "":
		return r.arriveInBuffer(in, o, offer.Kind)
	case o.group != nil:
		return r.arriveGroup(ctx, in, o)
	}
	return r.arriveFile(ctx, in, o)
}

// Publish implements engine.Receiver.
func (r *receiver) Publish(s *engine.Session, ref engine.ItemRef, target *engine.Target, crc uint32, verified bool) {
	go func() {
		meta, err := r.publish(target.Handle.(*inbound), crc, verified)
		s.Published(ref, meta, asReason(err))
	}()
}

// publishTimeout bounds a publication's wait for writes in progress; the sync
// itself takes as long as the disk does.
const publishTimeout = time.Minute

func (r *receiver) publish(in *inbound, crc uint32, verified bool) ([]byte, error) {
	in.inflow.Phase(job.Verifying)
	in.inflow.Phase(job.Publishing)
	ctx, cancel := context.WithTimeout(context.Background(), publishTimeout)
	defer cancel()
	meta, err := in.arrival.publish(ctx, crc, verified)
	about := in.line()
	if err != nil {
		r.warn("an item could not be published", &about, "code", asReason(err).Code, "error", err)
		return meta, err
	}
	r.end(in, meta, nil)
	r.tell("an item was published", &about, "verified", verified)
	return meta, nil
}

// Discard implements engine.Receiver.
func (r *receiver) Discard(s *engine.Session, ref engine.ItemRef, target *engine.Target, why *reason.Error) {
	go func() {
		r.discard(target.Handle.(*inbound), why)
		s.Discarded(ref)
	}()
}

func (r *receiver) discard(in *inbound, why *reason.Error) {
	about := in.line()
	if err := in.arrival.discard(); err != nil {
		r.warn("what was received of an item could not be removed", &about, "error", err)
	}
	r.end(in, nil, fmt.Errorf("discarded: %w", why))
	tell := r.warn
	if why.Code == reason.Canceled {
		tell = r.tell // somebody wants it so
	}
	tell("an item was discarded", &about, "code", why.Code, "why", why.Detail)
}

// end forgets an item, or remembers that it was published.
func (r *receiver) end(in *inbound, meta []byte, err error) {
	if in.inflow != nil {
		in.inflow.End(err)
	}
	if err != nil {
		meta = nil
	}
	// The record goes before the item can be begun again, and that of what was
	// published stays as long as it is remembered.
	if meta == nil || in.arrival == nil || !in.arrival.lasting() {
		r.node.journal.remove(in.key)
	}
	for _, forgotten := range r.node.inbounds.end(in, meta) {
		r.node.journal.remove(forgotten)
	}
}

// countedSink tells the receiving list how far an item is.
type countedSink struct {
	engine.Sink
	inflow *job.Inflow
}

// WriteAt implements engine.Sink.
func (c countedSink) WriteAt(p []byte, offset int64) (int, error) {
	n, err := c.Sink.WriteAt(p, offset)
	c.inflow.Add(int64(n))
	return n, err
}

// refusal is asReason for an item that could not be begun.
func refusal(err error) *reason.Error { return asReason(withoutDescriptors(err, "destination")) }

// withoutDescriptors is err, or, where the process at that side had no
// descriptors left, that it has no room for now: worth another try.
func withoutDescriptors(err error, side string) error {
	if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
		return reason.New(reason.PeerRefused, "%w; raise the limit of open files (LimitNOFILE, ulimit -n) at the %s", err, side)
	}
	return err
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
