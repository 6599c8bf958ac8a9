package main

import (
	"regexp"
	"strings"
	"testing"

	"mover/job"
)

// logLine is the line of a log with a message and all of some attributes.
func logLine(t *testing.T, n *testNode, msg string, attributes ...string) string {
	t.Helper()
lines:
	for line := range strings.Lines(n.log.String()) {
		line = strings.TrimSpace(line)
		if !strings.Contains(line, ` msg="`+msg+`" `) {
			continue
		}
		for _, a := range attributes {
			if !strings.Contains(line+" ", " "+a+" ") {
				continue lines
			}
		}
		return line
	}
	t.Errorf("node %s has no line %q with %v", n.name, msg, attributes)
	return ""
}

var sessionName = regexp.MustCompile(` session=([0-9a-f]{8})\b`)

// TestLogsOfBothNodes: who has a job's id, or a session's name, from the log of
// one node finds what the other did, without debugging.
func TestLogsOfBothNodes(t *testing.T) {
	a, b := pair(t, "")
	makeFile(t, a.path("data", "x"), 1<<20)
	id := a.submit(t, "x", "b", "x")
	if s := a.ended(t, id); s.State != job.Succeeded {
		t.Fatalf("%s, %+v", s.State, s.LastReason)
	}
	begins := logLine(t, a, "attempt begins", "level=INFO", "job="+id, "attempt=1", "peer=b")
	found := sessionName.FindStringSubmatch(begins)
	if found == nil {
		t.Fatalf("no session in %q", begins)
	}
	session := "session=" + found[1]
	logLine(t, a, "attempt ended", "job="+id, session, "code=OK")
	logLine(t, b, "receiving an item", "level=INFO", "job="+id, "attempt=1", "item=0", "peer=a", session, "bytes=1048576")
	logLine(t, b, "an item was published", "level=INFO", "job="+id, "attempt=1", "peer=a", session)

	// The same name again is refused over there.
	id = a.submit(t, "x", "b", "x")
	wantReason(t, a.ended(t, id), job.Failed, "DEST_EXISTS")
	logLine(t, a, "attempt ended", "job="+id, session, "code=DEST_EXISTS")
	logLine(t, b, "an item was refused", "level=WARN", "job="+id, "attempt=1", "peer=a", session, "code=DEST_EXISTS")

	// A tree has many items, and says so once.
	oddTree(t, a.path("data", "tree"))
	s := a.ended(t, a.submitJob(t, map[string]any{"source": map[string]string{"path": "data/tree"}, "recursive": true,
		"destination": map[string]string{"node": "b", "path": "incoming/tree"}}))
	if s.State != job.Succeeded {
		t.Fatalf("%s, %+v", s.State, s.LastReason)
	}
	id = s.ID.String()
	logLine(t, b, "receiving an item", "job="+id, "item=1", session)
	if n := strings.Count(b.log.String(), "receiving an item\" peer=a "+session+" job="+id); n != 1 {
		t.Errorf("node b tells of %d items of one tree", n)
	}

	a.stop(t)
	b.stop(t)
	for _, n := range []*testNode{a, b} {
		if got := strings.Count(n.log.String(), `msg="session ended"`); got != 1 {
			t.Errorf("node %s says %d times that its session ended", n.name, got)
		}
		logLine(t, n, "session ended", session)
	}
}
