package fabric

import (
	"math"
	"slices"
	"time"
)

// maxRoundTrips is how many round trips are kept for the percentiles; a longer
// run counts the rest but keeps the first.
const maxRoundTrips = 1 << 22

// LatencyFigures are of half a round trip, in microseconds, as perftest's.
type LatencyFigures struct {
	Min, Max, Typical, Avg, Stdev float64 // Typical is the median
	P99, P999                     float64
}

// ping sends a message and waits for the answer, over and over. Each round trip
// is the time from one posting to the next, in ns, as perftest measures.
func (p *poller) ping(duration time.Duration, trips []int64) ([]int64, error) {
	n, watch := p.lanes[0], newStopwatch()
	p.began = p.now()
	last := watch.now()
	end := int64(math.MaxInt64)
	if duration > 0 {
		end = last + watch.ticks(duration)
	}
	for i := uint64(0); i < n.tx.goal && last < end; i++ {
		if err := p.postOne(n); err != nil {
			return nil, err
		}
		if err := n.rx.refill(); err != nil { // while the message is on its way
			return nil, err
		}
		for n.rx.arrived <= i {
			if _, err := p.poll("waiting for an answer"); err != nil {
				return nil, err
			}
			if p.talk.calls() {
				return nil, errAttention
			}
		}
		now := watch.now()
		if len(trips) < cap(trips) {
			trips = append(trips, now-last)
		}
		last = now
	}
	p.ended = p.now()
	return trips, watch.nanoseconds(trips)
}

// postOne waits for room: of the messages before only every moderation-th has
// a completion, which may still be on its way.
func (p *poller) postOne(n *lane) error {
	for {
		count, err := n.tx.post()
		if count > 0 || err != nil {
			return err
		}
		if _, err := p.poll("waiting for room to send"); err != nil {
			return err
		}
		if p.talk.calls() {
			return errAttention
		}
	}
}

// pong answers until the other side says something.
func (p *poller) pong() error {
	n := p.lanes[0]
	for !p.talk.calls() {
		if _, err := p.poll(""); err != nil {
			return err
		}
		for n.tx.posted < n.rx.arrived {
			if err := p.postOne(n); err != nil {
				return err
			}
		}
		if err := n.rx.refill(); err != nil {
			return err
		}
	}
	return nil
}

// figures computes on round trips in ns, which it sorts.
func figures(trips []int64) LatencyFigures {
	if len(trips) == 0 {
		return LatencyFigures{}
	}
	slices.Sort(trips)
	half := func(ns float64) float64 { return ns / 2 / 1000 }
	at := func(share float64) float64 {
		i := int(math.Ceil(share*float64(len(trips)))) - 1
		return half(float64(trips[max(i, 0)]))
	}
	sum := 0.0
	for _, t := range trips {
		sum += float64(t)
	}
	avg := sum / float64(len(trips))
	squares := 0.0
	for _, t := range trips {
		squares += (float64(t) - avg) * (float64(t) - avg)
	}
	return LatencyFigures{Min: half(float64(trips[0])), Max: half(float64(trips[len(trips)-1])), Typical: at(0.5), Avg: half(avg),
		Stdev: half(math.Sqrt(squares / float64(len(trips)))), P99: at(0.99), P999: at(0.999)}
}
