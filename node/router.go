package node

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"mover/engine"
	"mover/job"
	"mover/node/datapath"
	"mover/reason"
)

// progressEvery is how often a running attempt's progress is looked at.
const progressEvery = 100 * time.Millisecond

// router carries jobs out: it implements job.Router.
type router struct{ *Node }

// Run implements job.Router: one attempt. Its lines of the log say over which
// session it goes, under the name that the destination's lines have too.
func (n router) Run(ctx context.Context, a *job.Attempt) (job.Result, error) {
	sh, err := n.prepare(ctx, a)
	if err != nil {
		return job.Result{}, err
	}
	log, began := n.log.With("job", a.Job.ID, "attempt", a.Number), time.Now()
	if sh.link != nil {
		log = log.With("peer", sh.link.Conn().Peer().Name, "session", sh.link.Conn().Session())
	}
	log.Info("attempt begins")
	r, err := n.carry(ctx, sh)
	err = withoutDescriptors(err, "source")
	code := reason.Code("OK")
	if err != nil {
		code = asReason(err).Code // the details are in the queue's own line
	}
	log.Info("attempt ended", "code", code, "took", time.Since(began))
	return r, err
}

// carry does what the job says, on a way that is open.
func (n router) carry(ctx context.Context, sh *shipping) (job.Result, error) {
	spec := sh.spec
	if spec.Source.Buffer != "" {
		return sh.buffer(ctx)
	}
	root, err := n.roots.readable(spec.Source.Root(), spec.Destination.Node)
	if err != nil {
		return job.Result{}, err
	}
	info, err := root.Stat(spec.Source.Sub())
	switch {
	case err != nil:
		return job.Result{}, err
	case info.IsDir() && spec.Recursive:
		return sh.tree(ctx, root)
	}
	return sh.file(ctx, root)
}

// shipping is what every kind of attempt has in common: where its items go, and
// how fast.
type shipping struct {
	*Node
	attempt *job.Attempt
	spec    job.Spec
	to      carrier
	link    *datapath.Link // that to goes over; nil if local
	local   bool
	pace    *engine.Pacer // the job's own
	last    phase
}

// prepare finds the way to the destination. Local jobs need none.
func (n *Node) prepare(ctx context.Context, a *job.Attempt) (*shipping, error) {
	sh := &shipping{Node: n, attempt: a, spec: a.Job.Spec, pace: engine.NewPacer(int64(a.Limit()) / 8)}
	if sh.spec.Destination.Node == n.cfg.Node.Name {
		sh.local, sh.to = true, newLocal(n)
		return sh, nil
	}
	link, err := n.sessions.to(ctx, sh.spec.Destination.Node)
	if err != nil {
		return nil, err
	}
	sh.link, sh.to = link, link.Session()
	return sh, nil
}

func (sh *shipping) verify() bool  { return sh.spec.Verify != job.VerifyNone }
func (sh *shipping) durable() bool { return sh.spec.Durable == nil || *sh.spec.Durable }

// pacers are those of every item of the attempt, the one that most share last.
func (sh *shipping) pacers() []*engine.Pacer { return []*engine.Pacer{sh.pace, sh.Node.pace} }

// tick does what is due while items are under way.
func (sh *shipping) tick() { sh.pace.SetRate(int64(sh.attempt.Limit()) / 8) }

// providers is how the bytes went.
func (sh *shipping) providers() []string {
	if sh.local {
		return []string{"local"}
	}
	return []string{sh.path.Selection().Provider.Name()}
}

// sendOne sends a single item and follows it to its end. The engine bounds how
// long that takes: a stall, a lost session or the cancel asked for here all end
// it.
func (sh *shipping) sendOne(ctx context.Context, item *engine.Item) engine.ItemResult {
	done := make(chan engine.ItemResult, 1)
	item.Done = func(r engine.ItemResult) { done <- r }
	item.Pace = sh.pacers()
	sh.attempt.Phase(job.Running)
	sh.to.Send(item)
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	seen, ended := int64(0), ctx.Done()
	progress := func() {
		if acked := item.Acked(); acked > seen {
			sh.attempt.Progress.Add(acked - seen)
			seen = acked
		}
		sh.reached(item.Verifying(), item.Publishing())
	}
	for {
		select {
		case r := <-done:
			progress()
			return r
		case <-ended:
			sh.to.Cancel(item, whyEnded(ctx))
			ended = nil
		case <-tick.C:
			sh.tick()
			progress()
		}
	}
}

// whyEnded is why an attempt is told to end; a node that stops, or a job that
// makes room, is a reason to try again later.
func whyEnded(ctx context.Context) *reason.Error {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, job.ErrClosed):
		return reason.New(reason.TransportError, "the source's node is stopping")
	case errors.Is(cause, job.ErrPaused):
		return reason.New(reason.Canceled, "the job was paused")
	case errors.Is(cause, job.ErrYield):
		return reason.New(reason.Canceled, "the job makes room for others")
	default:
		return asReason(cause)
	}
}

// phase is what the queue was told last. A job does not go back.
type phase uint8

const (
	phaseRunning phase = iota
	phaseVerifying
	phasePublishing
)

// reached tells the queue of each phase once: an item stays verified while it
// is being published.
func (sh *shipping) reached(verifying, publishing bool) {
	next := sh.last
	switch {
	case publishing:
		next = phasePublishing
	case verifying:
		next = max(next, phaseVerifying)
	}
	if next != sh.last {
		sh.last = next
		sh.attempt.Phase([...]job.State{job.Running, job.Verifying, job.Publishing}[next])
	}
}

// result is what the destination says of a single item.
func (sh *shipping) result(r engine.ItemResult) (job.Result, error) {
	m, err := job.DecodeDoneMeta(r.Meta)
	if err != nil {
		return job.Result{}, reason.New(reason.Internal, "the destination published the item and described it wrongly: %w", err)
	}
	out := job.Result{CRC32C: m.CRC32C, Bytes: m.Bytes, Durable: m.Durable, Verified: m.Verified, Skipped: m.Skipped, Items: 1, Providers: sh.providers()}
	if m.Skipped {
		out.Items, out.ItemsSkipped = 0, 1
	}
	sh.attempt.Progress.AddItems(1)
	return out, nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sum continues a CRC32C over more bytes, beginning with 0.
func sum(crc uint32, p []byte) uint32 { return crc32.Update(crc, castagnoli, p) }

// checkExpected compares the source with what the job says that it must have.
func checkExpected(spec *job.Spec, crc uint32) error {
	want, ok := spec.ExpectedCRC32C()
	if !ok || crc == want {
		return nil
	}
	return &reason.Error{Code: reason.ChecksumMismatch, Err: reason.ErrFinal,
		Detail: fmt.Sprintf("the source has CRC32C %s, the job expects %s; correct what it expects, or the source is not what you mean",
			job.FormatCRC32C(crc), job.FormatCRC32C(want))}
}
