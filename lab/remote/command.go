package remote

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"time"
)

// PortName is the name of the virtio-serial port between host and agent.
const PortName = "mover.lab"

// Limits of what one command may say; more is a mistake, not a use.
const (
	maxCommandBytes = 256 << 10
	maxArguments    = 4096
)

// Command is a process to start in the guest. The zero value of a field but
// Args is sensible.
type Command struct {
	Args []string `json:"args"`          // program and arguments; found by the agent's PATH
	Env  []string `json:"env,omitempty"` // NAME=VALUE, added to the agent's own
	Dir  string   `json:"dir,omitempty"` // "" is /
	// Terminal, if not nil, gives the process a terminal of its own for all
	// three standard files: what it prints then comes as standard output.
	Terminal *Terminal `json:"terminal,omitempty"`

	// Stdin nil is /dev/null. It is read by another goroutine until it ends,
	// even a little after the process did. Stdout and Stderr nil discard;
	// they are written by one goroutine, and one that blocks stops the
	// process once its buffers are full.
	Stdin  io.Reader `json:"-"`
	Stdout io.Writer `json:"-"`
	Stderr io.Writer `json:"-"`
}

// Terminal is the size of a terminal in characters.
type Terminal struct {
	Rows    uint16 `json:"rows"`
	Columns uint16 `json:"columns"`
}

func (c Command) String() string { return strings.Join(c.Args, " ") }

// encode is the header's text. JSON escapes control characters, and the rest
// may be in a header.
func (c Command) encode() (string, error) {
	text, err := json.Marshal(c)
	if err != nil {
		return "", fmt.Errorf("encode the command: %w", err)
	}
	if err := c.check(len(text)); err != nil {
		return "", err
	}
	return string(text), nil
}

func decodeCommand(text string) (Command, error) {
	var c Command
	if len(text) > maxCommandBytes {
		return c, fmt.Errorf("a command of %d bytes, at most %d", len(text), maxCommandBytes)
	}
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&c); err != nil {
		return c, fmt.Errorf("decode the command: %w", err)
	}
	return c, c.check(len(text))
}

func (c Command) check(encoded int) error {
	switch {
	case encoded > maxCommandBytes:
		return fmt.Errorf("a command of %d bytes, at most %d: give what is long by Stdin", encoded, maxCommandBytes)
	case len(c.Args) == 0 || c.Args[0] == "":
		return errors.New("a command without a program")
	case len(c.Args) > maxArguments || len(c.Env) > maxArguments:
		return fmt.Errorf("a command of more than %d words", maxArguments)
	}
	for _, e := range c.Env {
		if name, _, ok := strings.Cut(e, "="); !ok || name == "" {
			return fmt.Errorf("environment %q is not NAME=VALUE", e)
		}
	}
	return nil
}

// Hello is what the agent says of the guest.
type Hello struct {
	Kernel string `json:"kernel"` // release, as uname -r
	PID    int    `json:"pid"`    // of the agent
}

// Exit is how a process ended, and what it used with the children it waited
// for.
type Exit struct {
	Code          int            `json:"code"`             // -1 if a signal ended it
	Signal        syscall.Signal `json:"signal,omitempty"` // 0 if it exited
	User          time.Duration  `json:"user"`
	System        time.Duration  `json:"system"`
	PeakRSSBytes  int64          `json:"peak_rss_bytes"`
	ContextSwitch int64          `json:"context_switches"` // voluntary and not
}

// Err is nil for code 0, else an *ExitError without output.
func (e Exit) Err(c Command) error {
	if e.Code == 0 {
		return nil
	}
	return &ExitError{Command: c.String(), Exit: e}
}

// ExitError is a process that ran and did not end with code 0.
type ExitError struct {
	Command string
	Exit    Exit
	Output  string // the end of what it printed, if Run collected it
}

func (e *ExitError) Error() string {
	how := fmt.Sprintf("exit code %d", e.Exit.Code)
	if e.Exit.Signal != 0 {
		how = "ended by signal: " + e.Exit.Signal.String()
	}
	text := shorten(e.Command, 200) + ": " + how
	if e.Output != "" {
		text += ": " + e.Output
	}
	return text
}

// shorten cuts a text that would drown a message.
func shorten(s string, n int) string {
	if len(s) > n {
		return strings.ToValidUTF8(s[:n], "") + "..."
	}
	return s
}

// RefusedError is a request that the agent answered with an error.
type RefusedError struct {
	What   string // "run ls -l"
	Status int    // of HTTP
	Text   string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("%s: the guest's agent answers %d: %s", shorten(e.What, 200), e.Status, e.Text)
}
