package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	v1 "mover/api/v1"
)

// as makes a request as if from a connection to the socket by the user uid.
func (f *fixture) as(uid uint32, method, target, body string, header ...string) *httptest.ResponseRecorder {
	f.t.Helper()
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	if body == "" {
		r.Body = http.NoBody
	}
	for _, h := range header {
		k, v, _ := strings.Cut(h, ": ")
		r.Header.Add(k, v)
	}
	w := httptest.NewRecorder()
	f.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), credentialsKey{}, &credentials{uid: uid})))
	return w
}

func TestSocketUsers(t *testing.T) {
	f := newFixture(t, func(c *Config) {
		c.SocketUsers = map[uint32]SocketUser{
			70001: {ScopeSubmit, Roots{Read: []string{"a:data"}, Write: []string{"b:in"}}},
			70002: {ScopeRead, AllRoots()},
		}
	})
	s := f.snapshot(f.as(70001, "POST", "/v1/jobs", body), http.StatusAccepted)
	if s.Owner != "a/uid:70001" {
		t.Errorf("owner %s", s.Owner)
	}
	if s := f.snapshot(f.as(0, "POST", "/v1/jobs", body), http.StatusAccepted); s.Owner != "a/uid:0" {
		t.Errorf("owner %s", s.Owner)
	}
	if w := f.as(uint32(os.Geteuid()), "POST", "/v1/jobs/"+s.ID.String()+"/cancel", ""); w.Code != 200 {
		t.Errorf("the node's own user: %d %s", w.Code, w.Body)
	}
	f.problem(f.as(70001, "POST", "/v1/jobs", strings.Replace(body, "in/", "other/", 1)), 403, v1.CodeRootNotAllowed)
	f.problem(f.as(70002, "POST", "/v1/jobs", body), 403, v1.CodeScopeTooLow)
	if w := f.as(70002, "GET", "/v1/jobs", ""); w.Code != 200 {
		t.Errorf("%d", w.Code)
	}
	// A user that is not listed stays out, with a token too; only what is open is open.
	f.problem(f.as(70003, "GET", "/v1/jobs", ""), 403, v1.CodeNotAUser)
	f.problem(f.as(70003, "GET", "/v1/jobs", "", "Authorization: Bearer "+f.tokens["admin"]), 403, v1.CodeNotAUser)
	f.problem(f.as(70003, "GET", "/v1/nope", ""), 403, v1.CodeNotAUser)
	if w := f.as(70003, "GET", "/readyz", ""); w.Code != 200 {
		t.Errorf("readyz: %d", w.Code)
	}
	// While it runs, another list takes the first one's place.
	f.SetSocketUsers(map[uint32]SocketUser{70003: {ScopeRead, Roots{}}})
	if w := f.as(70003, "GET", "/v1/jobs", ""); w.Code != 200 {
		t.Errorf("a user that was added: %d %s", w.Code, w.Body)
	}
	f.problem(f.as(70001, "GET", "/v1/jobs", ""), 403, v1.CodeNotAUser)
	r := httptest.NewRequest("GET", "/v1/jobs", nil)
	w := httptest.NewRecorder()
	f.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), credentialsKey{}, &credentials{err: errors.New("none")})))
	f.problem(w, 403, v1.CodeNotAUser)
}

// socketDir is a folder that every user of the host may enter.
func socketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "mover-api-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// serveUnix serves on a socket until the test ends.
func (f *fixture) serveUnix() string {
	f.t.Helper()
	path := filepath.Join(socketDir(f.t), "run", "mover.sock")
	ln, err := ListenUnix(path)
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.Serve(ctx, ln) }()
	f.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			f.t.Error(err)
		}
		if _, err := os.Lstat(path); err == nil {
			f.t.Error("the socket is left behind")
		}
	})
	return path
}

// ask makes a request over conn, which it closes.
func ask(conn net.Conn) (*http.Response, []byte, error) {
	defer conn.Close()
	client := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil }}}
	resp, err := client.Get("http://mover/v1/jobs")
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return resp, data, err
}

func TestSocketTellsWhoConnects(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.SocketUsers = map[uint32]SocketUser{70001: {ScopeRead, Roots{}}} })
	path := f.serveUnix()
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o666 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if resp, data, err := ask(conn); err != nil || resp.StatusCode != 200 {
		t.Errorf("own user: %v %s", err, data)
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can become other users; the rest was tested")
	}
	for uid, want := range map[int]int{70001: 200, 70002: 403} {
		conn, err := dialAs(uid, path)
		if err != nil {
			t.Fatal(err)
		}
		resp, data, err := ask(conn)
		if err != nil || resp.StatusCode != want {
			t.Errorf("uid %d: %v %s", uid, err, data)
		}
		var p v1.Problem
		if want == 403 && (json.Unmarshal(data, &p) != nil || p.Code != v1.CodeNotAUser || !strings.Contains(p.Detail, "socket_users")) {
			t.Errorf("%s", data)
		}
	}
}

// dialAs connects as another user: credentials belong to a thread, so one is
// spent on it, and ends with its goroutine because it is never unlocked.
func dialAs(uid int, path string) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	ch := make(chan result)
	go func() {
		runtime.LockOSThread()
		keep := ^uintptr(0)
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, keep, uintptr(uid), keep); errno != 0 {
			ch <- result{nil, errno}
			return
		}
		conn, err := net.Dial("unix", path)
		ch <- result{conn, err}
	}()
	r := <-ch
	return r.conn, r.err
}

func TestListenUnix(t *testing.T) {
	dir := socketDir(t)
	path := filepath.Join(dir, "s")
	refused := func(path, want string) {
		t.Helper()
		if ln, err := ListenUnix(path); err == nil {
			ln.Close()
			t.Errorf("%q accepted", path)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("%v: no %q", err, want)
		}
	}
	refused("s", "begin with /")
	refused("@abstract", "begin with /")
	refused("", "begin with /")
	refused("/"+strings.Repeat("x", 107), "108 bytes")
	refused("/proc/nope/s", "choose another")
	if long := dir + "/" + strings.Repeat("x", 107-len(dir)-1); len(long) == 107 {
		ln, err := ListenUnix(long)
		if err != nil {
			t.Errorf("107 bytes: %v", err)
		} else {
			ln.Close()
		}
	}
	// In use: the other stays.
	first, err := ListenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	refused(path, "in use")
	if conn, err := net.Dial("unix", path); err != nil {
		t.Errorf("the first one's socket: %v", err)
	} else {
		conn.Close()
	}
	// Left behind by a process that was killed: replaced.
	first.(*net.UnixListener).SetUnlinkOnClose(false)
	first.Close()
	again, err := ListenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after Close: %v", err)
	}
	// Anything else is not touched.
	for name, plant := range map[string]func(string) error{
		"file":    func(p string) error { return os.WriteFile(p, []byte("mine"), 0o600) },
		"folder":  func(p string) error { return os.Mkdir(p, 0o700) },
		"symlink": func(p string) error { return os.Symlink("/nowhere", p) },
		"fifo":    func(p string) error { return unix.Mkfifo(p, 0o600) },
	} {
		p := filepath.Join(dir, name)
		if err := plant(p); err != nil {
			t.Fatal(err)
		}
		refused(p, "not a socket")
		if _, err := os.Lstat(p); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Another kind of socket is not known to be stale.
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: filepath.Join(dir, "dgram")}); err != nil {
		t.Fatal(err)
	}
	refused(filepath.Join(dir, "dgram"), "may be in use")
}

func TestSocketHasNoTLS(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.TLS = testTLS(t) })
	conn, err := net.Dial("unix", f.serveUnix())
	if err != nil {
		t.Fatal(err)
	}
	if resp, data, err := ask(conn); err != nil || resp.StatusCode != 200 {
		t.Errorf("%v %s", err, data)
	}
}
