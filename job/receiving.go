package job

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"mover/reason"
)

// Errors of Receiving.
var (
	ErrReceivingFull = errors.New("this node receives as many items as it may; the peer must try again later")
	ErrReceivingTwin = errors.New("this attempt at this item is being received already")
)

// Receiving lists what other nodes' jobs bring here: the destination's view.
// It holds a bounded number of items under way, and of ended ones. Every
// method may be called from any goroutine.
type Receiving struct {
	clock    Clock
	max      int
	keep     int
	received atomic.Uint64

	mu    sync.Mutex
	seq   uint64
	live  map[inboundKey]*Inflow
	flows []*Inflow // by seq
	ended int
}

type inboundKey struct {
	peer    string
	job     ID
	item    uint32
	attempt uint32
}

// Inbound is an item on its way here, or that came, at one moment.
type Inbound struct {
	ID          ID           `json:"id"` // of the job, at its own node
	Item        uint32       `json:"item"`
	Attempt     uint32       `json:"attempt"`
	State       State        `json:"state"`
	Peer        string       `json:"peer"` // the node that sends, as it proved to be
	Owner       string       `json:"owner"`
	Destination Place        `json:"destination"`
	StartedAt   time.Time    `json:"started_at"`
	FinishedAt  *time.Time   `json:"finished_at"`
	LastReason  *Reason      `json:"last_reason"`
	Progress    ProgressView `json:"progress"`
}

// Inflow is the handle of one item under way. End it.
type Inflow struct {
	list     *Receiving
	key      inboundKey
	seq      uint64
	progress *Progress
	view     Inbound // guarded by list.mu
}

// NewReceiving returns an empty list for up to max items under way (1..) and
// keep ended ones (0..).
func NewReceiving(clock Clock, max, keep int) *Receiving {
	return &Receiving{clock: clock, max: max, keep: keep, live: map[inboundKey]*Inflow{}}
}

// Begin enters an item that peer offered to node, this one, in the state
// Preparing. Errors: ErrReceivingFull, ErrReceivingTwin.
func (r *Receiving) Begin(node, peer string, m Manifest) (*Inflow, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := inboundKey{peer, m.Job, m.Item, m.Attempt}
	if r.live[key] != nil {
		return nil, ErrReceivingTwin
	}
	if len(r.live) >= r.max {
		return nil, ErrReceivingFull
	}
	r.seq++
	f := &Inflow{list: r, key: key, seq: r.seq, progress: newProgress(r.clock, &r.received)}
	f.progress.SetTotal(m.Size, 1)
	f.view = Inbound{
		ID: m.Job, Item: m.Item, Attempt: m.Attempt, State: Preparing, Peer: peer, Owner: m.Owner,
		Destination: m.arrives(node),
		StartedAt:   r.clock.Now().UTC(),
	}
	r.live[key] = f
	r.flows = append(r.flows, f)
	return f, nil
}

// arrives is where an item goes on node: a file, what a group is below, or a
// range of a buffer.
func (m *Manifest) arrives(node string) Place {
	if m.Buffer == "" {
		return Place{Node: node}.withPath(m.Root + "/" + string(m.Path))
	}
	offset, length := Bytes(m.Offset), Bytes(m.Size)
	return Place{Node: node, Buffer: m.Buffer, Offset: &offset, Length: &length}
}

// Add counts bytes of the item that are held here.
func (f *Inflow) Add(n int64) { f.progress.Add(n) }

// Phase moves the item to Running, Verifying or Publishing. Going backwards,
// or after End, changes nothing.
func (f *Inflow) Phase(to State) {
	f.list.mu.Lock()
	defer f.list.mu.Unlock()
	if f.view.FinishedAt == nil && !to.Terminal() && to != Queued && f.view.State.CanMove(to) {
		f.view.State = to
	}
}

// End says how it came out: nil is published, an error is why not (its
// reason's code decides between failed, canceled and expired). Only the first
// call counts.
func (f *Inflow) End(err error) {
	r := f.list
	r.mu.Lock()
	defer r.mu.Unlock()
	if f.view.FinishedAt != nil {
		return
	}
	f.view.State = Succeeded
	if err != nil {
		why := NewReason(err)
		f.view.LastReason = &why
		f.view.State = Failed
		switch why.Code {
		case reason.Canceled:
			f.view.State = Canceled
		case reason.Deadline:
			f.view.State = Expired
		}
	} else {
		f.progress.AddItems(1)
	}
	f.view.FinishedAt = timePtr(r.clock.Now())
	delete(r.live, f.key)
	r.ended++
	if r.ended > r.keep {
		// The one that began first of the ended ones; a list of what is
		// under way and recent needs no finer rule.
		i := slices.IndexFunc(r.flows, func(f *Inflow) bool { return f.view.FinishedAt != nil })
		r.flows = slices.Delete(r.flows, i, i+1)
		r.ended--
	}
}

// List returns up to limit (1..MaxPage) items that match, the latest first,
// and the token of the next page, "" when there is none. Labels do not travel:
// a Filter with a label matches nothing. The error is ErrPageToken.
func (r *Receiving) List(filter Filter, pageToken string, limit int) (page []Inbound, next string, err error) {
	before := ^uint64(0)
	if pageToken != "" {
		raw, err := base64.RawURLEncoding.Strict().DecodeString(pageToken)
		if err != nil || len(raw) != 8 {
			return nil, "", ErrPageToken
		}
		before = binary.BigEndian.Uint64(raw)
	}
	limit = min(max(limit, 1), MaxPage)
	r.mu.Lock()
	defer r.mu.Unlock()
	page = []Inbound{}
	var last uint64
	for _, f := range slices.Backward(r.flows) {
		v := f.view
		if f.seq >= before || !filter.match(Snapshot{State: v.State, Owner: v.Owner, CreatedAt: v.StartedAt}) {
			continue
		}
		if len(page) == limit {
			return page, base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint64(nil, last)), nil
		}
		v.Progress = f.progress.View(v.FinishedAt == nil)
		page, last = append(page, v), f.seq
	}
	return page, "", nil
}

// Live returns how many items are under way.
func (r *Receiving) Live() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.live)
}

// Received returns the bytes received since the start, by all items.
func (r *Receiving) Received() uint64 { return r.received.Load() }
