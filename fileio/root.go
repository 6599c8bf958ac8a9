package fileio

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"mover/reason"
)

// RootConfig describes a root: a directory under a name, which is all of the
// file system that jobs can reach.
type RootConfig struct {
	Name string // 1 to 64 letters, digits, '.', '_', '-'
	Path string // absolute path of an existing directory

	// MinFreeBytes is what must stay free on the file system after a file is
	// received; 0 is no limit. NO_SPACE when it would not.
	MinFreeBytes int64
	// QuotaBytes bounds the sum of the sizes of the files below the root, those
	// being received included; 0 is no limit. QUOTA when a file does not fit.
	QuotaBytes int64

	// Direct says when O_DIRECT is used.
	Direct DirectPolicy

	// FileMode are the permission bits of received files whose own mode is not
	// preserved (0: 0644), DirMode those of directories made for them (0:
	// 0755). The process's umask does not apply.
	FileMode, DirMode fs.FileMode
	// Chown gives received files and directories to UID and GID (-1 leaves
	// one as it is), which needs CAP_CHOWN.
	Chown    bool
	UID, GID int
}

// Root is an open root. It is safe for use by any number of goroutines. Sources
// and Sinks stay usable after their Root is closed.
type Root struct {
	cfg     RootConfig
	dir     confined
	k       kernel
	escapes error // what os.Root reports for a path that leaves it
	space   space
	lasting lasting
}

// OpenRoot opens the directory cfg.Path. The error says which setting is wrong;
// its reason is INTERNAL for a bad setting and otherwise the one of the errno.
func OpenRoot(cfg RootConfig) (*Root, error) {
	if err := checkRootName(cfg.Name); err != nil {
		return nil, reason.New(reason.Internal, "root %q: name: %w", cfg.Name, err)
	}
	switch {
	case !filepath.IsAbs(cfg.Path):
		return nil, reason.New(reason.Internal, "root %s: path %q is not absolute", cfg.Name, cfg.Path)
	case cfg.MinFreeBytes < 0 || cfg.QuotaBytes < 0:
		return nil, reason.New(reason.Internal, "root %s: min_free and quota must not be negative", cfg.Name)
	case cfg.FileMode&^0o777 != 0 || cfg.DirMode&^0o777 != 0:
		return nil, reason.New(reason.Internal, "root %s: mode must be permission bits, 0 to 0777", cfg.Name)
	case cfg.Direct > DirectOff:
		return nil, reason.New(reason.Internal, "root %s: unknown %v", cfg.Name, cfg.Direct)
	}
	if cfg.FileMode == 0 {
		cfg.FileMode = 0o644
	}
	if cfg.DirMode == 0 {
		cfg.DirMode = 0o755
	}
	cfg.Path = filepath.Clean(cfg.Path)
	r := &Root{cfg: cfg, k: systemCalls()}
	dir, err := r.k.openRoot(cfg.Path)
	if err != nil {
		code := r.codeOf(err, reason.DestNotFound)
		return nil, reason.New(code, "root %s: %w; create the directory or correct its path", cfg.Name, err)
	}
	r.dir = dir
	// os does not export the error for an escape. Provoke it once and compare
	// with it, rather than look for words in a message.
	_, err = r.k.statBelow(dir, "..")
	var pe *fs.PathError
	if !errors.As(err, &pe) || errors.As(err, new(unix.Errno)) {
		return nil, errors.Join(
			reason.New(reason.Internal, "root %s: os.Root does not confine paths (%v); do not use this build", cfg.Name, err),
			r.k.closeRoot(dir))
	}
	r.escapes = pe.Err
	return r, nil
}

// Name returns the root's name.
func (r *Root) Name() string { return r.cfg.Name }

// Path returns the root's absolute path, for messages.
func (r *Root) Path() string { return r.cfg.Path }

// Close releases the directory. Open Sources and Sinks are not affected.
func (r *Root) Close() error { return r.k.closeRoot(r.dir) }

// Rel returns the path below the root of an absolute local path, "." for the
// root itself, and false if the root does not contain it. It compares text,
// with the root's own path also taken through its symlinks; the path is
// confined when it is opened, not here.
func (r *Root) Rel(abs string) (string, bool) {
	if !filepath.IsAbs(abs) {
		return "", false
	}
	bases := []string{r.cfg.Path}
	if real, err := r.k.realPath(r.cfg.Path); err == nil && real != r.cfg.Path {
		bases = append(bases, real)
	}
	abs = filepath.Clean(abs)
	for _, base := range bases {
		if abs == base {
			return ".", true
		}
		if rel, ok := strings.CutPrefix(abs, strings.TrimSuffix(base, "/")+"/"); ok {
			return rel, true
		}
	}
	return "", false
}

// Stat describes what rel leads to inside the root, symlinks followed. The
// reason of a name that is not there is SOURCE_NOT_FOUND.
func (r *Root) Stat(rel string) (fs.FileInfo, error) {
	rel, err := clean(rel)
	if err != nil {
		return nil, err
	}
	info, err := r.k.statBelow(r.dir, rel)
	if err != nil {
		return nil, r.failure(reason.SourceNotFound, "stat", rel, err)
	}
	return info, nil
}

// openDescriptor opens rel through the confined root and returns a bare
// descriptor that the caller owns.
func (r *Root) openDescriptor(rel string, flags int) (int, error) {
	return r.k.openBelow(r.dir, rel, flags)
}

// identity names an inode for as long as somebody holds it open.
type identity struct{ dev, ino uint64 }

func identityOf(st unix.Stat_t) identity { return identity{uint64(st.Dev), st.Ino} }

// isRegular reports whether st is of a regular file.
func isRegular(st unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFREG }
