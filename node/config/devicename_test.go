package config

import (
	"net/netip"
	"testing"
)

func TestDeviceNames(t *testing.T) {
	for s, want := range map[string]DeviceName{
		"mlx5_0":             {Name: "mlx5_0"},
		"mlx5_bond_0:2":      {Name: "mlx5_bond_0", Port: 2},
		"eth0.100":           {Name: "eth0.100"},
		"enp1s0f0np0":        {Name: "enp1s0f0np0"},
		"10.0.0.1":           {Addr: netip.MustParseAddr("10.0.0.1")},
		"::ffff:192.168.7.1": {Addr: netip.MustParseAddr("192.168.7.1")},
		"fd00::7":            {Addr: netip.MustParseAddr("fd00::7")},
	} {
		got, err := ParseDeviceName(s)
		if err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", s, got, err, want)
			continue
		}
		if again, err := ParseDeviceName(got.String()); err != nil || again != want {
			t.Errorf("%q is written %q, which is %+v, %v", s, got, again, err)
		}
	}
	for _, s := range []string{"", ":1", "mlx5_0:", "mlx5_0:x", "../x", "mlx5_0 ", "10.0.0.1:1", "*", "a/b", "-x", "::", "ff02::1", "fe80::1%eth0"} {
		if got, err := ParseDeviceName(s); err == nil {
			t.Errorf("%q: accepted as %+v", s, got)
		}
	}
}
