package fileio

import "sync"

// handle owns the descriptors of one open file and counts the calls that are
// using them. Without the count, closing a file while a write on it is blocked
// would let the kernel hand the number to another file, and the write would
// land there. Safe for concurrent use.
type handle struct {
	k       kernel
	mu      sync.Mutex
	users   int
	sealed  bool // no new users
	closing bool // close when the last user leaves
	closed  bool
	idle    chan struct{} // closed once sealed and unused

	fd       int // through the page cache; -1 if the count is all that is wanted
	directFD int // O_DIRECT on the same inode, or -1
	last     func()
}

func newHandle(k kernel, fd int) *handle {
	return &handle{k: k, fd: fd, directFD: -1, idle: make(chan struct{})}
}

// acquire lets the caller use the descriptors until release; false after seal.
func (h *handle) acquire() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sealed {
		return false
	}
	h.users++
	return true
}

func (h *handle) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.users--
	h.settle()
}

// seal refuses new users and returns a channel that closes when none is left.
func (h *handle) seal() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.sealed {
		h.sealed = true
		h.settle()
	}
	return h.idle
}

// shut seals, and closes the descriptors as soon as nobody uses them. It does
// not wait for them: a write blocked in a hung file system must not block its
// canceler.
// Calling it again does nothing.
func (h *handle) shut() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sealed, h.closing = true, true
	h.settle()
}

// shutWith is shut, and lets last run once nobody uses the handle, on the
// goroutine of the last user and before the descriptors are closed. It reports
// whether that was now.
func (h *handle) shutWith(last func()) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = last
	h.sealed, h.closing = true, true
	h.settle()
	return h.closed
}

// settle does what is due once the handle is sealed and unused. mu is held.
func (h *handle) settle() {
	if !h.sealed || h.users > 0 {
		return
	}
	select {
	case <-h.idle:
	default:
		close(h.idle)
	}
	if !h.closing || h.closed {
		return
	}
	h.closed = true
	if h.last != nil {
		h.last()
	}
	// Errors are of no use here: what must be known to be on disk was fsynced
	// or flushed before, and close(2) must not be repeated on Linux.
	if h.fd >= 0 {
		_ = h.k.close(h.fd)
	}
	if h.directFD >= 0 {
		_ = h.k.close(h.directFD)
	}
}
