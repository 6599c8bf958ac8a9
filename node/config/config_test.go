package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"
)

const someFingerprint = "sha256:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"

const whole = `
node: {name: host-a, state_dir: /var/lib/mover}
log: {level: debug, format: json}
api: {listen: "[::1]:9470", tls_cert: /etc/c.pem, tls_key: /etc/k.pem, tokens_file: /etc/tokens.yaml, socket: /run/mover/api.sock,
  socket_users: {alice: {scope: submit, read: ["*:data"], write: "host-b:in"}, 1000: {scope: read}, ops: {scope: admin}}}
control: {listen: [192.0.2.1:9471, "[2001:db8::1]:9471"], ca: /etc/ca.pem, dial_timeout: 1m}
peers:
  host-b: {addresses: ["{node}:9471", "[2001:db8::2]:9471"], fingerprint: "` + someFingerprint + `"}
  host-c:
delegates: [host-c]
roots:
  data: {path: /srv/data, read: [host-b], write: "*", quota: 1.5TiB, min_free: 10 GB, owner: alice, group: 100, mode: 0640}
  plain: {path: /srv/plain}
buffers:
  w.1: {bytes: 4GiB, page_size: 2MiB, numa_node: 1, mode: 660, group: ml, read: [host-b], write: "*"}
  tiny: {bytes: 1B}
devices: {providers: [ibv, soft], fallback: forbid, names: [mlx5_0, "eth2:1", "2001:db8::1"], libibverbs: /opt/ofed/libibverbs.so.1, relaxed_ordering: on}
soft: {addresses: [127.0.0.1, 127.0.0.2, 192.0.2.1], allow_cleartext: true}
pollers: {per_node: 2, cpus: [3, 5], idle: spin, spin: 100us}
workers: 6
memory: {arena: 2GiB, session_share: 128MiB, hugepages: 1GiB, buffers: 1TiB}
session: {slot_payload: 512KiB, segment: 8MiB, lanes_per_rail: 2, lane_depth: 64, rail_rate: 25GB/s, ack_timeout: 300ms, drain_timeout: 500ms}
jobs: {max_running: 4, max_queued: 100, max_attempts: 3, stall_after: 5s, small: 1MiB, bandwidth_limit: 1GB/s, keep: 7d12h, keep_max: 7}
`

func TestEverySettingIsRead(t *testing.T) {
	got, err := Parse("f", []byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	want := &Config{
		Node: Node{Name: "host-a", StateDir: "/var/lib/mover"},
		Log:  Log{Level: "debug", Format: "json"},
		API: API{Listen: "[::1]:9470", TLSCert: "/etc/c.pem", TLSKey: "/etc/k.pem", TokensFile: "/etc/tokens.yaml", Socket: "/run/mover/api.sock",
			SocketUsers: map[string]SocketUser{
				"alice": {Scope: "submit", Read: []string{"*:data"}, Write: []string{"host-b:in"}},
				"1000":  {Scope: "read"},
				"ops":   {Scope: "admin", Read: []string{"*:*"}, Write: []string{"*:*"}},
			}},
		Control: Control{Listen: []string{"192.0.2.1:9471", "[2001:db8::1]:9471"}, CA: "/etc/ca.pem", DialTimeout: time.Minute},
		Peers: map[string]Peer{
			"host-b": {Addresses: []string{"{node}:9471", "[2001:db8::2]:9471"}, Fingerprint: someFingerprint},
			"host-c": {},
		},
		Delegates: []string{"host-c"},
		Roots: map[string]Root{
			"data": {
				Path: "/srv/data", Read: []string{"host-b"}, Write: []string{"*"}, Quota: 3 << 39, MinFree: 10e9,
				Owner: "alice", Group: "100", Mode: "0640",
			},
			"plain": {Path: "/srv/plain", Mode: "0644"},
		},
		Buffers: map[string]Buffer{
			"w.1":  {Bytes: 4 << 30, PageSize: "2MiB", NUMANode: 1, Mode: "660", Group: "ml", Read: []string{"host-b"}, Write: []string{"*"}},
			"tiny": {Bytes: 1, PageSize: "auto", NUMANode: -1, Mode: "0600"},
		},
		Devices: Devices{Providers: []string{"ibv", "soft"}, Fallback: "forbid", Names: []string{"mlx5_0", "eth2:1", "2001:db8::1"},
			Libibverbs: "/opt/ofed/libibverbs.so.1", RelaxedOrdering: "on"},
		Soft:    Soft{Addresses: []string{"127.0.0.1", "127.0.0.2", "192.0.2.1"}, AllowCleartext: true},
		Pollers: Pollers{PerNode: 2, CPUs: []int{3, 5}, Idle: "spin", Spin: 100 * time.Microsecond},
		Workers: 6,
		Memory:  Memory{Arena: 2 << 30, SessionShare: 128 << 20, HugePages: "1GiB", Buffers: 1 << 40},
		Session: Session{
			SlotPayload: 512 << 10, Segment: 8 << 20, LanesPerRail: 2, LaneDepth: 64,
			RailRate: 200e9, AckTimeout: 300 * time.Millisecond, DrainTimeout: 500 * time.Millisecond,
		},
		Jobs: Jobs{MaxRunning: 4, MaxQueued: 100, MaxAttempts: 3, StallAfter: 5 * time.Second, SmallBytes: 1 << 20,
			BandwidthLimit: 8e9, Keep: 180 * time.Hour, KeepMax: 7},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}

	// What is printed is read back as the same.
	text, err := yaml.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse("printed", text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if d := cmp.Diff(got, again, cmp.FilterValues(func(a, b []string) bool { return len(a)+len(b) == 0 }, cmp.Ignore())); d != "" {
		t.Error(d)
	}
}

func TestEmptyFilesAreTheDefault(t *testing.T) {
	for _, text := range []string{"", "\n", "# nothing\n", "---\n", "{}", "peers:\nroots:\n"} {
		got, err := Parse("f", []byte(text))
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		want := Default()
		want.Node.Name, want.API.TokensFile = got.Node.Name, "/var/lib/mover/tokens.yaml"
		want.API.Socket = "/var/lib/mover/mover.sock"
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%q: %s", text, d)
		}
	}
}

func TestProblems(t *testing.T) {
	const base = "node: {name: a}\n"
	for _, c := range []struct{ text, want string }{
		{"nod: {}", "f:2: nod: is not a setting; did you mean node?; allowed: node, log, api, control, peers, delegates, roots, buffers, devices, soft, pollers, workers, memory, session, jobs"},
		{"memory:\n  arena: 1GiB\n  colour: red", "f:4: memory.colour: is not a setting; allowed: arena, session_share, hugepages, buffers"},
		{"memory:\n  arena: 12", `f:3: memory.arena: "12" has no unit; allowed: a number with one of B,`},
		{"memory: {arena: 512Mb}", `f:2: memory.arena: "512Mb" has an unknown unit "Mb"; allowed:`},
		{"memory: {arena: -1MiB}", `memory.arena: "-1MiB" is not a size`},
		{"memory: {arena: 16MiB}", "memory.arena: 16MiB is less than 32MiB; allowed: "},
		{"memory: {arena: 9999999TiB}", `memory.arena: "9999999TiB" is too large`},
		{"memory: {arena: 1.3B}", `memory.arena: "1.3B" is not a whole number of bytes`},
		{"memory: {arena: [1GiB]}", "f:2: memory.arena: is not a single value"},
		{"memory: {arena: }", "f:2: memory.arena: has no value; remove the line for the default"},
		{"memory: 3", "f:2: memory: is not a section; allowed: a section with any of arena, "},
		{"memory: [1]", "f:2: memory: is not a section"},
		{"memory: {arena: 513MiB}", "memory.arena: 513MiB is not a whole number of pages; allowed: a multiple of 2MiB"},
		{"memory: {arena: 512MiB, hugepages: 1GiB}", "memory.arena: 512MiB is not a whole number of pages; allowed: a multiple of 1GiB"},
		{"memory:\n  arena: 64MiB", "f:3: memory.arena: 64MiB does not hold one session"},
		{"memory:\n  session_share: 512MiB", "f:2: memory.arena: 512MiB does not hold one session"},
		{"memory: {session_share: 63MiB}", "memory.session_share: 63MiB is not a whole number of 2 MiB pages"},
		{"session: {slot_payload: 65537B}", "session.slot_payload: 65537B is not a whole number of 4 KiB blocks"},
		{"session: {slot_payload: 8MiB}", "memory.session_share: 64MiB holds fewer than 16 slots"},
		{"session: {slot_payload: 768KiB}", "session.segment: 16MiB is not a multiple of session.slot_payload (768KiB)"},
		{"session: {rail_rate: 100Gb/s}", `session.rail_rate: "100Gb/s" has an unknown unit "Gb/s"; allowed: a number with one of bit/s`},
		{"session: {lanes_per_rail: 33}", "session.lanes_per_rail: 33 is more than 32; allowed: a whole number, from 1 to 32"}, // engine.MaxLanesPerRail
		{"session: {lane_depth: 0}", "session.lane_depth: 0 is less than 1; allowed: a whole number, from 1 to 1024"},
		{"session: {lane_depth: 1.5}", `session.lane_depth: "1.5" is not a whole number`},
		{"jobs: {stall_after: 30}", `jobs.stall_after: "30" is not a duration; allowed: a number with one of ns, us, ms, s, m, h, d, such as 1m30s, from 1s to 1h`},
		{"jobs: {stall_after: -30s}", `"-30s" is not a duration`},
		{"log: {level: loud}", `f:2: log.level: "loud" is not one of the words; allowed: debug, info, warn, error`},
		{"soft: {allow_cleartext: yes}", `soft.allow_cleartext: "yes" is neither true nor false; allowed: true, false`},
		{"soft: {addresses: [127.0.0.1, localhost]}", `soft.addresses[1]: "localhost" is not an IP address`},
		{"soft: {addresses: [0.0.0.0]}", `soft.addresses[0]: "0.0.0.0" is not the address of one interface`},
		{"soft: {addresses: [127.0.0.1, 127.0.0.1]}", `soft.addresses[1]: repeats 127.0.0.1`},
		{"soft:\n  addresses:\n    - 127.0.0.1\n    - 192.0.2.1", "f:5: soft.addresses[1]: software verbs send data unencrypted, and 192.0.2.1 is not loopback; set soft.allow_cleartext"},
		{"api: {listen: 0.0.0.0:9470}", "f:2: api.listen: 0.0.0.0:9470 can be reached from other hosts, where tokens need TLS"},
		{"api: {listen: ':9470'}", `api.listen: ":9470" is not an IP address and port`},
		{"api: {listen: 127.0.0.1:0}", `api.listen: "127.0.0.1:0" has port 0`},
		{"api: {tls_key: /k}", "f:2: api.tls_cert: a certificate and its key come together"},
		{"api: {listen: 127.0.0.1:9471}", "control.listen: 127.0.0.1:9471 is taken by api.listen"},
		{"control: {listen: []}", "control.listen: is empty"},
		{"control: {ca: ca.pem}", `control.ca: "ca.pem" is relative; allowed: an absolute path`},
		{"peers: {B: {}}", `f:2: peers: "B" is not a node name; allowed: 1 to 63 of a-z 0-9 . -, first and last`},
		{"peers: {a..b: {}}", `f:2: peers: "a..b" is not a node name`},
		{"peers: {b-: {}}", `f:2: peers: "b-" is not a node name`},
		{"peers:\n  b:\n    addresses: [b:9471]", "f:3: peers.b: nothing says how to recognise it"},
		{"peers: {b: {fingerprint: 'md5:00'}}", `peers.b.fingerprint: "md5:00" does not begin with sha256:`},
		{"peers: {b: {fingerprint: 'sha256:00'}}", `peers.b.fingerprint: "sha256:00" is not a fingerprint`},
		{"peers: {b: {fingerprint: '" + someFingerprint + "'}, c: {fingerprint: '" + someFingerprint + "'}}", "peers.c.fingerprint: is also that of peer b"},
		{"peers: {b: {addresses: ['2001:db8::1:9471']}}", "an IPv6 address needs brackets"},
		{"peers: {b: {addresses: [b]}}", `peers.b.addresses[0]: "b" has no port`},
		{"peers: {b: {addresses: ['b:0']}}", `"0" is not a port`},
		{"peers: {b: {addresses: ['b:65536']}}", `"65536" is not a port`},
		{"peers: {b: {addresses: ['{nod}:1']}}", `"{nod}" is not a host name`},
		{"roots: {data: {}}", "f:2: roots.data.path: is missing; allowed: an absolute path"},
		{"roots: {data: {path: srv}}", `roots.data.path: "srv" is relative`},
		{"roots: {..: {path: /srv}}", `roots: ".." is not a root name`},
		{"roots:\n  data:\n    path: /var\n", "f:4: roots.data.path: /var and node.state_dir /var/lib/mover, which holds"},
		{"roots: {data: {path: /}}", "must not contain each other"},
		{"roots: {data: {path: /var/lib/mover/x/..}}", "must not contain each other"},
		{"roots: {data: {path: /srv, read: [b]}}", `roots.data.read[0]: "b" is not under peers; allowed: a, "*"`},
		{"roots: {data: {path: /srv, reed: [b]}}", `roots.data.reed: is not a setting; did you mean read?`},
		{"roots: {data: {path: /srv, mode: 0444}}", `roots.data.mode: "0444" does not let its owner read and write; allowed: three octal digits`},
		{"roots: {data: {path: /srv, mode: 4755}}", `roots.data.mode: "4755" is not a mode`},
		{"roots: {data: {path: /srv, mode: rw-}}", `roots.data.mode: "rw-" is not a mode`},
		{"roots: {data: {path: /srv, owner: -1}}", `roots.data.owner: "-1" is neither a name nor a number`},
		{"roots: {data: {path: /srv, group: 4294967295}}", `roots.data.group: "4294967295" is neither a name nor a number`},
		{"delegates: [b]", `delegates[0]: "b" is not under peers; allowed: a, "*"`},
		{"delegates: [B!]", `delegates[0]: "B!" is not a node name; allowed: the name of a node, or "*" for all`},
		{"api: {socket: mover.sock}", `api.socket: "mover.sock" is relative; allowed: an absolute path of at most 107 bytes, off, or ""`},
		{"api: {socket: /" + strings.Repeat("x", 107) + "}", `xxx" has 108 bytes, more than the kernel takes`},
		{"api: {socket: off, socket_users: {alice: {scope: read}}}", "api.socket: is off, and api.socket_users lists who may use it"},
		{"api:\n  socket_users:\n    alice:\n", "f:4: api.socket_users.alice.scope: is missing; allowed: metrics, read, submit, admin"},
		{"api: {socket_users: {alice: {scope: all}}}", `api.socket_users.alice.scope: "all" is not one of the words; allowed: metrics, read, submit, admin`},
		{"api: {socket_users: {a b: {scope: read}}}", `api.socket_users: "a b" is neither a name nor a number; allowed: a name or a number of this host`},
		{"api: {socket_users: {alice: {scope: submit, read: [data]}}}", `api.socket_users.alice.read[0]: "data" does not name roots; allowed: NODE:root`},
		{"api: {socket_users: {0: {scope: submit}}}", "api.socket_users.0: root may do everything anyway; remove it"},
		{"api:\n  socket_users: {alice: {scope: read}}", "f:2: api.socket: is in node.state_dir, which mover alone may enter"},
		{"buffers: {w: {}}", "f:2: buffers.w.bytes: is missing; allowed: a number with one of B,"},
		{"buffers: {w: {bytes: 0B}}", "buffers.w.bytes: 0B is less than 1B"},
		{"buffers: {w: {bytes: 65TiB}}", "buffers.w.bytes: 65TiB is more than 64TiB"},
		{"buffers: {.w: {bytes: 1MiB}}", `buffers: ".w" is not a buffer name; allowed: 1 to 63 of`},
		{"buffers: {w: {bytes: 1MiB, page_size: 64KiB}}", `buffers.w.page_size: "64KiB" is not one of the words; allowed: auto, 4KiB, 2MiB, 1GiB`},
		{"buffers: {w: {bytes: 1MiB, numa_node: -2}}", "buffers.w.numa_node: -2 is less than -1"},
		{"buffers: {w: {bytes: 1MiB, mode: 0700}}", `buffers.w.mode: "0700" has an execute bit`},
		{"buffers: {w: {bytes: 1MiB, write: [b]}}", `buffers.w.write[0]: "b" is not under peers`},
		{"memory: {buffers: 3GiB}\nbuffers: {a: {bytes: 2GiB}, b: {bytes: 2GiB}}", "f:3: buffers.b.bytes: the buffers up to this one take 4GiB, more than memory.buffers (3GiB)"},
		{"jobs: {keep: 30}", `jobs.keep: "30" is not a duration`},
		{"jobs: {keep: 0d}", `jobs.keep: "0d" is not a duration`},
		{"jobs: {keep: 3651d}", `jobs.keep: 3651d is more than 3650d`},
		{"jobs: {keep: 1.5d}", `jobs.keep: "1.5d" is not a duration`},
		{"jobs: {bandwidth_limit: 10Gbps}", `jobs.bandwidth_limit: "10Gbps" has an unknown unit "Gbps"`},
		{"jobs: {small: 1KiB}", "jobs.small: 1KiB is less than 4KiB"},
		{"devices: {providers: [auto, soft]}", "devices.providers: auto stands alone"},
		{"devices: {providers: []}", "devices.providers: is empty"},
		{"devices: {providers: tcp}", `devices.providers: "tcp" is not one of the words; allowed: auto, ibv, soft`},
		{"devices: {providers: [soft], fallback: forbid}", "devices.fallback: forbid never uses software verbs"},
		{"devices: {providers: [soft]}\nsoft: {addresses: []}", "f:3: soft.addresses: is empty, and devices.providers wants"},
		{"soft: {addresses: ['fe80::1%eth0']}", "has a zone"},
		{"devices: {names: [mlx5_0, mlx5/1]}", `f:2: devices.names[1]: "mlx5/1" is not the name of a device or network interface; allowed: a device (mlx5_0)`},
		{"devices:\n  names:\n    - mlx5_0\n    - mlx5_1:0", `f:5: devices.names[1]: "mlx5_1:0": "0" is not a port; allowed: `},
		{"devices: {names: ['mlx5_0:256']}", `"256" is not a port`},
		{"devices: {names: [mlx5_0, 'mlx5_0:1']}", "devices.names[1]: mlx5_0:1 is one port of mlx5_0, which is listed with all of its ports"},
		{"devices: {names: [10.0.0.300]}", `"10.0.0.300" is neither an IP address nor`},
		{"devices: {names: ['fe80::1%eth0']}", "has a zone"},
		{"devices: {names: ['2001:db8:::1']}", `devices.names[0]: "2001:db8:::1"`},
		{"devices: {names: [0.0.0.0]}", `"0.0.0.0" is not the address of one interface`},
		{"devices: {libibverbs: libibverbs.so.1}", `f:2: devices.libibverbs: "libibverbs.so.1" is relative; allowed: an absolute path, or ""`},
		{"devices: {relaxed_ordering: true}", `f:2: devices.relaxed_ordering: "true" is not one of the words; allowed: auto, on, off`},
		{"devices: {names: {}}", "devices.names: is not a list"},
		{"pollers: {cpus: [1, x]}", `pollers.cpus[1]: "x" is not a whole number`},
		{"pollers: {cpus: [1, 1]}", `pollers.cpus[1]: repeats 1`},
		{"workers: 1\nworkers: 2", "f:3: workers: is set twice, first in line 2"},
		{"a: &x 1\nworkers: *x", "f:3: workers: anchors and aliases are not supported"},
		{"<<: {workers: 1}", "a key that is not a plain word"},
		{"workers: 1\n---\nworkers: 2", "a second document"},
		{"workers: [", "f:"},
		{"\tworkers: 1", "f:2: not YAML: found character that cannot start any token"},
		{"log: {level: 'x'}\njobs: {max_running: 0}", "f:3: jobs.max_running: 0 is less than 1"},
	} {
		_, err := Parse("f", []byte(base+c.text))
		if err == nil {
			t.Errorf("%q: accepted", c.text)
			continue
		}
		if !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q:\n got %s\nwant %s", c.text, err, c.want)
		}
	}
}

func TestProblemsAreReportedTogetherAndBounded(t *testing.T) {
	_, err := Parse("f", []byte("log: {level: x, format: y}\nworkers: z\n"))
	if got := strings.Count(err.Error(), "\n") + 1; got != 3 {
		t.Errorf("%d problems reported, want 3:\n%v", got, err)
	}
	_, err = Parse("f", []byte(strings.Repeat("x: 1\n", 1000)))
	if got := strings.Count(err.Error(), "\n") + 1; got != maxProblems {
		t.Errorf("%d problems reported, want %d", got, maxProblems)
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	if _, err := Load(filepath.Join(dir, "none.yaml")); !os.IsNotExist(unwrapped(err)) {
		t.Errorf("missing file: %v", err)
	}
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("directory: %v", err)
	}
	big := filepath.Join(dir, "big.yaml")
	if err := os.WriteFile(big, make([]byte, maxFileBytes+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(big); err == nil || !strings.Contains(err.Error(), "larger than 4MiB") {
		t.Errorf("large file: %v", err)
	}
	good := filepath.Join(dir, "good.yaml")
	if err := os.WriteFile(good, []byte(whole), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(good); err != nil {
		t.Error(err)
	}
}

func unwrapped(err error) error {
	if u, ok := err.(interface{ Unwrap() error }); ok {
		return u.Unwrap()
	}
	return err
}

func TestQuantitiesReadBackWhatTheyWrite(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Min(0).Draw(t, "n")
		if s, err := ParseSize(Size(n).String()); err != nil || s != Size(n) {
			t.Fatalf("size %d -> %v -> %d, %v", n, Size(n), s, err)
		}
		if r, err := ParseRate(Rate(n).String()); err != nil || r != Rate(n) {
			t.Fatalf("rate %d -> %v -> %d, %v", n, Rate(n), r, err)
		}
	})
}

func TestRatesTellBitsFromBytes(t *testing.T) {
	for s, want := range map[string]Rate{
		"100Gbit/s": 100e9, "12.5GB/s": 100e9, "1 MiB/s": 8 << 20, "0": 0, "1B/s": 8, "1.5bit/s": -1, "1Gbps": -1, "1": -1, "": -1, "..": -1, "1.2.3B/s": -1,
	} {
		got, err := ParseRate(s)
		if want < 0 && err == nil || want >= 0 && (err != nil || got != want) {
			t.Errorf("%q: %v, %v", s, got, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(whole))
	f.Add([]byte("a: &x [*x]"))
	f.Add([]byte("? {a: b}\n: c"))
	f.Add([]byte("roots: {\"\": null, !!binary x: y}"))
	f.Add([]byte("memory: {arena: 1e400GiB}\n%YAML 1.2"))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := Parse("f", text)
		if (c == nil) == (err == nil) {
			t.Fatal("neither or both of a configuration and an error")
		}
		if err != nil {
			if lines := strings.Split(err.Error(), "\n"); !strings.HasPrefix(lines[0], "f:") {
				t.Fatalf("no position: %q", err)
			}
			return
		}
		out, err := yaml.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Parse("printed", out); err != nil {
			t.Fatalf("accepted, but not when printed: %v\n%s", err, out)
		}
	})
}

func TestLongStateDirLeavesNoRoomForTheSocket(t *testing.T) {
	dir := "/" + strings.Repeat("s", 100)
	_, err := Parse("f", []byte("node: {name: a, state_dir: "+dir+"}"))
	if err == nil || !strings.Contains(err.Error(), "api.socket: "+dir+"/mover.sock has 112 bytes and the kernel takes 107; set a shorter path, off, or a shorter node.state_dir") {
		t.Errorf("%v", err)
	}
	c, err := Parse("f", []byte("node: {name: a, state_dir: "+dir+"}\napi: {socket: off}"))
	if err != nil || c.SocketPath() != "" {
		t.Errorf("without a socket: %q, %v", c.SocketPath(), err)
	}
}

func TestModes(t *testing.T) {
	for text, want := range map[string][2]uint32{"": {0, 0}, "0640": {0o640, 0o750}, "600": {0o600, 0o700}, "0664": {0o664, 0o775}} {
		r := Root{Mode: text}
		if uint32(r.FileMode()) != want[0] || uint32(r.DirMode()) != want[1] {
			t.Errorf("%q: files %o, directories %o; want %o", text, r.FileMode(), r.DirMode(), want)
		}
	}
	if got := (Buffer{Mode: "660"}).FileMode(); got != 0o660 {
		t.Errorf("660 of a buffer is %o", got)
	}
}

func TestDurationsHaveDays(t *testing.T) {
	for s, want := range map[string]time.Duration{
		"30d": 720 * time.Hour, "1d12h": 36 * time.Hour, "90m": 90 * time.Minute, "0s": 0,
		"d": -1, "-1d": -1, "1.5d": -1, "1h1d": -1, "1d-1h": -1, "65535d2562047h": -1, "1d1d": -1, "": -1,
	} {
		if got, err := parseDuration(s); want < 0 && err == nil || want >= 0 && (err != nil || got != want) {
			t.Errorf("%q: %v, %v", s, got, err)
		}
	}
}
