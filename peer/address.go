package peer

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// DefaultPort is the control plane's TCP port.
const DefaultPort = 9471

// nodePattern in an address stands for the peer's name.
const nodePattern = "{node}"

// parseAddress returns the host:port that s means; a missing port is
// DefaultPort. The host may be empty only where one listens. An IPv6 address
// must be in brackets: "::1:9471" is one address, or another with a port, and
// a guess connects to the wrong host.
func parseAddress(s string, listen bool) (string, error) {
	bad := func(why string) (string, error) {
		return "", fmt.Errorf("address %.120q: %s; write HOST:PORT, 192.0.2.1:%d or [2001:db8::1]:%d", s, why, DefaultPort, DefaultPort)
	}
	rest := s
	if !strings.HasPrefix(s, "[") && strings.Count(s, ":") > 1 {
		return bad("an IPv6 address needs brackets")
	}
	if !strings.Contains(s[strings.LastIndex(s, "]")+1:], ":") {
		rest = s + ":" + strconv.Itoa(DefaultPort)
	}
	host, port, err := net.SplitHostPort(rest)
	if err != nil {
		return bad("not HOST:PORT")
	}
	if host == "" && !listen {
		return bad("the host is missing")
	}
	if strings.HasPrefix(s, "[") {
		if a, err := netip.ParseAddr(host); err != nil || !a.Is6() {
			return bad("what is in the brackets is not an IPv6 address")
		}
	}
	if strings.ContainsAny(host, " \t\r\n/@") {
		return bad("the host has a character that no host has")
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 && !listen {
		return bad("the port is not a number from 1 to 65535")
	}
	return net.JoinHostPort(host, port), nil
}

// expandAddresses puts node into each pattern and parses the results.
func expandAddresses(patterns []string, node string) ([]string, error) {
	var out []string
	for _, p := range patterns {
		a, err := parseAddress(strings.ReplaceAll(p, nodePattern, node), false)
		if err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	return out, nil
}
