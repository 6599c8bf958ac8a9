package fileio

import (
	"context"
	"fmt"
	"os"
	"testing"
)

// groupOf returns a spec of n files of size bytes, in dirs directories.
func groupOf(n, size, dirs int) GroupSpec {
	spec := GroupSpec{Base: "in", Job: "bench", Overwrite: OverwriteFail, Preserve: PreserveMode | PreserveMTime}
	for i := range n {
		spec.Entries = append(spec.Entries, GroupEntry{Rel: fmt.Sprintf("d%d/f%d", i%dirs, i), Size: int64(size), Mode: 0o640})
	}
	return spec
}

// BenchmarkGroupSink is 512 files of 4 KiB from CreateGroup to their names; a
// file's share is reported. ext4 is where TMPDIR is.
func BenchmarkGroupSink(b *testing.B) {
	for _, c := range []struct {
		name    string
		dir     string
		durable bool
		dirs    int
	}{{"tmpfs", "/dev/shm", false, 1}, {"tmpfs-durable", "/dev/shm", true, 1}, {"disk", "", false, 1}, {"disk-durable", "", true, 1}, {"disk-durable-64-directories", "", true, 64}} {
		b.Run(c.name, func(b *testing.B) {
			top, err := os.MkdirTemp(c.dir, "mover-bench-")
			if err != nil {
				b.Skip(err)
			}
			defer os.RemoveAll(top)
			r := newRoot(b, func(cfg *RootConfig) { cfg.Path = top })
			spec := groupOf(GroupEntriesMax, 4096, c.dirs)
			spec.Durable = c.durable
			p := noise(b, GroupEntriesMax*4096, 1)
			b.ReportAllocs()
			for round := 0; b.Loop(); round++ {
				spec.Base = fmt.Sprint("in", round)
				g, err := r.CreateGroup(context.Background(), spec)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := g.WriteAt(p, 0); err != nil {
					b.Fatal(err)
				}
				if err := g.Publish(context.Background()); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/GroupEntriesMax, "us/file")
		})
	}
}

// BenchmarkGroupSource is 512 files of 4 KiB on tmpfs: walked, read and verified.
func BenchmarkGroupSource(b *testing.B) {
	top, err := os.MkdirTemp("/dev/shm", "mover-bench-")
	if err != nil {
		b.Skip(err)
	}
	defer os.RemoveAll(top)
	r := newRoot(b, func(cfg *RootConfig) { cfg.Path = top })
	for i := range GroupEntriesMax {
		put(b, r, fmt.Sprintf("t/%d", i), make([]byte, 4096))
	}
	p := alignedBytes(b, GroupEntriesMax*4096)
	b.ReportAllocs()
	for b.Loop() {
		g, err := r.OpenGroup("t", walkEntries(b, r, "t"), nil)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := g.ReadAt(p, 0); err != nil {
			b.Fatal(err)
		}
		if err := g.Verify(); err != nil {
			b.Fatal(err)
		}
		g.Close()
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/GroupEntriesMax, "us/file")
}
