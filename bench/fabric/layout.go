package fabric

import "mover/verbs"

// layout says where the messages of one QP lie. Both sides compute it from
// their own options.
type layout struct {
	sizeBytes   int // of a message
	headBytes   int // what precedes it in a receive buffer: 40 of GRH on UD
	strideBytes int // from one place to the next
	// inFlight bounds the messages in flight: as many as may be without
	// writing to one place twice at a time, since two writes in flight to the
	// same bytes leave either.
	inFlight int
	// sources is inFlight + 1: with no common divisor, a place gets a
	// different source each time round.
	sources int
	// places is where messages arrive: inFlight for writes, message n in place
	// n mod places; twice as many for sends, in the order of arrival.
	places int
	// samples are further places, see sampleOf; none for sends.
	samples int
	// receives is how many receives are kept posted: one for each place of a
	// send; as many for what consumes one without using its place; one for the
	// closing message of checked RC writes.
	receives int
	// immediate: messages carry their number.
	immediate bool
}

// The number of places set aside for samples.
const maxSamples = 8

const (
	minInFlight = 4
	lineBytes   = 64
	grhBytes    = 40
)

func newLayout(c *Config, sizeBytes int) layout {
	l := layout{sizeBytes: sizeBytes}
	if c.Transport == verbs.UD {
		l.headBytes = grhBytes
	}
	l.strideBytes = (sizeBytes + l.headBytes + lineBytes - 1) / lineBytes * lineBytes
	l.inFlight = min(c.Depth, max(c.RingBytes/l.strideBytes, minInFlight))
	l.sources = l.inFlight + 1
	l.places, l.receives = l.inFlight, 1
	l.immediate = c.lossy() && (c.Op == Send || c.Verify)
	if c.Op == Send || l.immediate {
		l.receives = 2 * l.inFlight
	}
	if c.Op == Send {
		l.places = l.receives
		return l
	}
	for c.Verify && l.samples < maxSamples && (c.Duration > 0 || l.sampleAt(l.samples) < uint64(c.Iterations)) {
		l.samples++
	}
	return l
}

// sampleAt is the message that sample j is: 1, 2, 4 .. rounds after the first.
func (l *layout) sampleAt(j int) uint64 { return uint64(l.inFlight) << j }

// sampleOf tells which sample a message is, or -1.
func (l *layout) sampleOf(message uint64) int {
	for j := range l.samples {
		if l.sampleAt(j) == message {
			return j
		}
	}
	return -1
}

// lastWritten is the last of sent messages that was written to a place, or
// false when none was.
func (l *layout) lastWritten(place int, sent uint64) (uint64, bool) {
	n, p := uint64(l.places), uint64(place)
	if sent <= p {
		return 0, false
	}
	message := p + (sent-1-p)/n*n
	for l.sampleOf(message) >= 0 { // that went elsewhere
		if message < n {
			return 0, false
		}
		message -= n
	}
	return message, true
}

// sourceOf is the source slot of a message.
func (l *layout) sourceOf(message uint64) int { return int(message % uint64(l.sources)) }

func (l *layout) sourceBytes() int { return l.sources * l.strideBytes }
func (l *layout) targetBytes() int { return (l.places + l.samples) * l.strideBytes }

// moderation is how many WRs share a completion.
func (l *layout) moderation(c *Config) int { return min(c.Moderation, max(l.inFlight/4, 1)) }

// chain is how many WRs are posted at once. When all that is signalled has
// completed, moderation-1 others may still be out; a chain that then found no
// room would wait for ever.
func (l *layout) chain(c *Config) int {
	n := min(max(l.inFlight/4, 1), 32)
	if c.Chain > 0 {
		n = c.Chain
	}
	return min(n, l.inFlight-l.moderation(c)+1)
}
