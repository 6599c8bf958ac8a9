package ring

import (
	"encoding/binary"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// eventfdBytes is the size of an eventfd's counter, which read(2) and write(2) carry in host order; see eventfd(2).
const eventfdBytes = 8

func openEventfd() (int, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return -1, fmt.Errorf("ring: eventfd: %w (for EMFILE raise the limit of open files, ulimit -n)", err)
	}
	return fd, nil
}

// ringEventfd adds 1 to the counter. buf is the caller's, so that nothing is allocated. EAGAIN means that the counter
// is at its maximum: the descriptor is readable then, which is all that a waiter needs.
func ringEventfd(fd int, buf *[eventfdBytes]byte) error {
	binary.NativeEndian.PutUint64(buf[:], 1)
	for {
		_, err := unix.Write(fd, buf[:])
		switch err {
		case nil, unix.EAGAIN:
			return nil
		case unix.EINTR:
			continue
		}
		return err
	}
}

// drainEventfd sets the counter back to 0.
func drainEventfd(fd int, buf *[eventfdBytes]byte) error {
	for {
		_, err := unix.Read(fd, buf[:])
		switch err {
		case nil, unix.EAGAIN:
			return nil
		case unix.EINTR:
			continue
		}
		return err
	}
}

// pollUntil is ppoll(2) which a signal does not end early: the Go runtime preempts with SIGURG, and ppoll returns
// EINTR after a handler whatever SA_RESTART says (signal(7)). It returns how many descriptors have events. ts is the
// caller's, so that nothing is allocated.
func pollUntil(fds []unix.PollFd, timeout time.Duration, ts *unix.Timespec) (int, error) {
	deadline := time.Now().Add(timeout)
	for {
		*ts = unix.NsecToTimespec(int64(timeout))
		n, err := unix.Ppoll(fds, ts, nil)
		if err != unix.EINTR {
			return n, err
		}
		timeout = max(time.Until(deadline), 0)
	}
}
