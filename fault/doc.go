// Package fault is how a test makes a real mover fail in a chosen way: what no
// test can ask of a healthy disk or network, such as EIO or a bit that is
// flipped on the wire. There is nothing in it, and nothing calls it, unless
// mover is built for such a test:
//
//	go build -tags moverfault -o mover-fault ./cmd/mover
//	MOVER_FAULT=/tmp/f ./mover-fault run &
//	echo write-eio > /tmp/f    # from now on every write of a file fails
//	: > /tmp/f                 # and no longer
//
// The environment variable names a file so that one process can be given
// several faults, one after the other. The places that ask for faults are the
// files inject_on.go; beside each is an inject_off.go for the ordinary build.
package fault
