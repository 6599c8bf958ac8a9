package ring

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
)

// This file checks the parking protocol by enumerating every interleaving of its steps, each step being one atomic
// access to shared memory, over an abstract MPMC queue, the parked bits and the eventfds. Deadlines are left out on
// purpose (they would hide a lost wake-up), except as extra wake-ups when timeouts is set.

const (
	modelProducers = 3
	modelConsumers = 2
	modelCells     = 4
)

// Steps of a producer.
const (
	pIdle    = iota // between pushes, for as long as it likes; the step out of it claims a cell
	pFill           // about to make its entry visible
	pWake           // about to load the parked bits
	pClaim          // about to compare-and-swap them
	pSignal         // owes an eventfd write
	pPeeked         // mutant only: has looked at the parked bits before publishing
	pDiscard        // mutant only: publishes, and wakes nobody
)

// Steps of a consumer.
const (
	cPoll     = iota // the first poll
	cPrepare         // about to set its parked bit
	cRepoll          // the second poll
	cSleep           // in ppoll; enabled by its eventfd
	cClear           // awake, about to clear its bit
	cDrain           // about to drain its eventfd
	cCount           // took an entry: about to see whether it leaves others behind
	cWake            // about to load the parked bits, to wake one more
	cClaim           // about to compare-and-swap them
	cSignal          // owes an eventfd write
	cCancel          // about to take Prepare back
	cWork            // busy with an entry for as long as it likes
	cPredrain        // mutant only: drains its eventfd before it sleeps
)

type producerState struct{ pc, left, cell, target uint8 }

type consumerState struct {
	pc, target uint8
	prepared   bool // took its entry in the second poll: Cancel is still to come
	canceling  bool // the wake-up in progress is the one that Cancel passes on
	buffered   bool // mutant only: its parked bit is set in the store buffer alone
}

type modelState struct {
	cells                      [modelCells]uint8 // 0 free, 1 claimed, 2 filled, 3 taken
	enq, deq                   uint8
	parked                     uint8
	tokens                     [modelConsumers]uint8
	producers                  [modelProducers]producerState
	consumers                  [modelConsumers]consumerState
	prepares, writes, timeouts uint8
}

// model says how many threads there are and what is wrong with the protocol.
type model struct {
	producers, consumers int
	items                int // of each producer
	timeouts             int // at most this many deadlines pass

	noRepoll       bool // the consumer stores parked after its only poll: too late a store, or no second poll
	storeBuffered  bool // the store of parked is not sequentially consistent
	peekFirst      bool // the producer loads parked before it publishes
	lateDrain      bool // the consumer drains its eventfd right before it sleeps
	noSwap         bool // the producer does not clear the bit it saw
	noPassOnCancel bool // Cancel keeps a wake-up meant for another
	noWakeOnPop    bool // a consumer leaves entries behind and wakes nobody
}

// visible says whether TryPop would succeed.
func (s *modelState) visible() bool { return s.deq < modelCells && s.cells[s.deq] == 2 }

func (s *modelState) pop() bool {
	if !s.visible() {
		return false
	}
	s.cells[s.deq] = 3
	s.deq++
	return true
}

// check returns what is wrong with a state, or "".
func (m *model) check(s *modelState) string {
	if s.writes > s.prepares {
		return "more eventfd writes than parks"
	}
	for i := range m.producers {
		if s.producers[i].pc != pIdle {
			return "" // it has yet to look for sleepers
		}
	}
	sleeper := false
	for i := range m.consumers {
		switch c := &s.consumers[i]; {
		case c.pc == cSleep && s.tokens[i] == 0:
			sleeper = true
		case c.pc == cSleep, c.pc != cWork:
			return "" // somebody is on the way to a poll or to a wake-up
		}
	}
	if sleeper && s.visible() {
		return "an entry is queued, a consumer sleeps, and no wake-up is pending"
	}
	return ""
}

// next appends every state one step away to out.
func (m *model) next(out []modelState, s *modelState) []modelState {
	for i := range m.producers {
		out = m.stepProducer(out, *s, i)
	}
	for i := range m.consumers {
		out = m.stepConsumer(out, *s, i)
	}
	return out
}

func (m *model) stepProducer(out []modelState, s modelState, i int) []modelState {
	p := &s.producers[i]
	switch p.pc {
	case pIdle:
		if p.left == 0 {
			return out
		}
		p.left--
		p.cell = s.enq
		s.cells[s.enq] = 1
		s.enq++
		p.pc = pFill
		if m.peekFirst {
			p.pc = pPeeked
		}
	case pPeeked:
		p.pc = pFill
		if s.parked == 0 {
			p.pc = pDiscard
		}
	case pDiscard:
		s.cells[p.cell] = 2
		p.pc = pIdle
	case pFill:
		s.cells[p.cell] = 2
		p.pc = pWake
	default:
		return m.wakeSteps(out, &s, &p.pc, &p.target, [4]uint8{pWake, pClaim, pSignal, pIdle})
	}
	return append(out, s)
}

// wakeSteps are the steps of Wake, shared by producers and consumers; pcs are its three steps and where it goes then.
// pc and target point into *s, which the appended states are copies of.
func (m *model) wakeSteps(out []modelState, s *modelState, pc, target *uint8, pcs [4]uint8) []modelState {
	switch *pc {
	case pcs[0]:
		if s.parked == 0 {
			*pc = pcs[3]
			return append(out, *s)
		}
		// Any parked seat may be chosen.
		for seat := range m.consumers {
			if s.parked&(1<<seat) != 0 {
				*target, *pc = uint8(seat), pcs[1]
				out = append(out, *s)
			}
		}
		return out
	case pcs[1]:
		if m.noSwap {
			*pc = pcs[2]
			break
		}
		// The swap fails when the word changed at all; a seat whose bit is gone needs another look, any other change
		// leads to the same states as trying again.
		*pc = pcs[0]
		if s.parked&(1<<*target) != 0 {
			s.parked &^= 1 << *target
			*pc = pcs[2]
		}
	case pcs[2]:
		s.tokens[*target]++
		s.writes++
		*pc = pcs[3]
	default:
		panic(fmt.Sprintf("no such step: %+v", *s))
	}
	return append(out, *s)
}

func (m *model) stepConsumer(out []modelState, s modelState, i int) []modelState {
	c := &s.consumers[i]
	bit := uint8(1) << i
	if c.buffered { // the store buffer empties at any time
		flushed := s
		flushed.consumers[i].buffered = false
		flushed.parked |= bit
		out = append(out, flushed)
	}
	switch c.pc {
	case cPoll:
		c.pc = cPrepare
		if s.pop() {
			c.pc = cCount
		}
	case cPrepare:
		s.prepares++
		if m.storeBuffered {
			c.buffered = true
		} else {
			s.parked |= bit
		}
		c.pc = cRepoll
		if m.noRepoll {
			c.pc = cSleep
		}
	case cRepoll:
		switch {
		case s.pop():
			c.pc, c.prepared = cCount, true
		case m.lateDrain:
			c.pc = cPredrain
		default:
			c.pc = cSleep
		}
	case cPredrain:
		s.tokens[i] = 0
		c.pc = cSleep
	case cSleep:
		if s.tokens[i] == 0 {
			if int(s.timeouts) == m.timeouts {
				return out
			}
			s.timeouts++
		}
		c.pc = cClear
	case cClear:
		s.parked &^= bit
		c.buffered = false
		c.pc = cDrain
	case cDrain:
		s.tokens[i] = 0
		c.pc = cPoll
	case cCount:
		c.pc = cWake
		if m.consumers == 1 || m.noWakeOnPop || s.enq == s.deq {
			c.pc = m.afterCount(c)
		}
	case cCancel:
		claimed := s.parked&bit == 0 && !c.buffered
		s.parked &^= bit
		c.buffered = false
		c.prepared = false
		c.pc = cWork
		if claimed && m.consumers > 1 && !m.noPassOnCancel {
			c.canceling, c.pc = true, cWake
		}
	case cWork:
		c.pc = cPoll
	case cWake, cClaim, cSignal:
		old := len(out)
		out = m.wakeSteps(out, &s, &c.pc, &c.target, [4]uint8{cWake, cClaim, cSignal, cWork})
		for k := range out[old:] {
			// Wake is over: the one of TryPopWake is followed by Cancel, the one of Cancel by the work.
			if d := &out[old+k].consumers[i]; d.pc == cWork {
				if !d.canceling {
					d.pc = m.afterCount(d)
				}
				d.canceling = false
			}
		}
		return out
	}
	return append(out, s)
}

func (m *model) afterCount(c *consumerState) uint8 {
	if c.prepared {
		return cCancel
	}
	return cWork
}

// normalise maps states that behave alike to one: it forgets what no later step reads, and sorts the producers, which
// differ in nothing but their number.
func (s *modelState) normalise(m *model) {
	// Only the difference of these counters matters.
	base := min(s.prepares, s.writes)
	s.prepares, s.writes = s.prepares-base, s.writes-base
	for i := range m.producers {
		p := &s.producers[i]
		if p.pc != pFill && p.pc != pPeeked && p.pc != pDiscard {
			p.cell = 0
		}
		if p.pc != pClaim && p.pc != pSignal {
			p.target = 0
		}
	}
	slices.SortFunc(s.producers[:m.producers], func(a, b producerState) int {
		return cmp.Or(cmp.Compare(a.pc, b.pc), cmp.Compare(a.left, b.left), cmp.Compare(a.cell, b.cell),
			cmp.Compare(a.target, b.target))
	})
	for i := range m.consumers {
		c := &s.consumers[i]
		if c.pc != cClaim && c.pc != cSignal {
			c.target = 0
		}
		if c.pc == cPoll || c.pc == cWork {
			c.prepared = false
		}
	}
}

// run visits every reachable state and returns the first thing found wrong, with the number of states.
func (m *model) run(limit int) (string, int) {
	var start modelState
	for i := range m.producers {
		start.producers[i].left = uint8(m.items)
	}
	seen := map[modelState]struct{}{start: {}}
	stack := []modelState{start}
	var next []modelState
	for len(stack) > 0 {
		s := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if wrong := m.check(&s); wrong != "" {
			return fmt.Sprintf("%s: %+v", wrong, s), len(seen)
		}
		next = m.next(next[:0], &s)
		if len(next) == 0 && int(s.deq) != m.producers*m.items {
			return fmt.Sprintf("stuck with entries left: %+v", s), len(seen)
		}
		for _, n := range next {
			n.normalise(m)
			if _, ok := seen[n]; !ok {
				seen[n] = struct{}{}
				stack = append(stack, n)
			}
		}
		if len(seen) > limit {
			return fmt.Sprintf("more than %d states", limit), len(seen)
		}
	}
	return "", len(seen)
}

const modelLimit = 3_000_000

func TestModelParkingLosesNoWakeUp(t *testing.T) {
	for _, m := range []model{
		{producers: 1, consumers: 1, items: 4},
		{producers: 2, consumers: 1, items: 2},
		{producers: 3, consumers: 1, items: 1},
		{producers: 2, consumers: 1, items: 2, timeouts: 2},
		{producers: 1, consumers: 2, items: 3},
		{producers: 2, consumers: 2, items: 1},
		{producers: 2, consumers: 2, items: 1, timeouts: 1},
		{producers: 3, consumers: 2, items: 1},
		{producers: 2, consumers: 2, items: 2},
	} {
		wrong, states := m.run(modelLimit)
		if wrong != "" {
			t.Errorf("%+v: %s", m, wrong)
		}
		t.Logf("%d producers x %d entries, %d consumers, %d timeouts: %d states", m.producers, m.items, m.consumers,
			m.timeouts, states)
	}
}

// TestModelCatchesMutants shows that the check has teeth: each of these protocols is wrong in one way.
func TestModelCatchesMutants(t *testing.T) {
	for name, m := range map[string]model{
		"parked stored after the last poll": {producers: 1, consumers: 1, items: 1, noRepoll: true},
		"parked in the store buffer":        {producers: 1, consumers: 1, items: 1, storeBuffered: true},
		"parked loaded before publishing":   {producers: 1, consumers: 1, items: 1, peekFirst: true},
		"eventfd drained before sleeping":   {producers: 1, consumers: 1, items: 1, lateDrain: true},
		"parked not cleared by producer":    {producers: 2, consumers: 1, items: 1, noSwap: true},
		"pool: parked stored too late":      {producers: 1, consumers: 2, items: 1, noRepoll: true},
		"pool: parked loaded too early":     {producers: 1, consumers: 2, items: 1, peekFirst: true},
		"pool: Cancel keeps a wake-up":      {producers: 2, consumers: 2, items: 1, noPassOnCancel: true, noWakeOnPop: true},
		"pool: Cancel keeps it, pop doesnt": {producers: 1, consumers: 2, items: 3, noPassOnCancel: true},
		"pool: entries left behind":         {producers: 3, consumers: 2, items: 1, noWakeOnPop: true},
	} {
		t.Run(name, func(t *testing.T) {
			wrong, states := m.run(modelLimit)
			if wrong == "" {
				t.Fatalf("not caught in %d states", states)
			}
			t.Logf("caught after %d states: %s", states, wrong)
		})
	}
}
