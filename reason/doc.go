// Package reason holds the closed list of reasons for which an attempt at an
// item or a job ends without success, and the error type that carries one.
//
// A reason is an API: users' scripts switch on the name, peers and journals
// carry the number. Names and numbers are therefore never changed, reused or
// renumbered; a new reason gets a new number at the end of the table.
//
// The package is a leaf. It must not know about files, peers, verbs, HTTP or
// jobs: which errno means which reason depends on what was being done (ENOENT
// is SOURCE_NOT_FOUND for one path and DEST_NOT_FOUND for another), so the
// package that made the call decides, and wraps.
//
//	f, err := root.Open(rel)
//	if errors.Is(err, fs.ErrNotExist) {
//		return reason.New(reason.SourceNotFound,
//			"open %s: %w; check the path and the root's name", rel, err)
//	}
//	...
//	if code := reason.Of(err); code.Retryable() { ... }
package reason
