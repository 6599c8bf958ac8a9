package main

import (
	"math"
	"os"
	"strings"
	"testing"
)

func TestParseIperf(t *testing.T) {
	report, err := os.ReadFile("testdata/iperf3-p2.json")
	if err != nil {
		t.Fatal(err)
	}
	got, err := parseIperf(report)
	// end.sum_received of both streams, not one stream and not sum_sent.
	if want := 12.550018401768963; err != nil || math.Abs(got-want) > 1e-9 {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
}

func TestParseIperfRefuses(t *testing.T) {
	for name, report := range map[string]string{
		"an error":      `{"start":{},"error":"error - unable to connect to server"}`,
		"no end":        `{"start":{}}`,
		"nothing moved": `{"end":{"sum_received":{"bytes":0,"bits_per_second":0}}}`,
		"no JSON":       `iperf3: interrupt`,
		"a text number": `{"end":{"sum_received":{"bytes":1,"bits_per_second":"1"}}}`,
	} {
		if v, err := parseIperf([]byte(report)); err == nil {
			t.Errorf("%s gave %v", name, v)
		}
	}
}

func TestParseMemoryRun(t *testing.T) {
	good := `{"gbit_per_s": 8.0, "bytes": 2000000000, "seconds": 2, "verify": "crc32c",
		"rss_bytes_source": 600, "rss_bytes_destination": 700, "arena_bytes": 500}`
	r, err := parseMemoryRun([]byte(good), "crc32c")
	if err != nil || r.GbitPerSecond != 8 || r.RSSBytesDestination != 700 || r.ArenaBytes != 500 {
		t.Fatalf("got %+v, %v", r, err)
	}
	for name, edit := range map[string][2]string{
		"another rate than bytes and time make": {`8.0`, `9.0`},
		"nothing moved":                         {`2000000000`, `0`},
		"no arenas":                             {`"arena_bytes": 500`, `"arena_bytes": 0`},
		"unverified":                            {`"crc32c"`, `"none"`},
	} {
		bad := strings.Replace(good, edit[0], edit[1], 1)
		if bad == good {
			t.Fatalf("%s: the edit changes nothing", name)
		}
		if r, err := parseMemoryRun([]byte(bad), "crc32c"); err == nil {
			t.Errorf("%s was accepted: %+v", name, r)
		}
	}
}

func TestBytes(t *testing.T) {
	for text, want := range map[string]int64{"2GiB": 2 << 30, "64 MiB": 64 << 20, "1KiB": 1024, "7B": 7} {
		if got, err := parseBytes(text); err != nil || got != want {
			t.Errorf("parseBytes(%q) = %d, %v; want %d", text, got, err, want)
		}
	}
	for _, bad := range []string{"", "2", "2GB", "0MiB", "-1MiB", "1.5GiB", "GiB", "9999999999999GiB"} {
		if got, err := parseBytes(bad); err == nil {
			t.Errorf("parseBytes(%q) = %d", bad, got)
		}
	}
	if got := formatBytes(2 << 30); got != "2.0 GiB" {
		t.Errorf("formatBytes: %q", got)
	}
}

func TestFilesystemIn(t *testing.T) {
	const mounts = `22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
25 22 0:22 / /dev/shm rw,nosuid shared:4 - tmpfs tmpfs rw,size=1k
31 22 0:40 / /mnt/with\040blank rw - xfs /dev/vdb rw
32 22 0:41 / /mnt/over rw - ext4 /dev/vdc rw
33 32 0:42 / /mnt/over rw master:1 propagate_from:2 - btrfs /dev/vdd rw
`
	for path, want := range map[string]string{
		"/":                  "ext4",
		"/var/tmp":           "ext4",
		"/dev/shm":           "tmpfs",
		"/dev/shm/x/y":       "tmpfs",
		"/dev/shmem":         "ext4", // a prefix of the name, not of the path
		"/mnt/with blank/ab": "xfs",
		"/mnt/over/x":        "btrfs", // the later mount covers the earlier
	} {
		if got, err := filesystemIn(strings.NewReader(mounts), path); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", path, got, err, want)
		}
	}
	if got, err := filesystemIn(strings.NewReader("garbage\n"), "/"); err == nil {
		t.Errorf("no mounts gave %q", got)
	}
}

func TestCPUModel(t *testing.T) {
	for text, want := range map[string]string{
		"processor\t: 0\nmodel name\t: Fast CPU @ 3 GHz\nprocessor\t: 1\nmodel name\t: Other\n": "Fast CPU @ 3 GHz",
		"processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n":                          "implementer 0x41 part 0xd0c",
		"": "unknown CPU",
	} {
		if got := cpuModel(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestMemoryWatch(t *testing.T) {
	w := memoryWatch{name: "rss-source"}
	if _, err := w.result(); err == nil {
		t.Error("a watch that saw nothing has a result")
	}
	w.add("tmpfs", resident{peakBytes: 500 << 20, arenaBytes: 512 << 20})
	w.add("ext4", resident{peakBytes: 640 << 20, arenaBytes: 512 << 20}) // over its 608 MiB
	w.add("memory", resident{peakBytes: 100 << 20, arenaBytes: 64 << 20})
	e, err := w.result()
	if err != nil {
		t.Fatal(err)
	}
	if e.Filesystem != "ext4" || e.Ours != 640 || e.Theirs != 608 || e.Ratio != 0.95 || e.Low != e.Ratio || e.High != 1.6 {
		t.Errorf("got %+v", e)
	}
	if met, ok := e.Met(); met || !ok {
		t.Error("a process over its limit met the target")
	}
}
