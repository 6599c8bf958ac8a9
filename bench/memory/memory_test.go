package memory

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"testing"

	"mover/node/config"
)

// TestMain lets the test binary be the two processes too.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "bench" && os.Args[2] == "mem" {
		if err := child(os.Args[3:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func child(args []string) error {
	var r Role
	f := flag.NewFlagSet("role", flag.ContinueOnError)
	f.StringVar(&r.Name, "role", "", "")
	f.StringVar(&r.Dir, "dir", "", "")
	f.StringVar(&r.Fingerprint, "fingerprint", "", "")
	f.StringVar(&r.Control, "control", "", "")
	f.IntVar(&r.Options.Seconds, "seconds", 0, "")
	f.Int64Var(&r.Options.ItemBytes, "item", 0, "")
	f.IntVar(&r.Options.Items, "items", 0, "")
	f.Int64Var(&r.Options.BlockBytes, "block", 0, "")
	f.IntVar(&r.Options.Count, "count", 0, "")
	f.StringVar(&r.Options.Provider, "provider", "", "")
	f.StringVar(&r.Options.Device, "ib-dev", "", "")
	f.StringVar(&r.Options.Idle, "idle", "", "")
	verify := f.String("verify", "", "")
	if err := f.Parse(args); err != nil {
		return err
	}
	r.Options.Verify = *verify == "crc32c"
	r.Config = config.Default()
	r.Config.Soft.Addresses = []string{"127.0.0.1", "127.0.0.2"}
	r.Config.Memory.SessionShare = 32 << 20
	r.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	r.Stdin, r.Stdout = os.Stdin, os.Stdout
	return r.Serve(context.Background())
}

// TestTwoProcesses moves memory between two real processes, both ways of
// verifying, and checks that the report is consistent.
func TestTwoProcesses(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, verify := range []bool{false, true} {
		r, err := Run(t.Context(), Options{Seconds: 1, Verify: verify, ItemBytes: 32 << 20, Items: 2, Program: program, Errors: os.Stderr})
		if err != nil {
			t.Fatalf("verify %v: %v", verify, err)
		}
		if r.Bytes <= 0 || r.Seconds <= 0 || r.GbitPerSecond <= 0 || r.Rails != 2 || r.Verify != verifyName(verify) {
			t.Errorf("verify %v: %+v", verify, r)
		}
		if r.RSSBytesSource < r.ArenaBytes || r.RSSBytesDestination < r.ArenaBytes {
			t.Errorf("resident memory below the arena's: %+v", r)
		}
		t.Logf("%+v", r)
	}
}

// TestCounted: so many transfers are measured as were asked for, over the
// device that was named.
func TestCounted(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const bytes, count = 8 << 20, 7
	r, err := Run(t.Context(), Options{Seconds: 60, Count: count, ItemBytes: bytes, Items: 2, Provider: "soft", Device: "soft1", Idle: "adaptive",
		Program: program, Errors: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	if r.Transfers != count || r.Bytes != count*bytes || r.Devices != "soft1" || r.Rails != 1 || r.Provider != "soft" {
		t.Errorf("%+v", r)
	}
	if r.CPUSource <= 0 || r.CPUDestination <= 0 || r.GBPerSecond*8/r.GbitPerSecond < 0.999 || r.GBPerSecond*8/r.GbitPerSecond > 1.001 {
		t.Errorf("%+v", r)
	}
	if _, err := Run(t.Context(), Options{Seconds: 60, Count: 1, ItemBytes: bytes, Items: 1, Provider: "soft", Device: "soft7", Program: program}); err == nil {
		t.Error("measured over a device that is not there")
	}
}
