//go:build moverfault

package fault

import (
	"os"
	"strings"
)

// Variable is the environment variable that names the file with the fault in
// force.
const Variable = "MOVER_FAULT"

// The faults. Each is what the file has as its only word.
const (
	WriteEIO    = "write-eio"    // every write to a file below a root fails
	SyncEIO     = "sync-eio"     // every fsync of one does
	ReadEIO     = "read-eio"     // every read of one does
	WriteHangs  = "write-hangs"  // every write waits until the fault is over
	ReadFlips   = "read-flips"   // every read returns its first byte changed
	FstatPanics = "fstat-panics" // a defect of the program itself
	WireFlips   = "wire-flips"   // every RDMA Write's first byte is changed once its checksum was taken
	WrongRKey   = "wrong-rkey"   // every RDMA Write names memory that the peer did not grant
)

// Now reports whether a fault is in force. The file is read each time, from
// any goroutine: a test build need not be fast.
func Now(name string) bool {
	text, err := os.ReadFile(os.Getenv(Variable))
	return err == nil && strings.TrimSpace(string(text)) == name
}
