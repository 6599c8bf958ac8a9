package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
	"go.yaml.in/yaml/v3"

	"mover/bench/pairs"
)

// standInVariable makes the test binary act as mover: the harness is tested
// against the commands, files and requests it relies on, without the data path.
const standInVariable = "MOVER_BENCH_STAND_IN"

func TestMain(m *testing.M) {
	if os.Getenv(standInVariable) != "" {
		if err := standIn(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, "stand-in:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

type standInConfig struct {
	Node struct {
		Name     string `yaml:"name"`
		StateDir string `yaml:"state_dir"`
	} `yaml:"node"`
	API   struct{ Listen string }
	Peers map[string]struct{ Fingerprint string }
	Roots map[string]struct{ Path string }
}

func standInFingerprint(name string) string { return "sha256:" + strings.Repeat(name, 64) }

// standIn is mover for these tests: identity, version and run.
func standIn(args []string) error {
	if args[0] == "version" {
		fmt.Println("mover stand-in\nmore")
		return nil
	}
	text, err := os.ReadFile(args[len(args)-1])
	if err != nil {
		return err
	}
	var c standInConfig
	if err := yaml.Unmarshal(text, &c); err != nil {
		return err
	}
	switch args[0] {
	case "identity":
		fmt.Println(standInFingerprint(c.Node.Name))
		return nil
	case "run":
		return standInRun(c)
	}
	return fmt.Errorf("unknown command %v", args)
}

func standInRun(c standInConfig) error {
	for name, p := range c.Peers {
		if p.Fingerprint != standInFingerprint(name) {
			return fmt.Errorf("peer %s has fingerprint %s", name, p.Fingerprint)
		}
	}
	if err := os.WriteFile(filepath.Join(c.Node.StateDir, "token"), []byte("secret\n"), 0o600); err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /v1/jobs", func(w http.ResponseWriter, r *http.Request) {
		var job jobRequest
		err := json.NewDecoder(r.Body).Decode(&job)
		if err == nil && r.Header.Get("Authorization") != "Bearer secret" {
			err = fmt.Errorf("wrong token")
		}
		if err == nil {
			source := filepath.Join(c.Roots["data"].Path, strings.TrimPrefix(job.Source.Path, "data/"))
			// The other node's folder is a sibling of this one's.
			err = copyFile(source, filepath.Join(filepath.Dir(c.Roots["data"].Path), job.Destination.Path))
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprint(w, `{"id":"j"}`)
	})
	mux.HandleFunc("GET /v1/jobs/j", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"id":"j","state":"succeeded","result":`+asAsked+`}`)
	})
	return http.ListenAndServe(c.API.Listen, mux)
}

func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o644)
}

func TestNodePair(t *testing.T) {
	t.Setenv(standInVariable, "1")
	bin, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := testPlace(t, onTmpfs)
	mover := &binary{path: bin}
	if v, err := mover.Version(t.Context()); err != nil || v != "mover stand-in" {
		t.Errorf("version %q, %v", v, err)
	}
	nodes, err := mover.StartNodes(t.Context(), p, p.dir)
	if err != nil {
		t.Fatal(err)
	}
	pair := nodes.(*nodePair)
	if _, err := timeOurs(t.Context(), p, nodes, sourceName, "out-1", true); err != nil {
		t.Error(err)
	}
	source, destination, err := nodes.Resident()
	if err != nil || source.peakBytes <= 0 || destination.peakBytes <= 0 || source.arenaBytes != nodeArenaBytes {
		t.Errorf("resident %+v, %+v, %v", source, destination, err)
	}
	// A job that is refused is an error with what the server said.
	if err := os.Remove(p.source()); err != nil {
		t.Fatal(err)
	}
	if _, err := nodes.Copy(t.Context(), sourceName, "out-2"); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("a refused job gives %v", err)
	}
	if err := nodes.Stop(); err != nil {
		t.Error(err)
	}
	for _, d := range []*daemon{pair.source, pair.destination} {
		if err := syscall.Kill(d.pid(), 0); err == nil {
			t.Errorf("%s lives on", d.name)
		}
	}
	if left, err := filepath.Glob(filepath.Join(p.dir, "nodes-*")); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

func TestNodePairThatDoesNotStart(t *testing.T) {
	p := testPlace(t, onTmpfs)
	_, err := (&binary{path: "/bin/false"}).StartNodes(t.Context(), p, p.dir)
	if err == nil {
		t.Fatal("nodes that are /bin/false started")
	}
	if left, err := filepath.Glob(filepath.Join(p.dir, "nodes-*")); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// TestFailureIsReportedAndTheRestMeasured runs the whole program: a figure of
// mover that fails makes the status 1, and what could be measured is written.
func TestFailureIsReportedAndTheRestMeasured(t *testing.T) {
	t.Setenv(standInVariable, "1")
	bin, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	kind, flag := onDisk, "-disk"
	if filesystem, err := filesystemOf(dir); err != nil {
		t.Fatal(err)
	} else if filesystem == "tmpfs" {
		kind, flag = onTmpfs, "-tmpfs"
	}
	out := filepath.Join(dir, "out", "bench.json")
	args := []string{"-bin", bin, "-pairs", "2", "-size", "1MiB", flag, dir, "-out", out}
	if status := run(append(args, "-only", "file2g-"+string(kind)+"-cp"), io.Discard, os.Stderr); status != 0 {
		t.Fatalf("status %d", status)
	}
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	var entries []pairs.Entry
	if err := json.Unmarshal(data, &entries); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name)
		if !(e.Ratio > 0) {
			t.Errorf("%s has ratio %v", e.Name, e.Ratio)
		}
	}
	if got, want := strings.Join(names, " "), "file2g-"+string(kind)+"-cp rss-source rss-destination"; got != want {
		t.Errorf("entries %q, want %q", got, want)
	}
	if _, err := os.Stat(filepath.Join(dir, "out", "bench-host.json")); err != nil {
		t.Error(err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "mover-bench-*")); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
	// The other file system is not there: its figure fails, this one does not.
	other, otherFlag := onTmpfs, "-tmpfs"
	if kind == onTmpfs {
		other, otherFlag = onDisk, "-disk"
	}
	if err := os.Remove(out); err != nil {
		t.Fatal(err)
	}
	args = append(args, otherFlag, filepath.Join(dir, "missing"), "-only", "file2g-tmpfs-cp,file2g-disk-cp")
	var said strings.Builder
	if status := run(args, io.Discard, &said); status != 1 {
		t.Errorf("a figure that failed gave status %d", status)
	}
	if !strings.Contains(said.String(), "compare: "+string(other)+" figures") {
		t.Errorf("the failure is not named:\n%s", tail(said.String(), 2048))
	}
	if now, err := os.ReadFile(out); err != nil || !strings.Contains(string(now), "file2g-"+string(kind)+"-cp") {
		t.Errorf("the other figure was not written: %v", err)
	}
}
