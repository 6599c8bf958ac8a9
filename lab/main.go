package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"mover/lab/image"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// options is the command line.
type options struct {
	command string // "run", "shell", "bench", "list"
	pattern string
	full    bool
	out     string
	cache   string
	mover   string
	accel   string
	limit   time.Duration
	bench   benchOptions
}

const usage = `usage: go run ./lab [options] run|shell|bench|list
  run     the scenarios that CI runs, or those that -full or -run choose
  shell   a shell in each of the two guests
  bench   mover against perftest and rcopy, and its cost without a link
  list    the scenarios
options:
`

// run is main with its surroundings passed in; it returns the exit status: 0
// all is proven, 1 something failed, 2 wrong usage.
func run(args []string, stdin *os.File, stdout, stderr io.Writer) int {
	o, err := parseOptions(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(stderr, "lab:", err)
		return 2
	}
	if o.command == "list" {
		list(stdout)
		return 0
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if o.limit > 0 {
		limited, cancel := context.WithTimeoutCause(ctx, o.limit, fmt.Errorf("all together took longer than %v (-limit)", o.limit))
		defer cancel()
		ctx = limited
	}
	if err := o.execute(ctx, stdin, stdout); err != nil {
		fmt.Fprintln(stderr, "lab:", err)
		return 1
	}
	return 0
}

func parseOptions(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("lab", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprint(stderr, usage)
		flags.PrintDefaults()
	}
	flags.StringVar(&o.pattern, "run", "", "the scenarios whose whole name `regexp` matches")
	flags.BoolVar(&o.full, "full", false, "all scenarios")
	flags.StringVar(&o.out, "out", "out/lab", "`directory` for logs and results, of one lab at a time")
	flags.StringVar(&o.cache, "cache", "out/lab/cache", "`directory` for kernels and what the guests boot, of any number of labs")
	flags.StringVar(&o.mover, "mover", "out/mover", "the mover `program` under test")
	flags.StringVar(&o.accel, "accel", "tcg", "tcg (emulation) or kvm (the host's virtualization: much faster, where there is one)")
	flags.DurationVar(&o.limit, "limit", 0, "end after this `time`, whatever is left to do; 0 is none")
	o.bench.register(flags)
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() != 1 {
		return o, errors.New("one of run, shell, bench, list must be given, after all options; see -help")
	}
	switch o.command = flags.Arg(0); o.command {
	case "run", "shell", "bench", "list":
	default:
		return o, fmt.Errorf("%q is none of run, shell, bench, list; see -help", o.command)
	}
	if err := o.bench.check(); err != nil {
		return o, err
	}
	if o.accel != "tcg" && o.accel != "kvm" {
		return o, fmt.Errorf("-accel %q; allowed: tcg, kvm", o.accel)
	}
	if o.pattern != "" && o.full {
		return o, errors.New("-run and -full exclude each other")
	}
	_, err := choose(scenarios(), o.pattern, o.full)
	return o, err
}

func list(w io.Writer) {
	for _, s := range scenarios() {
		when := "full"
		if s.ci {
			when = "ci"
		}
		fmt.Fprintf(w, "%-28s %-5s at most %v\n", s.name, when, s.deadline)
	}
}

func (o options) execute(ctx context.Context, stdin *os.File, stdout io.Writer) error {
	begin := time.Now()
	h, release, err := o.prepare(ctx, stdout)
	if err != nil {
		return err
	}
	defer release()
	switch o.command {
	case "shell":
		return shell(ctx, h, stdin)
	case "bench":
		return bench(ctx, h, o.bench)
	}
	chosen, err := choose(scenarios(), o.pattern, o.full)
	if err != nil {
		return err
	}
	results, err := (&runner{host: h}).runAll(ctx, chosen)
	r := report{Kernel: h.image.Version, Emulated: !h.kvm, Seconds: time.Since(begin).Seconds(), Scenarios: results}
	err = errors.Join(err, r.write(h.out))
	failed := r.print(stdout)
	switch {
	case err != nil:
		return err
	case failed > 0:
		return fmt.Errorf("%d of %d scenarios failed; logs are in %s", failed, len(results), h.out)
	}
	fmt.Fprintf(stdout, "lab: all passed in %.0f s\n", r.Seconds)
	return nil
}

// prepare builds what the guests boot and takes the output directory for this
// process alone.
func (o options) prepare(ctx context.Context, stdout io.Writer) (h host, release func(), err error) {
	h = host{kvm: o.accel == "kvm", stdout: stdout}
	if h.mover, err = filepath.Abs(o.mover); err != nil {
		return h, nil, fmt.Errorf("-mover: %w", err)
	}
	if _, err := os.Stat(h.mover); err != nil {
		return h, nil, fmt.Errorf("-mover: %w: build mover first (make build)", err)
	}
	if h.out, err = filepath.Abs(o.out); err != nil {
		return h, nil, fmt.Errorf("-out: %w", err)
	}
	if err := os.MkdirAll(h.out, 0o755); err != nil {
		return h, nil, fmt.Errorf("-out: %w", err)
	}
	release, err = occupy(filepath.Join(h.out, "lock"))
	if err != nil {
		return h, nil, err
	}
	defer func() {
		if err != nil {
			release()
		}
	}()
	for _, pattern := range []string{"*.log", "*.dmesg", "*.console", "results.json"} {
		old, err := filepath.Glob(filepath.Join(h.out, pattern))
		if err != nil {
			return h, nil, err
		}
		for _, f := range old {
			if err := os.Remove(f); err != nil {
				return h, nil, fmt.Errorf("remove what an earlier run left: %w", err)
			}
		}
	}
	agent := filepath.Join(h.out, "agent")
	if err := build(ctx, agent, "./lab/agent"); err != nil {
		return h, nil, err
	}
	h.image, err = image.Build(ctx, image.Config{CacheDir: o.cache, Agent: agent,
		Log: func(format string, a ...any) { fmt.Fprintf(stdout, "lab: "+format+"\n", a...) }})
	return h, release, err
}

// build compiles a program that needs nothing of the guest.
func build(ctx context.Context, to, pkg string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", to, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w: %s", pkg, err, out)
	}
	return nil
}

// occupy takes a lock, or says that somebody has it (flock(2)).
func occupy(path string) (release func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("take the output directory: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("another lab uses %s: wait for its end, or give another directory with -out: %w", filepath.Dir(path), err)
	}
	return func() { _ = f.Close() }, nil
}
