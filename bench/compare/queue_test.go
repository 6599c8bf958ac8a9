package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestPercentile95(t *testing.T) {
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(100 - i)
	}
	for _, c := range []struct {
		values []float64
		want   float64
	}{{hundred, 95}, {[]float64{7}, 7}, {[]float64{2, 1}, 2}, {hundred[:20], 99}} {
		before := slices.Clone(c.values)
		if got := percentile95(c.values); got != c.want {
			t.Errorf("of %v: %v, want %v", c.values, got, c.want)
		}
		if !slices.Equal(before, c.values) {
			t.Errorf("%v was changed", before)
		}
	}
}

func TestGbitPerSecond(t *testing.T) {
	if got := gbitPerSecond(1e9, 2*time.Second); got != 4 {
		t.Errorf("a GB in two seconds is %v Gbit/s", got)
	}
}

func TestInParallel(t *testing.T) {
	var calls [1000]atomic.Int32
	err := inParallel(t.Context(), 7, len(calls), func(_ context.Context, i int) error {
		calls[i].Add(1)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range calls {
		if n := calls[i].Load(); n != 1 {
			t.Errorf("%d was called %d times", i, n)
		}
	}
	wrong := errors.New("wrong")
	if err := inParallel(t.Context(), 7, 1000, func(context.Context, int) error { return wrong }); !errors.Is(err, wrong) {
		t.Errorf("an error is lost: %v", err)
	}
}

// queueServer has a queue: jobs with a limit run until canceled, those behind
// them stay queued (unless eager), all others succeed at once.
type queueServer struct {
	mu     sync.Mutex
	eager  bool
	states map[string]string
	held   int
}

func (q *queueServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	id, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v1/jobs/"), "/")
	switch {
	case r.URL.Path == "/v1/jobs":
		var job jobRequest
		if err := json.NewDecoder(r.Body).Decode(&job); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		id = fmt.Sprintf("j%d", len(q.states))
		switch {
		case job.BandwidthLimit != "":
			q.states[id] = "running"
			q.held++
		case q.held > 0 && !q.eager:
			q.states[id] = "queued"
		default:
			q.states[id] = "succeeded"
		}
		w.WriteHeader(http.StatusAccepted)
	case strings.HasSuffix(r.URL.Path, "/cancel"):
		if q.states[id] == "running" {
			q.held--
		}
		q.states[id] = "canceled"
	}
	fmt.Fprintf(w, `{"id":%q,"state":%q,"result":%s}`, id, q.states[id], asAsked)
}

func testLoad(t *testing.T, q *queueServer) *queueLoad {
	t.Helper()
	q.states = map[string]string{}
	server := httptest.NewServer(q)
	t.Cleanup(server.Close)
	client := newJobClient(1)
	client.base = server.URL
	t.Cleanup(client.http.CloseIdleConnections)
	return &queueLoad{client: client, place: testPlace(t, onTmpfs)}
}

func TestSubmitRate(t *testing.T) {
	q := &queueServer{}
	l := testLoad(t, q)
	rate, err := l.submitRate(t.Context(), 0)
	if err != nil || !(rate > 0) {
		t.Fatalf("%v a second, %v", rate, err)
	}
	if len(q.states) != blockers+submitCount {
		t.Errorf("%d jobs were submitted", len(q.states))
	}
	for id, state := range q.states {
		if state != "canceled" {
			t.Errorf("job %s was left %s", id, state)
		}
	}
	// Jobs that run are another measurement.
	l = testLoad(t, &queueServer{eager: true})
	if _, err := l.submitRate(t.Context(), 0); err == nil || !strings.Contains(err.Error(), "stayed queued") {
		t.Errorf("jobs that ran: %v", err)
	}
}

func TestQueueFigures(t *testing.T) {
	for _, kind := range []figureKind{latencyFigure, besideFigure} {
		l := testLoad(t, &queueServer{})
		b := newBench(options{pairs: 2}, nil, &strings.Builder{})
		e, err := b.queueFigure(t.Context(), figure{name: "f", kind: kind, peer: ownTarget, target: 1}, l, "ext4")
		if err != nil {
			t.Fatal(err)
		}
		if e.Peer != ownTarget || e.Unit != "ms" || !(e.Ours > 0) || e.Filesystem != "ext4" {
			t.Errorf("got %+v", e)
		}
		if kind == latencyFigure && e.Theirs != latencyAimed {
			t.Errorf("against %v ms", e.Theirs)
		}
	}
}

// TestQueueFiguresNeedMover: a target alone is no measurement.
func TestQueueFiguresNeedMover(t *testing.T) {
	b := newBench(options{figures: figures}, nil, &strings.Builder{})
	if e, err := b.queueFigures(t.Context()); len(e) > 0 || err != nil {
		t.Errorf("%v, %v", e, err)
	}
}
