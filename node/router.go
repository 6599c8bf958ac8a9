package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"mover/engine"
	"mover/fileio"
	"mover/job"
	"mover/reason"
)

// progressEvery is how often a running attempt's progress is looked at.
const progressEvery = 100 * time.Millisecond

// router carries jobs out: it implements job.Router.
type router struct{ *Node }

// Run implements job.Router: one attempt at one file.
func (n router) Run(ctx context.Context, a *job.Attempt) (job.Result, error) {
	spec := a.Job.Spec
	if spec.Destination.Node == n.cfg.Node.Name {
		return n.copyLocally(ctx, a)
	}
	root, err := n.roots.readable(spec.Source.Root(), spec.Destination.Node)
	if err != nil {
		return job.Result{}, err
	}
	src, err := root.OpenSource(spec.Source.Sub())
	if err != nil {
		return job.Result{}, err
	}
	defer src.Close()
	a.Progress.SetTotal(src.Size(), 1)
	item, err := n.item(a, src)
	if err != nil {
		return job.Result{}, err
	}
	link, err := n.sessions.to(ctx, spec.Destination.Node)
	if err != nil {
		return job.Result{}, err
	}
	a.Phase(job.Running)
	done := make(chan engine.ItemResult, 1)
	item.Done = func(r engine.ItemResult) { done <- r }
	link.Session().Send(item)
	r := n.await(ctx, a, link.Session(), item, done)
	if r.Err != nil {
		return job.Result{}, r.Err
	}
	return n.result(a, r)
}

// item describes the file to the engine and to the destination.
func (n *Node) item(a *job.Attempt, src *fileio.Source) (*engine.Item, error) {
	spec := a.Job.Spec
	meta, err := job.Manifest{
		Job: a.Job.ID, Attempt: uint32(a.Number), Owner: a.Job.Owner,
		SourceNode: n.cfg.Node.Name, SourceRoot: spec.Source.Root(),
		Root: spec.Destination.Root(), Path: []byte(spec.Destination.Sub()),
		Overwrite: spec.Overwrite, Durable: spec.Durable == nil || *spec.Durable, Preserve: spec.Preserve,
		Mode: uint32(src.Mode().Perm()), MtimeNS: src.MTime().UnixNano(), Size: src.Size(),
	}.Encode()
	if err != nil {
		return nil, reason.New(reason.Internal, "%v", err)
	}
	return &engine.Item{Attempt: uint32(a.Number), Kind: engine.Staged, Bytes: src.Size(),
		Verify: spec.Verify != job.VerifyNone, Meta: meta, Source: n.source(spec, src)}, nil
}

// source adds what the job expects of the whole to the file.
func (n *Node) source(spec job.Spec, src *fileio.Source) engine.Source {
	want, ok := spec.ExpectedCRC32C()
	return &expectingSource{Source: src, want: want, expects: ok}
}

type expectingSource struct {
	*fileio.Source
	want    uint32
	expects bool
}

// Verify implements engine.Source.
func (s *expectingSource) Verify(crc uint32) error {
	if err := s.Source.Verify(); err != nil {
		return err
	}
	if s.expects && crc != s.want {
		return &reason.Error{Code: reason.ChecksumMismatch, Err: reason.ErrFinal,
			Detail: fmt.Sprintf("the source has CRC32C %s, the job expects %s; correct what it expects, or the source is not the file you mean",
				job.FormatCRC32C(crc), job.FormatCRC32C(s.want))}
	}
	return nil
}

// await follows an item to its end. The engine bounds how long that takes: a
// stall, a lost session or the cancel asked for here all end it.
func (n *Node) await(ctx context.Context, a *job.Attempt, s *engine.Session, item *engine.Item, done <-chan engine.ItemResult) engine.ItemResult {
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	seen, ended, told := int64(0), ctx.Done(), phases{tell: a.Phase}
	progress := func() {
		if acked := item.Acked(); acked > seen {
			a.Progress.Add(acked - seen)
			seen = acked
		}
		told.reached(item.Verifying(), item.Publishing())
	}
	for {
		select {
		case r := <-done:
			progress()
			if r.Err == nil {
				a.Progress.AddItems(1)
			}
			return r
		case <-ended:
			s.Cancel(item, whyEnded(ctx))
			ended = nil
		case <-tick.C:
			progress()
		}
	}
}

// whyEnded is why an attempt is told to end; a node that stops is a reason to
// try again later.
func whyEnded(ctx context.Context) *reason.Error {
	if errors.Is(context.Cause(ctx), job.ErrClosed) {
		return reason.New(reason.TransportError, "the source's node is stopping")
	}
	return asReason(context.Cause(ctx))
}

// phases tells the queue of each phase once: the item stays verified while it
// is being published, and a job does not go back.
type phases struct {
	tell func(job.State)
	last job.State
}

func (p *phases) reached(verifying, publishing bool) {
	next := p.last
	switch {
	case publishing:
		next = job.Publishing
	case verifying:
		next = job.Verifying
	}
	if next != p.last {
		p.last = next
		p.tell(next)
	}
}

// result is what the destination says of the item.
func (n *Node) result(a *job.Attempt, r engine.ItemResult) (job.Result, error) {
	m, err := job.DecodeDoneMeta(r.Meta)
	if err != nil {
		return job.Result{}, reason.New(reason.Internal, "the destination published the item and described it wrongly: %v", err)
	}
	return job.Result{CRC32C: m.CRC32C, Bytes: m.Bytes, Durable: m.Durable, Verified: m.Verified, Skipped: m.Skipped,
		Providers: []string{n.path.Selection().Provider.Name()}}, nil
}
