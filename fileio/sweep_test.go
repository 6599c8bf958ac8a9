package fileio

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"mover/reason"
)

// A sweep runs a whole transfer again and again, and lets in each run one call
// to the kernel go wrong, in one way: every call, every way. After each it
// looks whether the promise held: see trial.check.

// harm is a way in which a call goes wrong.
type harm struct {
	name string
	err  error // the hook's answer
	// from: not only this call, but all later ones that change something.
	from bool
	dies bool // the process ends before the call
	fits func(op string) bool
}

func anyCall(op string) bool { return op != "close" }

// changes reports whether a call can change what is on the disk.
func changes(op string) bool {
	switch op {
	case "fallocate", "ftruncate", "pwrite", "fsync", "fchmod", "fchown", "utimensat", "renameat2", "linkat", "unlinkat", "mkdirat", "symlinkat", "openat+", "fsetxattr", "fchownat":
		return true
	}
	return false
}

// answerable reports whether a call can be done and its answer be lost.
func answerable(op string) bool {
	return changes(op) && op != "pwrite" && op != "fsync"
}

func moves(op string) bool { return op == "pread" || op == "pwrite" }

var harms = []harm{
	{name: "EIO", err: unix.EIO, fits: anyCall},
	{name: "ENOSPC", err: unix.ENOSPC, fits: changes},
	{name: "EINTR", err: unix.EINTR, fits: anyCall},
	{name: "half of it", err: errHalf, fits: moves},
	{name: "lost, and the next sync says so", err: errDropped, fits: func(op string) bool { return op == "pwrite" }},
	{name: "done, but EIO is the answer", err: doneThen(unix.EIO), fits: answerable},
	{name: "EIO at close", err: unix.EIO, fits: func(op string) bool { return op == "close" }},
	{name: "full from then on", err: unix.ENOSPC, from: true, fits: changes},
	{name: "read-only from then on", err: unix.EROFS, from: true, fits: changes},
	{name: "the end of the process", err: unix.EIO, dies: true, fits: changes},
}

// injector does one harm at call n, from 1. n 0 does none and lists the calls.
type injector struct {
	disk *simdisk
	harm harm
	n    int

	mu    sync.Mutex
	calls []string
	hit   string // the call that went wrong
	dead  bool
}

func (j *injector) before(c call) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	op := c.op
	if op == "openat" && c.flags&unix.O_CREAT != 0 {
		op = "openat+"
	}
	if j.dead {
		return j.harm.err
	}
	j.calls = append(j.calls, op)
	now := len(j.calls) == j.n && j.harm.fits(op)
	if now {
		j.hit = op
		j.dead = j.harm.dies
	}
	switch {
	case j.harm.from && j.hit != "" && changes(op):
		return j.harm.err
	case !now:
		return nil
	case j.harm.err == errDropped:
		j.disk.refuse(c.fd)
	}
	return j.harm.err
}

// expect is an entry of a transfer: what it shall be and what was there.
type expect struct {
	rel     string
	kind    Kind
	content []byte // of a file
	old     []byte // of the file that was there; nil is none
	target  string // of a symlink
	sameAs  string // of a hard link: the other name
	mode    fs.FileMode
	mtime   time.Time // zero is any
}

// result is what an attempt said of an entry.
type result struct {
	done bool
	err  error
}

// records is what a node has in its journal: the inodes that were about to get
// their names.
type records map[string]NameInode

// attempt is what a transfer is asked to do.
type attempt struct {
	root      *Root
	number    uint32
	records   records         // to be written to
	published map[string]bool // what recovery found
	alive     func() bool     // false once the process has ended
}

// transfer is a whole transfer that can be repeated.
type transfer struct {
	name    string
	durable bool
	quota   int64  // of the root
	only    string // the calls that go wrong; "" is all
	entries []expect
	prepare func(dir string)              // makes what is there before
	run     func(a attempt) []result      // in the order of entries
	recover func(*Root, records) []string // those that have their names, by rel
}

// mutant breaks a rule on purpose, or is nil.
type mutant func(kernel) kernel

// tally counts what a sweep did.
type tally struct{ calls, faults, kills, cuts int }

// trial is one run of a transfer with one harm.
type trial struct {
	transfer
	broken mutant
	harm   harm
	n      int
	seeds  []uint64
	tally  *tally
	// unheard: the process ended after the last call, before anybody was told.
	unheard bool
	// apart are hard links that survived a cut which the other name did not: they
	// are published, and stay an inode of their own.
	apart map[string]bool
}

// sweep returns the first promise that was broken. stride 1 tries every call.
func (tr transfer) sweep(broken mutant, stride int, seeds []uint64, count *tally) error {
	clean := trial{transfer: tr, broken: broken, seeds: seeds, tally: count}
	calls, err := clean.run()
	if err != nil {
		return fmt.Errorf("%s, nothing went wrong: %w", tr.name, err)
	}
	count.calls += len(calls)
	clean.unheard = true
	if _, err := clean.run(); err != nil {
		return fmt.Errorf("%s, killed at the very end: %w", tr.name, err)
	}
	count.kills++
	turn := 0
	for n, op := range calls {
		for _, h := range harms {
			if !h.fits(op) || tr.only != "" && tr.only != op {
				continue
			}
			if turn++; turn%stride != 0 {
				continue
			}
			one := trial{transfer: tr, broken: broken, harm: h, n: n + 1, seeds: seeds, tally: count}
			if _, err := one.run(); err != nil {
				return fmt.Errorf("%s, call %d (%s), %s: %w", tr.name, n+1, op, h.name, err)
			}
			if h.dies {
				count.kills++
			} else {
				count.faults++
			}
		}
	}
	return nil
}

// sweepDir is where the disks are: in memory if that is possible, because what
// is durable is the simulated disk's own affair.
func sweepDir() string {
	const memory = "/dev/shm"
	if unix.Access(memory, unix.W_OK) == nil {
		return memory
	}
	return os.TempDir()
}

func (tr *transfer) open(dir string, k kernel) *Root {
	r := rootOn(dir, k)
	r.cfg.QuotaBytes = tr.quota
	return r
}

// rootOn opens a root whose calls are k's.
func rootOn(dir string, k kernel) *Root {
	r := must1(OpenRoot(RootConfig{Name: "data", Path: dir}))
	r.k = k
	return r
}

// run makes one run and checks it. It returns the calls that were made.
func (t *trial) run() ([]string, error) {
	dir := must1(os.MkdirTemp(sweepDir(), "mover-sweep-"))
	defer os.RemoveAll(dir)
	must(os.Mkdir(filepath.Join(dir, "disk"), 0o755))
	t.prepare(filepath.Join(dir, "disk"))
	disk := newSimdisk(filepath.Join(dir, "disk"))
	j := &injector{disk: disk, harm: t.harm, n: t.n}
	known := records{}
	root := t.open(disk.path, t.mutated(&faulty{kernel: disk, before: j.before}))
	results := t.transfer.run(attempt{root: root, number: 1, records: known, alive: func() bool { return !j.dead }})
	must(root.Close())
	if j.dead || t.unheard {
		for i := range results {
			results[i] = result{err: unix.EIO} // nobody heard the answer
		}
		return j.calls, t.afterDeath(dir, disk, results, known)
	}
	if err := t.ends(root, results); err != nil {
		return j.calls, err
	}
	lost := t.harm.from || j.hit == "unlinkat" || j.hit == "lstatat" || j.hit == "openat+" || j.hit == "flock" || j.hit == "fstat" || j.hit == "linkat" || j.hit == "symlinkat"
	if err := t.check("at once", disk.path, results, known, !lost); err != nil {
		return j.calls, err
	}
	if err := t.cutPower(dir, disk, results, known, false); err != nil {
		return j.calls, err
	}
	return j.calls, t.again(disk, known, 2, true)
}

func (t *trial) mutated(k kernel) kernel {
	if t.broken == nil {
		return k
	}
	return t.broken(k)
}

// ends: every attempt ends with an answer for each entry, one of the closed list if it
// failed, and gives the room back.
func (t *trial) ends(root *Root, results []result) error {
	for i, r := range results {
		if r.done == (r.err != nil) {
			return fmt.Errorf("%s: done is %v and the error %v", t.entries[i].rel, r.done, r.err)
		}
		if r.err != nil && reason.Of(r.err) == "" {
			return fmt.Errorf("%s: %v has no reason", t.entries[i].rel, r.err)
		}
		if t.harm.name == "" && r.err != nil {
			return fmt.Errorf("%s: %w", t.entries[i].rel, r.err)
		}
	}
	if a, b := root.space.receiving, root.space.unwritten.Load(); a != 0 || b != 0 {
		return fmt.Errorf("%d and %d bytes stay reserved", a, b)
	}
	return nil
}

// afterDeath: the process ended. Either the host goes on and a new process comes
// (kill -9: everything that was written is there), or the power failed.
func (t *trial) afterDeath(dir string, disk *simdisk, results []result, known records) error {
	if err := t.check("after the process was killed", disk.path, results, known, false); err != nil {
		return err
	}
	if err := t.cutPower(dir, disk, results, known, true); err != nil {
		return err
	}
	if err := t.again(disk, known, 1, true); err != nil {
		return fmt.Errorf("after kill -9: %w", err)
	}
	return nil
}

// cutPower checks every state that a power cut now can leave, and with next also
// that a new process gets on from there.
func (t *trial) cutPower(dir string, disk *simdisk, results []result, known records, next bool) error {
	if !t.durable {
		return nil // then a power cut may leave names without their content
	}
	list := cuts(t.seeds...)
	if !next {
		list = list[:min(len(list), 5)]
	}
	for i, c := range list {
		t.tally.cuts++
		to := must1(os.MkdirTemp(dir, "cut-"))
		moved := disk.powerCut(to, c)
		err := t.check("after a power cut", to, results, known, false)
		if err == nil && next {
			err = t.again(newSimdisk(to), known.moved(moved), 1, i%2 == 0)
		}
		if err != nil {
			return fmt.Errorf("power cut, %s: %w", c.name, err)
		}
		must(os.RemoveAll(to))
	}
	return nil
}

// moved is the journal with the inodes' new numbers.
func (r records) moved(to map[identity]identity) records {
	out := records{}
	for rel, n := range r {
		id := to[identity{n.Inode.Dev, n.Inode.Ino}]
		n.Inode = Inode{id.dev, id.ino}
		out[rel] = n
	}
	return out
}

// again does what a node does when it starts, and then the next attempt, which
// must succeed, durably, and leave nothing but what was asked for. Without
// tidying, the records of where something was being received were lost with
// the power, and what is left meets the attempt of the same number.
func (t *trial) again(disk *simdisk, known records, number uint32, tidying bool) error {
	root := t.open(disk.path, t.mutated(disk))
	defer root.Close()
	published := map[string]bool{}
	for _, rel := range t.recover(root, known) {
		published[rel] = true
	}
	t.apart = map[string]bool{}
	for _, e := range t.entries {
		t.apart[e.rel] = published[e.rel] && !published[e.sameAs]
	}
	if tidying {
		sweepAll(root)
	}
	results := t.transfer.run(attempt{root: root, number: number, records: known, published: published, alive: func() bool { return true }})
	for i, r := range results {
		if !r.done {
			return fmt.Errorf("the next attempt fails: %s: %w", t.entries[i].rel, r.err)
		}
	}
	if err := t.check("after the next attempt", disk.path, results, known, tidying); err != nil || !t.durable {
		return err
	}
	for _, c := range cuts(t.seeds...)[:3] {
		t.tally.cuts++
		to := must1(os.MkdirTemp(sweepDir(), "mover-sweep-"))
		disk.powerCut(to, c)
		err := t.check("after the next attempt and a power cut, "+c.name, to, results, known, false)
		must(os.RemoveAll(to))
		if err != nil {
			return err
		}
	}
	return nil
}

// sweepAll removes partial files everywhere, as a node does where its journal
// says that it was receiving.
func sweepAll(r *Root) {
	must(filepath.WalkDir(r.cfg.Path, func(path string, e fs.DirEntry, err error) error {
		must(err)
		if e.IsDir() {
			rel := must1(filepath.Rel(r.cfg.Path, path))
			must1(r.Sweep(context.Background(), rel, t0))
		}
		return nil
	}))
}

// check is the promise. What was said to be done is there, exactly. What was not is
// as it was before, or, if it was about to get its name, entirely new. With
// tidy no partial file is left.
func (t *trial) check(when, dir string, results []result, known records, tidy bool) error {
	for i, e := range t.entries {
		if !results[i].done || t.apart[e.rel] {
			e.sameAs = "" // what counts of a name that may or may not be there is what it shows
		}
		isNew := e.isNew(dir)
		if isNew == nil {
			continue
		}
		_, naming := known[e.rel]
		switch {
		case results[i].done:
			return fmt.Errorf("%s: %s was said to be done: %w", when, e.rel, isNew)
		case e.kind == KindDir:
			if info, err := os.Lstat(filepath.Join(dir, e.rel)); err == nil && !info.IsDir() {
				return fmt.Errorf("%s: %s is no directory", when, e.rel)
			}
		default:
			if err := e.isOld(dir); err != nil {
				return fmt.Errorf("%s: %s was not done (%v), was about to get its name: %v, and is neither new (%w) nor old (%w)", when, e.rel, results[i].err, naming, isNew, err)
			}
		}
	}
	// New without a reason to be: only an attempt that got as far as the name
	// may have replaced something.
	for i, e := range t.entries {
		if _, naming := known[e.rel]; !results[i].done && !naming && e.kind == KindFile && !bytes.Equal(e.old, e.content) {
			if err := e.isOld(dir); err != nil {
				return fmt.Errorf("%s: %s was not even about to get its name: %w", when, e.rel, err)
			}
		}
	}
	if !tidy {
		return nil
	}
	return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && IsPartial(e.Name()) {
			return fmt.Errorf("%s: %s is left behind", when, path)
		}
		return err
	})
}

// isNew reports how the entry differs from what it shall be.
func (e *expect) isNew(dir string) error {
	full := filepath.Join(dir, e.rel)
	info, err := os.Lstat(full)
	if err != nil {
		return err
	}
	switch e.kind {
	case KindDir:
		if !info.IsDir() || info.Mode().Perm() != e.mode {
			return fmt.Errorf("it is %v, not a directory with mode %v", info.Mode(), e.mode)
		}
	case KindSymlink:
		if got, err := os.Readlink(full); err != nil || got != e.target {
			return fmt.Errorf("it leads to %q (%v), not to %q", got, err, e.target)
		}
	default:
		got, err := os.ReadFile(full)
		if err != nil {
			return err
		}
		if !bytes.Equal(got, e.content) {
			return fmt.Errorf("it has %d bytes that are not the source's %d", len(got), len(e.content))
		}
		if info.Mode().Perm() != e.mode {
			return fmt.Errorf("its mode is %v, not %v", info.Mode(), e.mode)
		}
		if !e.mtime.IsZero() && !info.ModTime().Equal(e.mtime) {
			return fmt.Errorf("its time is %v, not %v", info.ModTime(), e.mtime)
		}
		if e.sameAs != "" {
			other, err := os.Lstat(filepath.Join(dir, e.sameAs))
			if err != nil || !os.SameFile(info, other) {
				return fmt.Errorf("it is not the same file as %s (%v)", e.sameAs, err)
			}
		}
	}
	return nil
}

// isOld reports how the entry differs from what was there before.
func (e *expect) isOld(dir string) error {
	full := filepath.Join(dir, e.rel)
	if e.old == nil {
		if _, err := os.Lstat(full); !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) {
			return fmt.Errorf("nothing was there, and now something is (%v)", err)
		}
		return nil
	}
	got, err := os.ReadFile(full)
	if err == nil && !bytes.Equal(got, e.old) {
		err = fmt.Errorf("it has %d other bytes", len(got))
	}
	return err
}

// sweepAllOf sweeps several transfers and prints the counts.
// Unless MOVER_SWEEP is "all", only one in stride is tried.
func sweepAllOf(t *testing.T, list []transfer, stride int) {
	var all tally
	seeds := []uint64{1, 2}
	if os.Getenv("MOVER_SWEEP") == "all" {
		stride, seeds = 1, seeds[:0]
		for seed := range uint64(32) {
			seeds = append(seeds, seed)
		}
	} else if testing.Short() || raceEnabled {
		stride *= 7
	}
	for _, tr := range list {
		t.Run(strings.ReplaceAll(tr.name, " ", "_"), func(t *testing.T) {
			var one tally
			if err := tr.sweep(nil, stride, slices.Clone(seeds), &one); err != nil {
				t.Fatal(err)
			}
			if one.faults == 0 || tr.durable && one.cuts == 0 {
				t.Errorf("hardly anything was tried: %+v", one)
			}
			all.calls, all.faults, all.kills, all.cuts = all.calls+one.calls, all.faults+one.faults, all.kills+one.kills, all.cuts+one.cuts
		})
	}
	t.Logf("%d calls of %d transfers: %d injected faults, %d killed processes, %d power cuts, 0 promises broken", all.calls, len(list), all.faults, all.kills, all.cuts)
}
