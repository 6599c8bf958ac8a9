package conformance

import "testing"

// testCase is one behaviour. When the provider lacks what it needs, lacking
// runs in its place and asserts the declared lack.
type testCase struct {
	name    string
	run     func(t TB, h Harness)
	needs   Feature
	lacking func(t TB, h Harness)
}

// Run runs every case as a subtest, each on a pair of its own.
func Run(t *testing.T, h Harness) {
	t.Helper()
	var all []testCase
	for _, group := range [][]testCase{transitionCases, dataCases, postCases, rnrCases, accessCases,
		failureCases, resourceCases, notifyCases, visibilityCases, featureCases,
		ucCases, ucLossCases, ucRecoveryCases, udCases, udAddressCases} {
		all = append(all, group...)
	}
	for _, c := range all {
		t.Run(c.name, func(t *testing.T) {
			if c.needs&h.Lacks != 0 {
				c.lacking(t, h)
				return
			}
			c.run(t, h)
		})
	}
	if !h.NoProperty {
		t.Run("random sequences", func(t *testing.T) { property(t, h) })
	}
}
