package remote

import (
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// commandHeader carries the Command of a run.
const commandHeader = "Lab-Command"

// silence is how long a process that has ended may leave its outputs open, by
// a child in a session of its own, and say nothing.
const silence = 2 * time.Second

// run starts a process and answers with its output and its end.
func (s *server) run(w http.ResponseWriter, r *http.Request) {
	command, err := decodeCommand(r.Header.Get(commandHeader))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p, err := startProcess(command)
	if err != nil {
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		return
	}
	pid := p.cmd.Process.Pid
	s.add(pid, p)
	controller := http.NewResponseController(w)
	out := &frameWriter{w: w, flush: controller.Flush}
	// If this cannot be sent the context has ended too, and the process goes.
	_ = out.json(frameStarted, startedFrame{PID: pid})

	// The stream's end is the process's: kill it, with all it started.
	stop := context.AfterFunc(r.Context(), func() { _ = p.signal(unix.SIGKILL, true) })
	defer stop()
	go p.feed(r.Body)
	ended := make(chan endedFrame, 1)
	go func() { ended <- p.wait() }()
	p.copyOutput(out)
	end := <-ended
	s.remove(pid)
	p.close()
	_ = out.json(frameEnded, end)
}

func exitOf(state *os.ProcessState) Exit {
	e := Exit{Code: state.ExitCode(), User: state.UserTime(), System: state.SystemTime()}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		e.Signal = status.Signal()
	}
	if usage, ok := state.SysUsage().(*syscall.Rusage); ok {
		e.PeakRSSBytes = usage.Maxrss << 10 // getrusage(2): kilobytes
		e.ContextSwitch = usage.Nvcsw + usage.Nivcsw
	}
	return e
}

// process is a started command and our ends of its standard files. With a
// terminal, in and out are the same file and errOut is nil.
type process struct {
	cmd    *exec.Cmd
	in     *os.File
	out    *os.File
	errOut *os.File

	exited atomic.Bool // a zombie at least

	mu   sync.Mutex
	gone bool // waited for: its number may be another's
}

func startProcess(c Command) (*process, error) {
	p := &process{cmd: exec.Command(c.Args[0], c.Args[1:]...)}
	p.cmd.Env = append(os.Environ(), c.Env...)
	p.cmd.Dir = c.Dir
	if p.cmd.Dir == "" {
		p.cmd.Dir = "/"
	}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var theirs []*os.File
	var err error
	if c.Terminal != nil {
		theirs, err = p.openTerminal(*c.Terminal)
	} else {
		theirs, err = p.openPipes()
	}
	// Ours only after the start: the process must see the end of its input.
	defer func() {
		for _, f := range theirs {
			_ = f.Close()
		}
	}()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *process) openPipes() (theirs []*os.File, err error) {
	pipe := func(ours **os.File, reading bool) *os.File {
		if err != nil {
			return nil
		}
		var r, w *os.File
		if r, w, err = os.Pipe(); err != nil {
			return nil
		}
		if !reading {
			r, w = w, r
		}
		*ours = r
		theirs = append(theirs, w)
		return w
	}
	stdin, stdout, stderr := pipe(&p.in, false), pipe(&p.out, true), pipe(&p.errOut, true)
	if err == nil {
		p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = stdin, stdout, stderr
	}
	return theirs, err
}

// openTerminal opens a pair of pseudoterminals (pts(4)).
func (p *process) openTerminal(size Terminal) (theirs []*os.File, err error) {
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	p.in, p.out = ours, ours
	raw, err := ours.SyscallConn()
	if err != nil {
		return nil, err
	}
	var other uintptr
	controlErr := raw.Control(func(fd uintptr) {
		if err = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); err != nil {
			return
		}
		if err = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: size.Rows, Col: size.Columns}); err != nil {
			return
		}
		// TIOCGPTPEER: by descriptor, so that it does not matter where
		// devpts is mounted (ioctl_tty(2)).
		peer, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
		if errno != 0 {
			err = errno
		}
		other = peer
	})
	if err == nil {
		err = controlErr
	}
	if err != nil {
		return nil, err
	}
	f := os.NewFile(other, "terminal")
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = f, f, f
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	return []*os.File{f}, nil
}

// feed copies the request's body to standard input. A process that ended, or
// closed its input, ends the copying.
func (p *process) feed(body io.Reader) {
	_, _ = io.Copy(p.in, body)
	if p.in != p.out { // a terminal has no end of input
		_ = p.in.Close()
	}
}

// copyOutput returns when both outputs have ended.
func (p *process) copyOutput(out *frameWriter) {
	var both sync.WaitGroup
	both.Go(func() { p.copyOne(out, frameStdout, p.out) })
	if p.errOut != nil {
		both.Go(func() { p.copyOne(out, frameStderr, p.errOut) })
	}
	both.Wait()
}

// copyOne sends what comes from one output until it ends, the caller has gone,
// or the process has ended and there is silence.
func (p *process) copyOne(out *frameWriter, kind byte, from *os.File) {
	buf := make([]byte, maxFrameBytes)
	for {
		if p.exited.Load() {
			// Anew before each read: a slow caller still gets all of it.
			_ = from.SetReadDeadline(time.Now().Add(silence))
		}
		n, err := from.Read(buf)
		if n > 0 && out.frame(kind, buf[:n]) != nil {
			return
		}
		if err != nil { // a terminal ends with EIO
			return
		}
	}
}

// wait returns how the process ended. Its group is killed while the zombie
// still holds its number.
func (p *process) wait() endedFrame {
	for {
		err := unix.Waitid(unix.P_PID, p.cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			break
		}
	}
	_ = p.signal(unix.SIGKILL, true)
	p.exited.Store(true)
	for _, f := range []*os.File{p.out, p.errOut} {
		if f != nil {
			_ = f.SetReadDeadline(time.Now().Add(silence))
		}
	}
	p.mu.Lock()
	p.gone = true
	p.mu.Unlock()
	state, err := p.cmd.Process.Wait()
	if err != nil {
		return endedFrame{Error: err.Error()}
	}
	return endedFrame{Exit: exitOf(state)}
}

// signal sends to the process or its group; os.ErrProcessDone if it has gone.
func (p *process) signal(number syscall.Signal, group bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		return os.ErrProcessDone
	}
	pid := p.cmd.Process.Pid
	if group {
		pid = -pid
	}
	return unix.Kill(pid, number)
}

func (p *process) close() {
	for _, f := range []*os.File{p.in, p.out, p.errOut} {
		if f != nil {
			_ = f.Close()
		}
	}
}
