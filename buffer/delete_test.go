package buffer

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"mover/reason"
)

func TestDelete(t *testing.T) {
	r, h := newRegistry(t)
	create(t, r, small("a"))
	if err := r.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	h.wantFiles(t)
	if left := leftovers(); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
	if err := r.Delete(t.Context(), "a"); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	if len(r.List()) != 0 {
		t.Error("it is still listed")
	}
}

// TestDeleteWaits: new leases are refused while a Delete waits for those there are, and given again if it gives up.
func TestDeleteWaits(t *testing.T) {
	r, h := newRegistry(t)
	create(t, r, small("a"))
	one, two := lease(t, r, "a", 0, 10, false), lease(t, r, "a", 5, 10, false)
	ctx, cancel := context.WithCancel(t.Context())
	ends := make(chan error, 2)
	go func() { ends <- r.Delete(ctx, "a") }()
	refused := func() error { // once Delete has begun
		for {
			l, err := r.Lease(LeaseRequest{Name: "a", Length: 1})
			if err != nil {
				return err
			}
			l.Release()
		}
	}
	wantError(t, refused(), reason.BufferBusy, errDeleting)
	if _, _, err := r.Create(t.Context(), small("a")); reason.Of(err) != reason.BufferBusy {
		t.Errorf("Create meanwhile: %v", err)
	}
	one.Release()
	cancel()
	err := <-ends
	wantError(t, err, reason.BufferBusy, context.Canceled)
	var busy *BusyError
	if !errors.As(err, &busy) || busy.By != two.Info() {
		t.Errorf("%v", err)
	}
	lease(t, r, "a", 0, 10, false).Release()
	h.wantFiles(t, "a")

	for range 2 {
		go func() { ends <- r.Delete(t.Context(), "a") }()
	}
	wantError(t, refused(), reason.BufferBusy, errDeleting)
	two.Release()
	for range 2 {
		if err := <-ends; err != nil && !errors.Is(err, ErrNotFound) { // the second may come too late to wait
			t.Error(err)
		}
	}
	h.wantFiles(t)
}

// TestDeleteLeavesOthersFile: what stands at the path now is not what was made there.
func TestDeleteLeavesOthersFile(t *testing.T) {
	r, h := newRegistry(t)
	info := create(t, r, small("a"))
	if err := os.Rename(info.Path, info.Path+".kept"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(info.Path, make([]byte, info.MappedBytes), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{info.Path, info.Path + ".kept"} {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
	if !strings.Contains(h.log.String(), "left alone") {
		t.Errorf("log: %s", h.log.String())
	}
	if _, _, err := r.Create(t.Context(), small("a")); !errors.Is(err, ErrForeign) {
		t.Error(err)
	}
}
