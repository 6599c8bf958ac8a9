package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	v1 "mover/api/v1"
	"mover/job"
)

// fakeNode answers as a node's API does, from what a test puts into it.
type fakeNode struct {
	mu      sync.Mutex
	answers map[string][]fakeAnswer // by "METHOD /path", each once and the last for ever
	asked   []string                // "METHOD /path?query body", in order
	server  string
	token   string // file
	socket  string
}

type fakeAnswer struct {
	status int
	body   any // JSON, or a string as it is
}

func (f *fakeNode) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, strings.TrimSpace(fmt.Sprintf("%s %s %s", r.Method, r.URL.RequestURI(), body)))
	key := r.Method + " " + r.URL.Path
	list := f.answers[key]
	if len(list) == 0 {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusNotFound)
		json.NewEncoder(w).Encode(v1.Problem{Status: 404, Code: v1.CodeNotFound, Detail: "the fake has nothing for " + key})
		return
	}
	a := list[0]
	if len(list) > 1 {
		f.answers[key] = list[1:]
	}
	if p, is := a.body.(v1.Problem); is {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(a.status)
		json.NewEncoder(w).Encode(p)
		return
	}
	if text, is := a.body.(string); is {
		w.Header().Set("ETag", `"7"`)
		w.WriteHeader(a.status)
		io.WriteString(w, text)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(a.status)
	json.NewEncoder(w).Encode(a.body)
}

// will makes the fake answer a request.
func (f *fakeNode) will(key string, status int, body any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answers[key] = append(f.answers[key], fakeAnswer{status, body})
}

func (f *fakeNode) requests() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string{}, f.asked...)
}

func newFakeNode(t *testing.T) *fakeNode {
	t.Helper()
	f := &fakeNode{answers: map[string][]fakeAnswer{}}
	tcp := httptest.NewServer(f)
	t.Cleanup(tcp.Close)
	f.server = tcp.URL
	dir := t.TempDir()
	f.token = writeFile(t, filepath.Join(dir, "token"), "mvr_secret\n")
	f.socket = filepath.Join(dir, "s")
	l, err := net.Listen("unix", f.socket)
	if err != nil {
		t.Fatal(err)
	}
	unix := httptest.NewUnstartedServer(f)
	unix.Listener.Close()
	unix.Listener = l
	unix.Start()
	t.Cleanup(unix.Close)
	return f
}

// run runs a command in this process against the fake.
func (f *fakeNode) run(t *testing.T, command string, arguments ...string) ended {
	t.Helper()
	args := append([]string{"mover"}, strings.Fields(command)...)
	if args[len(args)-1] == "--" {
		args = args[:len(args)-1]
	}
	args = append(args, arguments...)
	args = append(args, "--server", f.server, "--token-file", f.token)
	return runHere(t, args...)
}

func runHere(t *testing.T, args ...string) ended {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), args, &stdout, &stderr)
	return ended{code, stdout.String(), stderr.String()}
}

var someID = uuid.Must(uuid.Parse("01890a5d-ac96-774b-bcce-b302099a8057"))

func someJob(state job.State) job.Snapshot {
	s := job.Snapshot{
		ID: someID, State: state, Version: 3, Owner: "a/admin", CreatedAt: time.Unix(1700000000, 0).UTC(),
		Spec: job.Spec{Source: job.Place{Node: "a", Path: "data/x"}, Destination: job.Place{Node: "b", Path: "in/x"}},
	}
	switch state {
	case job.Succeeded:
		s.Result = &job.Result{Bytes: 1 << 20, Items: 12, ItemsSkipped: 2, Durable: true, Verified: true, Seconds: 2}
	case job.Failed:
		s.LastReason = &job.Reason{Code: "NO_SPACE", Detail: "disk full"}
	case job.Partial:
		s.LastReason = &job.Reason{Code: "PERMISSION_DENIED", Detail: "x/y"}
		s.Result = &job.Result{Items: 10, ItemsFailed: 1}
	}
	return s
}

func TestJobCommands(t *testing.T) {
	at := "/v1/jobs/" + someID.String()
	id := " " + someID.String()
	wrongState := v1.Problem{Status: 409, Code: v1.CodeWrongState, Detail: "it has ended"}
	for _, c := range []struct {
		command string
		key     string
		status  int
		body    any
		code    int
		stdout  string
		stderr  string
		request string
	}{
		{"jobs cancel" + id, "POST " + at + "/cancel", 200, someJob(job.Canceling), exitOK, `"state": "canceling"`, "", "POST " + at + "/cancel"},
		{"jobs cancel" + id, "POST " + at + "/cancel", 409, wrongState, exitFailed, "", "it has ended (wrong_state)", ""},
		{"jobs pause" + id, "POST " + at + "/pause", 200, someJob(job.Paused), exitOK, `"state": "paused"`, "", ""},
		{"jobs resume" + id, "POST " + at + "/resume", 200, someJob(job.Queued), exitOK, `"state": "queued"`, "", ""},
		{"jobs retry" + id, "POST " + at + "/retry", 200, someJob(job.Queued), exitOK, `"state": "queued"`, "", ""},
		{"jobs rm" + id, "DELETE " + at, 204, "", exitOK, "", "", "DELETE " + at},
		{"jobs rm" + id, "DELETE " + at, 409, wrongState, exitFailed, "", "it has ended", ""},
		{"jobs get" + id, "GET " + at, 200, someJob(job.Running), exitOK, `"version": 3`, "", ""},
		{"jobs get" + id, "GET " + at, 401, v1.Problem{Status: 401, Code: "unauthenticated", Detail: "no"}, exitUnreachable, "", "no (unauthenticated)", ""},
		{"jobs get --wait" + id, "GET " + at, 200, someJob(job.Failed), exitFailed, `"code": "NO_SPACE"`, "ended failed: NO_SPACE: disk full", ""},
		{"jobs wait" + id, "GET " + at, 200, someJob(job.Succeeded), exitOK, someID.String() + " succeeded\n", "", ""},
		{"jobs wait" + id + id, "GET " + at, 200, someJob(job.Canceled), exitCanceled, someID.String() + " canceled\n" + someID.String() + " canceled\n", "was canceled", ""},
		{"jobs wait" + id, "GET " + at, 200, someJob(job.Partial), exitFailed, someID.String() + " partial PERMISSION_DENIED\n", "(1 item failed, 10 published; mover jobs items --state failed " + someID.String(), ""},
		{"jobs watch" + id, "GET " + at, 200, someJob(job.Succeeded), exitOK, "", "succeeded: b:in/x, 12 items (and 2 skipped), 1.00 MiB in 2.00 s", ""},
		{"jobs set --priority 5 --bandwidth-limit none --deadline 2h --label a=b,c" + id, "PATCH " + at, 200, someJob(job.Queued), exitOK, `"version": 3`, "",
			"PATCH " + at + ` {"priority":5,"bandwidth_limit":"0bit/s","deadline":"2h0m0s","labels":{"a":"b,c"}}`},
		{"jobs set --if-version 2 --priority 1" + id, "PATCH " + at, 412, v1.Problem{Status: 412, Code: v1.CodeVersionMismatch, Detail: "changed"}, exitFailed, "", "changed (version_mismatch)", ""},
		{"jobs items --state failed" + id, "GET " + at + "/items", 200, v1.ItemList{Items: []job.ItemRecord{{Path: []byte("d/\x1b[2J"), Kind: job.EntryDir, State: job.ItemFailed,
			Reason: &job.Reason{Code: "IO_ERROR", Detail: "bad"}}}}, exitOK, `"d/\x1b[2J"  IO_ERROR: bad`, "", "GET " + at + "/items?limit=500&state=failed"},
		{"jobs items --json" + id, "GET " + at + "/items", 200, v1.ItemList{Items: []job.ItemRecord{{Path: []byte("f"), Kind: job.EntryDir, State: job.ItemSucceeded, Bytes: 7}}}, exitOK,
			`{"path":"f","kind":"` + job.EntryDir.String() + `","state":"succeeded","reason":null,"bytes":7,"attempt":0}` + "\n", "", ""},
		{"jobs ls --state running,queued --limit 2", "GET /v1/jobs", 200, v1.JobList{Jobs: []job.Snapshot{someJob(job.Running)}, NextPageToken: "x"}, exitOK, "a:data/x", "there are more", "GET /v1/jobs?limit=2&state=running%2Cqueued"},
		{"jobs ls --json", "GET /v1/jobs", 200, v1.JobList{}, exitOK, "[]\n", "", ""},
		{"jobs ls --receiving", "GET /v1/jobs", 200, v1.ReceivingList{Jobs: []job.Inbound{{ID: someID, Peer: "b", State: job.Running}}}, exitOK, "b ", "", "GET /v1/jobs?role=receiving&limit=50"},
		{"jobs events --after 3 --json" + id, "GET " + at + "/events", 200, v1.EventList{NextAfter: 3}, exitOK, "", "", "GET " + at + "/events?after=3&limit=500"},
	} {
		f := newFakeNode(t)
		f.will(c.key, c.status, c.body)
		got := f.run(t, c.command)
		got.want(t, c.code)
		if !strings.Contains(got.stdout, c.stdout) || !strings.Contains(got.stderr, c.stderr) || c.stdout == "" && got.stdout != "" {
			t.Errorf("%s:\nstdout %q, want %q\nstderr %q, want %q", c.command, got.stdout, c.stdout, got.stderr, c.stderr)
		}
		if asked := f.requests(); c.request != "" && (len(asked) == 0 || asked[0] != c.request) {
			t.Errorf("%s: asked %q, want %q", c.command, asked, c.request)
		}
	}
}

func TestJobCommandsWrongUsage(t *testing.T) {
	f := newFakeNode(t)
	for command, want := range map[string]string{
		"jobs set " + someID.String():                          "nothing to change",
		"jobs set --bandwidth-limit 10Gbps " + someID.String(): `--bandwidth-limit: "10Gbps" must be a rate`,
		"jobs set --deadline soon " + someID.String():          `--deadline: "soon" must be a duration`,
		"jobs wait":                                  "mover jobs wait needs ID",
		"jobs wait " + someID.String() + " 7":        `"7" is not a job's ID`,
		"jobs items --state lost " + someID.String(): `--state: "lost"; allowed: succeeded, skipped, failed`,
		"jobs events x":                              `"x" is not a job's ID`,
		"drain --undo --wait":                        "--undo has nothing to wait for",
		"buffers create w":                           "needs --size",
		"buffers create w --size 4Gb":                `--size: "4Gb" must be a size`,
		"buffers put w /nowhere/at/all":              "no such file",
		"buffers get w":                              "mover buffers get needs FILE",
		"top --interval 1ms":                         "--interval: 1ms; allowed: 100ms to 1h",
		"top --jobs 0":                               "--jobs: 0; allowed: 1 to 500",
		"cp --preserve all a:d/x b:d/x":              `--preserve: "all"; allowed: mode, mtime, owner`,
		"cp --preserve none,mode a:d/x b:d/x":        `--preserve: "none"`,
		"cp --on-error ignore a:d/x b:d/x":           "--on-error needs one of stop, continue after it",
		"cp --compare size a:d/x b:d/x":              "--compare needs one of mtime, crc after it",
		"cp -r --include [ a:d/x b:d/x":              "--include: entry 0 ",
		"cp a:buffer:w+x b:d/x":                      `"x" must be a size`,
		"cp a:buffer: b:d/x":                         "a buffer is a:buffer:NAME",
		"completion tcsh":                            `"tcsh": there is no completion for it`,
	} {
		args := append([]string{"mover"}, strings.Fields(command)...)
		if strings.HasPrefix(command, "completion") {
			runHere(t, args...).want(t, exitUsage, want)
			continue
		}
		f.run(t, command).want(t, exitUsage, want)
	}
	if asked := f.requests(); len(asked) != 0 {
		t.Errorf("wrong usage reached the node: %q", asked)
	}
}

func TestCopyOptions(t *testing.T) {
	f := newFakeNode(t)
	f.will("POST /v1/jobs", 202, someJob(job.Queued))
	got := f.run(t, "cp --detach -r --exclude *.tmp,v --exclude !keep.tmp,v --include *.bin --overwrite if_different --compare crc --no-durable --preserve mode,owner "+
		"--bandwidth-limit 2.5GB/s --deadline 1d --on-error continue --priority -3 --label run=1,2 a:data/ckpt/ b:in/ckpt")
	got.want(t, exitOK, someID.String()+"\n")
	want := `POST /v1/jobs {"source":{"node":"a","path":"data/ckpt/"},"destination":{"node":"b","path":"in/ckpt"},"recursive":true,"include":["*.bin"],"exclude":["*.tmp,v","!keep.tmp,v"],` +
		`"overwrite":"if_different","compare":"crc","durable":false,"preserve":["mode","owner"],"priority":-3,"labels":{"run":"1,2"},"bandwidth_limit":"20Gbit/s","deadline":"24h0m0s","on_error":"continue"}`
	if asked := f.requests(); len(asked) != 1 || asked[0] != want {
		t.Errorf("asked\n%q\nwant\n%q", asked, want)
	}

	f.run(t, "cp --detach --json --preserve none a:buffer:w+1MiB+4096 b:in/w").want(t, exitOK, `"state": "queued"`)
	// Nothing that was not asked for: a node refuses what a buffer cannot have.
	want = `POST /v1/jobs {"source":{"node":"a","buffer":"w","offset":1048576,"length":4096},"destination":{"node":"b","path":"in/w"},"preserve":[]}`
	if asked := f.requests(); asked[1] != want {
		t.Errorf("asked %q", asked[1])
	}
}

func TestCopyFollowsAndPrintsJSON(t *testing.T) {
	for state, code := range map[job.State]int{job.Succeeded: exitOK, job.Partial: exitFailed, job.Expired: exitFailed, job.Canceled: exitCanceled} {
		f := newFakeNode(t)
		f.will("POST /v1/jobs", 202, someJob(job.Queued))
		f.will("GET /v1/jobs/"+someID.String(), 200, someJob(state))
		got := f.run(t, "cp --json a:data/x b:in/x")
		got.want(t, code)
		var s job.Snapshot
		if err := json.Unmarshal([]byte(got.stdout), &s); err != nil || s.State != state {
			t.Errorf("%s: %v in %q", state, err, got.stdout)
		}
	}
}

func TestCopyOfALocalDirectoryNeedsRecursive(t *testing.T) {
	f := newFakeNode(t)
	dir := t.TempDir()
	f.will("GET /v1/roots", 200, v1.Roots{Roots: []v1.Root{{Name: "data", Path: dir}}})
	if err := os.Mkdir(filepath.Join(dir, "tree"), 0o755); err != nil {
		t.Fatal(err)
	}
	f.run(t, "cp --", filepath.Join(dir, "tree"), "b:in/").want(t, exitUsage, "is a directory; add -r")
}

func TestPlan(t *testing.T) {
	plan := v1.Plan{Spec: someJob(job.Queued).Spec, Items: 3, Files: 2, Directories: 1, Bytes: 1 << 20, Complete: true}
	full := &job.Reason{Code: "NO_SPACE", Detail: "it does not fit"}
	conflict := plan
	conflict.Conflicts, conflict.Examples = 1, []v1.PlanConflict{{Path: "a\nb", Reason: job.Reason{Code: "DEST_EXISTS", Detail: "exists"}}}
	impossible := plan
	impossible.Reason, impossible.Complete = full, false
	for _, c := range []struct {
		command string
		plan    v1.Plan
		code    int
		want    string
	}{
		{"plan -r a:data/x b:in/x", plan, exitOK, "items       3: 2 files, 1 directories"},
		{"cp -r --dry-run a:data/x b:in/x", plan, exitOK, "1.00 MiB"},
		{"plan -r a:data/x b:in/x", conflict, exitFailed, `"a\nb": DEST_EXISTS: exists`},
		{"plan -r a:data/x b:in/x", impossible, exitFailed, "the job would fail: NO_SPACE: it does not fit"},
		{"plan -r a:data/x b:in/x", impossible, exitFailed, "at least 3"},
		{"plan --json -r a:data/x b:in/x", conflict, exitFailed, `"conflicts": 1`},
	} {
		f := newFakeNode(t)
		f.will("POST /v1/plan", 200, c.plan)
		f.run(t, c.command).want(t, c.code, c.want)
		if asked := f.requests(); len(asked) != 1 || !strings.HasPrefix(asked[0], "POST /v1/plan ") {
			t.Errorf("%s asked %q", c.command, asked)
		}
	}
}
