package verbs

import (
	"errors"
	"fmt"
	"syscall"
)

// Sentinels; test with errors.Is.
var (
	// ErrUnsupported is matched by every *UnsupportedError.
	ErrUnsupported = errors.New("verbs: not supported")
	// ErrTimeout: nothing happened within the time given.
	ErrTimeout = errors.New("verbs: timeout")
	// ErrClosed: the context is closed.
	ErrClosed = errors.New("verbs: device closed")
	// ErrCQOverrun: the CQ had no room for a completion and is dead.
	ErrCQOverrun = errors.New("verbs: completion queue overrun")
)

// UnsupportedError tells that a provider lacks something that the API names.
type UnsupportedError struct {
	Provider string // "soft"
	What     string // "RDMA read"
}

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("verbs: %s has no %s", e.Provider, e.What)
}

// Is matches ErrUnsupported.
func (e *UnsupportedError) Is(target error) bool { return target == ErrUnsupported }

// Error is a verb that failed. errors.Is matches its Errno.
type Error struct {
	Op     string // what was being done: "modify QP INIT to RTR"
	Errno  syscall.Errno
	Detail string // what to look at
}

func (e *Error) Error() string {
	s := "verbs: " + e.Op + ": " + e.Errno.Error()
	if e.Detail != "" {
		s += " (" + e.Detail + ")"
	}
	return s
}

// Unwrap gives the errno.
func (e *Error) Unwrap() error { return e.Errno }
