package peer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"mover/reason"
)

// echo answers with what it was asked, and knows some other kinds.
func echo(_ context.Context, from PeerInfo, kind string, body []byte) ([]byte, error) {
	switch kind {
	case "echo":
		return body, nil
	case "who":
		return []byte(from.Name + " " + from.Fingerprint), nil
	case "none":
		return nil, nil
	case "reason":
		return nil, fmt.Errorf("wrapped: %w", reason.New(reason.DestExists, "there is one; remove it"))
	case "plain":
		return nil, errors.New("out of order")
	case "huge":
		return make([]byte, MaxQuestionBytes+1), nil
	}
	return nil, ErrUnknownQuestion
}

func answering(f func(context.Context, PeerInfo, string, []byte) ([]byte, error)) func(*Config) {
	return func(c *Config) { c.Answer = f }
}

// ask is Ask with the test's patience.
func ask(t *testing.T, n *node, name, kind string, body []byte) ([]byte, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return n.Ask(ctx, name, kind, body)
}

// kept is how many connections n keeps for questions.
func (n *node) kept() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.askers)
}

func checkAnswers(t *testing.T, n *node, name string) {
	t.Helper()
	for _, body := range [][]byte{nil, []byte("x"), bytes.Repeat([]byte("0123456789abcdef"), MaxQuestionBytes/16)} {
		got, err := ask(t, n, name, "echo", body)
		if err != nil || !bytes.Equal(got, body) {
			t.Fatalf("%d bytes came back as %d, %v", len(body), len(got), err)
		}
	}
	got, err := ask(t, n, name, "who", nil)
	if want := n.cfg.Identity.Name + " " + n.cfg.Identity.Fingerprint; err != nil || string(got) != want {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
	if got, err := ask(t, n, name, "none", []byte("x")); err != nil || len(got) != 0 {
		t.Errorf("%q, %v", got, err)
	}
	var r *reason.Error
	if _, err = ask(t, n, name, "reason", nil); !errors.As(err, &r) || r.Code != reason.DestExists || r.Detail != "there is one; remove it" {
		t.Errorf("%v", err)
	}
	if _, err = ask(t, n, name, "plain", nil); reason.Of(err) != reason.Internal || !strings.Contains(err.Error(), "out of order") {
		t.Errorf("%v", err)
	}
	if _, err = ask(t, n, name, "huge", nil); reason.Of(err) != reason.Internal || !strings.Contains(err.Error(), "at most") {
		t.Errorf("%v", err)
	}
	if _, err = ask(t, n, name, "new", nil); !errors.Is(err, ErrUnknownQuestion) {
		t.Errorf("%v", err)
	}
	mentionErr(t, err, `"new"`, "upgrade mover", name)
}

// A question needs no session, and none comes of it; one connection serves all.
func TestAskWithoutSession(t *testing.T) {
	a, b := twoNodes(t, answering(echo))
	checkAnswers(t, a, b.cfg.Identity.Name)
	if len(a.Sessions()) != 0 || len(b.accepted) != 0 || a.kept() != 1 {
		t.Errorf("%d sessions, %d connections kept", len(a.Sessions()), a.kept())
	}
	if n := connections(b); n != 1 {
		t.Errorf("%d connections", n)
	}
}

func connections(n *node) int {
	n.gate.mu.Lock()
	defer n.gate.mu.Unlock()
	return n.gate.total
}

// With a session, its dialler asks over it, and the other side over a
// connection of its own.
func TestAskBesideSession(t *testing.T) {
	a, b := twoNodes(t, answering(echo))
	ca, cb := connect(t, a, b)
	checkAnswers(t, a, b.cfg.Identity.Name)
	if a.kept() != 0 || connections(b) != 1 {
		t.Errorf("%d kept, %d connections", a.kept(), connections(b))
	}
	checkAnswers(t, b, a.cfg.Identity.Name)
	if b.kept() != 1 || connections(a) != 1 {
		t.Errorf("%d kept, %d connections", b.kept(), connections(a))
	}
	if err := ca.Send(ping(7)); err != nil {
		t.Fatal(err)
	}
	receive(t, cb.Messages(), "the session's message")
	if ca.Err() != nil || cb.Err() != nil {
		t.Error(ca.Err(), cb.Err())
	}
}
