package remote

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds of one connection, the same on both sides.
const (
	maxStreams        = 200
	streamWindowBytes = 64 << 10
	// A stream that nobody reads must not stop the others: room for the
	// windows of as many as net/http allows.
	connectionWindowBytes = 4<<20 - 1
	maxHeaderBytes        = 2 * maxCommandBytes

	endGrace = 5 * time.Second
)

// Serve answers the requests that come over conn, until it ends or fails; then
// it kills what still runs, and returns. It owns conn.
func Serve(conn net.Conn) error {
	s := &server{running: map[int]*process{}}
	mux := http.NewServeMux()
	for pattern, handle := range map[string]http.HandlerFunc{
		"GET /v1/hello":   s.hello,
		"POST /v1/run":    s.run,
		"POST /v1/signal": s.signal,
		"GET /v1/file":    s.getFile,
		"PUT /v1/file":    s.putFile,
		"POST /v1/dial":   s.dial,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			s.handlers.Add(1)
			defer s.handlers.Done()
			handle(w, r)
		})
	}

	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	listener := newOneListener(conn)
	srv := &http.Server{
		Handler:           mux,
		Protocols:         &protocols,
		MaxHeaderBytes:    maxHeaderBytes,
		ReadHeaderTimeout: 0, // the host may be silent for as long as a run of the lab takes
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:          maxStreams,
			MaxReceiveBufferPerStream:     streamWindowBytes,
			MaxReceiveBufferPerConnection: connectionWindowBytes,
		},
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateClosed || state == http.StateHijacked {
				listener.Close()
			}
		},
	}
	err := srv.Serve(listener)
	_ = srv.Close()
	// Handlers see their contexts end with the connection and kill their
	// processes. One that cannot be killed, in a system call that does not
	// return, must not keep the guest from ending.
	s.killAll()
	s.wait(endGrace)
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// oneListener is a listener of a single connection; Accept blocks afterwards
// until the connection is done with.
type oneListener struct {
	conn   chan net.Conn
	addr   net.Addr
	once   sync.Once
	closed chan struct{}
}

func newOneListener(conn net.Conn) *oneListener {
	l := &oneListener{conn: make(chan net.Conn, 1), addr: conn.LocalAddr(), closed: make(chan struct{})}
	l.conn <- conn
	return l
}

func (l *oneListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *oneListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *oneListener) Addr() net.Addr { return l.addr }

// server is the agent's side. Handlers run concurrently.
type server struct {
	handlers sync.WaitGroup

	mu      sync.Mutex
	running map[int]*process // by pid; only these may be signalled
}

func (s *server) add(pid int, p *process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running[pid] = p
}

func (s *server) remove(pid int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.running, pid)
}

func (s *server) killAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.running {
		_ = p.signal(unix.SIGKILL, true)
	}
}

// wait waits for the handlers, but not for ever.
func (s *server) wait(atMost time.Duration) {
	done := make(chan struct{})
	go func() {
		s.handlers.Wait()
		close(done)
	}()
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

func (s *server) hello(w http.ResponseWriter, _ *http.Request) {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	// An error here is the connection's, which the other side sees.
	_ = json.NewEncoder(w).Encode(Hello{Kernel: unix.ByteSliceToString(name.Release[:]), PID: os.Getpid()})
}

// signal sends to a process started here, which has not been waited for, so
// that its number is still its own.
func (s *server) signal(w http.ResponseWriter, r *http.Request) {
	pid, err := strconv.Atoi(r.URL.Query().Get("pid"))
	if err != nil {
		http.Error(w, "pid must be a number", http.StatusBadRequest)
		return
	}
	number, err := strconv.Atoi(r.URL.Query().Get("signal"))
	if err != nil || number < 1 || number > 64 {
		http.Error(w, "signal must be 1 to 64", http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	p, ok := s.running[pid]
	s.mu.Unlock()
	if !ok {
		http.Error(w, fmt.Sprintf("no process %d runs here", pid), http.StatusNotFound)
		return
	}
	switch err := p.signal(syscall.Signal(number), r.URL.Query().Has("group")); {
	case errors.Is(err, os.ErrProcessDone):
		http.Error(w, fmt.Sprintf("process %d has ended", pid), http.StatusNotFound)
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

func (s *server) getFile(w http.ResponseWriter, r *http.Request) {
	f, err := os.Open(r.URL.Query().Get("path"))
	if err != nil {
		fileError(w, err)
		return
	}
	defer f.Close()
	// One read first: a directory, or a file of sysfs that has no value now,
	// opens well and fails here.
	first := make([]byte, 32<<10)
	n, err := f.Read(first)
	if err != nil && err != io.EOF {
		fileError(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	if _, err := w.Write(first[:n]); err != nil {
		return
	}
	if _, err := io.Copy(w, f); err != nil {
		// Too late for a status: break the stream off, which the caller sees.
		panic(http.ErrAbortHandler)
	}
}

func (s *server) putFile(w http.ResponseWriter, r *http.Request) {
	mode, err := strconv.ParseUint(r.URL.Query().Get("mode"), 8, 32)
	if err != nil || mode > 0o777 {
		http.Error(w, "mode must be octal, up to 777", http.StatusBadRequest)
		return
	}
	path := r.URL.Query().Get("path")
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, fs.FileMode(mode))
	if err != nil {
		fileError(w, err)
		return
	}
	_, err = io.Copy(f, r.Body)
	if err = errors.Join(err, f.Close()); err != nil {
		fileError(w, err)
	}
}

func fileError(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	if errors.Is(err, fs.ErrNotExist) {
		status = http.StatusNotFound
	}
	http.Error(w, err.Error(), status)
}

// dial joins the request to a connection made here.
func (s *server) dial(w http.ResponseWriter, r *http.Request) {
	network, address := r.URL.Query().Get("network"), r.URL.Query().Get("address")
	if !strings.HasPrefix(network, "tcp") && network != "unix" {
		http.Error(w, "network must be tcp or unix", http.StatusBadRequest)
		return
	}
	dialer := net.Dialer{Timeout: 30 * time.Second}
	conn, err := dialer.DialContext(r.Context(), network, address)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer conn.Close()
	stream := http.NewResponseController(w)
	w.WriteHeader(http.StatusOK)
	if stream.Flush() != nil {
		return
	}
	go func() {
		// Ends with the body: the caller closed its side, or has gone.
		_, _ = io.Copy(conn, r.Body)
		if half, ok := conn.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
		<-r.Context().Done()
		_ = conn.Close() // ends the loop below too
	}()
	buf := make([]byte, 32<<10)
	for {
		n, err := conn.Read(buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return
			}
			if stream.Flush() != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
