package numa

import (
	"errors"
	"strings"
	"testing"
)

func TestCheckMemlock(t *testing.T) {
	for _, c := range []struct {
		need, limit uint64
		unlimited   bool
		ok          bool
	}{
		{8 << 20, 8 << 20, false, true},
		{8<<20 + 1, 8 << 20, false, false},
		{1 << 40, 0, true, true},
		{0, 0, false, true},
	} {
		err := checkMemlock(c.need, c.limit, c.unlimited)
		if (err == nil) != c.ok {
			t.Errorf("%+v: %v", c, err)
		}
		if err == nil {
			continue
		}
		var typed *MemlockError
		if !errors.As(err, &typed) || typed.Need != c.need || typed.Limit != c.limit || !errors.Is(err, ErrMemlock) {
			t.Errorf("%+v: %#v", c, err)
		}
		for _, want := range []string{"needs 9 MiB", "limit is 8 MiB", "ulimit -l 8193;", "LimitMEMLOCK=infinity"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q misses %q", err, want)
			}
		}
	}
	if err := checkMemlock(8<<20, 65536, false); err == nil || !strings.Contains(err.Error(), "limit is 64 KiB (65536 bytes)") {
		t.Errorf("a limit below 1 MiB: %v", err)
	}
	if _, _, err := MemlockLimit(); err != nil {
		t.Error(err)
	}
	if err := CheckMemlock(4096); err != nil {
		t.Logf("this host: %v", err)
	}
}

func TestMayLockAnything(t *testing.T) {
	const hostIDs, containerIDs = "         0          0 4294967295\n", "0 100000 65536\n"
	for name, c := range map[string]struct {
		uidMap, capEff string
		want           bool
	}{
		"root":              {hostIDs, "000001ffffffffff", true},
		"only CAP_IPC_LOCK": {hostIDs, "0000000000004000", true},
		"all but that":      {hostIDs, "000001ffffffbfff", false},
		"user":              {hostIDs, "0000000000000000", false},
		"container's root":  {containerIDs, "000001ffffffffff", false},
	} {
		dir := t.TempDir()
		write(t, dir, "uid_map", c.uidMap)
		write(t, dir, "status", "Name:\tmover\nCapEff:\t"+c.capEff+"\nCapBnd:\t000001ffffffffff\n")
		if got, err := mayLockAnything(dir); err != nil || got != c.want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	dir := t.TempDir()
	write(t, dir, "uid_map", hostIDs)
	write(t, dir, "status", "CapEff:\txyz\n")
	if _, err := mayLockAnything(dir); err == nil {
		t.Error("read capabilities xyz")
	}
}
