package fileio

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

const benchBytes = 64 << 20

// TestNoAllocations: at 200 Gbit/s there are 23,000 chunks a second, and what
// they allocate comes back as stops of the pollers.
func TestNoAllocations(t *testing.T) {
	for _, policy := range []DirectPolicy{DirectAuto, DirectOn} {
		r := newRoot(t, func(c *RootConfig) { c.Direct = policy })
		p := noise(t, chunkBytes, 1)
		s := create(t, r, CreateSpec{Rel: "f", Size: 16 * chunkBytes, Durable: true})
		off := int64(0)
		next := func() int64 { off = (off + chunkBytes) % (16 * chunkBytes); return off }
		if n := testing.AllocsPerRun(64, func() { _, _ = s.WriteAt(p, next()) }); n != 0 {
			t.Errorf("%v: WriteAt allocates %v times", policy, n)
		}
		if err := s.Publish(context.Background()); err != nil {
			t.Fatal(err)
		}
		src, err := r.OpenSource("f")
		if err != nil {
			t.Fatal(err)
		}
		if n := testing.AllocsPerRun(64, func() { _, _ = src.ReadAt(p, next()) }); n != 0 {
			t.Errorf("%v: ReadAt allocates %v times", policy, n)
		}
		src.Close()
	}
}

// BenchmarkReadCold is a file that is not in the page cache, read whole by one,
// two and four readers: what DirectAuto decides about.
func BenchmarkReadCold(b *testing.B) {
	for _, readers := range []int{1, 2, 4} {
		for _, policy := range []DirectPolicy{DirectOff, DirectOn, DirectAuto} {
			b.Run(fmt.Sprintf("%d-%v", readers, policy), func(b *testing.B) {
				r := newRoot(b, func(cfg *RootConfig) { cfg.Direct = policy })
				put(b, r, "f", make([]byte, benchBytes))
				src, err := r.OpenSource("f")
				if err != nil {
					b.Fatal(err)
				}
				defer src.Close()
				if err := unix.Fsync(src.h.fd); err != nil {
					b.Fatal(err)
				}
				slots := make([][]byte, readers)
				for i := range slots {
					slots[i] = alignedBytes(b, chunkBytes)
				}
				b.SetBytes(benchBytes)
				for b.Loop() {
					_ = unix.Fadvise(src.h.fd, 0, 0, unix.FADV_DONTNEED)
					var next atomic.Int64
					var wg sync.WaitGroup
					for _, p := range slots {
						wg.Go(func() {
							for off := next.Add(chunkBytes) - chunkBytes; off < benchBytes; off = next.Add(chunkBytes) - chunkBytes {
								if _, err := src.ReadAt(p, off); err != nil {
									b.Error(err)
								}
							}
						})
					}
					wg.Wait()
				}
			})
		}
	}
}

func BenchmarkReadAt(b *testing.B) {
	r := newRoot(b)
	put(b, r, "f", make([]byte, benchBytes))
	src, err := r.OpenSource("f")
	if err != nil {
		b.Fatal(err)
	}
	defer src.Close()
	p := alignedBytes(b, chunkBytes)
	b.SetBytes(chunkBytes)
	b.ReportAllocs()
	off := int64(0)
	for b.Loop() {
		if _, err := src.ReadAt(p, off); err != nil {
			b.Fatal(err)
		}
		off = (off + chunkBytes) % benchBytes
	}
}

func BenchmarkWriteAt(b *testing.B) {
	for _, c := range []struct {
		name   string
		policy DirectPolicy
	}{{"auto", DirectAuto}, {"direct", DirectOn}} {
		b.Run(c.name, func(b *testing.B) {
			r := newRoot(b, func(cfg *RootConfig) { cfg.Direct = c.policy })
			s := create(b, r, CreateSpec{Rel: "f", Size: benchBytes, Durable: true})
			p := noise(b, chunkBytes, 1)
			b.SetBytes(chunkBytes)
			b.ReportAllocs()
			off := int64(0)
			for b.Loop() {
				if _, err := s.WriteAt(p, off); err != nil {
					b.Fatal(err)
				}
				off = (off + chunkBytes) % benchBytes
			}
		})
	}
}

// BenchmarkPublish is a durable file of 64 MiB from Create to its name.
func BenchmarkPublish(b *testing.B) {
	for _, policy := range []DirectPolicy{DirectAuto, DirectOn} {
		b.Run(policy.String(), func(b *testing.B) {
			r := newRoot(b, func(cfg *RootConfig) { cfg.Direct = policy })
			p := noise(b, benchBytes, 1)
			b.SetBytes(benchBytes)
			for b.Loop() {
				if err := publishChunks(r, CreateSpec{Rel: "f", Durable: true, Overwrite: OverwriteAlways}, p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
