package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"mover/job"
)

func TestPeerThatIsNotThere(t *testing.T) {
	a, b := newNode(t, "a"), newNode(t, "b")
	a.configure(t, "jobs: {max_attempts: 2}\n", b.as(t))
	a.start(t)
	content := makeFile(t, a.path("data", "f"), 1<<20)
	id := a.submit(t, "f", "b", "f")

	// It is retried, and says why and when.
	within(t, jobLimit, "the first attempt has not ended", func() bool { return a.job(t, id).LastReason != nil })
	if s := a.job(t, id); !s.State.Terminal() {
		wantReason(t, s, s.State, "PEER_UNREACHABLE")
		if s.State == job.Queued && s.NextAttemptAt == nil {
			t.Error("queued for another attempt, but does not say when")
		}
	}
	s := a.ended(t, id)
	wantReason(t, s, job.Failed, "PEER_UNREACHABLE")
	if s.Attempts != 2 {
		t.Errorf("%d attempts, want max_attempts = 2", s.Attempts)
	}
	if !strings.Contains(s.LastReason.Detail, b.control) {
		t.Errorf("does not say where it tried: %s", s.LastReason.Detail)
	}
	wantContent(t, a.path("data", "f"), content)
	mover(t, append([]string{"jobs", "get", "--wait", id}, serverArgs(a)...)...).want(t, exitFailed, "ended failed after 2 attempts: PEER_UNREACHABLE")
	a.stop(t)
}

func TestUnknownPeer(t *testing.T) {
	a := newNode(t, "a")
	a.configure(t, "jobs: {max_attempts: 1}\n")
	a.start(t)
	makeFile(t, a.path("data", "f"), 1)
	got := mover(t, append([]string{"cp", a.path("data", "f"), "nobody:incoming/"}, serverArgs(a)...)...)
	got.want(t, exitUsage, "destination.node", "under peers")
	a.stop(t)
}

func TestWrongFingerprint(t *testing.T) {
	a, b := newNode(t, "a"), newNode(t, "b")
	wrong := b.as(t)
	wrong.fingerprint = "sha256:" + strings.Repeat("0123456789abcdef", 4)
	a.configure(t, "jobs: {max_attempts: 1}\n", wrong)
	b.configure(t, "", a.as(t))
	a.start(t)
	b.start(t)
	makeFile(t, a.path("data", "f"), 1<<20)
	s := a.ended(t, a.submit(t, "f", "b", "f"))
	wantReason(t, s, job.Failed, "PEER_REFUSED", "PEER_UNREACHABLE")
	if !strings.Contains(s.LastReason.Detail, "fingerprint") {
		t.Errorf("does not name the fingerprint: %s", s.LastReason.Detail)
	}
	wantEmpty(t, b.path("incoming"))

	// And the other way round: b does not believe that a is a.
	b.stop(t)
	a.stop(t)
	liar := a.as(t)
	liar.fingerprint = wrong.fingerprint
	a.configure(t, "jobs: {max_attempts: 1}\n", b.as(t))
	b.configure(t, "", liar)
	a.start(t)
	b.start(t)
	s = a.ended(t, a.submit(t, "f", "b", "f"))
	wantReason(t, s, job.Failed, "PEER_REFUSED", "PEER_UNREACHABLE")
	wantEmpty(t, b.path("incoming"))
	a.stop(t)
	b.stop(t)
}

func TestPathOutsideRoot(t *testing.T) {
	a, b := pair(t, "jobs: {max_attempts: 1}\n")
	secret := t.TempDir()
	makeFile(t, secret+"/secret", 100)
	makeFile(t, a.path("data", "f"), 100)
	for link, target := range map[string]string{a.path("data", "out"): secret, b.path("incoming", "out"): secret} {
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
	}

	// By name: refused at once, in the form all errors have.
	for _, body := range []string{
		`{"source": {"path": "data/../secret"}, "destination": {"node": "b", "path": "incoming/x"}}`,
		`{"source": {"path": "/etc/passwd"}, "destination": {"node": "b", "path": "incoming/x"}}`,
		`{"source": {"path": "data/f"}, "destination": {"node": "b", "path": "incoming/../../x"}}`,
	} {
		status, header, answer := a.call(t, http.MethodPost, "/v1/jobs", body)
		var problem struct{ Code, Detail string }
		if err := json.Unmarshal(answer, &problem); err != nil || status < 400 || status > 499 || problem.Code == "" || problem.Detail == "" ||
			!strings.HasPrefix(header.Get("Content-Type"), "application/problem+json") {
			t.Errorf("%s: %d %s %s", body, status, header.Get("Content-Type"), answer)
		}
	}
	// Through a link, on either side.
	wantReason(t, a.ended(t, a.submit(t, "out/secret", "b", "x")), job.Failed, "PATH_OUTSIDE_ROOT")
	wantReason(t, a.ended(t, a.submit(t, "f", "b", "out/f")), job.Failed, "PATH_OUTSIDE_ROOT")
	if _, err := os.Stat(b.path("incoming", "x")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("something arrived: %v", err)
	}
	if entries, err := os.ReadDir(secret); err != nil || len(entries) != 1 {
		t.Errorf("the directory outside was touched: %v, %v", entries, err)
	}
	a.stop(t)
	b.stop(t)
}

func TestMissingSource(t *testing.T) {
	a, b := pair(t, "")
	s := a.ended(t, a.submit(t, "none", "b", "none"))
	wantReason(t, s, job.Failed, "SOURCE_NOT_FOUND")
	if s.Attempts > 1 {
		t.Errorf("%d attempts at what no retry can mend", s.Attempts)
	}
	wantEmpty(t, b.path("incoming"))
	a.stop(t)
	b.stop(t)
}

func TestFullDisk(t *testing.T) {
	a, b := newNode(t, "a"), newNode(t, "b")
	const size = 8 << 20
	if err := unix.Mount("tmpfs", b.path("incoming"), "tmpfs", 0, "size=8m"); errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		t.Skipf("a small file system cannot be mounted here: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(b.path("incoming"), unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	a.configure(t, "", b.as(t))
	b.configure(t, "", a.as(t))
	a.start(t)
	b.start(t)
	big := makeFile(t, a.path("data", "big"), 2*size)
	small := makeFile(t, a.path("data", "small"), size/2)

	s := a.ended(t, a.submit(t, "big", "b", "big"))
	wantReason(t, s, job.Failed, "NO_SPACE")
	if s.Attempts > 1 {
		t.Errorf("%d attempts at a full disk", s.Attempts)
	}
	within(t, 10*time.Second, "the failed job's space is not free again", func() bool {
		entries, err := os.ReadDir(b.path("incoming"))
		return err == nil && len(entries) == 0
	})
	wantContent(t, a.path("data", "big"), big)

	// What fits still arrives.
	if s := a.ended(t, a.submit(t, "small", "b", "small")); s.State != job.Succeeded {
		t.Errorf("%s: %+v", s.State, s.LastReason)
	}
	wantContent(t, b.path("incoming", "small"), small)
	a.stop(t)
	b.stop(t)
}

func TestPeerKilledInMidTransfer(t *testing.T) {
	a, b := pair(t, "")
	// Large enough to be caught in the middle, which is checked.
	const size = 256 << 20
	content := makeFile(t, a.path("data", "big"), size)
	id := a.submit(t, "big", "b", "big")
	within(t, jobLimit, "no byte has moved", func() bool {
		s := a.job(t, id)
		if s.State.Terminal() {
			t.Fatalf("the job ended too early to be disturbed: %s, %+v", s.State, s.LastReason)
		}
		return s.Progress.BytesDone > 0
	})
	b.kill(t)
	if _, err := os.Lstat(b.path("incoming", "big")); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("part of a file has the final name: %v", err)
	}
	// The first attempt must have failed before b is back, or nothing is shown.
	within(t, jobLimit, "the lost peer is not noticed", func() bool { return a.job(t, id).LastReason != nil })
	wantReason(t, a.job(t, id), a.job(t, id).State, "TRANSPORT_ERROR", "PEER_UNREACHABLE", "STALLED")

	b.start(t)
	s := a.ended(t, id)
	if s.State != job.Succeeded || s.Attempts < 2 {
		t.Errorf("%s after %d attempts: %+v", s.State, s.Attempts, s.LastReason)
	}
	wantContent(t, b.path("incoming", "big"), content)
	wantContent(t, a.path("data", "big"), content)
	a.stop(t)
	b.stop(t)
}

// TestKilledDestinationIsCleanedUp: the job never comes back to a destination
// that was killed, and yet no partial file stays there.
func TestKilledDestinationIsCleanedUp(t *testing.T) {
	a, b := pair(t, "")
	makeFile(t, a.path("data", "big"), 256<<20)
	id := a.submit(t, "big", "b", "big")
	within(t, jobLimit, "no byte has moved", func() bool { return a.job(t, id).Progress.BytesDone > 0 })
	b.kill(t)
	if left, err := os.ReadDir(b.path("incoming")); err != nil || len(left) != 1 || left[0].Name() == "big" {
		t.Fatalf("killed in the middle, b has %v, %v", left, err)
	}
	if status, _, answer := a.call(t, http.MethodPost, "/v1/jobs/"+id+"/cancel", ""); status != http.StatusOK {
		t.Fatalf("cancel: %d %s", status, answer)
	}
	if s := a.ended(t, id); s.State != job.Canceled {
		t.Fatalf("the job is %s", s.State)
	}
	b.start(t)
	wantEmpty(t, b.path("incoming"))
	a.stop(t)
	b.stop(t)
}

func TestStopInMidTransfer(t *testing.T) {
	a, b := pair(t, "")
	makeFile(t, a.path("data", "big"), 256<<20)
	id := a.submit(t, "big", "b", "big")
	within(t, jobLimit, "no byte has moved", func() bool { return a.job(t, id).Progress.BytesDone > 0 })
	// stop checks that SIGTERM ends it cleanly and in time, busy or not.
	b.stop(t)
	a.stop(t)
	if _, err := os.Lstat(b.path("incoming", "big")); err == nil {
		if info, err := os.Stat(b.path("incoming", "big")); err != nil || info.Size() != 256<<20 {
			t.Errorf("part of a file has the final name: %v", err)
		}
	}
}
