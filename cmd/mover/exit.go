package main

import "fmt"

// The exit codes, part of the command's interface: scripts and batch systems
// act on them.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitUnreachable = 3
	exitCanceled    = 4
	exitInterrupted = 130 // as shells report a Ctrl-C
)

const exitCodes = `Exit codes:
    0  it succeeded; for a job: every item is published, verified and durable
    1  it failed; for a job: failed, partial or expired; for doctor: a check failed
    2  wrong usage, or a configuration that cannot be used
    3  the node cannot be reached, or refuses the token
    4  the job was canceled
  130  a Ctrl-C ended the command, and the job may go on`

// exitError is an error with the exit code that it ends the command with.
type exitError struct {
	code int
	err  error // nil: everything has been said
}

func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error {
	return &exitError{code: exitUsage, err: fmt.Errorf(format, args...)}
}
