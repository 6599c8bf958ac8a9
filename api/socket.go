package api

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// ListenUnix makes the Unix socket of the API at path, for Serve. It makes the
// folder (0755) if need be. Every user may connect (0666): who may do what is
// decided by the credentials of the process that does. A socket that nobody
// listens on any more is replaced; one that is in use, and anything that is
// not a socket, is refused. Closing the listener removes the socket.
func ListenUnix(path string) (net.Listener, error) {
	ln, err := listenUnix(path)
	if err != nil {
		return nil, fmt.Errorf("the API's socket: %w", err)
	}
	return ln, nil
}

func listenUnix(path string) (net.Listener, error) {
	if !filepath.IsAbs(path) {
		return nil, errors.New("its path must begin with /")
	}
	if len(path) >= maxSocketPath {
		return nil, fmt.Errorf("its path has %d bytes and the kernel takes at most %d; choose a shorter one", len(path), maxSocketPath-1)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("%w; create the folder for the user that runs mover, or choose another", err)
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	ln, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("%w; choose another path", err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		ln.Close()
		return nil, err
	}
	return ln, nil
}

// removeStale removes the socket that an earlier process left behind.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s exists and is not a socket; remove it, or choose another path", path)
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		conn.Close()
		return fmt.Errorf("%s is in use by another process (is another mover running?); stop it, or choose another path", path)
	}
	// Only this error says that nobody listens: a full backlog, say, does not.
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("%s may be in use: %w; if it is not, remove it", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the socket of an earlier run: %w", err)
	}
	return nil
}
