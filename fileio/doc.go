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
//
// # Trees
//
// A walk tells what is in a tree, in constant memory. Its small files,
// directories and links travel in groups: a GroupSource reads many files as the
// bytes of one item, a GroupSink decides about each entry, writes each file
// under a partial name of its own and publishes all of them with few syncs; an
// entry that fails never fails the others. Directories get their modes and
// times when everything in them has its name. Below the directory that a tree
// goes to, and below the one it comes from, no symlink is ever followed.
//
//	err := root.Walk(ctx, "ckpt", fileio.WalkConfig{Visit: visit, Leave: leave, Problem: problem})
//	src, err := root.OpenGroup("ckpt", entries, nil)
//	n, err := src.ReadAt(payload[:src.Size()], 0)
//	err = src.Verify() // or which did it: src.Failed()
//	src.Close()
//
//	dst, err := root.CreateGroup(ctx, fileio.GroupSpec{Base: "in/ckpt", Job: id, Durable: true, Entries: list})
//	defer dst.Discard()
//	n, err = dst.WriteAt(payload[:dst.Size()], 0)
//	err = dst.Publish(ctx)
//	for i, o := range dst.Outcomes() { ... }
//	failed, err := root.FinishDirs(ctx, "in/ckpt", dirs, preserve, true)
package fileio
