package buffer

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"mover/numa"
)

// place is where a buffer's file can be made.
type place struct {
	dir       string
	hugeBytes int64  // of a hugetlbfs mount's pages; 0 is tmpfs
	why       string // this place was chosen
}

// places are where a buffer may go, best first; at least one, or why none.
func (r *Registry) places(s Spec) ([]place, error) {
	base := place{dir: r.shmDir}
	switch s.PageSize {
	case PageBase:
		base.why = "base pages, as asked for"
		return []place{base}, nil
	case PageAuto:
		huge, err := r.roomyMount(s)
		if err != nil {
			base.why = "base pages: " + err.Error()
			return []place{base}, nil
		}
		base.why = "base pages"
		return []place{huge, base}, nil
	}
	huge, err := r.mount(s.PageSize)
	if err != nil {
		return nil, err
	}
	huge.why = string(s.PageSize) + " pages, as asked for"
	return []place{huge}, nil
}

// roomyMount is a mount of 2 MiB pages with enough of them free, or why none is used.
func (r *Registry) roomyMount(s Spec) (place, error) {
	page := Page2M.hugeBytes()
	if s.Bytes < page {
		return place{}, fmt.Errorf("smaller than a huge page")
	}
	huge, err := r.mount(Page2M)
	if err != nil {
		return place{}, err
	}
	free, err := numa.FreeHugePages(r.sysRoot, page, s.NUMANode)
	if err != nil {
		return place{}, err
	}
	if need := roundUp(s.Bytes, page) / page; free < need {
		return place{}, fmt.Errorf("%d huge pages of 2MiB are needed and %d free; reserve more with vm.nr_hugepages", need, free)
	}
	huge.why = fmt.Sprintf("2MiB pages: %s has them free", huge.dir)
	return huge, nil
}

// mount finds a hugetlbfs mount of the page size in which this process may make files.
func (r *Registry) mount(size PageSize) (place, error) {
	text, err := os.ReadFile(r.procRoot + "/mounts")
	if err != nil {
		return place{}, fmt.Errorf("%w of %s pages is known: %w", ErrNoMount, size, err)
	}
	refused := ""
	for _, m := range hugeMounts(string(text)) {
		if m.hugeBytes != size.hugeBytes() {
			continue
		}
		err := unix.Access(m.dir, unix.W_OK|unix.X_OK)
		if err == nil {
			return m, nil
		}
		refused = fmt.Sprintf(" (%s: %v)", m.dir, err)
	}
	dir := "/dev/hugepages-" + string(size)
	option := map[PageSize]string{Page2M: "2M", Page1G: "1G"}[size]
	return place{}, fmt.Errorf("%w of %s pages in which user %d can make files%s; mkdir -p %s && mount -t hugetlbfs -o pagesize=%s,uid=%d,mode=0755 hugetlbfs %s",
		ErrNoMount, size, unix.Geteuid(), refused, dir, option, unix.Geteuid(), dir)
}

// hugeMounts are the hugetlbfs mounts of a text like /proc/self/mounts, see
// proc_pid_mounts(5). Lines that make no sense are passed over.
func hugeMounts(text string) (found []place) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 4 || f[2] != "hugetlbfs" {
			continue
		}
		for option := range strings.SplitSeq(f[3], ",") {
			size, ok := strings.CutPrefix(option, "pagesize=")
			if bytes := pageBytes(size); ok && bytes > 0 {
				found = append(found, place{dir: unescape(f[1]), hugeBytes: bytes})
			}
		}
	}
	return found
}

// pageBytes reads sizes as hugetlbfs prints them: "2M", "1024M", "64K" (hugetlbfs_show_options).
func pageBytes(s string) int64 {
	if s == "" {
		return 0
	}
	shift := strings.IndexByte("KMG", s[len(s)-1])
	n, err := strconv.ParseInt(s[:len(s)-1], 10, 32)
	if shift < 0 || err != nil || n <= 0 {
		return 0
	}
	return n << (10 * (shift + 1))
}

// unescape undoes the octal escapes of white space and backslashes.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if c, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(c))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func roundUp(n, to int64) int64 { return (n + to - 1) / to * to }
