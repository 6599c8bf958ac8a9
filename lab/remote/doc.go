// Package remote runs commands in a guest from the host, over any one
// connection: in the lab a virtio-serial port, in tests a socket pair. The
// guest needs no network for it, so that faults of the network cannot cut the
// lab off from its own guests.
//
// The protocol is HTTP/2 without TLS: both ends are made from one tree, nobody
// else reaches the connection, and net/http brings streams with flow control
// and bounds for everything. Paths begin with the protocol's version.
//
//	GET  /v1/hello          what runs there: Hello
//	POST /v1/run            a process: Lab-Command has its Command, the body is
//	                        its standard input, the answer a row of frames
//	POST /v1/signal         pid, signal
//	GET  /v1/file, PUT      path (and mode): a file's content
//	POST /v1/dial           network, address: a connection made in the guest
//
// A process lives no longer than its request: when the caller's context ends,
// or the host, its process group is killed.
//
// The package knows nothing of QEMU, RDMA or mover.
//
//	agent:  err := remote.Serve(conn)
//	host:   c := remote.NewClient(conn)
//	        hello, err := c.Hello(ctx)
//	        result, err := c.Run(ctx, remote.Command{Args: []string{"uname", "-r"}})
package remote
