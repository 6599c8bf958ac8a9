package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"mover/job"
)

// freePorts finds ports below the range from which the kernel gives ports to
// connections, so that none is lost between being found and being used.
func freePorts(t *testing.T, n int) []int {
	t.Helper()
	portsMu.Lock()
	defer portsMu.Unlock()
	var out []int
	for range 10000 {
		nextPort = 20000 + (nextPort+1-20000)%10000
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", nextPort))
		if err != nil {
			continue
		}
		l.Close()
		if out = append(out, nextPort); len(out) == n {
			return out
		}
	}
	t.Fatal("no free ports")
	return nil
}

var (
	portsMu  sync.Mutex
	nextPort = 20000 + os.Getpid()*37%10000 // two runs at once begin in different places
)

// testNode is a node of a test: its configuration and, between start and stop,
// its process.
type testNode struct {
	name    string
	dir     string   // has state/, data/, incoming/ and config.yaml
	api     string   // host:port
	control string   // host:port
	devices string   // the section, if it is not software verbs
	program string   // another build than the tests' binary
	env     []string // added to the process's environment
	log     *logFile
	process *exec.Cmd
	exited  chan struct{} // closed when process has ended
}

// peerOf is what a node's configuration says of another.
type peerOf struct{ name, control, fingerprint string }

// newNode makes a node's directory. Nothing runs yet.
func newNode(t *testing.T, name string) *testNode {
	t.Helper()
	ports := freePorts(t, 2)
	n := &testNode{
		name: name, dir: t.TempDir(),
		api: fmt.Sprintf("127.0.0.1:%d", ports[0]), control: fmt.Sprintf("127.0.0.1:%d", ports[1]),
	}
	for _, d := range []string{"data", "incoming"} {
		if err := os.Mkdir(n.path(d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

func (n *testNode) path(parts ...string) string {
	return filepath.Join(append([]string{n.dir}, parts...)...)
}

func (n *testNode) config() string { return n.path("config.yaml") }

// fingerprint makes the node's identity if it has none.
func (n *testNode) fingerprint(t *testing.T) string {
	t.Helper()
	file := writeFile(t, n.path("identity.yaml"), fmt.Sprintf("node: {name: %s, state_dir: %q}\n", n.name, n.path("state")))
	got := mover(t, "identity", "--fingerprint", "--config", file)
	got.want(t, exitOK, "sha256:")
	return strings.TrimSpace(got.stdout)
}

// configure writes the configuration; extra is more of it, at top level.
// Memory is small, and a single shallow lane per rail makes a transfer slow
// enough to be caught in the middle.
func (n *testNode) configure(t *testing.T, extra string, peers ...peerOf) {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "node: {name: %s, state_dir: %q}\napi: {listen: %s}\ncontrol: {listen: [%s], dial_timeout: 1s}\n", n.name, n.path("state"), n.api, n.control)
	devices := n.devices
	if devices == "" {
		devices = "{providers: soft}"
	}
	fmt.Fprintf(&b, "devices: %s\n", devices)
	b.WriteString("soft: {addresses: [127.0.0.1, 127.0.0.2]}\nmemory: {arena: 128MiB, session_share: 32MiB, hugepages: none}\n")
	b.WriteString("session: {slot_payload: 256KiB, segment: 1MiB}\n")
	if len(peers) > 0 {
		b.WriteString("peers:\n")
	}
	for _, p := range peers {
		fmt.Fprintf(&b, "  %s: {addresses: [%q], fingerprint: %q}\n", p.name, p.control, p.fingerprint)
	}
	fmt.Fprintf(&b, "roots:\n  data: {path: %q, read: [\"*\"]}\n  incoming: {path: %q, write: [\"*\"]}\n", n.path("data"), n.path("incoming"))
	b.WriteString(extra)
	writeFile(t, n.config(), b.String())
}

func (n *testNode) as(t *testing.T) peerOf { return peerOf{n.name, n.control, n.fingerprint(t)} }

// logFile collects a process's output.
type logFile struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logFile) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logFile) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// start runs the node until stop, or the end of the test, and waits for it to
// be ready.
func (n *testNode) start(t *testing.T) {
	t.Helper()
	n.log = &logFile{}
	program := binary
	if n.program != "" {
		program = n.program
	}
	c := exec.Command(program, "run", "--config", n.config())
	c.Env = append(os.Environ(), n.env...)
	c.Stdout, c.Stderr = n.log, n.log
	// If the test binary is killed, so is the node.
	c.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL, Setpgid: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan struct{})
	n.process, n.exited = c, exited
	go func() {
		_ = c.Wait() // ProcessState tells
		close(exited)
	}()
	log := n.log
	t.Cleanup(func() {
		select {
		case <-exited:
		default:
			_ = c.Process.Kill() // a test that failed left it
			<-exited
		}
		if t.Failed() {
			t.Logf("log of node %s:\n%s", n.name, log)
		}
	})
	within(t, 30*time.Second, "node "+n.name+" is not ready", func() bool {
		select {
		case <-exited:
			t.Fatalf("node %s ended instead of starting", n.name)
		default:
		}
		response, err := http.Get("http://" + n.api + "/readyz")
		if err != nil {
			return false
		}
		response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
}

// stop ends the node with SIGTERM and checks that it ends cleanly in time.
func (n *testNode) stop(t *testing.T) {
	t.Helper()
	if err := n.process.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-n.exited:
	case <-time.After(stopWithin + 5*time.Second):
		t.Fatalf("node %s did not end within %v of SIGTERM", n.name, stopWithin)
	}
	if code := n.process.ProcessState.ExitCode(); code != 0 {
		t.Errorf("node %s ended with %d after SIGTERM", n.name, code)
	}
	if strings.Contains(n.log.String(), "DATA RACE") {
		t.Errorf("node %s has a data race", n.name)
	}
}

// kill ends the node as a crash would.
func (n *testNode) kill(t *testing.T) {
	t.Helper()
	if err := n.process.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-n.exited
}

// within polls until done; it fails the test after the limit.
func within(t *testing.T, limit time.Duration, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !done(); {
		if time.Now().After(end) {
			t.Fatalf("%s after %v", what, limit)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// pair makes and starts nodes a and b that know each other. extra goes into
// a's configuration, which owns the jobs.
func pair(t *testing.T, extra string) (a, b *testNode) {
	t.Helper()
	a, b = newNode(t, "a"), newNode(t, "b")
	a.configure(t, extra, b.as(t))
	b.configure(t, "", a.as(t))
	a.start(t)
	b.start(t)
	return a, b
}

// token is the admin token that the first start made.
func (n *testNode) token(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(n.path("state", "token"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// call makes an authorised request and returns status and body.
func (n *testNode) call(t *testing.T, method, path, body string) (int, http.Header, []byte) {
	t.Helper()
	status, header, text, err := request(t.Context(), method, "http://"+n.api+path, n.token(t), body)
	if err != nil {
		t.Fatal(err)
	}
	return status, header, text
}

// request is call without the test's goroutine.
func request(ctx context.Context, method, url, token, body string) (int, http.Header, []byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, nil, nil, err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, nil, nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, response.Header, text, err
}

// submit submits data/SOURCE -> NODE:incoming/DESTINATION and returns its ID.
func (n *testNode) submit(t *testing.T, source, node, destination string) string {
	t.Helper()
	body, err := json.Marshal(map[string]any{
		"source":      map[string]string{"path": "data/" + source},
		"destination": map[string]string{"node": node, "path": "incoming/" + destination},
	})
	if err != nil {
		t.Fatal(err)
	}
	status, header, answer := n.call(t, http.MethodPost, "/v1/jobs", string(body))
	if status != http.StatusAccepted {
		t.Fatalf("submit: %d %s", status, answer)
	}
	snapshot := decodeJob(t, answer)
	if want := "/v1/jobs/" + snapshot.ID.String(); !strings.HasSuffix(header.Get("Location"), want) {
		t.Errorf("Location is %q, want %q", header.Get("Location"), want)
	}
	return snapshot.ID.String()
}

func (n *testNode) job(t *testing.T, id string) job.Snapshot {
	t.Helper()
	status, _, answer := n.call(t, http.MethodGet, "/v1/jobs/"+id, "")
	if status != http.StatusOK {
		t.Fatalf("job %s: %d %s", id, status, answer)
	}
	return decodeJob(t, answer)
}

func decodeJob(t *testing.T, text []byte) job.Snapshot {
	t.Helper()
	var s job.Snapshot
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return s
}

// jobLimit bounds the wait for a job: the race detector on two busy CPUs is
// slow, and a test that passes never waits this long.
const jobLimit = 90 * time.Second

// ended waits for the job's end.
func (n *testNode) ended(t *testing.T, id string) job.Snapshot {
	t.Helper()
	var s job.Snapshot
	within(t, jobLimit, "job "+id+" has not ended", func() bool {
		s = n.job(t, id)
		p := s.Progress
		if p.BytesDone < 0 || p.BytesDone > p.BytesTotal || p.ETASeconds != nil && *p.ETASeconds < 0 {
			t.Errorf("absurd progress: %+v", p)
		}
		return s.State.Terminal()
	})
	return s
}

// wantReason checks that a job failed for the reason, and says why in words.
func wantReason(t *testing.T, s job.Snapshot, state job.State, codes ...string) {
	t.Helper()
	if s.State != state || s.LastReason == nil {
		t.Fatalf("job is %s, last reason %+v; want %s with %v", s.State, s.LastReason, state, codes)
	}
	for _, code := range codes {
		if string(s.LastReason.Code) == code {
			if s.LastReason.Detail == "" {
				t.Errorf("%s without a word of explanation", code)
			}
			return
		}
	}
	t.Errorf("reason is %+v, want %v", *s.LastReason, codes)
}
