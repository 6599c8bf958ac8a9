// Package datapath runs the engine on real threads: it opens the devices, maps
// the arenas, locks and pins the pollers, starts the workers, and gives every
// session its goroutine.
//
// It must not know what is moved: a Receiver decides what becomes of the items
// that arrive, and whoever sends brings the Sources. The node puts files there,
// the memory benchmark plain memory.
//
//	selection, err := datapath.Prepare(cfg, log)
//	path, err := datapath.Open(cfg, log, selection)
//	err = path.Start()
//	link, err := path.Link(conn, receiver)
//	if err := link.Ready(ctx); err != nil { ... }
//	link.Session().Send(item)
//	err = path.Close(ctx) // ends every session first
package datapath
