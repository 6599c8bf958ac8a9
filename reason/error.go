package reason

import (
	"errors"
	"fmt"
)

// Error is an error with a reason. Code decides what happens to the attempt;
// Detail is one sentence for a person, saying what was being done and what to
// do next, without secrets; Err is the cause, if there is one. An Error is
// immutable once made and may be shared between goroutines.
type Error struct {
	Code   Code
	Detail string
	Err    error
}

// ErrFinal as the cause of an Error says that trying again cannot help, though
// other failures of its Code may pass: a checksum that the job itself expects
// wrongly, for example. It does not travel to another node.
var ErrFinal = errors.New("trying again cannot help")

// New returns an Error whose Detail is the formatted text. As with fmt.Errorf,
// an operand of a %w verb becomes the cause that Unwrap returns; its text is
// already part of Detail.
func New(code Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	e := &Error{Code: code, Detail: err.Error()}
	switch u := err.(type) {
	case interface{ Unwrap() error }:
		e.Err = u.Unwrap()
	case interface{ Unwrap() []error }:
		// Several %w: keep them all reachable by errors.Is and errors.As.
		e.Err = errors.Join(u.Unwrap()...)
	}
	return e
}

// Error returns "CODE: detail". A cause that Detail does not mention yet is
// not repeated: New puts it there, and a literal Error says what it wants.
func (e *Error) Error() string {
	if e.Detail != "" {
		return string(e.Code) + ": " + e.Detail
	}
	if e.Err != nil {
		return string(e.Code) + ": " + e.Err.Error()
	}
	return string(e.Code)
}

// Unwrap returns the cause, nil if there is none.
func (e *Error) Unwrap() error { return e.Err }

// Is makes errors.Is(err, &reason.Error{Code: c}) true for every Error with
// the code c when the target has nothing but a code.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Detail == "" && t.Err == nil && t.Code == e.Code
}

// Of returns the reason of err: the code of the outermost Error in its chain,
// "" for nil, and INTERNAL if there is none or its code is not in the list. It does not
// guess from an errno or a context error, because what those mean depends on
// what was being done; whoever made the call wraps them.
func Of(err error) Code {
	if err == nil {
		return ""
	}
	var e *Error
	if errors.As(err, &e) && e.Code.Valid() {
		return e.Code
	}
	return Internal
}
