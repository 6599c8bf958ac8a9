package fabric

// maxMarks bounds what peak remembers.
const maxMarks = 1024

// mark is a moment: how many messages had been posted before it, how many were
// complete at it.
type mark struct {
	at                int64 // ns
	posted, completed uint64
}

// peak finds the best rate over any stretch from the posting of a message to
// the completion of one, as perftest's "BW peak". It remembers at most
// maxMarks moments, evenly spread: of a long run it keeps every second, fourth
// .. one, so that a peak shorter than that may be missed.
type peak struct {
	marks []mark
	every int // take each every-th
	seen  int
}

func newPeak() peak { return peak{marks: make([]mark, 0, maxMarks), every: 1} }

// begin forgets all but the first moment.
func (k *peak) begin(m mark) {
	k.marks, k.every, k.seen = append(k.marks[:0], m), 1, 0
}

// end adds the last moment, whether or not its turn has come.
func (k *peak) end(m mark) {
	k.seen = k.every
	k.add(m)
}

// add allocates nothing.
func (k *peak) add(m mark) {
	if k.seen++; k.seen < k.every {
		return
	}
	k.seen = 0
	if len(k.marks) == cap(k.marks) {
		half := k.marks[:0]
		for i := 0; i < len(k.marks); i += 2 {
			half = append(half, k.marks[i])
		}
		k.marks = half
		k.every *= 2
	}
	k.marks = append(k.marks, m)
}

// messagesPerSecond is the peak, 0 when there were not two moments.
func (k *peak) messagesPerSecond() float64 {
	best := 0.0
	for i := range k.marks {
		for _, to := range k.marks[i+1:] {
			from := &k.marks[i]
			if to.completed > from.posted && to.at > from.at {
				best = max(best, float64(to.completed-from.posted)*1e9/float64(to.at-from.at))
			}
		}
	}
	return best
}
