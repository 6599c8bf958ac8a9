package fabric

import (
	"errors"
	"fmt"
)

// ErrWrong is matched by a *WrongError.
var ErrWrong = errors.New("what arrived is not what was sent")

// WrongError: the check of the content failed. The figures of the run mean
// nothing then.
type WrongError struct {
	Text string // which message, and what is wrong
}

func (e *WrongError) Error() string {
	return ErrWrong.Error() + ": " + e.Text + "; do not trust this path with data"
}

// Is matches ErrWrong.
func (e *WrongError) Is(target error) bool { return target == ErrWrong }

// verdict gathers what the check of one QP's messages found.
type verdict struct {
	checked uint64
	wrong   uint64
	first   string // of what was wrong
}

// look checks one message in its place.
func (v *verdict) look(p pattern, l *layout, b []byte, qp int, message uint64) {
	v.checked++
	slot := l.sourceOf(message)
	if p.mismatch(b, qp, slot) < 0 {
		return
	}
	v.fault(fmt.Sprintf("message %d of QP %d: %s", message, qp, p.explain(b, qp, slot, l.sources)))
}

func (v *verdict) fault(text string) {
	v.wrong++
	if v.first == "" {
		v.first = text
	}
}

func (v *verdict) add(o verdict) {
	v.checked += o.checked
	v.wrong += o.wrong
	if v.first == "" {
		v.first = o.first
	}
}

// text is "" when nothing was wrong.
func (v *verdict) text() string {
	switch {
	case v.wrong == 0:
		return ""
	case v.wrong == 1:
		return v.first
	}
	return fmt.Sprintf("%d of %d looked at; the first is %s", v.wrong, v.checked, v.first)
}
