//go:build !moverfault

package fileio

// systemCalls are the calls that a root makes: the kernel's own. A test build
// has others, see package fault.
func systemCalls() kernel { return linux{} }
