package api

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
)

// CheckListen reports whether the API may listen on addr, host:port. In clear
// text it may only on a loopback address: tokens and file names would cross the
// network readable. hasTLS says that a certificate is configured.
func CheckListen(addr string, hasTLS bool) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("the API's listen address must be host:port, with brackets around an IPv6 address, such as 127.0.0.1:9470 or [::1]:9470")
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("the API's listen address must end in a port from 0 to 65535")
	}
	if hasTLS || host == "localhost" {
		return nil
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.Unmap().IsLoopback() {
		return nil
	}
	where := host
	if where == "" {
		where = "every address of this host"
	}
	return fmt.Errorf("the API must not listen on %s without TLS: configure a certificate and key for it, or listen on 127.0.0.1 or [::1]", where)
}
