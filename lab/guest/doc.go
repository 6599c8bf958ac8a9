// Package guest runs one virtual host under QEMU: two CPUs, two NUMA nodes and
// network cards, each on a NUMA node of its own, all joined to the host by
// socket pairs alone. No port is opened and no file made, so that any number of
// guests can run beside each other, and nothing is left when their parent dies.
//
// It knows how to boot, cut and end a guest; what happens in it is the
// business of package remote's client, which it hands out. It knows nothing of
// RDMA or mover.
//
//	wire, err := guest.NewWire()
//	a, err := guest.Boot(ctx, guest.Config{Name: "a", Image: img, Rails: []*os.File{wire.A}, Console: "out/lab/a.console"})
//	defer a.Close()
//	result, err := a.Remote().Run(ctx, remote.Command{Args: []string{"ip", "link"}})
//	err = a.SetLink(ctx, 0, false)
package guest
