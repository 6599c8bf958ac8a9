package peer

import (
	"errors"
	"fmt"
)

// The errors callers may ask for with errors.Is. Dial wraps them in a
// reason.Error (PEER_UNREACHABLE or PEER_REFUSED), Conn.Err in one with
// TRANSPORT_ERROR, except for ErrClosed.
var (
	// ErrUnknownPeer: the configuration has no way to dial the name.
	ErrUnknownPeer = errors.New("unknown peer")
	// ErrUntrusted: a certificate is neither pinned nor of the CA.
	ErrUntrusted = errors.New("untrusted certificate")
	// ErrWrongName: a certificate names another node than expected.
	ErrWrongName = errors.New("wrong node name")
	// ErrExpired: a CA-issued certificate is expired or not valid yet.
	ErrExpired = errors.New("certificate outside its time")
	// ErrVersion: the two nodes have no protocol version in common.
	ErrVersion = errors.New("no common protocol version")
	// ErrShutdown: the Control is closed.
	ErrShutdown = errors.New("the control plane is shutting down")

	// ErrClosed: the session was ended in an orderly way, by Conn.Close here or
	// at the peer.
	ErrClosed = errors.New("session closed")
	// ErrReplaced: the peer made a new session, so this one is stale.
	ErrReplaced = errors.New("session replaced by a newer one")
	// ErrOverflow: the peer does not take messages as fast as they are sent.
	ErrOverflow = errors.New("send queue full")
	// ErrMessage: a message given to Send, or a question given to Ask, breaks a
	// limit of the protocol.
	ErrMessage = errors.New("message cannot be sent")

	// ErrBusy: a question came while too many others were being answered, or
	// had just been. The same question may be asked again in a moment.
	ErrBusy = errors.New("too many questions at a time")
	// ErrUnknownQuestion: the peer does not know questions of the kind asked;
	// its version of the program is older.
	ErrUnknownQuestion = errors.New("the peer does not know this question")
)

// errDuplicate: the peer keeps the session that it has.
var errDuplicate = errors.New("the peer has a session already")

// ViolationError says how a peer broke the protocol. Its session is over.
type ViolationError struct {
	Frame  string // the kind of frame, "frame" before that is known
	Field  string // "" for the frame as a whole
	Detail string
}

func (e *ViolationError) Error() string {
	at := e.Frame
	if e.Field != "" {
		at += "." + e.Field
	}
	return fmt.Sprintf("protocol violation: %s: %s", at, e.Detail)
}

// RefusedError says that one of the two nodes declined the other. Err is one of
// ErrUntrusted, ErrWrongName, ErrExpired, ErrVersion, or nil if the peer gave
// only text.
type RefusedError struct {
	Peer   string // its name, as far as known; "" from an unnamed certificate
	Addr   string // of the connection, "" before there is one
	ByPeer bool   // the peer declined this node, and not the reverse
	Detail string // what is wrong and what to do
	Err    error
}

func (e *RefusedError) Error() string {
	s := e.Detail
	if e.ByPeer {
		s = fmt.Sprintf("peer %q refused this node: %s", e.Peer, e.Detail)
	}
	if e.Addr != "" {
		s = e.Addr + ": " + s
	}
	return s
}

// Unwrap returns Err.
func (e *RefusedError) Unwrap() error { return e.Err }
