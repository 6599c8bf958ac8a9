package engine

// fifo is a queue of slot indexes with a fixed capacity, for one goroutine.
type fifo struct {
	at   []uint32
	head int
	n    int
}

func newFIFO(capacity int) fifo { return fifo{at: make([]uint32, capacity)} }

func (f *fifo) push(v uint32) {
	if f.n == len(f.at) {
		panic("engine: an index was queued twice")
	}
	i := f.head + f.n
	if i >= len(f.at) {
		i -= len(f.at)
	}
	f.at[i] = v
	f.n++
}

func (f *fifo) peek() uint32 { return f.at[f.head] }

func (f *fifo) pop() uint32 {
	v := f.at[f.head]
	if f.head++; f.head == len(f.at) {
		f.head = 0
	}
	f.n--
	return v
}
