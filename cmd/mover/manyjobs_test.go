package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// held is what a process holds, by its own metrics.
type held struct{ goroutines, descriptors, resident float64 }

// holds reads a node's metrics.
func (n *testNode) holds(t *testing.T) (h held) {
	t.Helper()
	status, _, text := n.call(t, http.MethodGet, "/metrics", "")
	if status != http.StatusOK {
		t.Fatalf("metrics: %d", status)
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		to := map[string]*float64{"go_goroutines": &h.goroutines, "process_open_fds": &h.descriptors,
			"process_resident_memory_bytes": &h.resident}[name]
		if to == nil {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatal(err)
		}
		*to = v
	}
	if h.goroutines == 0 || h.descriptors == 0 || h.resident == 0 {
		t.Fatalf("metrics without %+v", h)
	}
	return h
}

// runJobs submits jobs of one small file each from several clients and waits
// for all to have succeeded.
func runJobs(t *testing.T, from *testNode, first, jobs int) {
	t.Helper()
	var next atomic.Int64
	var clients sync.WaitGroup
	failures := make(chan error, 16)
	token := from.token(t)
	for range cap(failures) {
		clients.Go(func() {
			for i := next.Add(1) - 1; i < int64(jobs); i = next.Add(1) - 1 {
				body := fmt.Sprintf(`{"source": {"path": "data/small"}, "destination": {"node": "b", "path": "incoming/%d"}, "labels": {"set": "many"}}`, first+int(i))
				status, _, answer, err := request(t.Context(), http.MethodPost, "http://"+from.api+"/v1/jobs", token, body)
				if err != nil || status != http.StatusAccepted {
					failures <- fmt.Errorf("submit: %d %s %w", status, answer, err)
					return
				}
			}
		})
	}
	clients.Wait()
	select {
	case err := <-failures:
		t.Fatal(err)
	default:
	}
	within(t, 4*time.Minute, fmt.Sprintf("%d jobs have not ended", jobs), func() bool {
		time.Sleep(50 * time.Millisecond)
		var page jobPage
		from.list(t, url.Values{"state": {"queued,preparing,running,verifying,publishing,paused,canceling"}, "limit": {"1"}}, &page)
		return len(page.Jobs) == 0
	})
}

// jobPage is a page of GET /v1/jobs.
type jobPage struct {
	Jobs []struct {
		ID    string `json:"id"`
		State string `json:"state"`
	} `json:"jobs"`
	Next string `json:"next_page_token"`
}

func (n *testNode) list(t *testing.T, query url.Values, page *jobPage) {
	t.Helper()
	status, _, text := n.call(t, http.MethodGet, "/v1/jobs?"+query.Encode(), "")
	if status != http.StatusOK {
		t.Fatalf("list: %d %s", status, text)
	}
	if err := json.Unmarshal(text, page); err != nil {
		t.Fatal(err)
	}
}

// TestManyJobs: thousands of jobs submitted, run and listed leave goroutines,
// descriptors and memory of both nodes where they were. MOVER_MANY_JOBS says
// how many; the race detector is too slow for more than some hundreds.
func TestManyJobs(t *testing.T) {
	jobs := 300
	if text := os.Getenv("MOVER_MANY_JOBS"); text != "" {
		var err error
		if jobs, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	a, b := pair(t, "")
	writeFile(t, a.path("data", "small"), "a hundred bytes or less, verified and durable like any")
	const warm = 200
	runJobs(t, a, 0, warm)
	var before [2]held
	for k, n := range []*testNode{a, b} {
		before[k] = n.holds(t)
	}
	began := time.Now()
	runJobs(t, a, warm, jobs)
	t.Logf("%d jobs in %v", jobs, time.Since(began))
	listed := map[string]bool{}
	for query := (url.Values{"limit": {"500"}}); ; {
		var page jobPage
		a.list(t, query, &page)
		for _, j := range page.Jobs {
			if j.State != "succeeded" {
				t.Fatalf("job %s is %s: %+v", j.ID, j.State, a.job(t, j.ID).LastReason)
			}
			listed[j.ID] = true
		}
		if page.Next == "" {
			break
		}
		query.Set("page_token", page.Next)
	}
	if len(listed) != warm+jobs {
		t.Errorf("%d jobs are listed, %d were submitted", len(listed), warm+jobs)
	}
	if names, err := filepath.Glob(b.path("incoming", "*")); err != nil || len(names) != warm+jobs {
		t.Errorf("%d files arrived, %v", len(names), err)
	}
	http.DefaultClient.CloseIdleConnections()
	for k, n := range []*testNode{a, b} {
		var after held
		within(t, time.Minute, "node "+n.name+" holds more than before", func() bool {
			time.Sleep(100 * time.Millisecond)
			after = n.holds(t)
			return after.goroutines <= before[k].goroutines+2 && after.descriptors <= before[k].descriptors+2
		})
		const most = 32 << 20 // of the collector's and the database's caches
		t.Logf("node %s: before %+v, after %+v", n.name, before[k], after)
		if !raceDetector && after.resident > before[k].resident+most { // which remembers who touched what
			t.Errorf("node %s grew by %.1f MiB", n.name, (after.resident-before[k].resident)/(1<<20))
		}
	}
	a.stop(t)
	b.stop(t)
}
