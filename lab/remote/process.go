package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// Process is a command that runs in the guest. Safe for concurrent use.
type Process struct {
	client  *Client
	command Command
	pid     int
	cancel  context.CancelFunc
	done    chan struct{}
	exit    Exit  // valid after done
	err     error // likewise: how it was lost, not that it failed
}

// Start starts a command and returns once it runs. The process and its group
// are killed when ctx ends.
func (c *Client) Start(ctx context.Context, command Command) (*Process, error) {
	text, err := command.encode()
	if err != nil {
		return nil, err
	}
	life, cancel := context.WithCancel(ctx)
	what := "run " + command.String()
	body := command.Stdin
	if body != nil {
		body = io.NopCloser(body) // not net/http's to close
	}
	resp, err := c.request(life, what, http.MethodPost, "/v1/run", nil, body, http.Header{commandHeader: {text}})
	if err != nil {
		cancel()
		return nil, err
	}
	buf := make([]byte, maxFrameBytes)
	var started startedFrame
	kind, payload, err := readFrame(resp.Body, buf)
	if err == nil && kind != frameStarted {
		err = fmt.Errorf("the agent's first frame is of kind %d", kind)
	}
	if err == nil {
		err = json.Unmarshal(payload, &started)
	}
	if err != nil {
		cancel()
		_ = resp.Body.Close()
		return nil, fmt.Errorf("%s: %w", shorten(what, 200), err)
	}
	p := &Process{client: c, command: command, pid: started.PID, cancel: cancel, done: make(chan struct{})}
	// The end of the context alone is not noticed by a request whose body waits
	// for the other side's window; closing the answer wakes it and resets the
	// stream. It waits for nothing once the context has ended.
	context.AfterFunc(life, func() { _ = resp.Body.Close() })
	go func() {
		defer close(p.done)
		defer resp.Body.Close()
		defer cancel() // first: Close waits for whoever reads Stdin, but not then
		p.exit, p.err = p.follow(resp.Body, buf)
		if p.err != nil {
			if cause := context.Cause(life); cause != nil {
				p.err = cause
			}
			p.err = fmt.Errorf("%s: %w", shorten(what, 200), p.err)
		}
	}()
	return p, nil
}

// follow hands out the output until the process has ended.
func (p *Process) follow(r io.Reader, buf []byte) (Exit, error) {
	for {
		kind, payload, err := readFrame(r, buf)
		if err != nil {
			return Exit{}, fmt.Errorf("lost the process: %w", err)
		}
		var to io.Writer
		switch kind {
		case frameStdout:
			to = p.command.Stdout
		case frameStderr:
			to = p.command.Stderr
		case frameEnded:
			var end endedFrame
			if err := json.Unmarshal(payload, &end); err != nil {
				return Exit{}, fmt.Errorf("how it ended: %w", err)
			}
			if end.Error != "" {
				return Exit{}, errors.New(end.Error)
			}
			return end.Exit, nil
		default:
			return Exit{}, fmt.Errorf("a frame of kind %d in the middle", kind)
		}
		if to != nil {
			if _, err := to.Write(payload); err != nil {
				return Exit{}, fmt.Errorf("its output: %w", err)
			}
		}
	}
}

// PID is the process's number in the guest.
func (p *Process) PID() int { return p.pid }

// Done is closed when the process has ended, or was lost, and all its output
// was written.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait returns how the process ended. An error means that this is not known:
// the context ended, or the guest did. That it failed is no error of Wait's.
func (p *Process) Wait() (Exit, error) {
	<-p.done
	return p.exit, p.err
}

// Signal sends a signal to the process alone.
func (p *Process) Signal(ctx context.Context, signal syscall.Signal) error {
	return p.signal(ctx, signal, url.Values{})
}

// SignalGroup sends a signal to the process and the children that did not
// leave its group.
func (p *Process) SignalGroup(ctx context.Context, signal syscall.Signal) error {
	return p.signal(ctx, signal, url.Values{"group": {""}})
}

func (p *Process) signal(ctx context.Context, signal syscall.Signal, query url.Values) error {
	query.Set("pid", strconv.Itoa(p.pid))
	query.Set("signal", strconv.Itoa(int(signal)))
	what := fmt.Sprintf("signal %v to %d (%s)", signal, p.pid, p.command)
	resp, err := p.client.request(ctx, what, http.MethodPost, "/v1/signal", query, nil, nil)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// Kill ends the process and its group, and waits until they have gone.
func (p *Process) Kill() {
	p.cancel()
	<-p.done
}

// Result is a command that has ended.
type Result struct {
	Stdout []byte
	Stderr []byte
	Exit   Exit
}

// maxOutput bounds what Run keeps of each output: the end of it.
const maxOutput = 4 << 20

// Run runs a command to its end and returns what it printed, where the command
// names no writers of its own. A code other than 0 is an *ExitError, beside
// the result.
func (c *Client) Run(ctx context.Context, command Command) (Result, error) {
	stdout, stderr := &tail{limit: maxOutput}, &tail{limit: maxOutput}
	if command.Stdout == nil {
		command.Stdout = stdout
	}
	if command.Stderr == nil {
		command.Stderr = stderr
	}
	p, err := c.Start(ctx, command)
	if err != nil {
		return Result{}, err
	}
	exit, err := p.Wait()
	result := Result{Stdout: stdout.Bytes(), Stderr: stderr.Bytes(), Exit: exit}
	if err != nil {
		return result, err
	}
	if err := exit.Err(command); err != nil {
		var failed *ExitError
		if errors.As(err, &failed) {
			failed.Output = said(result)
		}
		return result, err
	}
	return result, nil
}

// said is the end of the output, errors last.
func said(r Result) string {
	const most = 2048
	text := strings.TrimSpace(strings.TrimSpace(string(r.Stdout)) + "\n" + strings.TrimSpace(string(r.Stderr)))
	if len(text) > most {
		text = "..." + strings.ToValidUTF8(text[len(text)-most:], "")
	}
	return text
}

// tail keeps the last limit bytes written to it.
type tail struct {
	limit int
	mu    sync.Mutex
	buf   []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	// Only now and then, so that a long output is not copied each time.
	if len(t.buf) > 2*t.limit {
		t.buf = append(t.buf[:0], t.buf[len(t.buf)-t.limit:]...)
	}
	return len(p), nil
}

func (t *tail) Bytes() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	return bytes.Clone(t.buf[max(0, len(t.buf)-t.limit):])
}
