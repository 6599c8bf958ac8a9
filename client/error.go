package client

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"mover/reason"
)

// Error is the server's refusal: a problem+json. Code is one of api/v1's.
type Error struct {
	Status int    // HTTP status
	Code   string // "" if the answer was no problem+json, as from a proxy
	Detail string
	Field  string // of the job, or a parameter; may be ""
	// Reason is a job's reason code when one stands behind the refusal.
	Reason    reason.Code
	RequestID string // the server's log has it
}

func (e *Error) Error() string {
	text := e.Detail
	if text == "" {
		text = fmt.Sprintf("the server answered with HTTP status %d; check that the address is that of mover's API", e.Status)
	}
	if e.Code != "" {
		text += " (" + e.Code
		if e.RequestID != "" {
			text += ", request " + e.RequestID
		}
		text += ")"
	}
	return text
}

// UnreachableError means that no answer came.
type UnreachableError struct {
	Server string // the address used
	Err    error
}

func (e *UnreachableError) Error() string {
	var cert *tls.CertificateVerificationError
	if errors.As(e.Err, &cert) {
		return fmt.Sprintf("%s did not prove to be the server: %s; check that --ca or MOVER_CA names the certificate of the CA that signed its own, and that its certificate has the address used",
			e.Server, cert.Err)
	}
	return fmt.Sprintf("no answer from %s: %s; check that `mover run` is up there, and that --server or MOVER_SERVER names its API's address",
		e.Server, e.cause())
}

func (e *UnreachableError) cause() string {
	var dns *net.DNSError
	switch {
	case errors.Is(e.Err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.As(e.Err, &dns):
		return "the host's name is not known"
	case errors.Is(e.Err, os.ErrDeadlineExceeded), isTimeout(e.Err):
		return "time is up"
	}
	return e.Err.Error()
}

// Unwrap returns the cause.
func (e *UnreachableError) Unwrap() error { return e.Err }

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}
