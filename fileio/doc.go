// Package fileio reads the files that are sent and writes the files that are
// received: confined roots, reads into slot payloads, and the publish protocol
// that is the only way a name appears at a destination.
//
// It must not know about peers, lanes, slots, jobs' states or HTTP. It does
// not checksum: bytes are checked where they are in cache, by the caller. Every
// error it returns is a *reason.Error.
//
// # Publishing
//
// A received file is written under a name of its own in the directory it will
// live in, `.mover.<32 hex digits>.partial`, and renamed when it is whole. The
// rules, each of which somebody's data paid for:
//
//   - the final name is only ever created by one rename (or link) and is never
//     unlinked or opened for writing;
//   - a failed write or fsync ends the attempt: the kernel reports a write-back
//     error once (errseq_t, fsync(2)), so a second fsync that succeeds proves
//     nothing;
//   - cleaning up removes a partial only after comparing the inode with the
//     one that is held, and somebody else's only under its flock, which a live
//     process holds.
//
// # Use
//
//	root, err := fileio.OpenRoot(fileio.RootConfig{Name: "data", Path: "/srv/data"})
//	src, err := root.OpenSource("ckpt/0042")
//	n, err := src.ReadAt(payload[:chunkBytes], off) // any goroutine
//	err = src.Verify()                               // unchanged since open?
//	src.Close()
//
//	dst, err := root.Create(ctx, fileio.CreateSpec{Rel: "in/0042", Size: size, Job: id, Durable: true})
//	defer dst.Discard()                              // nothing after a Publish
//	n, err = dst.WriteAt(payload[:chunkBytes], off)  // any goroutine, any order
//	err = dst.Publish(ctx)
package fileio
