package guest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// qmp talks to QEMU's machine protocol (docs/interop/qmp-spec.txt): a line of
// JSON each way, events between. One command at a time; safe for concurrent
// use.
type qmp struct {
	mu    sync.Mutex
	conn  net.Conn
	lines *bufio.Scanner
	ready bool // the greeting was answered
	err   error
}

const (
	maxQMPLine  = 1 << 20
	qmpDeadline = 30 * time.Second
)

func newQMP(conn net.Conn) *qmp {
	lines := bufio.NewScanner(conn)
	lines.Buffer(nil, maxQMPLine)
	return &qmp{conn: conn, lines: lines}
}

// QMPError is a command that QEMU refused.
type QMPError struct {
	Command string
	Class   string `json:"class"`
	Detail  string `json:"desc"`
}

func (e *QMPError) Error() string {
	return fmt.Sprintf("QEMU refuses %s: %s (%s)", e.Command, e.Detail, e.Class)
}

type qmpAnswer struct {
	Greeting *json.RawMessage `json:"QMP"`
	Event    string           `json:"event"`
	Return   *json.RawMessage `json:"return"`
	Error    *QMPError        `json:"error"`
}

// execute runs a command and returns its result. After a failure of the
// connection all later commands fail too: answers would be another's.
func (q *qmp) execute(ctx context.Context, command string, arguments any) (json.RawMessage, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err != nil {
		return nil, q.err
	}
	deadline := time.Now().Add(qmpDeadline)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	if err := q.conn.SetDeadline(deadline); err != nil {
		return nil, fmt.Errorf("QEMU's monitor: %w", err)
	}
	result, err := q.exchange(command, arguments)
	var refused *QMPError
	if err != nil && !errors.As(err, &refused) {
		q.err = fmt.Errorf("QEMU's monitor, %s: %w", command, err)
		return nil, q.err
	}
	return result, err
}

func (q *qmp) exchange(command string, arguments any) (json.RawMessage, error) {
	if !q.ready {
		a, err := q.receive()
		if err != nil {
			return nil, err
		}
		if a.Greeting == nil {
			return nil, errors.New("no greeting")
		}
		if _, err := q.ask("qmp_capabilities", nil); err != nil {
			return nil, err
		}
		q.ready = true
	}
	return q.ask(command, arguments)
}

func (q *qmp) ask(command string, arguments any) (json.RawMessage, error) {
	line, err := json.Marshal(struct {
		Execute   string `json:"execute"`
		Arguments any    `json:"arguments,omitempty"`
	}{command, arguments})
	if err != nil {
		return nil, err
	}
	if _, err := q.conn.Write(append(line, '\n')); err != nil {
		return nil, err
	}
	for {
		a, err := q.receive()
		switch {
		case err != nil:
			return nil, err
		case a.Event != "":
		case a.Error != nil:
			a.Error.Command = command
			return nil, a.Error
		case a.Return != nil:
			return *a.Return, nil
		default:
			return nil, errors.New("an answer that is none")
		}
	}
}

func (q *qmp) receive() (qmpAnswer, error) {
	var a qmpAnswer
	if !q.lines.Scan() {
		if err := q.lines.Err(); err != nil {
			return a, err
		}
		return a, io.ErrUnexpectedEOF
	}
	return a, json.Unmarshal(q.lines.Bytes(), &a)
}
