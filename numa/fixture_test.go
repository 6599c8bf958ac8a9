package numa

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture unpacks testdata/<name>.txt, a sysfs tree in one file, and returns its root. "-- path --" begins a file,
// "-> path -> target" is a symbolic link, lines before the first of either are comments.
func fixture(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	path := ""
	var content strings.Builder
	flush := func() {
		if path != "" {
			write(t, root, path, content.String())
		}
		path = ""
		content.Reset()
	}
	for line := range strings.Lines(string(text)) {
		if inner, ok := strings.CutPrefix(line, "-- "); ok {
			flush()
			path = strings.TrimSuffix(strings.TrimSpace(inner), " --")
		} else if link, ok := strings.CutPrefix(line, "-> "); ok {
			flush()
			name, target, _ := strings.Cut(strings.TrimSpace(link), " -> ")
			name = filepath.Join(root, name)
			if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(target, name); err != nil {
				t.Fatal(err)
			}
		} else {
			content.WriteString(line)
		}
	}
	flush()
	return root
}

func write(t testing.TB, root, path, content string) {
	t.Helper()
	path = filepath.Join(root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func topology(t testing.TB, name string) *Topology {
	t.Helper()
	top, err := Read(fixture(t, name))
	if err != nil {
		t.Fatal(err)
	}
	return top
}

func cpus(t testing.TB, list string) CPUSet {
	t.Helper()
	s, err := ParseCPUSet(list)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
