package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"mover/job"
)

// place is one side of a copy as a job has it: a path, root/sub/path in any
// bytes, or a buffer.
type place struct {
	node   string // "" is the node asked
	path   string
	buffer string // "" is a path
	// offset and length are of a buffer; -1 was not given.
	offset, length int64
}

// ofJob is p as the API takes it.
func (p place) ofJob() job.Place {
	if p.buffer != "" {
		out := job.Place{Node: p.node, Buffer: p.buffer}
		if p.offset >= 0 {
			offset := job.Bytes(p.offset)
			out.Offset = &offset
		}
		if p.length >= 0 {
			length := job.Bytes(p.length)
			out.Length = &length
		}
		return out
	}
	if !utf8.ValidString(p.path) {
		return job.Place{Node: p.node, PathB64: []byte(p.path)}
	}
	return job.Place{Node: p.node, Path: p.path}
}

// bufferPrefix begins a buffer where a root would begin a path: no root has a
// colon in its name.
const bufferPrefix = "buffer:"

// parseBuffer reads NAME[+OFFSET[+LENGTH]]; no buffer has a + in its name.
func parseBuffer(argument, node, text string) (place, error) {
	p := place{node: node, offset: -1, length: -1}
	parts := strings.Split(text, "+")
	p.buffer = parts[0]
	if !job.ValidName(p.buffer) || len(parts) > 3 {
		return place{}, usagef("%q: a buffer is %s:buffer:NAME, or with a part of it NAME+OFFSET or NAME+OFFSET+LENGTH", argument, node)
	}
	for i, to := range []*int64{&p.offset, &p.length} {
		if len(parts) <= i+1 {
			break
		}
		n, err := parseSize(parts[i+1])
		if err != nil {
			return place{}, usagef("%q: %q %w", argument, parts[i+1], err)
		}
		*to = n
	}
	return p, nil
}

// parseSize reads a size: a number of bytes, or one with a unit.
func parseSize(s string) (int64, error) {
	if n, err := strconv.ParseUint(s, 10, 63); err == nil {
		return int64(n), nil
	}
	n, err := job.ParseBytes(s)
	return int64(n), err
}

// rootDir is a root of the node asked.
type rootDir struct {
	name string
	path string // absolute, on the node's host
}

// isRemotePlace reports whether argument names a node: only a colon before the
// first slash does, so that ./a:b is a local file.
func isRemotePlace(argument string) bool {
	colon, slash := strings.IndexByte(argument, ':'), strings.IndexByte(argument, '/')
	return colon >= 0 && (slash < 0 || colon < slash)
}

// parseRemote reads NODE:ROOT/sub/path and NODE:buffer:NAME[+OFFSET[+LENGTH]].
func parseRemote(argument string) (place, error) {
	node, path, _ := strings.Cut(argument, ":")
	switch {
	case node == "":
		return place{}, usagef("%q has no node before the colon; write NODE:ROOT/path, or ./%s for a local file", argument, argument)
	case path == "":
		return place{}, usagef("%q has no path; write %s:ROOT/path, where ROOT is the name of one of that node's roots", argument, node)
	case path[0] == '/':
		return place{}, usagef("%q: after the node comes the name of one of its roots, not an absolute path; write %s:ROOT/path", argument, node)
	}
	if buffer, is := strings.CutPrefix(path, bufferPrefix); is {
		return parseBuffer(argument, node, buffer)
	}
	return place{node: node, path: path}, nil
}

// mapLocal finds the root that contains a local path. workingDir is absolute.
// A trailing slash is kept: it means something to the job. The last component
// is not followed if it is a link, because it is what the job names; the
// directories above it are, because the node's root may be named through a
// link, or the path may be.
func mapLocal(argument, workingDir string, roots []rootDir) (place, error) {
	absolute := argument
	if !filepath.IsAbs(argument) {
		absolute = filepath.Join(workingDir, argument)
	}
	absolute = filepath.Clean(absolute)
	candidates := []string{absolute}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(absolute)); err == nil {
		candidates = append(candidates, filepath.Join(dir, filepath.Base(absolute)))
	}
	best, bestLength := place{}, -1
	for _, root := range roots {
		directories := []string{filepath.Clean(root.path)}
		if real, err := filepath.EvalSymlinks(root.path); err == nil {
			directories = append(directories, real)
		}
		for _, directory := range directories {
			for _, candidate := range candidates {
				sub, inside := below(candidate, directory)
				if inside && len(directory) > bestLength {
					best, bestLength = place{path: strings.TrimSuffix(root.name+"/"+sub, "/")}, len(directory)
				}
			}
		}
	}
	if bestLength < 0 {
		if _, err := os.Lstat(absolute); errors.Is(err, fs.ErrNotExist) {
			return place{}, usagef("%s is in none of the node's roots (%s), and there is nothing of that name here; check it, or write NODE:ROOT/path", absolute, describeRoots(roots))
		}
		return place{}, usagef("%s is in none of the node's roots (%s); move it into one, add a root to the configuration, or write NODE:ROOT/path", absolute, describeRoots(roots))
	}
	if strings.HasSuffix(argument, "/") || argument == "." || strings.HasSuffix(argument, "/.") {
		best.path += "/"
	}
	return best, nil
}

// beginsWithRoot reports whether argument looks like a place of a job without
// its node: the first component is the name of a root.
func beginsWithRoot(argument string, roots []rootDir) bool {
	first, _, _ := strings.Cut(argument, "/")
	return slices.ContainsFunc(roots, func(r rootDir) bool { return r.name == first })
}

// placeText is a place as people write it, quoted if it has what a terminal
// would act on.
func placeText(p job.Place) string {
	if p.Buffer != "" {
		text := p.Node + ":" + bufferPrefix + p.Buffer
		if p.Offset != nil || p.Length != nil {
			offset := job.Bytes(0)
			if p.Offset != nil {
				offset = *p.Offset
			}
			text += fmt.Sprintf("+%d", offset)
		}
		if p.Length != nil {
			text += fmt.Sprintf("+%d", *p.Length)
		}
		return text
	}
	return nameText(p.Node + ":" + p.FullPath())
}

// nameText is a name as people may see it on a terminal.
func nameText(text string) string {
	if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsGraphic(r) }) {
		return strconv.QuoteToGraphic(text)
	}
	return text
}

// below returns path relative to directory if it is in it.
func below(path, directory string) (sub string, inside bool) {
	if path == directory {
		return "", true
	}
	if directory != "/" {
		directory += "/"
	}
	return strings.CutPrefix(path, directory)
}

func describeRoots(roots []rootDir) string {
	if len(roots) == 0 {
		return "it has none"
	}
	names := make([]string, len(roots))
	for i, r := range roots {
		names[i] = fmt.Sprintf("%s = %s", r.name, r.path)
	}
	return strings.Join(names, ", ")
}

// isThisHost reports whether a server's URL leads to this host, so that a
// local path means the same to it. addresses are this host's.
func isThisHost(server string, addresses []netip.Addr) bool {
	if strings.HasPrefix(server, socketScheme) {
		return true
	}
	u, err := url.Parse(server)
	if err != nil {
		return false
	}
	host := u.Hostname()
	if host == "localhost" {
		return true
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	if a.IsLoopback() {
		return true
	}
	for _, own := range addresses {
		if own == a.Unmap() {
			return true
		}
	}
	return false
}

// hostAddresses are the addresses of this host's interfaces.
func hostAddresses() []netip.Addr {
	interfaces, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	var out []netip.Addr
	for _, i := range interfaces {
		if p, err := netip.ParsePrefix(i.String()); err == nil {
			out = append(out, p.Addr().Unmap())
		}
	}
	return out
}
