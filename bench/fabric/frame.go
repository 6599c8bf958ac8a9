package fabric

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// The rendezvous is a stream of frames in both directions:
//
//	"mvb" version | kind | 3 zero bytes | length, 4 bytes, big endian | JSON
//
// It is read before anything is known of who sent it.
const (
	frameVersion = 1
	headerBytes  = 12
	// maxFrameBytes holds the ends of as many QPs as a run may have.
	maxFrameBytes = 4 << 20
)

// frameKind says what a frame carries.
type frameKind uint8

const (
	kindHello frameKind = 1 + iota
	kindSetup
	kindReady
	kindDone
	kindOutcome
	kindAlive // no body: the sender is busy, and there
	kindFailed
)

func (k frameKind) String() string {
	names := [...]string{"", "hello", "setup", "ready", "done", "outcome", "alive", "failed"}
	if k >= kindHello && k <= kindFailed {
		return names[k]
	}
	return fmt.Sprintf("frame kind %d", uint8(k))
}

// ErrProtocol is matched when the other side sent what a `mover bench` of this
// version does not send.
var ErrProtocol = errors.New("the other side does not speak this version of mover's benchmark protocol; is it `mover bench` of the same version?")

func badFrame(format string, args ...any) error {
	return fmt.Errorf("%w (%s)", ErrProtocol, fmt.Sprintf(format, args...))
}

// frame is one frame; body is its own.
type frame struct {
	kind frameKind
	body []byte
}

// appendFrame encodes a frame; v nil makes an empty body.
func appendFrame(b []byte, kind frameKind, v any) ([]byte, error) {
	var body []byte
	if v != nil {
		var err error
		if body, err = json.Marshal(v); err != nil {
			return nil, fmt.Errorf("encoding %v: %w", kind, err)
		}
	}
	if len(body) > maxFrameBytes {
		return nil, fmt.Errorf("encoding %v: %d bytes are more than a frame takes, %d", kind, len(body), maxFrameBytes)
	}
	b = append(b, 'm', 'v', 'b', frameVersion, byte(kind), 0, 0, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(len(body)))
	return append(b, body...), nil
}

// readFrame reads one frame and allocates no more than it has seen coming:
// a length alone makes no buffer of its size.
func readFrame(r io.Reader) (frame, error) {
	var h [headerBytes]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return frame{}, err
	}
	f := frame{kind: frameKind(h[4])}
	n := binary.BigEndian.Uint32(h[8:])
	switch {
	case h[0] != 'm' || h[1] != 'v' || h[2] != 'b':
		return frame{}, badFrame("it begins with %q", h[:4])
	case h[3] != frameVersion:
		return frame{}, badFrame("version %d, not %d", h[3], frameVersion)
	case f.kind < kindHello || f.kind > kindFailed || h[5]|h[6]|h[7] != 0:
		return frame{}, badFrame("%v", f.kind)
	case n > maxFrameBytes:
		return frame{}, badFrame("a frame of %d bytes", n)
	}
	var body bytes.Buffer
	if _, err := io.CopyN(&body, r, int64(n)); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return frame{}, err
	}
	f.body = body.Bytes()
	return f, nil
}

// decode reads the body, strictly, into v and lets v check itself.
func (f *frame) decode(v checked) error {
	d := json.NewDecoder(bytes.NewReader(f.body))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return badFrame("%v: %v", f.kind, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return badFrame("%v: more than one value", f.kind)
	}
	if err := v.check(); err != nil {
		return badFrame("%v: %v", f.kind, err)
	}
	return nil
}

// checked is a message that checks its own fields.
type checked interface{ check() error }
