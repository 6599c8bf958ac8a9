// Package conformance holds one set of behaviours that every verbs provider
// must show: what the man pages of libibverbs and the InfiniBand specification
// promise to a transfer engine, and the refusals that keep it safe.
//
// It knows the verbs API and nothing of any provider. A provider's own test
// says how to open two devices that reach each other and what it lacks:
//
//	func TestConformance(t *testing.T) {
//		conformance.Run(t, conformance.Harness{
//			Lacks: conformance.UC | conformance.UD,
//			Open: func(tb conformance.TB) *conformance.Pair {
//				return &conformance.Pair{A: open(tb, "soft0"), B: open(tb, "soft1")}
//			},
//		})
//	}
//
// What is declared as lacking is not skipped: the provider must refuse it with
// an *UnsupportedError, or show the weaker behaviour that the declaration
// names. A declaration that is not true fails.
package conformance
