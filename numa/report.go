package numa

import (
	"errors"
	"fmt"
	"strings"
)

// Kinds of memory an arena can be of, in [ArenaReport].
const (
	KindHugetlb1G   = "hugetlb 1GiB"
	KindHugetlb2M   = "hugetlb 2MiB"
	KindTransparent = "transparent huge pages"
	KindSmall       = "small pages"
)

// ArenaReport says what was obtained for an arena, and why not something better.
type ArenaReport struct {
	Bytes      int64
	NodeWanted int // -1: not bound
	// NodeGot is the node that all pages are on; -1 when they are on several, or the kernel does not tell.
	NodeGot int
	// PageBytes is the size of the smallest pages behind the arena, as found after it was populated.
	PageBytes int64
	// HugeBytes is how much of it is in huge pages of any kind.
	HugeBytes int64
	Kind      string
	// Steps are the steps that did not succeed, in order, each with the reason and, where there is one, the fix.
	Steps []string
}

// String is one line for the log.
func (r ArenaReport) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d MiB in %s", r.Bytes>>20, r.Kind)
	if r.Kind == KindTransparent && r.HugeBytes < r.Bytes {
		fmt.Fprintf(&b, " (%d MiB of it huge)", r.HugeBytes>>20)
	}
	switch {
	case r.NodeGot >= 0 && r.NodeWanted == r.NodeGot, r.NodeGot >= 0 && r.NodeWanted < 0:
		fmt.Fprintf(&b, " on node %d", r.NodeGot)
	case r.NodeGot >= 0:
		fmt.Fprintf(&b, " on node %d instead of %d", r.NodeGot, r.NodeWanted)
	case r.NodeWanted >= 0:
		fmt.Fprintf(&b, ", wanted on node %d", r.NodeWanted)
	}
	for _, s := range r.Steps {
		b.WriteString("; ")
		b.WriteString(s)
	}
	return b.String()
}

// ErrNoMemory is wrapped by the error of [MapArena] when no kind of memory was to be had.
var ErrNoMemory = errors.New("no memory for the arena")

// ArenaError says that an arena could not be mapped at all.
type ArenaError struct {
	Need  int64 // bytes
	Node  int   // -1: any
	Limit string
	Steps []string // as in ArenaReport
}

// Error names need, limit, what was tried and the fix.
func (e *ArenaError) Error() string {
	where := "on any node"
	if e.Node >= 0 {
		where = fmt.Sprintf("on node %d", e.Node)
	}
	limit := ""
	if e.Limit != "" {
		limit = "; " + e.Limit
	}
	return fmt.Sprintf("%v: need %d MiB %s%s; make the arena smaller, or free memory. Tried: %s", ErrNoMemory,
		e.Need>>20, where, limit, strings.Join(e.Steps, "; "))
}

// Unwrap makes errors.Is(err, ErrNoMemory) true.
func (e *ArenaError) Unwrap() error { return ErrNoMemory }
