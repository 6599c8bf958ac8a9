package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "mover/api/v1"
	"mover/job"
	"mover/node/config"
	"mover/peer"
)

func TestBufferCommands(t *testing.T) {
	w := v1.Buffer{Name: "w", Path: "/dev/shm/w", Bytes: 4 << 30, PageBytes: 2 << 20, NUMANode: 1, Generation: 7, Owner: "a/admin"}
	f := newFakeNode(t)
	f.will("GET /v1/buffers", 200, v1.BufferList{Buffers: []v1.Buffer{w, {Name: "x", NUMANode: -1, Error: "no huge pages"}}})
	f.will("GET /v1/buffers/w", 200, w)
	f.will("PUT /v1/buffers/w", 201, w)
	f.will("DELETE /v1/buffers/w", 204, "")
	f.will("DELETE /v1/buffers/busy", 409, v1.Problem{Status: 409, Code: v1.CodeBufferBusy, Detail: "in use"})
	f.will("PUT /v1/buffers/w/data", 200, v1.BufferWritten{Offset: 4096, Bytes: 5, Generation: 8})
	f.run(t, "buffers ls").want(t, exitOK, "w     4.00 GiB  2.00 MiB  1     7           0       a/admin  /dev/shm/w", "cannot be used: no huge pages")
	f.run(t, "buffers ls --json").want(t, exitOK, `"page_bytes": 2097152`)
	f.run(t, "buffers show w").want(t, exitOK, `"path": "/dev/shm/w"`)
	f.run(t, "buffers show none").want(t, exitFailed, "not_found")
	f.run(t, "buffers create w --size 4GiB --page-size 2MiB --numa-node 1 --mode 0660 --group ml --read host-b,host-c --write *").want(t, exitOK, `"generation": 7`)
	f.run(t, "buffers rm w").want(t, exitOK)
	f.run(t, "buffers rm busy").want(t, exitFailed, "in use (buffer_busy)")
	file := writeFile(t, filepath.Join(t.TempDir(), "in"), "hello")
	f.run(t, "buffers put w --offset 4KiB --", file).want(t, exitOK, "5 B at offset 4096, generation 8")
	f.run(t, "buffers put w --length 6 --", file).want(t, exitUsage, "has 5 bytes, fewer than --length")
	f.run(t, "buffers put w --", t.TempDir()).want(t, exitUsage, "is a directory")
	f.run(t, "buffers put w --", writeFile(t, filepath.Join(t.TempDir(), "empty"), "")).want(t, exitUsage, "has no bytes")
	asked := strings.Join(f.requests(), "\n")
	for _, want := range []string{
		`PUT /v1/buffers/w {"bytes":4294967296,"page_size":"2MiB","numa_node":1,"mode":"0660","group":"ml","read":["host-b","host-c"],"write":["*"]}`,
		"DELETE /v1/buffers/w?wait=30s", "PUT /v1/buffers/w/data hello",
	} {
		if !strings.Contains(asked, want) {
			t.Errorf("%q was not asked:\n%s", want, asked)
		}
	}
}

// TestSaveNew: an existing file is kept, and half of one is not left behind.
func TestSaveNew(t *testing.T) {
	dir := t.TempDir()
	old := writeFile(t, filepath.Join(dir, "old"), "old")
	if err := saveNew(old, strings.NewReader("new")); err == nil || !strings.Contains(err.Error(), "exists; choose another name") {
		t.Errorf("an existing file: %v", err)
	}
	half := filepath.Join(dir, "half")
	broken := &brokenReader{text: "some"}
	if err := saveNew(half, broken); err == nil {
		t.Error("a broken reader is no error")
	}
	if _, err := os.Stat(half); !os.IsNotExist(err) {
		t.Errorf("half a file is left: %v", err)
	}
	whole := filepath.Join(dir, "whole")
	if err := saveNew(whole, strings.NewReader("new")); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{old: "old", whole: "new"} {
		if got, err := os.ReadFile(name); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

type brokenReader struct{ text string }

func (r *brokenReader) Read(p []byte) (int, error) {
	if r.text == "" {
		return 0, net.ErrClosed
	}
	n := copy(p, r.text)
	r.text = r.text[n:]
	return n, nil
}

func TestPeersAndRoots(t *testing.T) {
	f := newFakeNode(t)
	f.will("GET /v1/peers", 200, v1.Peers{Peers: []v1.Peer{
		{Name: "b", State: "connected", Addresses: []string{"b:9471"}, Rails: []v1.Rail{{LocalDevice: "mlx5_0", RemoteDevice: "mlx5_1", State: "up"}, {LocalDevice: "mlx5_2", RemoteDevice: "mlx5_3", State: "down"}}},
		{Name: "c", State: "down", LastError: "refused"},
	}})
	f.will("GET /v1/roots", 200, v1.Roots{Roots: []v1.Root{{Name: "data", Path: "/srv/data", Read: []string{"b"}, Filesystem: "ext4", FreeBytes: 1 << 30, QuotaBytes: 1 << 40}, {Name: "gone", AvailableError: "no such directory"}}})
	f.run(t, "peers").want(t, exitOK, "b     connected  b:9471     1 of 2 up (mlx5_0-mlx5_1 up, mlx5_2-mlx5_3 down)  -", "c     down       -          -", "refused")
	f.run(t, "peers --json").want(t, exitOK, `"last_error": "refused"`)
	f.run(t, "roots").want(t, exitOK, "data  /srv/data  ext4", "1.00 GiB", "1TiB", "cannot be used: no such directory")
	f.run(t, "roots --json").want(t, exitOK, `"quota_bytes": 1099511627776`)
}

func TestDrain(t *testing.T) {
	f := newFakeNode(t)
	for _, d := range []v1.Drain{{Draining: true, Running: 2, Receiving: 1, Queued: 3}, {Draining: true, Running: 1, Queued: 3}, {Draining: true, Queued: 3}} {
		f.will("POST /v1/drain", 200, d)
	}
	got := f.run(t, "drain --wait")
	got.want(t, exitOK, "draining: 2 jobs running, 1 item arriving, 3 queued", "draining: 1 job running, 0 items arriving")
	if got.stdout != "drained: nothing runs; 3 jobs queued for the next start\n" {
		t.Errorf("%q", got.stdout)
	}
	f.run(t, "drain --json").want(t, exitOK, `"running": 0`)

	f = newFakeNode(t)
	f.will("POST /v1/drain", 200, v1.Drain{Draining: true, Running: 1})
	f.run(t, "drain --wait --timeout 1ms").want(t, exitFailed, "not drained within 1ms: draining: 1 job running")
	f = newFakeNode(t)
	f.will("POST /v1/drain", 200, v1.Drain{})
	f.run(t, "drain --undo").want(t, exitOK, "takes jobs\n")
	if asked := f.requests(); asked[0] != `POST /v1/drain {"undo":true}` {
		t.Errorf("asked %q", asked)
	}
	f = newFakeNode(t)
	f.will("POST /v1/drain", 403, v1.Problem{Status: 403, Code: v1.CodeScopeTooLow, Detail: "needs admin"})
	f.run(t, "drain").want(t, exitUnreachable, "needs admin")
}

func TestTop(t *testing.T) {
	cpu := 3
	sees := func(sent, steps uint64, used float64) (v1.Peers, v1.Pollers) {
		return v1.Peers{Peers: []v1.Peer{{Name: "b", State: "connected", Rails: []v1.Rail{{LocalDevice: "m0", LocalPort: 1, RemoteDevice: "m1", RemotePort: 1, Provider: "ibv", State: "up", LanesUp: 4, Lanes: 4, SentBytes: sent}}}, {Name: "c", State: "idle"}}},
			v1.Pollers{Pollers: []v1.Poller{{ID: 0, CPU: &cpu, Idle: "spin", Lanes: 4, Steps: steps, EmptySteps: steps / 2, CPUSeconds: used}}}
	}
	f := newFakeNode(t)
	f.will("GET /v1/version", 200, v1.Version{Node: "a", Version: "v1", StartedAt: time.Unix(1700000000, 0)})
	running := someJob(job.Running)
	running.Progress = job.ProgressView{BytesTotal: 100, BytesDone: 50, ItemsTotal: 4, ItemsDone: 2, RateBytesPerSecond: 1 << 20}
	f.will("GET /v1/jobs", 200, v1.JobList{Jobs: []job.Snapshot{running}})
	for i := range uint64(2) {
		peers, pollers := sees(i*1e9, i*1000, float64(i))
		f.will("GET /v1/peers", 200, peers)
		f.will("GET /v1/pollers", 200, pollers)
	}
	got := f.run(t, "top --once --interval 100ms")
	got.want(t, exitOK, "node a, mover v1", "m0/1 - m1/1 ibv", "4 of 4", "Gbit/s", "50 %", "50 B of 100 B, 2 of 4 items", "1.00 MiB/s")
	if strings.Contains(got.stdout, "\x1b") || strings.Count(got.stdout, "POLLER") != 1 {
		t.Errorf("not one plain view:\n%q", got.stdout)
	}
	for _, asked := range f.requests() {
		if strings.HasPrefix(asked, "GET /v1/jobs") && strings.Contains(asked, "succeeded") {
			t.Errorf("ended jobs are asked for: %s", asked)
		}
	}
}

func TestRateText(t *testing.T) {
	for _, c := range []struct {
		old, now uint64
		seconds  float64
		want     string
	}{{0, 1e9, 1, "8.00 Gbit/s"}, {5, 4, 1, "-"}, {0, 1, 0, "-"}, {7, 7, 2, "0.00 Gbit/s"}} {
		if got := rateText(c.old, c.now, c.seconds); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

func TestHealthz(t *testing.T) {
	f := newFakeNode(t)
	f.will("GET /healthz", 200, "ok")
	f.will("GET /readyz", 503, v1.Problem{Status: 503, Code: v1.CodeNotReady, Detail: "draining"})
	for _, server := range []string{f.server, socketScheme + f.socket} {
		got := runHere(t, "mover", "healthz", "--server", server)
		got.want(t, exitOK)
		if got.stdout+got.stderr != "" {
			t.Errorf("a healthy node is worth %q", got.stdout+got.stderr)
		}
		runHere(t, "mover", "healthz", "--ready", "--server", server).want(t, exitFailed, `status 503: "draining"`)
	}
	runHere(t, "mover", "healthz", "--server", socketScheme+f.socket+"none").want(t, exitFailed, "is `mover run` up?")
	runHere(t, "mover", "healthz", "--server", "nonsense://x").want(t, exitFailed)
	runHere(t, "mover", "healthz", "--server", f.server, "--ca", f.token).want(t, exitFailed, "holds no certificate")
	for _, asked := range f.requests() {
		if asked != "GET /healthz" && asked != "GET /readyz" {
			t.Errorf("asked %q", asked)
		}
	}
}

// TestTheSocketIsTheDefault: without --server and a token, the socket of this
// host's configuration is asked; a token that is named is used.
func TestTheSocketIsTheDefault(t *testing.T) {
	f := newFakeNode(t)
	f.will("GET /healthz", 200, "ok")
	f.will("GET /v1/buffers", 200, v1.BufferList{})
	file := writeFile(t, filepath.Join(t.TempDir(), "c.yaml"), "node: {name: a}\napi: {socket: "+f.socket+"}\n")
	t.Setenv("MOVER_CONFIG", file)
	runHere(t, "mover", "healthz").want(t, exitOK)
	runHere(t, "mover", "buffers", "ls").want(t, exitOK, "NAME")
	if got := serverOf(flags{"token-file": "x"}); got != "http://127.0.0.1:9470" {
		t.Errorf("with a token: %s", got)
	}
	if got := serverOf(flags{"server": "https://b:1"}); got != "https://b:1" {
		t.Errorf("with a server: %s", got)
	}
	for _, text := range []string{"node: {name: a}\napi: {socket: off}\n", "node: {name: a}\napi: {socket: /nowhere/s}\n", "nonsense: 1\n"} {
		writeFile(t, file, text)
		if got := serverOf(flags{}); got != "http://127.0.0.1:9470" {
			t.Errorf("%q: %s", text, got)
		}
	}
}

// flags are options as they were typed.
type flags map[string]string

func (f flags) String(name string) string { return f[name] }
func (f flags) IsSet(name string) bool    { _, set := f[name]; return set }

func TestCA(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ca")
	runHere(t, "mover", "ca", "issue", "--dir", dir, "a").want(t, exitFailed, `make one with "mover ca init"`)
	runHere(t, "mover", "ca", "init", "--dir", dir).want(t, exitOK, dir+"/ca.key, which stays offline")
	runHere(t, "mover", "ca", "init", "--dir", dir).want(t, exitFailed, "it is not replaced")
	runHere(t, "mover", "ca", "issue", "--dir", dir, "--dns", "a.example.com", "--ip", "127.0.0.1,::1", "a").want(t, exitOK, dir+"/a/node.key", "sha256:")
	runHere(t, "mover", "ca", "issue", "--dir", dir, "a").want(t, exitFailed, "not replaced, because a may be using it")
	runHere(t, "mover", "ca", "issue", "--dir", dir, "A").want(t, exitUsage, `"A" is not a node name`)
	runHere(t, "mover", "ca", "issue", "--dir", dir, "--ip", "1.2.3", "b").want(t, exitUsage, `--ip: "1.2.3"`)
	runHere(t, "mover", "ca", "issue", "--dir", dir, "--days", "0", "b").want(t, exitUsage, "--days: 0; allowed: 1 to 3650")
	onlyOwner(t, dir)

	// The node's certificate is its own, and serves HTTPS under its names.
	id, err := peer.Load(filepath.Join(dir, "a"), "a")
	if err != nil {
		t.Fatal(err)
	}
	pem, err := os.ReadFile(filepath.Join(dir, peer.CACertFile))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{id.Certificate}}
	server.StartTLS()
	defer server.Close()
	for _, name := range []string{"a.example.com", "127.0.0.1"} {
		conn, err := tls.Dial("tcp", server.Listener.Addr().String(), &tls.Config{RootCAs: pool, ServerName: name})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		conn.Close()
	}
}

func TestTokensAreListedAndRevoked(t *testing.T) {
	dir := t.TempDir()
	file := writeFile(t, filepath.Join(dir, "c.yaml"), "node: {name: a, state_dir: "+filepath.Join(dir, "state")+"}\n")
	runHere(t, "mover", "token", "new", "-c", file, "--name", "ci", "--scope", "submit", "--read", "a:data,a:more", "--write", "b:in").want(t, exitOK, "mvr_")
	got := runHere(t, "mover", "token", "ls", "-c", file)
	got.want(t, exitOK, "ci    submit  a:data a:more  b:in")
	if strings.Contains(got.stdout, "mvr_") {
		t.Error("a token is printed again")
	}
	list := runHere(t, "mover", "token", "ls", "--json", "-c", file)
	var tokens []tokenJSON
	if err := json.Unmarshal([]byte(list.stdout), &tokens); err != nil || len(tokens) != 1 || tokens[0].Name != "ci" || !slices.Equal(tokens[0].Read, []string{"a:data", "a:more"}) {
		t.Errorf("%v: %s", err, list.stdout)
	}
	runHere(t, "mover", "token", "revoke", "-c", file, "cu").want(t, exitFailed, "`mover token ls` lists them")
	runHere(t, "mover", "token", "revoke", "-c", file, "ci").want(t, exitOK, "removed from")
	if got := runHere(t, "mover", "token", "ls", "-c", file); strings.Contains(got.stdout, "ci") {
		t.Errorf("still there: %s", got.stdout)
	}
}

func TestCandidates(t *testing.T) {
	app := newApp(os.Stdout, os.Stderr)
	for _, c := range []struct{ typed, want string }{
		{"j", "jobs"},
		{"jobs w", "watch wait"},
		{"jobs --server x re", "resume retry"},
		{"cp --ov", "--overwrite"},
		{"cp --overwrite ", ""},
		{"cp --detach a", ""},
		{"bench mem --ro", ""}, // hidden
		{"completion ", ""},
		{"--v", "--version"},
		{"token --h", "--help"},
		{"nothing x", ""},
		{"completion --", "--help"},
	} {
		typed := strings.Split(c.typed, " ")
		if got := strings.Join(candidates(app, typed), " "); got != c.want {
			t.Errorf("%q: %q, want %q", c.typed, got, c.want)
		}
	}
	if got := candidates(app, nil); !slices.Contains(got, "cp") {
		t.Errorf("with nothing typed: %q", got)
	}
	runHere(t, "mover", completeCommand, "jo").want(t, exitOK, "jobs\n")
}

// TestCompletionScripts lets each shell that is here read its script; bash
// also completes with it.
func TestCompletionScripts(t *testing.T) {
	for shell := range completionScripts {
		got := runHere(t, "mover", "completion", shell)
		got.want(t, exitOK, completeCommand)
		program, err := exec.LookPath(shell)
		if err != nil {
			continue // bash is on every host that builds mover
		}
		c := exec.CommandContext(t.Context(), program, "-n")
		c.Stdin = strings.NewReader(got.stdout)
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", shell, err, out)
		}
	}
	script := completionScripts["bash"] + "COMP_WORDS=(mover jobs wa); COMP_CWORD=2; _mover; echo \"${COMPREPLY[*]}\"\n"
	c := exec.CommandContext(t.Context(), "bash", "-c", script)
	c.Env = append(os.Environ(), "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"))
	if out, err := c.CombinedOutput(); err != nil || string(out) != "watch wait\n" {
		t.Errorf("bash: %q, %v", out, err)
	}
}

func TestEveryCommandIsDocumented(t *testing.T) {
	for _, c := range newApp(os.Stdout, os.Stderr).Commands {
		for _, sub := range append(c.Subcommands, c) {
			if sub.Usage == "" || sub.HelpName == "" && sub.Name == "" {
				t.Errorf("mover %s %s has no usage", c.Name, sub.Name)
			}
		}
	}
}

func TestDoctorOfSQLite(t *testing.T) {
	if f := checkSQLite(); f.verdict != verdictOK {
		t.Errorf("%+v", f)
	}
}

func TestCheckCertificate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ca")
	if err := peer.InitCA(dir); err != nil {
		t.Fatal(err)
	}
	id, err := peer.Issue(dir, "a", nil, nil, 60*24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if err := id.Save(filepath.Join(dir, "a")); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, "a", peer.CertFile))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for _, c := range []struct {
		data  []byte
		after time.Duration
		want  verdict
	}{
		{data, 0, verdictOK}, {data, 40 * 24 * time.Hour, verdictWarn}, {data, 61 * 24 * time.Hour, verdictFail},
		{data, -2 * time.Hour, verdictFail}, {[]byte("no"), 0, verdictFail}, {bytes.Replace(data, []byte("M"), []byte("N"), 1), 0, verdictFail},
	} {
		f := checkCertificate("x", "issue it again", "file", c.data, now.Add(c.after))
		if f.verdict != c.want || f.verdict != verdictOK && f.fix == "" {
			t.Errorf("after %v: %+v, want %v", c.after, f, c.want)
		}
	}
}

func TestDoctorOfBuffersAndSocket(t *testing.T) {
	dir := t.TempDir()
	cfg := &config.Config{Buffers: map[string]config.Buffer{"big": {Bytes: 1 << 30, PageSize: "1GiB"}, "huge": {Bytes: 2 << 20, PageSize: "2MiB"}, "plain": {Bytes: 1, PageSize: "auto"}}}
	mounts := "tmpfs /dev/shm tmpfs rw 0 0\nhugetlbfs " + dir + " hugetlbfs rw,relatime,pagesize=2M 0 0\n"
	var got []verdict
	for _, f := range bufferFindings(cfg, mounts, dir) {
		got = append(got, f.verdict)
	}
	if !slices.Equal(got, []verdict{verdictFail, verdictOK, verdictOK}) {
		t.Errorf("big, huge, plain: %v", got)
	}
	if f := bufferFindings(cfg, mounts, filepath.Join(dir, "none")); f[2].verdict != verdictFail || f[2].fix == "" {
		t.Errorf("without /dev/shm: %+v", f[2])
	}

	f := newFakeNode(t)
	for path, want := range map[string]string{
		"off": "off", f.socket: "a node is running", f.token: "not a socket", filepath.Join(dir, "s"): "will be made", "/nowhere/at/all/s": "no such file",
	} {
		cfg := &config.Config{Node: config.Node{StateDir: "/var/lib/mover"}, API: config.API{Socket: path}}
		if f := checkSocket(cfg); !strings.Contains(f[0].detail, want) || f[0].verdict != verdictOK && f[0].fix == "" {
			t.Errorf("%s: %+v, want %q", path, f[0], want)
		}
	}
}
