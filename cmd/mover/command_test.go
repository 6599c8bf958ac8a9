package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestWrongUsage(t *testing.T) {
	for _, c := range []struct {
		args string
		want string
	}{
		{"runn", `mover has no command "runn"; did you mean run?`},
		{"jobs gte", `mover jobs has no command "gte"; did you mean get?`},
		{"config chek", `did you mean check?`},
		{"config check --confg x", "mover config check has no option --confg; did you mean --config?"},
		{"--what", "mover has no option --what"},
		{"version now", `"now" is one argument too many`},
		{"cp", "mover cp needs SRC and DST"},
		{"cp a", "mover cp needs DST"},
		{"jobs get", "mover jobs get needs ID"},
		{"jobs get 1", `"1" is not a job's ID`},
		{"jobs cancel 1", `"1" is not a job's ID`},
		{"jobs list --limit 0", "allowed: 1 to 500"},
		{"jobs list --state ended", `--state: "ended"; allowed: queued preparing`},
		{"cp --overwrite a b:c/d", "write: mover cp --overwrite always SRC DST"},
		{"start", `mover has no command "start"; see`},
		{"token new --name a/b --scope read", `--name: "a/b"; allowed: 1 to 63`},
		{"run", "name the configuration with --config FILE"},
		{"devices --providers tcp", "allowed: auto, or a list of ibv, soft"},
		{"cp --priority high a b:c/d", "priority"},
	} {
		got := mover(t, strings.Fields(c.args)...)
		got.want(t, exitUsage, c.want)
		if lines := strings.Count(got.stderr, "\n"); lines != 1 || got.stdout != "" {
			t.Errorf("mover %s: more than one line:\n%s%s", c.args, got.stdout, got.stderr)
		}
	}
}

func TestHelp(t *testing.T) {
	mover(t).want(t, exitOK, "COMMANDS:", "Exit codes:", "MOVER_TOKEN_FILE")
	for _, args := range []string{"-h", "run -h", "cp --help", "jobs get -h", "doctor -h", "token new -h", "devices -h", "identity -h", "config check -h"} {
		mover(t, strings.Fields(args)...).want(t, exitOK, "USAGE:", "OPTIONS:")
	}
	mover(t, "help").want(t, exitOK, "COMMANDS:")
	mover(t, "help", "jobs", "watch").want(t, exitOK, "mover jobs watch")
	mover(t, "runn", "--help").want(t, exitUsage, "did you mean run?")
	mover(t, "help", "runn").want(t, exitUsage, "did you mean run?")
}

func TestVersion(t *testing.T) {
	for _, args := range []string{"version", "--version"} {
		mover(t, args).want(t, exitOK, "mover v0.0.0-test go1.")
	}
}

func TestConfigCheck(t *testing.T) {
	dir := t.TempDir()
	mover(t, "config", "check", "--config", "../../config.yaml").want(t, exitOK, "../../config.yaml: ok")
	bad := writeFile(t, filepath.Join(dir, "bad.yaml"), "node:\n  name: a\nmemory:\n  arena: 1024\n  arenas: 3\n")
	for _, args := range [][]string{{"config", "check", "--config", bad}, {"run", "-c", bad}, {"doctor", "-c", bad}, {"devices", "-c", bad}, {"identity", "-c", bad}} {
		mover(t, args...).want(t, exitUsage,
			"mover: "+bad+`:4: memory.arena: "1024" has no unit; allowed: a number with one of B,`,
			"mover: "+bad+":5: memory.arenas: is not a setting; did you mean arena?; allowed: arena, session_share, hugepages")
	}
	mover(t, "config", "check", "--config", filepath.Join(dir, "none.yaml")).want(t, exitUsage, "none.yaml: no such file", "make one: copy config.yaml")
	good := writeFile(t, filepath.Join(dir, "good.yaml"), "node: {name: a}\nmemory: {arena: 1GiB}\n")
	mover(t, "config", "print", "--config", good).want(t, exitOK, "arena: 1GiB", "name: a", "tokens_file: /var/lib/mover/tokens.yaml", "stall_after: 30s")
}

func TestIdentity(t *testing.T) {
	dir := t.TempDir()
	file := writeFile(t, filepath.Join(dir, "c.yaml"),
		fmt.Sprintf("node: {name: a, state_dir: %q}\ncontrol: {listen: [127.0.0.1:9471, 192.0.2.1:9471]}\n", filepath.Join(dir, "state")))
	first := mover(t, "identity", "--config", file)
	first.want(t, exitOK, "node:        a\n", "created a key and certificate in "+filepath.Join(dir, "state"), `addresses: ["127.0.0.1:9471", "192.0.2.1:9471"]`)
	fingerprint := regexp.MustCompile(`sha256:[0-9a-f]{64}`).FindString(first.stdout)
	second := mover(t, "identity", "--config", file, "--fingerprint")
	second.want(t, exitOK)
	if second.stdout != fingerprint+"\n" || second.stderr != "" {
		t.Errorf("%q, then %q (%q)", fingerprint, second.stdout, second.stderr)
	}
	onlyOwner(t, filepath.Join(dir, "state"))

	// The snippet is what the other node's configuration takes.
	_, snippet, _ := strings.Cut(first.stdout, "under peers:\n\n")
	other := writeFile(t, filepath.Join(dir, "other.yaml"), "node: {name: b}\npeers:\n"+snippet)
	mover(t, "config", "check", "--config", other).want(t, exitOK, "1 peer, 0 roots")
}

// onlyOwner checks that nobody else can read what is in dir, and that it has
// files at all.
func onlyOwner(t *testing.T, dir string) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if d.IsDir() {
			if info.Mode().Perm()&0o077 != 0 {
				t.Errorf("directory %s has mode %#o", name, info.Mode().Perm())
			}
			return nil
		}
		files++
		if d.Type() == os.ModeSocket {
			return nil // anybody may connect who can enter the directory: the kernel says who it is
		}
		if info.Mode().Perm()&0o077 != 0 && !strings.HasSuffix(name, ".crt") {
			t.Errorf("%s has mode %#o", name, info.Mode().Perm())
		}
		return nil
	})
	if err != nil || files == 0 {
		t.Errorf("%s: %d files, %v", dir, files, err)
	}
}

func TestDevices(t *testing.T) {
	dir := t.TempDir()
	file := writeFile(t, filepath.Join(dir, "c.yaml"), "node: {name: a}\ndevices: {providers: soft}\nsoft: {addresses: [127.0.0.1, 127.0.0.2]}\n")
	mover(t, "devices", "--config", file).want(t, exitOK, "DEVICE  PORT  USED  PROVIDER  NETDEV  NUMA  STATE   LINK      GID               MTU",
		"soft0   1     yes   soft      lo      0     ACTIVE  Ethernet  127.0.0.1 (soft)  4096", "soft1", "provider: soft", "as devices.providers asks")
	mover(t, "devices", "--config", file, "--fallback", "forbid").want(t, exitFailed, "devices.fallback is forbid", "set devices.fallback: allow",
		"soft0: software verbs, and devices.fallback is forbid")
	mover(t, "devices", "--config", file, "--providers", "ibv").want(t, exitFailed, "no device to use: ibv:")

	one := writeFile(t, filepath.Join(dir, "one.yaml"), "node: {name: a}\ndevices: {providers: soft, names: [127.0.0.2]}\nsoft: {addresses: [127.0.0.1, 127.0.0.2]}\n")
	mover(t, "devices", "--config", one).want(t, exitOK, "soft1: is in devices.names: 127.0.0.2", "soft0: is not in devices.names")
	none := writeFile(t, filepath.Join(dir, "none.yaml"), "node: {name: a}\ndevices: {providers: soft, names: [soft0, mlx5_9]}\n")
	mover(t, "devices", "--config", none).want(t, exitFailed, "devices.names: mlx5_9 is not a device, interface or address of soft, which has soft0 (port 1: lo); correct devices.names")
	// 192.0.2.0/24 is for documentation: no host has it.
	half := writeFile(t, filepath.Join(dir, "half.yaml"), "node: {name: a}\ndevices: {providers: soft}\nsoft: {addresses: [127.0.0.1, 192.0.2.77], allow_cleartext: true}\n")
	mover(t, "devices", "--config", half).want(t, exitOK, "soft0   1     yes", "soft1: device soft1 cannot be opened: 192.0.2.77 is not an address of this host; add it")
}

func TestDoctor(t *testing.T) {
	dir := t.TempDir()
	ports := freePorts(t, 2)
	base := fmt.Sprintf("node: {name: a, state_dir: %q}\napi: {listen: 127.0.0.1:%d}\ncontrol: {listen: [127.0.0.1:%d]}\ndevices: {providers: soft}\nmemory: {arena: 128MiB, session_share: 32MiB}\n",
		filepath.Join(dir, "state"), ports[0], ports[1])
	good := writeFile(t, filepath.Join(dir, "good.yaml"), base+fmt.Sprintf("roots: {data: {path: %q, read: [\"*\"]}}\n", dir+"/data"))
	if err := os.Mkdir(filepath.Join(dir, "data"), 0o700); err != nil {
		t.Fatal(err)
	}
	mover(t, "doctor", "--config", good).want(t, exitOK, "ok    state", "will be created", "ok    soft", "ok    root data", "ok    api.listen", "huge pages", "memlock", "rdma")

	taken, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", ports[1]))
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	if err := os.Mkdir(filepath.Join(dir, "state"), 0o755); err != nil {
		t.Fatal(err)
	}
	bad := writeFile(t, filepath.Join(dir, "bad.yaml"), base+"roots: {data: {path: /nowhere/at/all}}\n")
	got := mover(t, "doctor", "--config", bad)
	got.want(t, exitFailed, "warn  state", "chmod 0700 "+dir+"/state", "fail  root data", "create the directory", "fail  control.listen", "is in use", "2 of ")
	// Every line that is not ok has a fix under it.
	lines := strings.Split(got.stdout, "\n")
	for i, line := range lines {
		if (strings.HasPrefix(line, "warn") || strings.HasPrefix(line, "fail")) && !strings.Contains(lines[i+1], "fix: ") {
			t.Errorf("no fix: %s", line)
		}
	}
}

func TestOptionsFirst(t *testing.T) {
	app := newApp(os.Stdout, os.Stderr)
	for _, c := range []struct{ in, want string }{
		{"mover", "mover"},
		{"mover jobs get ID --wait", "mover jobs get --wait -- ID"},
		{"mover jobs get --wait ID", "mover jobs get --wait -- ID"},
		{"mover cp a --overwrite always b", "mover cp --overwrite always -- a b"},
		{"mover cp a b --overwrite=always", "mover cp --overwrite=always -- a b"},
		{"mover cp --detach a b", "mover cp --detach -- a b"},
		{"mover cp -- --a b", "mover cp -- --a b"},
		{"mover cp a -- -b", "mover cp -- a -b"},
		{"mover run -c x", "mover run -c x"},
		{"mover run -c", "mover run -c"},
		{"mover nothing at all", "mover nothing at all"},
		{"mover cp get run", "mover cp -- get run"},
	} {
		if got := optionsFirst(app, strings.Fields(c.in)); !slices.Equal(got, strings.Fields(c.want)) {
			t.Errorf("%s: %v; want %s", c.in, got, c.want)
		}
	}
}
