package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	v1 "mover/api/v1"
	"mover/job"
	"mover/reason"
)

// problem is an error that a client sees. Its detail never has anything of the
// request in it.
type problem struct {
	status int
	code   string
	detail string
	field  string
	reason reason.Code // of a job, that stands behind it
	header map[string]string
}

func (p *problem) Error() string { return p.code + ": " + p.detail }

func refuse(status int, code, format string, args ...any) *problem {
	return &problem{status: status, code: code, detail: fmt.Sprintf(format, args...)}
}

func unauthenticated(kind, detail string) *problem {
	challenge := `Bearer realm="mover"`
	if kind != "" {
		challenge += `, error="` + kind + `"` // RFC 6750 section 3.1
	}
	return &problem{status: http.StatusUnauthorized, code: v1.CodeUnauthenticated, detail: detail,
		header: map[string]string{"WWW-Authenticate": challenge}}
}

func internal() *problem {
	return refuse(http.StatusInternalServerError, v1.CodeInternal,
		"a defect of this program; the node's log has the details under the request_id")
}

func (p *problem) retryAfter(seconds string) *problem {
	p.header = map[string]string{"Retry-After": seconds}
	return p
}

// problemOf translates the errors of package job.
func problemOf(err error) (p *problem, known bool) {
	var field *job.FieldError
	var transition *job.TransitionError
	var why *reason.Error
	switch {
	case errors.As(err, &p):
		return p, true
	case errors.As(err, &field):
		p = refuse(http.StatusBadRequest, v1.CodeInvalidJob, "%s", field.Error())
		if field.Unsupported {
			p.code = v1.CodeUnsupported
		}
		p.field = field.Field
		return p, true
	case errors.As(err, &transition):
		return refuse(http.StatusConflict, v1.CodeWrongState, "%s; %s", transition.Error(), fromThere(transition)), true
	case errors.Is(err, job.ErrNotFound):
		return refuse(http.StatusNotFound, v1.CodeNotFound, "%s", job.ErrNotFound.Error()), true
	case errors.Is(err, job.ErrKeyConflict):
		return refuse(http.StatusUnprocessableEntity, v1.CodeKeyReused, "%s", job.ErrKeyConflict.Error()), true
	case errors.Is(err, job.ErrPageToken):
		return refuse(http.StatusBadRequest, v1.CodeInvalidRequest, "page_token: %s", job.ErrPageToken.Error()), true
	case errors.Is(err, job.ErrQueueFull):
		return refuse(http.StatusServiceUnavailable, v1.CodeQueueFull, "%s", job.ErrQueueFull.Error()).retryAfter("5"), true
	case errors.Is(err, job.ErrVersion):
		return changedSince(), true
	case errors.Is(err, job.ErrDraining):
		return refuse(http.StatusServiceUnavailable, v1.CodeDraining, "%s", job.ErrDraining.Error()).retryAfter("30"), true
	case errors.Is(err, job.ErrStore):
		// The log gets the cause.
		return refuse(http.StatusServiceUnavailable, v1.CodeStoreFailed,
			"the node cannot write its state now; its log says why, look at its disk").retryAfter("5"), false
	case errors.Is(err, job.ErrClosed):
		return refuse(http.StatusServiceUnavailable, v1.CodeStopping, "%s", job.ErrClosed.Error()).retryAfter("5"), true
	case errors.Is(err, ErrNoBuffer):
		return refuse(http.StatusNotFound, v1.CodeNotFound, "%s", ErrNoBuffer.Error()), true
	case errors.Is(err, ErrBufferConflict):
		return refuse(http.StatusConflict, v1.CodeBufferExists, "%s", ErrBufferConflict.Error()), true
	case errors.Is(err, ErrBufferConfig):
		return refuse(http.StatusConflict, v1.CodeBufferConfigured, "%s", ErrBufferConfig.Error()), true
	case errors.As(err, &why) && why.Code != reason.Internal && why.Code.Valid():
		return becauseOf(why), true
	}
	return internal(), false
}

// fromThere is what can be done with a job in the state that it is in.
func fromThere(e *job.TransitionError) string {
	switch {
	case !e.From.Terminal():
		return "wait for its end, or cancel it"
	case e.To == job.Canceled || e.To == job.Canceling || e.To == job.Paused:
		return "it has ended already"
	case e.From == job.Succeeded:
		return "submit it again"
	}
	return "retry it, or submit it again"
}

// notJob gives a *job.FieldError about anything but a job its code.
func notJob(err error) error {
	var field *job.FieldError
	if !errors.As(err, &field) {
		return err
	}
	p := refuse(http.StatusBadRequest, v1.CodeInvalidRequest, "%s", field.Error())
	p.field = field.Field
	return p
}

// becauseOf is the problem that a job's reason is when it ends a request.
func becauseOf(why *reason.Error) *problem {
	shown := job.NewReason(why) // bounded, and fit for a terminal
	p := refuse(http.StatusUnprocessableEntity, v1.CodeImpossible, "%s", shown.Detail)
	p.reason = why.Code
	switch why.Code {
	case reason.BufferBusy:
		p.status, p.code = http.StatusConflict, v1.CodeBufferBusy
	case reason.NotAuthorized:
		p.status, p.code = http.StatusForbidden, v1.CodeNotAuthorized
	case reason.NoSpace, reason.Quota:
		p.status, p.code = http.StatusInsufficientStorage, v1.CodeNoSpace
	case reason.PeerUnreachable, reason.TransportError:
		p.status, p.code = http.StatusBadGateway, v1.CodePeerUnreachable
	case reason.PeerRefused:
		p.status, p.code = http.StatusServiceUnavailable, v1.CodePeerRefused
	}
	if why.Code.Retryable() {
		p.retryAfter("5")
	}
	return p
}

// fail answers with the problem that err is.
func (a *API) fail(w http.ResponseWriter, r *http.Request, err error) {
	p, known := problemOf(err)
	rec, ok := w.(*recorder)
	if !ok {
		rec = &recorder{ResponseWriter: w}
	}
	if !known && r.Context().Err() == nil {
		a.cfg.Logger.Error("a request failed", "request_id", rec.id, "err", err)
	}
	rec.fail(p)
}

func (w *recorder) fail(p *problem) {
	if w.status != 0 {
		return // the answer has begun
	}
	for k, v := range p.header {
		w.Header().Set(k, v)
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.status)
	// A client that is gone cannot be told.
	_ = json.NewEncoder(w).Encode(v1.Problem{
		Type: "about:blank", Title: http.StatusText(p.status), Status: p.status,
		Code: p.code, Detail: p.detail, Field: p.field, Reason: p.reason, RequestID: w.id,
	})
}

// answer writes v as JSON.
func answer(w http.ResponseWriter, status int, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("marshal the answer: %w", err)
	}
	write(w, status, data)
	return nil
}

func write(w http.ResponseWriter, status int, data []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(data, '\n')) // a client that is gone cannot be told
}
