package buffer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"mover/numa"
	"mover/reason"
)

// TestHugetlbfs runs a process with a mount namespace of its own, in which it mounts what no test could mount for all.
// Where no huge pages are free, that part of it is skipped: reserve eight with vm.nr_hugepages.
func TestHugetlbfs(t *testing.T) {
	h := newHost(t)
	p := h.start(t, "hugetlbfs", &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS})
	for {
		line := p.line(t)
		if line == "done" {
			return
		}
		if why, ok := strings.CutPrefix(line, "skip: "); ok {
			t.Skip(why)
		}
		t.Log(line)
	}
}

// hugetlbfsChild prints "failed: ...", "skip: ..." or "done" as its last line.
func hugetlbfsChild(dir string) {
	for _, step := range []func(string) error{tinyTmpfs, noHugePages, hugePages} {
		err := step(dir)
		var skip skipError
		if errors.As(err, &skip) {
			fmt.Println("skip:", skip)
			return
		}
		if err != nil {
			fmt.Println("failed:", err)
			return
		}
	}
	fmt.Println("done")
}

// skipError says what the machine lacks.
type skipError string

func (e skipError) Error() string { return string(e) }

func mount(what, dir, options string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	err := unix.Mount(what, dir, what, 0, options)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EACCES) {
		return skipError(fmt.Sprintf("cannot mount %s: %v", what, err))
	}
	return err
}

// tinyTmpfs: a full /dev/shm is NO_SPACE, found before a page is touched.
func tinyTmpfs(dir string) error {
	shm := dir + "/shm"
	if err := mount("tmpfs", shm, "size=1M"); err != nil {
		return err
	}
	r, _, err := Open(context.Background(), Config{Dir: dir + "/tiny", Node: "a", shmDir: shm})
	if err != nil {
		return err
	}
	s := small("a")
	s.Bytes = 2 << 20
	_, _, err = r.Create(context.Background(), s)
	if reason.Of(err) != reason.NoSpace || !strings.Contains(err.Error(), "allocate: 2 MiB are needed: no space left") {
		return fmt.Errorf("a full tmpfs: %v", err)
	}
	if left, _ := os.ReadDir(shm); len(left) != 0 {
		return fmt.Errorf("left behind: %v", left)
	}
	s.Bytes = 1 << 20
	if _, _, err = r.Create(context.Background(), s); err != nil {
		return err
	}
	return r.Close()
}

// noHugePages: more than there are.
func noHugePages(dir string) error {
	huge := dir + "/huge"
	if err := mount("hugetlbfs", huge, "pagesize=2M"); err != nil {
		return err
	}
	r, _, err := Open(context.Background(), Config{Dir: dir + "/none", Node: "a"})
	if err != nil {
		return err
	}
	s := Spec{Name: "a", Bytes: 1 << 44, PageSize: Page2M, NUMANode: AnyNode}
	_, _, err = r.Create(context.Background(), s)
	var space *SpaceError
	if reason.Of(err) != reason.NoSpace || !errors.As(err, &space) || space.Need != 1<<44 || space.Free < 0 ||
		!strings.Contains(err.Error(), "of 8388608 pages needed are free; set vm.nr_hugepages=") {
		return fmt.Errorf("too many huge pages: %v", err)
	}
	fmt.Println(err)
	if left, _ := os.ReadDir(huge); len(left) != 0 {
		return fmt.Errorf("left behind: %v", left)
	}
	return r.Close()
}

// hugePages: a buffer in them, from its creation over another registry and a truncation to its end.
func hugePages(dir string) error {
	const page = 2 << 20
	free, err := numa.FreeHugePages("", page, -1)
	if err != nil {
		return err
	}
	if free < 4 {
		return skipError(fmt.Sprintf("%d huge pages of 2 MiB are free, 4 needed; reserve them with vm.nr_hugepages", free))
	}
	ctx := context.Background()
	cfg := Config{Dir: dir + "/real", Node: "a"}
	r, _, err := Open(ctx, cfg)
	if err != nil {
		return err
	}
	s := Spec{Name: "a", Bytes: page + 1, PageSize: PageAuto, NUMANode: 0}
	info, created, err := r.Create(ctx, s)
	if err != nil || !created {
		return fmt.Errorf("created %v, %w", created, err)
	}
	fmt.Println(info.Path, info.PageReason)
	var st unix.Stat_t
	if err := unix.Stat(info.Path, &st); err != nil || info.PageBytes != page || info.MappedBytes != 2*page || st.Size != 2*page ||
		info.NUMANode != 0 || info.Path != dir+"/huge/mover.a.a" || !strings.HasPrefix(info.PageReason, "2MiB pages") {
		return fmt.Errorf("%v: %d bytes, %+v", err, st.Size, info)
	}
	l, err := r.Lease(LeaseRequest{Name: "a", Length: page + 1, Exclusive: true})
	if err != nil {
		return err
	}
	if !zeroed(l.Memory()) {
		return errors.New("not zeroed")
	}
	text := bytes.Repeat([]byte("huge"), 1000)
	if _, err := l.WriteAt(text, page-100); err == nil || reason.Of(err) != reason.NoSpace {
		return fmt.Errorf("over the end: %v", err)
	}
	if _, err := l.WriteAt(text, page-5000); err != nil {
		return err
	}
	l.Release()
	if err := r.Close(); err != nil {
		return err
	}

	r, problems, err := Open(ctx, cfg)
	if err != nil || len(problems) != 0 {
		return fmt.Errorf("reopen: %v, %w", problems, err)
	}
	if l, err = r.Lease(LeaseRequest{Name: "a", Length: page + 1}); err != nil {
		return err
	}
	if !bytes.Equal(l.Memory()[page-5000:page-1000], text) {
		return errors.New("the content is another after reopening")
	}
	if err := os.Truncate(info.Path, 0); err != nil {
		return err
	}
	if _, err := l.ReadAt(make([]byte, page), 0); !errors.Is(err, ErrTruncated) {
		return fmt.Errorf("truncated: %v", err)
	}
	if err := Guard(l.Memory(), func() error { l.Memory()[0]++; return nil }); !errors.Is(err, ErrTruncated) {
		return fmt.Errorf("truncated, Guard: %v", err)
	}
	l.Release()
	if err := r.Delete(ctx, "a"); err != nil {
		return err
	}
	if now, err := numa.FreeHugePages("", page, -1); err != nil || now != free {
		return fmt.Errorf("%d huge pages were free, and %d are, %w", free, now, err)
	}
	return r.Close()
}
