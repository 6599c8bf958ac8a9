package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"golang.org/x/term"

	"mover/lab/image"
	"mover/lab/remote"
)

// otherKey switches to the other guest's shell: Ctrl-], as telnet's.
const otherKey = 0x1d

// shell boots the guests and gives a shell in each: on a terminal one
// interactive shell a guest, of which one has the terminal; else lines
// "a: command" and "b: command" from standard input, one after the other.
func shell(ctx context.Context, h host, stdin *os.File) (err error) {
	l, err := boot(ctx, h)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	fmt.Fprintf(h.stdout, "lab: rails 10.77.0.x and 10.77.1.x, x = 1 in a, 2 in b; mover is %s, the host's files are under %s\n", MoverProgram, image.HostRoot)
	if !term.IsTerminal(int(stdin.Fd())) {
		return l.lines(ctx, stdin)
	}
	return l.interactive(ctx, stdin)
}

// lines runs a command a line; one that fails does not end the others.
func (l *Lab) lines(ctx context.Context, stdin io.Reader) error {
	read, failed := make(chan string), make(chan error, 1)
	go func() { // until the process ends: such a read cannot be ended
		in := bufio.NewScanner(stdin)
		for in.Scan() {
			select {
			case read <- strings.TrimSpace(in.Text()):
			case <-ctx.Done():
				return
			}
		}
		failed <- in.Err()
	}()
	for {
		select {
		case line := <-read:
			if line == "" || strings.HasPrefix(line, "#") {
				continue
			}
			if err := l.line(ctx, line); err != nil {
				return err
			}
		case err := <-failed:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// line runs "a: command" or "b: command".
func (l *Lab) line(ctx context.Context, line string) error {
	name, script, ok := strings.Cut(line, ":")
	n := map[string]*Node{"a": l.A, "b": l.B}[strings.TrimSpace(name)]
	if !ok || n == nil {
		return fmt.Errorf("line %q: must be `a: command` or `b: command`", line)
	}
	fmt.Fprintf(l.host.stdout, "%s$ %s\n", n.Name, strings.TrimSpace(script))
	p, err := n.Remote().Start(ctx, remote.Command{Args: []string{"bash", "-c", script}, Stdout: l.host.stdout, Stderr: l.host.stdout})
	if err != nil {
		return err
	}
	exit, err := p.Wait()
	if err == nil && exit.Code != 0 {
		fmt.Fprintf(l.host.stdout, "%s: exit code %d\n", n.Name, exit.Code)
	}
	return err
}

// interactive joins the terminal to one of two shells.
func (l *Lab) interactive(ctx context.Context, stdin *os.File) error {
	fmt.Fprint(l.host.stdout, "lab: this is a; Ctrl-] goes to the other guest, exit ends the lab\n")
	columns, rows, err := term.GetSize(int(stdin.Fd()))
	if err != nil {
		return fmt.Errorf("the terminal's size: %w", err)
	}
	before, err := term.MakeRaw(int(stdin.Fd()))
	if err != nil {
		return fmt.Errorf("set the terminal up: %w", err)
	}
	defer func() { _ = term.Restore(int(stdin.Fd()), before) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	s := &switchboard{out: l.host.stdout}
	var shells []*remote.Process
	for i, n := range []*Node{l.A, l.B} {
		keys, keysWriter := io.Pipe()
		defer keysWriter.Close()
		s.keys[i] = keysWriter
		p, err := n.Remote().Start(ctx, remote.Command{
			Args: []string{"bash", "--norc", "-i"}, Env: []string{"TERM=" + os.Getenv("TERM"), `PS1=` + n.Name + `:\w# `},
			Terminal: &remote.Terminal{Rows: uint16(rows), Columns: uint16(columns)},
			Stdin:    keys, Stdout: s.screen(i),
		})
		if err != nil {
			return err
		}
		shells = append(shells, p)
	}
	go s.read(stdin) // until the process ends: a terminal's read cannot be ended
	select {
	case <-shells[0].Done():
	case <-shells[1].Done():
	case <-ctx.Done():
	}
	fmt.Fprint(l.host.stdout, "\r\nlab: ending the guests\r\n")
	return nil
}

// hiddenBytes of a shell's output are kept while the other has the terminal.
const hiddenBytes = 64 << 10

// switchboard gives the terminal to one of two shells.
type switchboard struct {
	out  io.Writer
	keys [2]io.Writer

	mu     sync.Mutex
	front  int
	hidden [2][]byte
}

type screen struct {
	board *switchboard
	index int
}

func (s *switchboard) screen(index int) io.Writer { return screen{s, index} }

// Write shows the output, or keeps the end of it until its shell is in front.
func (w screen) Write(p []byte) (int, error) {
	s := w.board
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.front == w.index {
		return s.out.Write(p)
	}
	kept := append(s.hidden[w.index], p...)
	s.hidden[w.index] = kept[max(0, len(kept)-hiddenBytes):]
	return len(p), nil
}

// read hands what is typed to the shell in front.
func (s *switchboard) read(stdin io.Reader) {
	buf := make([]byte, 4096)
	for {
		n, err := stdin.Read(buf)
		for typed := buf[:n]; len(typed) > 0; {
			at := strings.IndexByte(string(typed), otherKey)
			if at < 0 {
				at = len(typed)
			}
			if at > 0 {
				if _, err := s.frontKeys().Write(typed[:at]); err != nil {
					return
				}
			}
			if at < len(typed) {
				s.turn()
				at++
			}
			typed = typed[at:]
		}
		if err != nil {
			return
		}
	}
}

func (s *switchboard) frontKeys() io.Writer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keys[s.front]
}

// turn brings the other shell to the front and shows what it said meanwhile.
func (s *switchboard) turn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.front = 1 - s.front
	fmt.Fprintf(s.out, "\r\nlab: this is %c\r\n", 'a'+s.front)
	_, _ = s.out.Write(s.hidden[s.front])
	s.hidden[s.front] = nil
}
