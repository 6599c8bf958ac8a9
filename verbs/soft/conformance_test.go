//go:build linux

package soft

import (
	"net/netip"
	"testing"
	"time"

	"mover/verbs"
	"mover/verbs/conformance"
)

// TestConformance runs the suite between two devices, between two contexts of
// one device, and over IPv6.
func TestConformance(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name       string
		addrs      []string
		a, b       string
		noProperty bool
	}{
		{"two devices", []string{"127.0.0.1", "127.0.0.2"}, "soft0", "soft1", false},
		{"one device", []string{"127.0.0.1"}, "soft0", "soft0", true},
		{"IPv6", []string{"::1"}, "soft0", "soft0", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // much of it is waiting that nothing happens
			var cfg Config
			for _, a := range c.addrs {
				cfg.Addresses = append(cfg.Addresses, netip.MustParseAddr(a))
			}
			conformance.Run(t, conformance.Harness{
				Lacks:      conformance.Read | conformance.Atomic,
				NoProperty: c.noProperty,
				Open: func(tb conformance.TB) *conformance.Pair {
					p, err := New(cfg)
					if err != nil {
						tb.Fatalf("%v", err)
					}
					open := func(name string) verbs.Context {
						ctx, err := p.OpenDevice(name)
						if err != nil {
							tb.Fatalf("%v", err)
						}
						return ctx
					}
					return &conformance.Pair{A: open(c.a), B: open(c.b),
						// As long as the default, but it leaves the CPU to the others.
						Settle: func(poll func()) {
							for range 10 {
								for range 10 {
									poll()
								}
								time.Sleep(2 * time.Millisecond)
							}
						},
						Lose: func(ctx verbs.Context, pick func(int) bool) {
							if err := LosePackets(ctx, pick); err != nil {
								tb.Fatalf("%v", err)
							}
						}}
				},
			})
		})
	}
}
