package config

import (
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

// DeviceName is one entry of devices.names: either Addr is valid, or Name is
// set.
type DeviceName struct {
	Addr netip.Addr // of a port's network interface, or in its GID table
	Name string     // of a device, or of a network interface
	Port uint8      // with Name: this port alone; 0 is all of them
}

// hardwareName is what both kinds of device may be called, less what no driver
// uses: the kernel refuses slash, colon and white space (dev_valid_name), and
// IB_DEVICE_NAME_MAX is 64.
var hardwareName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.+@-]{0,62}$`)

// looksLikeAddress keeps a mistyped address from passing for a name.
var looksLikeAddress = regexp.MustCompile(`^[0-9]+(\.[0-9]+)+$`)

// ParseDeviceName reads an entry of devices.names.
func ParseDeviceName(s string) (DeviceName, error) {
	if strings.Count(s, ":") > 1 || strings.Contains(s, "%") {
		return parseDeviceAddress(s)
	}
	if a, err := netip.ParseAddr(s); err == nil {
		return parseDeviceAddress(a.String())
	}
	name, port, withPort := strings.Cut(s, ":")
	switch {
	case looksLikeAddress.MatchString(name):
		return DeviceName{}, fmt.Errorf("%q is neither an IP address nor the name of a device", s)
	case !hardwareName.MatchString(name):
		return DeviceName{}, fmt.Errorf("%q is not the name of a device or network interface", s)
	}
	d := DeviceName{Name: name}
	if withPort {
		n, err := strconv.ParseUint(port, 10, 8)
		if err != nil || n == 0 {
			return DeviceName{}, fmt.Errorf("%q: %q is not a port", s, port)
		}
		d.Port = uint8(n)
	}
	return d, nil
}

func parseDeviceAddress(s string) (DeviceName, error) {
	if err := ipAddress(s); err != nil {
		return DeviceName{}, err
	}
	return DeviceName{Addr: netip.MustParseAddr(s).Unmap()}, nil
}

func (d DeviceName) String() string {
	switch {
	case d.Addr.IsValid():
		return d.Addr.String()
	case d.Port != 0:
		return fmt.Sprintf("%s:%d", d.Name, d.Port)
	}
	return d.Name
}

func deviceName(s string) error {
	_, err := ParseDeviceName(s)
	return err
}
