package memory

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"mover/bench/procfs"
	"mover/engine"
	"mover/node/config"
	"mover/node/datapath"
	"mover/peer"
	"mover/reason"
)

// Role is one of the two processes.
type Role struct {
	Name        string // "receive" or "send"
	Dir         string // with both identities
	Fingerprint string // of the other
	Control     string // send: where the receiver listens
	Options     Options
	Config      *config.Config // devices, pollers, memory and session settings
	Log         *slog.Logger
	Stdin       io.Reader
	Stdout      io.Writer
}

// region is memory for one item: a lease of the arena, or a block.
type region interface {
	Bytes() []byte
	Release()
}

// side is a process with its data path.
type side struct {
	path    *datapath.Path
	control *peer.Control
	regions chan region // free memory for items
	taken   taking      // what the receiving side used
}

// Serve runs the role to its end.
func (r *Role) Serve(ctx context.Context) error {
	self, other := sourceName, destinationName
	if r.Name == "receive" {
		self, other = other, self
	}
	r.choose()
	if len(r.Config.Pollers.CPUs) == 0 {
		r.Config.Pollers.CPUs = pollerCPU(r.Name)
	}
	// Two shares for the session, and the items' own memory unless it is a block.
	r.Config.Memory.Arena = 2 * r.Config.Memory.SessionShare
	if r.Options.BlockBytes == 0 {
		r.Config.Memory.Arena += config.Size(r.Options.ItemBytes * int64(r.Options.Items))
	}
	s, err := r.open(ctx, self, other)
	if err != nil {
		return err
	}
	run := r.send
	if r.Name == "receive" {
		run = r.receive
	}
	err = run(ctx, s)
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), startLimit)
	defer cancel()
	err = errors.Join(err, s.releaseAll(stop))
	return err
}

// choose puts the options in place of the settings.
func (r *Role) choose() {
	if r.Options.Provider != "" {
		r.Config.Devices.Providers = []string{r.Options.Provider}
	}
	if r.Options.Device != "" {
		r.Config.Devices.Names = []string{r.Options.Device}
	}
	if r.Options.Idle != "" {
		r.Config.Pollers.Idle = r.Options.Idle
	}
}

func (r *Role) open(ctx context.Context, self, other string) (*side, error) {
	id, err := peer.Load(filepath.Join(r.Dir, self), self)
	if err != nil {
		return nil, err
	}
	s := &side{regions: make(chan region, r.Options.Items)}
	selection, err := datapath.Prepare(r.Config, r.Log)
	if err != nil {
		return nil, err
	}
	if s.path, err = datapath.Open(r.Config, r.Log, selection); err != nil {
		return nil, err
	}
	for range r.Options.Items {
		l, err := r.region(s)
		if err != nil {
			return nil, err
		}
		s.regions <- l
	}
	if err := s.path.Start(); err != nil {
		return nil, err
	}
	pc := peer.PeerConfig{Fingerprint: r.Fingerprint}
	if r.Control != "" {
		pc.Addresses = []string{r.Control}
	}
	cfg := peer.Config{Identity: id, Logger: r.Log, Trust: peer.Trust{Peers: map[string]peer.PeerConfig{other: pc}}}
	if r.Name == "receive" {
		cfg.Listen = []string{"127.0.0.1:0"}
		cfg.Accept = func(conn *peer.Conn) {
			if _, err := s.path.Link(conn, &receiver{s}); err != nil {
				conn.Close(err.Error())
			}
		}
	}
	if s.control, err = peer.New(cfg); err != nil {
		return nil, err
	}
	s.control.Start()
	return s, nil
}

func (r *Role) region(s *side) (region, error) {
	if n := r.Options.BlockBytes; n > 0 {
		b, err := newBlock(int(r.Options.ItemBytes), int(n))
		if err != nil {
			return nil, err
		}
		fill(b.Bytes()[:n])
		return b, nil
	}
	l, err := s.path.Lease(r.Options.ItemBytes, "benchmark item")
	if err != nil {
		return nil, err
	}
	fill(l.Bytes())
	return l, nil
}

// fill makes memory that is touched and differs by position.
func fill(p []byte) {
	x := uint64(88172645463325252)
	for i := 0; i+8 <= len(p); i += 8 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		p[i], p[i+1], p[i+2], p[i+3] = byte(x), byte(x>>8), byte(x>>16), byte(x>>24)
		p[i+4], p[i+5], p[i+6], p[i+7] = byte(x>>32), byte(x>>40), byte(x>>48), byte(x>>56)
	}
}

func (r *Role) receive(_ context.Context, s *side) error {
	if err := json.NewEncoder(r.Stdout).Encode(hello{Control: s.control.Addrs()[0].String()}); err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, r.Stdin) // until the parent closes it, or dies
	rss, err := procfs.PeakResident(os.Getpid())
	if err != nil {
		return err
	}
	return json.NewEncoder(r.Stdout).Encode(Report{RSSBytesDestination: rss, CPUDestination: s.taken.cpus()})
}

// send keeps Items items in flight and reports the rate at which the
// destination acked them.
func (r *Role) send(ctx context.Context, s *side) error {
	conn, err := s.control.Dial(ctx, destinationName)
	if err != nil {
		return err
	}
	link, err := s.path.Link(conn, &receiver{s})
	if err != nil {
		return err
	}
	if err := link.Ready(ctx); err != nil {
		return err
	}
	results := make(chan ended, r.Options.Items)
	start := func() {
		l := <-s.regions
		link.Session().Send(&engine.Item{Kind: engine.Direct, Bytes: r.Options.ItemBytes, Verify: r.Options.Verify,
			Memory: l.Bytes(), Done: func(res engine.ItemResult) { results <- ended{l, res} }})
	}
	for range r.Options.Items {
		start()
	}
	m := newMeasurement(&r.Options)
	var failed error
	for out := r.Options.Items; out > 0; {
		e := <-results
		out--
		s.regions <- e.region
		if e.result.Err != nil {
			failed = errors.Join(failed, e.result.Err)
		}
		if failed != nil {
			continue // until nothing is in flight
		}
		m.acked(time.Now())
		if m.wantsMore(time.Now(), out) {
			start()
			out++
		}
	}
	if failed != nil {
		return failed
	}
	if m.transfers == 0 {
		return errors.New("no item arrived within the time; use more seconds or smaller items")
	}
	rss, err := procfs.PeakResident(os.Getpid())
	if err != nil {
		return err
	}
	report := m.report()
	report.RSSBytesSource, report.ArenaBytes, report.BlockBytes = rss, s.path.ArenaBytes()+r.blocks(), r.Options.BlockBytes
	var names []string
	for _, d := range s.path.Selection().Used() {
		names = append(names, d.Name)
	}
	report.Provider, report.Rails, report.Devices = s.path.Selection().Provider.Name(), len(names), strings.Join(names, ",")
	return json.NewEncoder(r.Stdout).Encode(report)
}

// ended is an item that is over, and its memory.
type ended struct {
	region region
	result engine.ItemResult
}

func (s *side) releaseAll(ctx context.Context) error {
	for len(s.regions) > 0 {
		(<-s.regions).Release()
	}
	err := s.path.Close(ctx)
	s.control.Close()
	return err
}

// blocks is how many bytes of blocks are mapped: the kernel counts every
// repetition as resident.
func (r *Role) blocks() int64 {
	if r.Options.BlockBytes == 0 {
		return 0
	}
	return r.Options.ItemBytes * int64(r.Options.Items)
}

// receiver takes direct items into the side's memory.
type receiver struct{ side *side }

// Open implements engine.Receiver.
func (r *receiver) Open(s *engine.Session, ref engine.ItemRef, offer *engine.ItemOffer) {
	select {
	case l := <-r.side.regions:
		r.side.taken.begin()
		if offer.Kind == engine.Direct && int64(len(l.Bytes())) >= offer.Bytes {
			s.Opened(ref, &engine.Target{Memory: l.Bytes(), Handle: l}, false, nil, nil)
			return
		}
		r.side.regions <- l
	default:
	}
	s.Opened(ref, nil, false, nil, reason.New(reason.BufferBusy, "the benchmark takes direct items of its own size only"))
}

// Publish implements engine.Receiver.
func (r *receiver) Publish(s *engine.Session, ref engine.ItemRef, t *engine.Target, _ uint32, _ bool) {
	r.side.regions <- t.Handle.(region)
	r.side.taken.published()
	s.Published(ref, nil, nil)
}

// Discard implements engine.Receiver.
func (r *receiver) Discard(s *engine.Session, ref engine.ItemRef, t *engine.Target, _ *reason.Error) {
	r.side.regions <- t.Handle.(region)
	s.Discarded(ref)
}
