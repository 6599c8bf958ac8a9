//go:build linux && !cgo

package ibv

import "mover/verbs"

// library stands for libibverbs, which a build without cgo cannot open.
type library struct{}

func buildLacks() string { return "cgo" }

func loadLibrary(string) (*library, error) { return nil, &BuildError{Lacks: buildLacks()} }

func (*library) openDevice(Config, verbs.DeviceInfo) (verbs.Context, error) {
	return nil, &BuildError{Lacks: buildLacks()}
}
