package remote

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"sync"
)

// The answer to a run is a row of frames: kind, length (big endian), payload.
// One row keeps standard output, standard error and the end in order.
const (
	frameStarted = 1 // startedFrame in JSON; always the first
	frameStdout  = 2
	frameStderr  = 3
	frameEnded   = 4 // endedFrame in JSON; always the last

	frameHeaderBytes = 5
	maxFrameBytes    = 32 << 10
)

type startedFrame struct {
	PID int `json:"pid"`
}

type endedFrame struct {
	Exit  Exit   `json:"exit"`
	Error string `json:"error,omitempty"` // waiting for the process failed
}

// frameWriter writes frames of several goroutines. flush is called after
// each, so that output comes as it is made.
type frameWriter struct {
	mu    sync.Mutex
	w     io.Writer
	flush func() error
}

func (f *frameWriter) frame(kind byte, payload []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	header := make([]byte, frameHeaderBytes, frameHeaderBytes+len(payload))
	header[0] = kind
	binary.BigEndian.PutUint32(header[1:], uint32(len(payload)))
	if _, err := f.w.Write(append(header, payload...)); err != nil {
		return err
	}
	return f.flush()
}

func (f *frameWriter) json(kind byte, v any) error {
	payload, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return f.frame(kind, payload)
}

// readFrame reads the next frame into buf, which has room for maxFrameBytes,
// and returns its payload there. io.EOF means that the row ended between two
// frames.
func readFrame(r io.Reader, buf []byte) (kind byte, payload []byte, err error) {
	var header [frameHeaderBytes]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return 0, nil, err
	}
	kind = header[0]
	length := binary.BigEndian.Uint32(header[1:])
	if kind < frameStarted || kind > frameEnded {
		return 0, nil, fmt.Errorf("a frame of unknown kind %d", kind)
	}
	if length > maxFrameBytes {
		return 0, nil, fmt.Errorf("a frame of %d bytes, at most %d", length, maxFrameBytes)
	}
	payload = buf[:length]
	if _, err := io.ReadFull(r, payload); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, fmt.Errorf("a frame that ends early: %w", err)
	}
	return kind, payload, nil
}
