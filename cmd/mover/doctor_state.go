package main

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"mover/job"
	"mover/node/config"
	"mover/peer"
)

// localFileSystems are the names of what a state directory is usually on; for
// the line of doctor alone.
var localFileSystems = map[uint32]string{
	unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "XFS", unix.BTRFS_SUPER_MAGIC: "Btrfs", unix.TMPFS_MAGIC: "tmpfs",
	unix.OVERLAYFS_SUPER_MAGIC: "overlayfs", unix.F2FS_SUPER_MAGIC: "F2FS", 0x2FC12FC1: "ZFS",
}

// checkStateDisk says what the state directory is on: a database that forgets
// at a power failure, or with the container, breaks the promise of a 202.
func checkStateDisk(dir string) []finding {
	const subject = "state disk"
	existing := dir
	for {
		if _, err := os.Stat(existing); err == nil || existing == "/" {
			break
		}
		existing = filepath.Dir(existing)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(existing, &st); err != nil {
		return nil // said by checkStateDir
	}
	if _, network := job.NetworkFileSystem(uint32(st.Type)); network {
		return nil // likewise
	}
	name, known := localFileSystems[uint32(st.Type)]
	if !known {
		name = fmt.Sprintf("a file system of type %#x", uint32(st.Type))
	}
	free := int64(st.Bavail) * st.Bsize
	text := fmt.Sprintf("%s, %v free", name, roundedMiB(free))
	const wantFree = 1 << 30 // a hundred thousand jobs, and the items of large ones
	switch {
	case name == "tmpfs":
		return []finding{warn(subject, "choose a node.state_dir on a disk", "%s: jobs are forgotten when the host starts again", text)}
	case name == "overlayfs":
		return []finding{warn(subject, "mount a volume on node.state_dir", "%s: jobs are forgotten with the container", text)}
	case free < wantFree:
		return []finding{warn(subject, "free space there, or lower jobs.keep and jobs.keep_max", "%s: when it is full, no job is taken", text)}
	}
	return []finding{ok(subject, "%s", text)}
}

// checkSQLite asks the SQLite in this program for its version.
func checkSQLite() finding {
	const subject = "sqlite"
	version, err := job.SQLiteVersion()
	if err != nil {
		return fail(subject, "build mover as its Makefile does, with the modernc.org/sqlite of its go.mod", "%v", err)
	}
	return ok(subject, "%s", version)
}

// checkSocket sees whether the API's socket can be made, or is served.
func checkSocket(cfg *config.Config) []finding {
	const subject = "api.socket"
	path := cfg.SocketPath()
	if path == "" {
		return []finding{ok(subject, "off, as configured")}
	}
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		dir := filepath.Dir(path)
		if dir == filepath.Clean(cfg.Node.StateDir) {
			return []finding{ok(subject, "%s will be made", path)} // the directory is checked as such
		}
		if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
			return []finding{warn(subject, "make the directory for the user mover runs as (systemd: RuntimeDirectory=mover), or choose another path", "%s: %v", dir, err)}
		}
		return []finding{ok(subject, "%s will be made", path)}
	case err != nil:
		return []finding{fail(subject, "choose a path that the user mover runs as can reach", "%v", err)}
	case info.Mode().Type() != fs.ModeSocket:
		return []finding{fail(subject, "remove it, or choose another path", "%s exists and is not a socket", path)}
	}
	conn, err := net.DialTimeout("unix", path, checkWithin)
	if err != nil {
		return []finding{ok(subject, "%s is of an earlier run, and will be replaced", path)}
	}
	conn.Close()
	return []finding{ok(subject, "%s: a node is running here", path)}
}

// checkBufferMounts sees whether the configured buffers have a place.
func checkBufferMounts(cfg *config.Config) []finding {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return []finding{warn("buffers", "mount procfs on /proc", "%v", err)}
	}
	return bufferFindings(cfg, string(mounts), "/dev/shm")
}

func bufferFindings(cfg *config.Config, mounts, shm string) (out []finding) {
	names := make([]string, 0, len(cfg.Buffers))
	for name := range cfg.Buffers {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		b := cfg.Buffers[name]
		subject := "buffer " + name
		option := map[string]string{"2MiB": "2M", "1GiB": "1024M"}[b.PageSize]
		if option == "" {
			if err := unix.Access(shm, unix.W_OK|unix.X_OK); err != nil {
				out = append(out, fail(subject, "mount a tmpfs there; docker: --tmpfs /dev/shm or --ipc", "%s: %v", shm, err))
				continue
			}
			out = append(out, ok(subject, "%v in %s, or in huge pages if page_size is auto and they are free", b.Bytes, shm))
			continue
		}
		if dir := hugetlbMount(mounts, option); dir == "" {
			out = append(out, fail(subject, "mkdir -p /dev/hugepages-"+option+" && mount -t hugetlbfs -o pagesize="+option+" hugetlbfs /dev/hugepages-"+option+", or choose another page_size",
				"no hugetlbfs mount of %s pages", b.PageSize))
		} else if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
			out = append(out, fail(subject, "mount it with uid= of the user mover runs as", "%s: %v", dir, err))
		} else {
			out = append(out, ok(subject, "%v in %s", b.Bytes, dir))
		}
	}
	return out
}

// hugetlbMount is where pages of a size are mounted, as hugetlbfs prints it in
// proc_pid_mounts(5): "2M", "1024M". "" is nowhere.
func hugetlbMount(mounts, size string) string {
	for line := range strings.Lines(mounts) {
		f := strings.Fields(line)
		if len(f) >= 4 && f[2] == "hugetlbfs" && slices.Contains(strings.Split(f[3], ","), "pagesize="+size) {
			return f[1]
		}
	}
	return ""
}

// expiresSoon is when a certificate that ends is worth a warning: enough time
// for people to make another.
const expiresSoon = 30 * 24 * time.Hour

// checkCertificates looks at the time of every certificate that is configured,
// and of this node's own.
func checkCertificates(cfg *config.Config, now time.Time) (out []finding) {
	own := filepath.Join(cfg.IdentityDir(), peer.CertFile)
	for _, f := range []struct{ subject, file, fix string }{
		{"api.tls_cert", cfg.API.TLSCert, "put a new certificate there and send mover SIGHUP"},
		{"control.ca", cfg.Control.CA, "make a new CA (mover ca init), and issue every node's certificate again"},
		{"certificate", own, "mover ca issue " + cfg.Node.Name + ", replace the files in " + cfg.IdentityDir() + " and send mover SIGHUP"},
	} {
		if f.file == "" {
			continue
		}
		data, err := os.ReadFile(f.file)
		if err != nil {
			continue // said where files are checked; a node that never ran has none
		}
		out = append(out, checkCertificate(f.subject, f.fix, f.file, data, now))
	}
	return out
}

// checkCertificate looks at the first certificate of a PEM file.
func checkCertificate(subject, fix, file string, data []byte, now time.Time) finding {
	block, _ := pem.Decode(data)
	if block == nil || block.Type != "CERTIFICATE" {
		return fail(subject, "put a certificate in PEM there", "%s holds no certificate", file)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return fail(subject, "put a certificate in PEM there", "%s: %v", file, err)
	}
	until := cert.NotAfter.UTC().Format(time.DateOnly)
	switch {
	case now.After(cert.NotAfter):
		return fail(subject, fix, "%s ended on %s", file, until)
	case now.Before(cert.NotBefore):
		return fail(subject, "set this host's clock", "%s begins only on %s", file, cert.NotBefore.UTC().Format(time.DateTime))
	case cert.NotAfter.Sub(now) < expiresSoon:
		return warn(subject, fix, "%s ends on %s", file, until)
	}
	return ok(subject, "%s is valid until %s", file, until)
}
