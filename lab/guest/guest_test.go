package guest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"mover/lab/image"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestArguments(t *testing.T) {
	c := Config{Name: "b", Index: 1, Image: image.Image{Kernel: "/k", Initramfs: "/i"}, Rails: make([]*os.File, 2),
		Console: "/out,1/b.console", MemoryMiB: 3001}
	args := c.arguments()
	line := " " + strings.Join(args, " ") + " "
	for _, want := range []string{
		" -accel tcg,thread=multi ", " -kernel /k ", " -initrd /i ",
		" -m 3000M ", "size=1500M", " node,nodeid=1,memdev=memory1 ", // both nodes together are all of the memory
		"path=/out,,1/b.console ",
		"pxb-pcie,id=pxb0,bus=pcie.0,bus_nr=32,numa_node=0 ", "pxb-pcie,id=pxb1,bus=pcie.0,bus_nr=64,numa_node=1 ",
		" socket,id=rail0,fd=5 ", " socket,id=rail1,fd=6 ",
		"bus=port0,netdev=rail0,mac=52:54:00:4d:01:00,host_mtu=9000", "bus=port1,netdev=rail1,mac=52:54:00:4d:01:01,host_mtu=9000",
		"socket,id=agent,fd=3 ", "socket,id=qmp,fd=4 ", "readonly=on", "mount_tag=hostroot ", "mount_tag=hostfiles ",
	} {
		if !strings.Contains(line, want) {
			t.Errorf("no %q in\n%s", want, line)
		}
	}
	// No port and no network but the wires.
	for _, never := range []string{"listen", "hostfwd", "user,", "tap"} {
		if strings.Contains(line, never) {
			t.Errorf("%q in\n%s", never, line)
		}
	}
	c.KVM = true
	if args := c.arguments(); !slices.Contains(args, "kvm") || slices.Contains(args, "tcg,thread=multi") {
		t.Errorf("with KVM: %v", args)
	}
}

// monitor plays QEMU: it sends the greeting, then what answer returns for each
// command.
func monitor(t *testing.T, answer func(command, line string) string) *qmp {
	t.Helper()
	ours, theirs := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer theirs.Close()
		if _, err := fmt.Fprintln(theirs, `{"QMP": {"version": {}, "capabilities": []}}`); err != nil {
			return
		}
		lines := bufio.NewScanner(theirs)
		for lines.Scan() {
			var c struct{ Execute string }
			if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
				t.Errorf("%q: %v", lines.Text(), err)
				return
			}
			text := `{"return": {}}`
			if c.Execute != "qmp_capabilities" {
				text = answer(c.Execute, lines.Text())
			}
			if text == "" {
				return
			}
			if _, err := fmt.Fprintln(theirs, text); err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = ours.Close()
		<-done
	})
	return newQMP(ours)
}

func TestSetLink(t *testing.T) {
	var sent []string
	g := &Guest{name: "a", monitor: monitor(t, func(_, line string) string {
		sent = append(sent, line)
		return `{"event": "NIC_RX_FILTER_CHANGED", "data": {}}` + "\n" + `{"return": {}}`
	})}
	for _, up := range []bool{false, true} {
		if err := g.SetLink(t.Context(), 1, up); err != nil {
			t.Fatal(err)
		}
	}
	want := `{"execute":"set_link","arguments":{"name":"rail1","up":false}}`
	if len(sent) != 2 || sent[0] != want || !strings.Contains(sent[1], `"up":true`) {
		t.Errorf("sent %q", sent)
	}
}

func TestQMPRefusal(t *testing.T) {
	refuse := true
	q := monitor(t, func(string, string) string {
		if refuse {
			return `{"error": {"class": "DeviceNotFound", "desc": "Device 'rail7' not found"}}`
		}
		return `{"return": {"status": "running"}}`
	})
	var refused *QMPError
	if _, err := q.execute(t.Context(), "set_link", nil); !errors.As(err, &refused) || refused.Class != "DeviceNotFound" || !strings.Contains(err.Error(), "rail7") {
		t.Errorf("%v", err)
	}
	// A refusal does not spoil the connection.
	refuse = false
	if result, err := q.execute(t.Context(), "query-status", nil); err != nil || !strings.Contains(string(result), "running") {
		t.Errorf("%s, %v", result, err)
	}
}

func TestQMPLost(t *testing.T) {
	for name, answer := range map[string]string{"closed": "", "nonsense": "nonsense", "neither": `{"id": 1}`} {
		t.Run(name, func(t *testing.T) {
			q := monitor(t, func(string, string) string { return answer })
			if _, err := q.execute(t.Context(), "stop", nil); err == nil {
				t.Fatal("no error")
			}
			if _, err := q.execute(t.Context(), "cont", nil); err == nil || !strings.Contains(err.Error(), "stop") {
				t.Errorf("afterwards: %v; want the first cause", err)
			}
		})
	}
}

func TestQMPDeadline(t *testing.T) {
	ours, theirs := net.Pipe()
	defer theirs.Close()
	defer ours.Close()
	ctx, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	if _, err := newQMP(ours).execute(ctx, "stop", nil); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a monitor that says nothing: %v", err)
	}
}
