//go:build !moverfault

package device

import "mover/verbs"

// injected is the provider as it is. A test build has faults, see package
// fault.
func injected(p verbs.Provider) verbs.Provider { return p }
