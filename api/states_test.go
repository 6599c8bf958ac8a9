package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "mover/api/v1"
	"mover/job"
	"mover/reason"
)

// reach makes a job and brings it to a state.
func (f *fixture) reach(to job.State) job.ID {
	f.t.Helper()
	spec := strings.Replace(body, "{", `{"deadline":"1h",`, 1)
	id := f.snapshot(f.do("POST", "/v1/jobs", "submit", spec), http.StatusAccepted).ID
	c := <-f.calls
	must := func(_ job.Snapshot, err error) {
		if err != nil {
			f.t.Fatal(err)
		}
	}
	switch to {
	case job.Queued:
		must(f.queue.Pause(id))
		f.come(id, job.Paused)
		f.queue.Drain(true) // nothing starts
		must(f.queue.Resume(id))
	case job.Running, job.Verifying, job.Publishing:
		for _, s := range []job.State{job.Running, job.Verifying, job.Publishing} {
			if c.attempt.Phase(s); s == to {
				break
			}
		}
	case job.Paused:
		must(f.queue.Pause(id))
	case job.Canceling:
		f.hold = make(chan struct{})
		f.t.Cleanup(func() { close(f.hold) })
		must(f.queue.Cancel(id))
	case job.Succeeded:
		c.end <- nil
	case job.Partial:
		c.end <- errPartly
	case job.Failed:
		c.end <- reason.New(reason.NoSpace, "full")
	case job.Canceled:
		must(f.queue.Cancel(id))
	case job.Expired:
		f.clock.Advance(2 * time.Hour)
	}
	f.come(id, to)
	return id
}

// TestStatesFromTheDocument tries every operation that is not possible in all
// states in each of them.
func TestStatesFromTheDocument(t *testing.T) {
	tried := map[string]int{}
	for _, op := range openDocument(t).operations() {
		list, ok := sub(op.node, "x-states").([]any)
		if !ok {
			if op.method != http.MethodGet && strings.HasPrefix(op.path, "/v1/jobs/{id}") {
				t.Errorf("%s %s has no x-states", op.method, op.path)
			}
			continue
		}
		for _, s := range list {
			if !job.State(s.(string)).Valid() {
				t.Errorf("%s %s: %v is no state", op.method, op.path, s)
			}
		}
		for _, state := range job.States() {
			tried[fmt.Sprint(slices.Contains(list, any(string(state))))]++
			t.Run(op.method+op.path+" "+string(state), func(t *testing.T) {
				f := newFixture(t, nil)
				f.tryIn(state, op, slices.Contains(list, any(string(state))))
			})
		}
	}
	if tried["true"] < 20 || tried["false"] < 20 {
		t.Errorf("%v were tried", tried)
	}
}

// tryIn carries an operation out on a job in a state: twice, if it is possible,
// since what is repeated is no mistake.
func (f *fixture) tryIn(state job.State, op operation, possible bool) {
	id := f.reach(state)
	input := ""
	if example := sub(op.node, "requestBody", "content", mediaJSON, "example"); example != nil {
		data, err := json.Marshal(example)
		if err != nil {
			f.t.Fatal(err)
		}
		input = string(data)
	}
	target := op.target(id.String())
	if !possible {
		for range 2 { // a refusal changes nothing
			p := f.problem(f.do(op.method, target, "submit", input), http.StatusConflict, v1.CodeWrongState)
			if !strings.Contains(p.Detail, string(state)) || !strings.Contains(p.Detail, "; ") {
				f.t.Errorf("it does not say in which state the job is, and what to do: %s", p.Detail)
			}
			if s, err := f.queue.Get(id); err != nil || s.State != state {
				f.t.Errorf("the job is %s, %v", s.State, err)
			}
		}
		return
	}
	if w := f.do(op.method, target, "submit", input); w.Code/100 != 2 {
		f.t.Errorf("%d %s", w.Code, w.Body)
	}
	w := f.do(op.method, target, "submit", input)
	if op.method == http.MethodDelete {
		f.problem(w, http.StatusNotFound, v1.CodeNotFound)
	} else if w.Code != http.StatusOK {
		f.t.Errorf("repeated: %d %s", w.Code, w.Body)
	}
}

// TestReplayFromTheDocument: what the document says to take an Idempotency-Key
// gives the same answer again, and no other to another body.
func TestReplayFromTheDocument(t *testing.T) {
	tried := 0
	for _, op := range openDocument(t).operations() {
		if !slices.ContainsFunc(op.params, func(p node) bool { return sub(p, "name") == "Idempotency-Key" }) {
			continue
		}
		tried++
		f := newFixture(t, nil)
		example, ok := sub(op.node, "requestBody", "content", mediaJSON, "example").(map[string]any)
		if !ok {
			t.Fatalf("%s %s has no example", op.method, op.path)
		}
		marshal := func() string {
			data, err := json.Marshal(example)
			if err != nil {
				t.Fatal(err)
			}
			return string(data)
		}
		same := marshal()
		status := 0
		for code, r := range asMap(sub(op.node, "responses")) {
			if sub(r, "headers", "Idempotent-Replayed") != nil {
				if _, err := fmt.Sscan(code, &status); err != nil {
					t.Fatal(err)
				}
			}
		}
		var first job.Snapshot
		for i, replayed := range []string{"", "true", "true"} {
			w := f.do(op.method, op.path, "admin", same, "Idempotency-Key: once")
			s := f.snapshot(w, status)
			if i == 0 {
				first = s
			}
			if got := w.Header().Get("Idempotent-Replayed"); got != replayed || s.ID != first.ID || !strings.HasSuffix(w.Header().Get("Location"), first.ID.String()) {
				t.Errorf("time %d: job %s, Idempotent-Replayed is %q, want %s, %q", i+1, s.ID, got, first.ID, replayed)
			}
			if i == 1 { // its end does not make the key new
				(<-f.calls).end <- nil
				f.ended(first.ID)
			}
		}
		example["labels"] = map[string]any{"run": "another"}
		p := f.problem(f.do(op.method, op.path, "admin", marshal(), "Idempotency-Key: once"), http.StatusUnprocessableEntity, v1.CodeKeyReused)
		if !strings.Contains(p.Detail, "key") {
			t.Error(p.Detail)
		}
		if page, _, err := f.queue.List(job.Filter{}, "", 10); err != nil || len(page) != 1 {
			t.Errorf("there are %d jobs, %v", len(page), err)
		}
		delete(example, "labels")
		if s := f.snapshot(f.do(op.method, op.path, "admin", marshal(), "Idempotency-Key: other"), status); s.ID == first.ID {
			t.Error("another key gives the same job")
		}
	}
	if tried == 0 {
		t.Error("nothing takes an Idempotency-Key")
	}
}
