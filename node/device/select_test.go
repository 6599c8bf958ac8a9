package device

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mover/node/config"
	"mover/verbs"
)

// listed is a provider that has just these devices and opens none.
type listed struct {
	name    string
	devices []string
}

func (l listed) Name() string { return l.name }

func (l listed) Devices() ([]verbs.DeviceInfo, error) {
	var infos []verbs.DeviceInfo
	for _, name := range l.devices {
		infos = append(infos, verbs.DeviceInfo{Provider: l.name, Name: name})
	}
	return infos, nil
}

func (listed) OpenDevice(string) (verbs.Context, error) { return nil, verbs.ErrClosed }

func TestChoose(t *testing.T) {
	hardware := candidate{name: "ibv", provider: listed{"ibv", []string{"mlx5_0", "mlx5_1"}}}
	empty := candidate{name: "ibv", provider: listed{"ibv", nil}}
	none := candidate{name: "ibv", missing: "no library"}
	software := candidate{name: "soft", provider: listed{"soft", []string{"soft0"}}}
	for _, c := range []struct {
		name, fallback string
		names          []string
		candidates     []candidate
		want           string // "provider: devices", "+" when it is a fallback
		reason         string
	}{
		{"hardware first", "allow", nil, []candidate{hardware, software}, "ibv: mlx5_0 mlx5_1", "ibv has devices"},
		{"hardware first, forbid", "forbid", nil, []candidate{hardware, software}, "ibv: mlx5_0 mlx5_1", ""},
		{"fallback says why", "allow", nil, []candidate{none, software}, "soft+: soft0", "falling back to software verbs: ibv: no library"},
		{"no devices", "allow", nil, []candidate{empty, software}, "soft+: soft0", "ibv: no device found"},
		{"soft by choice", "allow", nil, []candidate{software}, "soft: soft0", "as devices.providers asks"},
		{"soft preferred", "allow", nil, []candidate{software, hardware}, "soft: soft0", ""},
		{"forbidden", "forbid", nil, []candidate{none, software}, "", "devices.fallback is forbid; load the RDMA driver"},
		{"by name", "allow", []string{"mlx5_1"}, []candidate{hardware, software}, "ibv: mlx5_1", ""},
		{"by name, of the second", "allow", []string{"soft0"}, []candidate{hardware, software}, "soft+: soft0", "is in devices.names"},
		{"by a name nobody has", "allow", []string{"x"}, []candidate{hardware, software}, "", "change devices.providers or devices.names"},
	} {
		cfg := config.Default()
		cfg.Devices.Fallback, cfg.Devices.Names = c.fallback, c.names
		s, err := choose(cfg, c.candidates)
		got := ""
		text := s.Reason
		if err != nil {
			text = err.Error()
			if !errors.Is(err, ErrNoDevice) {
				t.Errorf("%s: %v", c.name, err)
			}
		} else {
			got = s.Provider.Name()
			if s.Fallback {
				got += "+"
			}
			got += ": " + namesOf(s.Used())
		}
		if got = strings.ReplaceAll(got, ",", ""); got != c.want || !strings.Contains(text, c.reason) {
			t.Errorf("%s: got %q (%s), want %q (%s)", c.name, got, text, c.want, c.reason)
		}
		for _, d := range s.Devices {
			if d.Why == "" {
				t.Errorf("%s: %s has no reason", c.name, d.Name)
			}
		}
	}
}

func TestUnusedHardwareIsNamed(t *testing.T) {
	sys := t.TempDir()
	if got := withoutHardware(sys); !strings.Contains(got, "no RDMA device") {
		t.Error(got)
	}
	if err := os.MkdirAll(filepath.Join(sys, "class/infiniband/rxe0"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got := withoutHardware(sys); !strings.Contains(got, "rxe0") {
		t.Error(got)
	}
}

func TestSelectSoft(t *testing.T) {
	cfg := config.Default()
	cfg.Devices.Providers = []string{"soft"}
	cfg.Soft.Addresses = []string{"127.0.0.1", "127.0.0.2"}
	s, err := Select(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Used()) != 2 || s.Fallback || s.Provider.Name() != "soft" {
		t.Errorf("%+v", s)
	}
}
