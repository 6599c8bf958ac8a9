// Package peer is the control plane between two nodes: who a node is
// (Identity), whom it believes (Trust), how the two reach each other (Control)
// and how they exchange engine's messages (Conn).
//
// It must not know what the messages are for: nothing here reads a job, a file,
// a lane or the HTTP API. What it guarantees is that a message that comes out
// of a Conn was sent by the node named in Conn.Peer, in the order sent on its
// stream, and is well formed; whether it makes sense is engine's to judge.
//
//	id, created, err := peer.LoadOrCreate("/var/lib/mover/identity", "a")
//	c, err := peer.New(peer.Config{
//		Identity: id,
//		Listen:   []string{":9471"},
//		Trust: peer.Trust{Peers: map[string]peer.PeerConfig{
//			"b": {Addresses: []string{"{node}:9471"}, Fingerprint: "sha256:..."},
//		}},
//		Accept: func(conn *peer.Conn) { serve(conn) },
//		Logger: slog.Default(),
//	})
//	c.Start()
//	defer c.Close()
//
//	conn, err := c.Dial(ctx, "b")
//	err = conn.Send(&engine.Ping{Seq: 1})
//	for m := range conn.Messages() { ... }
//	<-conn.Done() // conn.Err() says why
//
// # One connection, two streams
//
// A session is one TCP connection with TLS 1.3, and on it one gRPC connection
// with two streams: Control and Items. The dialler sends Hello on Control, the
// acceptor answers Welcome with a random session id, and the dialler links
// Items with that id. The id counts once, and only on the connection it was
// given on.
//
// Beside sessions there are questions. Ask puts one, of a kind that only the
// nodes know, and Config.Answer answers it: in order to forward a job, say. It
// shares the connection of a session that this node dialled, or has one of its
// own. Describe tells an authenticated peer what this node would offer it, over
// a connection for it alone; it is for diagnosis, at a bounded rate.
//
// # Trust
//
// A node's name is in its certificate, as the URI mover://NAME. A peer with a
// pinned fingerprint is believed if it holds that key and has that name,
// whatever else its certificate says, dates included (like an SSH host key). A
// peer without one is believed if a certificate of the CA gives it its name.
// Everything else is refused before a byte of gRPC is read from it.
//
// # One session for each pair
//
// Two nodes may dial each other at once. The node with the lower fingerprint
// decides: while it dials, it lets the other's Hello wait, and refuses it as a
// duplicate if its own dial succeeds. So the connection dialled by the lower
// fingerprint stays, and both Dials return it. A Hello replaces an existing
// session only if it comes from another process of the peer, or names that
// session as ended.
package peer
