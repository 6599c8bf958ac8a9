package main

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"mover/job"
)

// place is one side of a copy as a job has it. path is root/sub/path, any
// bytes.
type place struct {
	node string // "" is the node asked
	path string
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

// parseRemote reads NODE:ROOT/sub/path.
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
	text := p.Node + ":" + p.FullPath()
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
