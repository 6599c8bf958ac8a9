package config

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// A form is what a string must look like; the error says what is wrong with
// this one, and allowed says what would be right.
type form struct {
	check   func(string) error
	allowed string
}

var (
	nodeName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$`)
	rootName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)
	hostName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,253}$`)
	// userName is what useradd(8) allows, and what directory services add.
	userName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.@-]{0,63}\$?$`)
	modeText = regexp.MustCompile(`^0?[0-7]{3}$`)
)

// NodeName reports whether s can name a node: it becomes part of a
// certificate's URI, whose host Go's parser checks, and of host names.
func NodeName(s string) error {
	if !nodeName.MatchString(s) || strings.Contains(s, "..") {
		return fmt.Errorf("%q is not a node name", s)
	}
	return nil
}

// RootName reports whether s can name a root: it is the first component of a
// job's path.
func RootName(s string) error {
	if !rootName.MatchString(s) {
		return fmt.Errorf("%q is not a root name", s)
	}
	return nil
}

// forms are the values of the tag form.
var forms = map[string]form{
	"node-name":   {NodeName, "1 to 63 of a-z 0-9 . -, first and last a letter or digit, without .."},
	"node-name?":  {optional(NodeName), `1 to 63 of a-z 0-9 . -, first and last a letter or digit, without .., or ""`},
	"root-name":   {RootName, "1 to 63 of A-Z a-z 0-9 . _ -, beginning with a letter or digit"},
	"peer-name":   {peerOrAny, `the name of a node, or "*" for all`},
	"buffer-name": {bufferNameForm, "1 to 63 of A-Z a-z 0-9 . _ -, beginning with a letter or digit"},
	"user":        {userOrNumber, "a name or a number of this host, such as alice or 1000"},
	"user?":       {optional(userOrNumber), `a name or a number of this host, such as alice or 1000, or ""`},
	"job-root":    {jobRoot, "NODE:root, *:root, NODE:* or *:*"},
	"root-mode":   {rootMode, "three octal digits that let the owner read and write, such as 0644"},
	"buffer-mode": {bufferMode, "three octal digits, read and write bits only, 0600 among them, such as 0660"},
	"path":        {absolutePath, "an absolute path"},
	"socket":      {socketPath, `an absolute path of at most 107 bytes, off, or ""`},
	"path?":       {optional(absolutePath), `an absolute path, or ""`},
	"listen":      {listenAddress, "IP:port, such as 127.0.0.1:9470 or [::1]:9470"},
	"dial":        {dialAddress, "host:port, such as host-b:9471, 192.0.2.7:9471, [2001:db8::7]:9471 or {node}:9471"},
	"device":      {deviceName, "a device (mlx5_0), a network interface (eth0), either with a port (mlx5_0:2), or an IP address of this host"},
	"ip":          {ipAddress, "an IP address of this host, such as 127.0.0.1"},
	"fingerprint": {optional(fingerprint),
		"sha256: and 64 hexadecimal digits in lower case, as `mover identity` prints on that node"},
}

func optional(check func(string) error) func(string) error {
	return func(s string) error {
		if s == "" {
			return nil
		}
		return check(s)
	}
}

func peerOrAny(s string) error {
	if s == "*" {
		return nil
	}
	return NodeName(s)
}

// bufferNameForm is that of a root: jobs name both.
func bufferNameForm(s string) error {
	if !rootName.MatchString(s) {
		return fmt.Errorf("%q is not a buffer name", s)
	}
	return nil
}

// userOrNumber accepts a user or a group. Whether there is one is for the host
// to say.
func userOrNumber(s string) error {
	// 2^32-1 is -1 to chown(2), which means "leave it".
	if n, err := strconv.ParseUint(s, 10, 32); err == nil && n < 1<<32-1 {
		return nil
	}
	if !userName.MatchString(s) {
		return fmt.Errorf("%q is neither a name nor a number", s)
	}
	return nil
}

func jobRoot(s string) error {
	node, root, ok := strings.Cut(s, ":")
	if !ok || node != "*" && NodeName(node) != nil || root != "*" && RootName(root) != nil {
		return fmt.Errorf("%q does not name roots", s)
	}
	return nil
}

// modeBits reads a mode of the form that rootMode and bufferMode check.
func modeBits(s string) fs.FileMode {
	n, _ := strconv.ParseUint(s, 8, 9)
	return fs.FileMode(n)
}

func rootMode(s string) error {
	if !modeText.MatchString(s) {
		return fmt.Errorf("%q is not a mode", s)
	}
	if modeBits(s)&0o600 != 0o600 {
		return fmt.Errorf("%q does not let its owner read and write", s)
	}
	return nil
}

func bufferMode(s string) error {
	if err := rootMode(s); err != nil {
		return err
	}
	if modeBits(s)&0o111 != 0 {
		return fmt.Errorf("%q has an execute bit, and memory is not executed", s)
	}
	return nil
}

// maxSocketPathBytes is what fits sun_path with its final NUL, see unix(7).
const maxSocketPathBytes = 107

func socketPath(s string) error {
	if s == "" || s == SocketOff {
		return nil
	}
	if err := absolutePath(s); err != nil {
		return err
	}
	if len(s) > maxSocketPathBytes {
		return fmt.Errorf("%q has %d bytes, more than the kernel takes", s, len(s))
	}
	return nil
}

func absolutePath(s string) error {
	switch {
	case s == "":
		return errors.New("is empty")
	case strings.ContainsRune(s, 0):
		return errors.New("contains a NUL character")
	case !filepath.IsAbs(s):
		// Relative to what? The service's working directory is not the
		// shell's, so the same file would mean two things.
		return fmt.Errorf("%q is relative", s)
	}
	return nil
}

func listenAddress(s string) error {
	a, err := netip.ParseAddrPort(s)
	if err != nil {
		return fmt.Errorf("%q is not an IP address and port", s)
	}
	if a.Port() == 0 {
		// The peers and clients have to know it beforehand.
		return fmt.Errorf("%q has port 0", s)
	}
	return nil
}

func ipAddress(s string) error {
	a, err := netip.ParseAddr(s)
	if err != nil {
		return fmt.Errorf("%q is not an IP address", s)
	}
	if a.Zone() != "" {
		return fmt.Errorf("%q has a zone, which a GID has no room for; use a global or unique-local address", s)
	}
	if a.IsUnspecified() || a.IsMulticast() {
		return fmt.Errorf("%q is not the address of one interface", s)
	}
	return nil
}

// NodePlaceholder stands for the peer's name in its addresses.
const NodePlaceholder = "{node}"

func dialAddress(s string) error {
	if listenAddress(s) == nil {
		return nil
	}
	host, port, ok := strings.Cut(s, ":")
	if !ok {
		return fmt.Errorf("%q has no port", s)
	}
	if strings.Contains(port, ":") {
		return fmt.Errorf("%q: an IPv6 address needs brackets", s)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return fmt.Errorf("%q: %q is not a port", s, port)
	}
	if !hostName.MatchString(strings.ReplaceAll(host, NodePlaceholder, "n")) {
		return fmt.Errorf("%q: %q is not a host name", s, host)
	}
	return nil
}

const fingerprintPrefix = "sha256:"

func fingerprint(s string) error {
	digits, ok := strings.CutPrefix(s, fingerprintPrefix)
	if !ok {
		return fmt.Errorf("%q does not begin with %s", s, fingerprintPrefix)
	}
	b, err := hex.DecodeString(digits)
	if err != nil || len(b) != 32 || strings.ToLower(digits) != digits {
		return fmt.Errorf("%q is not a fingerprint", s)
	}
	return nil
}
