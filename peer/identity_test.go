package peer

import (
	"crypto/x509"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

func write(t *testing.T, path, text string, mode fs.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestLoadOrCreate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state", "identity")
	id, created, err := LoadOrCreate(dir, "a")
	if err != nil || !created || id.Name != "a" {
		t.Fatalf("%+v, %v, %v", id, created, err)
	}
	if _, err := ParseFingerprint(id.Fingerprint); err != nil {
		t.Error(err)
	}
	again, created, err := LoadOrCreate(dir, "a")
	if err != nil || created || again.Fingerprint != id.Fingerprint {
		t.Fatalf("second: %v, %v, %v", again, created, err)
	}
	for path, mode := range map[string]fs.FileMode{dir: 0o700 | fs.ModeDir, filepath.Join(dir, KeyFile): 0o600, filepath.Join(dir, CertFile): 0o600} {
		if fi, err := os.Stat(path); err != nil || fi.Mode() != mode {
			t.Errorf("%s: mode %v, %v, want %v", path, fi.Mode(), err, mode)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("left in the directory: %v, %v", entries, err)
	}
	if _, _, err := LoadOrCreate(dir, "A b"); !errors.Is(err, ErrName) || !errors.Is(err, ErrIdentity) {
		t.Errorf("bad name: %v", err)
	}
}

func TestLoadOrCreateTogether(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	ids := make([]*Identity, 8)
	for i := range ids {
		wg.Go(func() {
			id, _, err := LoadOrCreate(dir, "a")
			if err != nil {
				t.Error(err)
				return
			}
			ids[i] = id
		})
	}
	wg.Wait()
	for _, id := range ids {
		if id == nil || id.Fingerprint != ids[0].Fingerprint {
			t.Fatalf("two processes made two identities")
		}
	}
}

func TestIdentityIsNeverReplaced(t *testing.T) {
	for name, tt := range map[string]struct {
		spoil func(t *testing.T, dir string)
		says  []string
	}{
		"garbage key":    {func(t *testing.T, dir string) { write(t, filepath.Join(dir, KeyFile), "garbage", 0o600) }, []string{KeyFile, "restore it from a backup", "move"}},
		"empty key":      {func(t *testing.T, dir string) { write(t, filepath.Join(dir, KeyFile), "", 0o600) }, []string{KeyFile, "backup"}},
		"garbage cert":   {func(t *testing.T, dir string) { write(t, filepath.Join(dir, CertFile), "garbage", 0o600) }, []string{CertFile, "backup"}},
		"no key":         {func(t *testing.T, dir string) { os.Remove(filepath.Join(dir, KeyFile)) }, []string{CertFile, "is not", "restore the key"}},
		"open key":       {func(t *testing.T, dir string) { os.Chmod(filepath.Join(dir, KeyFile), 0o644) }, []string{"0644", "chmod 600"}},
		"huge key":       {func(t *testing.T, dir string) { os.Truncate(filepath.Join(dir, KeyFile), maxPEMBytes+1) }, []string{"regular file"}},
		"key of another": {func(t *testing.T, dir string) { writeKeyOf(t, dir) }, []string{"not of the key"}},
		"key is a directory": {func(t *testing.T, dir string) {
			os.Remove(filepath.Join(dir, KeyFile))
			os.Mkdir(filepath.Join(dir, KeyFile), 0o700)
		}, []string{"regular file"}},
		"dangling key": {func(t *testing.T, dir string) {
			os.Remove(filepath.Join(dir, KeyFile))
			os.Symlink("/nonexistent/key", filepath.Join(dir, KeyFile))
		}, []string{KeyFile, "no such file"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if _, _, err := LoadOrCreate(dir, "a"); err != nil {
				t.Fatal(err)
			}
			tt.spoil(t, dir)
			before := listing(t, dir)
			_, created, err := LoadOrCreate(dir, "a")
			if created || !errors.Is(err, ErrIdentity) {
				t.Fatalf("created %v, %v", created, err)
			}
			mentionErr(t, err, tt.says...)
			if after := listing(t, dir); after != before {
				t.Errorf("the directory changed:\n%s\n%s", before, after)
			}
		})
	}
}

func writeKeyOf(t *testing.T, dir string) {
	other := t.TempDir()
	if _, _, err := LoadOrCreate(other, "a"); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, KeyFile), read(t, filepath.Join(other, KeyFile)), 0o600)
}

func listing(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	s := ""
	for _, e := range entries {
		b, _ := os.ReadFile(filepath.Join(dir, e.Name()))
		if len(b) > 4096 {
			b = b[:4096]
		}
		s += e.Name() + e.Type().String() + string(b) + "\n"
	}
	return s
}

// A crash between the two files leaves a key; the identity stays the same.
func TestKeyWithoutCertificate(t *testing.T) {
	dir := t.TempDir()
	id, _, err := LoadOrCreate(dir, "a")
	if err != nil {
		t.Fatal(err)
	}
	os.Remove(filepath.Join(dir, CertFile))
	again, created, err := LoadOrCreate(dir, "a")
	if err != nil || !created || again.Fingerprint != id.Fingerprint {
		t.Fatalf("%v, %v, %v", again, created, err)
	}
}

func TestRenamedNode(t *testing.T) {
	dir := t.TempDir()
	id, _, err := LoadOrCreate(dir, "old")
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = LoadOrCreate(dir, "new")
	mentionErr(t, err, `"old"`, `"new"`, "set the name back", "move "+filepath.Join(dir, CertFile)+" away", "same key")
	// Doing as it says helps.
	os.Rename(filepath.Join(dir, CertFile), filepath.Join(dir, "old.crt"))
	renamed, created, err := LoadOrCreate(dir, "new")
	if err != nil || !created || renamed.Name != "new" || renamed.Fingerprint != id.Fingerprint {
		t.Fatalf("%+v, %v, %v", renamed, created, err)
	}
}

func TestCA(t *testing.T) {
	ca := filepath.Join(t.TempDir(), "ca")
	_, err := Issue(ca, "a", nil, nil, time.Hour)
	mentionErr(t, err, "mover ca init")
	if err := InitCA(ca); err != nil {
		t.Fatal(err)
	}
	err = InitCA(ca)
	if !errors.Is(err, fs.ErrExist) {
		t.Fatal(err)
	}
	mentionErr(t, err, "another directory")
	if fi, err := os.Stat(filepath.Join(ca, CAKeyFile)); err != nil || fi.Mode() != 0o600 {
		t.Errorf("CA key: %v, %v", fi, err)
	}

	id, err := Issue(ca, "a", []string{"a.example"}, []net.IP{net.ParseIP("::1")}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	leaf := id.Certificate.Leaf
	if id.Name != "a" || leaf.DNSNames[0] != "a.example" || !leaf.IPAddresses[0].Equal(net.ParseIP("::1")) || len(leaf.ExtKeyUsage) != 2 {
		t.Errorf("issued %+v", leaf)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(read(t, filepath.Join(ca, CACertFile))))
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: "a.example"}); err != nil {
		t.Error(err)
	}

	_, err = Issue(ca, "a", nil, nil, 20*365*24*time.Hour)
	mentionErr(t, err, "outlive", "shorter validity")
	_, err = Issue(ca, "a", nil, nil, -2*time.Hour)
	mentionErr(t, err, "never valid")
	_, err = Issue(ca, "A", nil, nil, time.Hour)
	if !errors.Is(err, ErrName) {
		t.Error(err)
	}

	dir := filepath.Join(t.TempDir(), "id")
	if err := id.Save(dir); err != nil {
		t.Fatal(err)
	}
	loaded, created, err := LoadOrCreate(dir, "a")
	if err != nil || created || loaded.Fingerprint != id.Fingerprint {
		t.Fatalf("%v, %v, %v", loaded, created, err)
	}
	before := listing(t, dir)
	if err := id.Save(dir); !errors.Is(err, fs.ErrExist) || listing(t, dir) != before {
		t.Errorf("second Save: %v", err)
	}
}

func TestInterruptedInitCA(t *testing.T) {
	ca := t.TempDir()
	if err := InitCA(ca); err != nil {
		t.Fatal(err)
	}
	os.Remove(filepath.Join(ca, CACertFile))
	err := InitCA(ca)
	if !errors.Is(err, fs.ErrExist) {
		t.Fatal(err)
	}
	mentionErr(t, err, "remove it")
}
