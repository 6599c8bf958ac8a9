// Package image makes what a guest boots: Debian's kernel, unpacked but not
// installed, and an initramfs with busybox, the modules for kernel RDMA and
// the lab's agent. The rest of the guest's files are the host's own, mounted
// read-only over 9p by the init script.
//
// Everything is kept in a cache directory under names that hold the kernel
// package's version and a hash of what went in, so that a second run takes no
// time and a new kernel package, script or agent makes a new image.
//
// It knows nothing of QEMU's devices beyond the modules they need, and nothing
// of mover.
//
//	img, err := image.Build(ctx, image.Config{CacheDir: "out/lab/cache", Agent: "out/lab/agent", Log: log.Printf})
//	// qemu -kernel img.Kernel -initrd img.Initramfs
package image
