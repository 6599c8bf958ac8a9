package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// connect returns a client of an agent in this process, over a socket pair as
// QEMU has one.
func connect(t *testing.T) *Client {
	t.Helper()
	host, guest := pair(t)
	served := make(chan error, 1)
	go func() { served <- Serve(guest) }()
	c := NewClient(host)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return c
}

func pair(t *testing.T) (a, b net.Conn) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	conns := make([]net.Conn, 2)
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		if conns[i], err = net.FileConn(f); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return conns[0], conns[1]
}

// limited is a context that ends a test which hangs.
func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestHello(t *testing.T) {
	h, err := connect(t).Hello(limited(t))
	if err != nil || h.Kernel == "" || h.PID != os.Getpid() {
		t.Errorf("%+v, %v", h, err)
	}
}

func TestRun(t *testing.T) {
	c := connect(t)
	for _, test := range []struct {
		name    string
		command Command
		stdout  string
		stderr  string
		code    int
		signal  syscall.Signal
	}{
		{name: "output", command: Command{Args: []string{"echo", "a b"}}, stdout: "a b\n"},
		{name: "both outputs and a code", command: Command{Args: []string{"sh", "-c", "echo out; echo err >&2; exit 7"}},
			stdout: "out\n", stderr: "err\n", code: 7},
		{name: "input", command: Command{Args: []string{"cat"}, Stdin: strings.NewReader("line\nno end")}, stdout: "line\nno end"},
		{name: "no input", command: Command{Args: []string{"cat"}}},
		{name: "environment and directory", command: Command{Args: []string{"sh", "-c", "echo $LAB $PWD"}, Env: []string{"LAB=é\n"}, Dir: "/tmp"},
			stdout: "é /tmp\n"},
		{name: "a signal", command: Command{Args: []string{"sh", "-c", "kill -TERM $$"}}, code: -1, signal: syscall.SIGTERM},
		{name: "an orphan that holds the output", command: Command{Args: []string{"sh", "-c", "sleep 1000 & echo on"}}, stdout: "on\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, err := c.Run(limited(t), test.command)
			if diff := cmp.Diff([]string{test.stdout, test.stderr}, []string{string(r.Stdout), string(r.Stderr)}); diff != "" {
				t.Errorf("output (-want +got):\n%s", diff)
			}
			if r.Exit.Code != test.code || r.Exit.Signal != test.signal {
				t.Errorf("ended %+v", r.Exit)
			}
			var failed *ExitError
			if (test.code != 0) != errors.As(err, &failed) {
				t.Errorf("error %v", err)
			}
			if failed != nil && !strings.Contains(failed.Error(), strings.TrimSpace(test.stderr)) {
				t.Errorf("%q does not say what it printed", failed)
			}
		})
	}
}

func TestRunRefused(t *testing.T) {
	c := connect(t)
	var refused *RefusedError
	if _, err := c.Run(limited(t), Command{Args: []string{"/no/such/program"}}); !errors.As(err, &refused) || refused.Status != http.StatusUnprocessableEntity {
		t.Errorf("no program: %v", err)
	}
	for name, command := range map[string]Command{
		"empty":      {},
		"no name":    {Args: []string{""}},
		"much":       {Args: []string{"echo", strings.Repeat("x", maxCommandBytes)}},
		"many":       {Args: make([]string, maxArguments+1)},
		"a variable": {Args: []string{"env"}, Env: []string{"=x"}},
	} {
		if len(command.Args) > 1 && command.Args[0] == "" {
			command.Args[0] = "echo"
		}
		if _, err := c.Start(limited(t), command); err == nil || errors.As(err, &refused) {
			t.Errorf("%s: %v; want a refusal before it is sent", name, err)
		}
	}
}

// TestLongOutput has more output, and input, than any window holds.
func TestLongOutput(t *testing.T) {
	c := connect(t)
	in := bytes.Repeat([]byte("0123456789abcde\n"), 1<<16)
	r, err := c.Run(limited(t), Command{Args: []string{"cat"}, Stdin: bytes.NewReader(in)})
	if err != nil || !bytes.Equal(r.Stdout, in) {
		t.Errorf("%d bytes came back of %d: %v", len(r.Stdout), len(in), err)
	}
	r, err = c.Run(limited(t), Command{Args: []string{"sh", "-c", "head -c 6000000 /dev/zero; echo end"}})
	if err != nil || len(r.Stdout) != maxOutput || !bytes.HasSuffix(r.Stdout, []byte("\x00end\n")) {
		t.Errorf("%d bytes kept: %v", len(r.Stdout), err)
	}
}

// TestOneBlocks: a stream that nobody reads stops only itself.
func TestOneBlocks(t *testing.T) {
	c := connect(t)
	ctx := limited(t)
	stuck, writer := io.Pipe()
	p, err := c.Start(ctx, Command{Args: []string{"cat", "/dev/zero"}, Stdout: writer})
	if err != nil {
		t.Fatal(err)
	}
	sleeper, err := c.Start(ctx, Command{Args: []string{"sleep", "1000"}, Stdin: endless{}})
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if _, err := c.Run(ctx, Command{Args: []string{"true"}}); err != nil {
			t.Fatal(err)
		}
	}
	_ = stuck.Close()
	p.Kill()
	sleeper.Kill()
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// alive tells whether a process runs; a zombie does not.
func alive(t *testing.T, pid int) bool {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := bytes.Cut(stat, []byte(") "))
	return len(after) > 0 && after[0] != 'Z'
}

// awaitGone waits for the end of a process that was killed.
func awaitGone(ctx context.Context, t *testing.T, pid int) {
	t.Helper()
	for alive(t, pid) {
		if ctx.Err() != nil {
			t.Fatalf("process %d still runs", pid)
		}
		time.Sleep(time.Millisecond)
	}
}

// startFamily starts a shell with a child and returns both.
func startFamily(ctx context.Context, t *testing.T, c *Client) (p *Process, child int) {
	t.Helper()
	r, w := io.Pipe()
	p, err := c.Start(ctx, Command{Args: []string{"sh", "-c", "sleep 1000 & echo $!; wait"}, Stdout: w})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fscan(r, &child); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, r) }()
	t.Cleanup(func() { _ = w.Close() })
	return p, child
}

func TestProcessEndsWithItsContext(t *testing.T) {
	c := connect(t)
	ctx, cancel := context.WithCancel(limited(t))
	p, child := startFamily(ctx, t, c)
	cancel()
	if _, err := p.Wait(); !errors.Is(err, context.Canceled) {
		t.Errorf("wait: %v", err)
	}
	awaitGone(limited(t), t, p.PID())
	awaitGone(limited(t), t, child)
}

func TestProcessEndsWithTheConnection(t *testing.T) {
	host, guest := pair(t)
	served := make(chan error, 1)
	go func() { served <- Serve(guest) }()
	c := NewClient(host)
	p, child := startFamily(limited(t), t, c)
	_ = c.Close()
	if err := <-served; err != nil {
		t.Errorf("serve: %v", err)
	}
	if _, err := p.Wait(); err == nil {
		t.Error("a lost process has an end")
	}
	awaitGone(limited(t), t, p.PID())
	awaitGone(limited(t), t, child)
	if _, err := c.Hello(limited(t)); !errors.Is(err, ErrGone) {
		t.Errorf("afterwards: %v", err)
	}
}

func TestSignal(t *testing.T) {
	c := connect(t)
	ctx := limited(t)
	p, err := c.Start(ctx, Command{Args: []string{"sleep", "1000"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Signal(ctx, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if exit, err := p.Wait(); err != nil || exit.Signal != syscall.SIGTERM {
		t.Errorf("%+v, %v", exit, err)
	}
	var refused *RefusedError
	if err := p.Signal(ctx, syscall.SIGTERM); !errors.As(err, &refused) || refused.Status != http.StatusNotFound {
		t.Errorf("after the end: %v", err)
	}
	parent, child := startFamily(ctx, t, c)
	if err := parent.SignalGroup(ctx, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if _, err := parent.Wait(); err != nil {
		t.Error(err)
	}
	awaitGone(ctx, t, child)
	// A process that the agent did not start is not its to signal.
	stranger := &Process{client: c, pid: os.Getpid()}
	if err := stranger.Signal(ctx, syscall.SIGCONT); !errors.As(err, &refused) || refused.Status != http.StatusNotFound {
		t.Errorf("a stranger: %v", err)
	}
}

func TestTerminal(t *testing.T) {
	c := connect(t)
	r, w := io.Pipe()
	defer w.Close()
	var out bytes.Buffer
	p, err := c.Start(limited(t), Command{
		Args: []string{"sh", "-c", "stty size; read line; echo got $line"}, Terminal: &Terminal{Rows: 33, Columns: 101},
		Stdin: r, Stdout: &out,
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, "word\n"); err != nil {
		t.Fatal(err)
	}
	if exit, err := p.Wait(); err != nil || exit.Code != 0 {
		t.Fatalf("%+v, %v; the terminal shows %q", exit, err, out.String())
	}
	if s := out.String(); !strings.Contains(s, "33 101") || !strings.Contains(s, "got word") {
		t.Errorf("the terminal shows %q", s)
	}
}

func TestFiles(t *testing.T) {
	c := connect(t)
	ctx := limited(t)
	path := filepath.Join(t.TempDir(), "a file")
	content := bytes.Repeat([]byte("content "), 1<<17)
	if err := c.WriteFile(ctx, path, content, 0o640); err != nil {
		t.Fatal(err)
	}
	if err := c.WriteFile(ctx, path, content[:len(content)-1], 0o640); err != nil { // truncates
		t.Fatal(err)
	}
	got, err := c.ReadFile(ctx, path)
	if err != nil || !bytes.Equal(got, content[:len(content)-1]) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if got, err := c.ReadFile(ctx, "/proc/self/stat"); err != nil || len(got) == 0 {
		t.Errorf("proc: %q, %v", got, err)
	}
	for name, call := range map[string]func() error{
		"read": func() error { _, err := c.ReadFile(ctx, path+"/no"); return err },
	} {
		var refused *RefusedError
		if err := call(); !errors.As(err, &refused) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := c.ReadFile(ctx, path+".none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no such file: %v", err)
	}
	if err := c.WriteFile(ctx, path+".none/x", nil, 0o600); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no such directory: %v", err)
	}
	if _, err := c.ReadFile(ctx, filepath.Dir(path)); err == nil {
		t.Error("a directory has content")
	}
	if _, err := c.ReadFile(ctx, "/dev/zero"); err == nil {
		t.Error("a file without end was read")
	}
}

func TestDial(t *testing.T) {
	c := connect(t)
	ctx := limited(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	})}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	defer func() {
		_ = srv.Close()
		<-served
	}()
	transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		return c.Dial(ctx, network, address)
	}}
	defer transport.CloseIdleConnections()
	for range 3 {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+l.Addr().String(), strings.NewReader("echo"))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || string(text) != "echo" {
			t.Errorf("%q, %v", text, err)
		}
	}
	var refused *RefusedError
	if _, err := c.Dial(ctx, "unix", "/no/such/socket"); !errors.As(err, &refused) || refused.Status != http.StatusBadGateway {
		t.Errorf("no listener: %v", err)
	}
	if _, err := c.Dial(ctx, "udp", "127.0.0.1:1"); !errors.As(err, &refused) || refused.Status != http.StatusBadRequest {
		t.Errorf("udp: %v", err)
	}
}

// TestServeForeign: bytes that are not the protocol end the agent's service,
// and nothing else.
func TestServeForeign(t *testing.T) {
	host, guest := pair(t)
	served := make(chan error, 1)
	go func() { served <- Serve(guest) }()
	if _, err := host.Write(bytes.Repeat([]byte("login: "), 100)); err != nil {
		t.Fatal(err)
	}
	_ = host.Close()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

func TestReadFrame(t *testing.T) {
	var b bytes.Buffer
	w := &frameWriter{w: &b, flush: func() error { return nil }}
	if err := errors.Join(w.frame(frameStdout, []byte("text")), w.json(frameEnded, endedFrame{Exit: Exit{Code: 3}})); err != nil {
		t.Fatal(err)
	}
	whole := b.Bytes()
	r := bytes.NewReader(whole)
	buf := make([]byte, maxFrameBytes)
	if kind, payload, err := readFrame(r, buf); err != nil || kind != frameStdout || string(payload) != "text" {
		t.Errorf("%d %q %v", kind, payload, err)
	}
	if kind, _, err := readFrame(r, buf); err != nil || kind != frameEnded {
		t.Errorf("%d %v", kind, err)
	}
	if _, _, err := readFrame(r, buf); err != io.EOF {
		t.Errorf("the end: %v", err)
	}
	for cut := 1; cut < frameHeaderBytes+4; cut++ {
		if _, _, err := readFrame(bytes.NewReader(whole[:cut]), buf); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("cut at %d: %v", cut, err)
		}
	}
}

func FuzzReadFrame(f *testing.F) {
	f.Add([]byte{frameStdout, 0, 0, 0, 2, 'o', 'k', frameEnded, 0, 0, 0, 2, '{', '}'})
	f.Add([]byte{frameStderr, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0})
	f.Fuzz(func(t *testing.T, data []byte) {
		r := bytes.NewReader(data)
		buf := make([]byte, maxFrameBytes)
		for {
			kind, payload, err := readFrame(r, buf)
			if err != nil {
				return
			}
			if kind < frameStarted || kind > frameEnded || len(payload) > maxFrameBytes {
				t.Fatalf("a frame of kind %d and %d bytes", kind, len(payload))
			}
		}
	})
}

func FuzzDecodeCommand(f *testing.F) {
	f.Add(`{"args":["sh","-c","true"],"env":["A=b"],"dir":"/","terminal":{"rows":1,"columns":2}}`)
	f.Add(`{"args":[]}`)
	f.Add(`{"args":["x"],"env":["=y"]}`)
	f.Fuzz(func(t *testing.T, text string) {
		c, err := decodeCommand(text)
		if err != nil {
			return
		}
		again, err := c.encode()
		if err != nil {
			t.Fatalf("what was decoded cannot be encoded: %v", err)
		}
		d, err := decodeCommand(again)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c, d); diff != "" {
			t.Fatal(diff)
		}
	})
}
