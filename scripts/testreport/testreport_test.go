package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const someRun = `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Test":"TestA","Elapsed":0}
{"Action":"output","Package":"p","Test":"TestB","Output":"=== RUN   TestB\n"}
{"Action":"output","Package":"p","Test":"TestB","Output":"    b_test.go:1: no device\n"}
{"Action":"output","Package":"p","Test":"TestB","Output":"--- SKIP: TestB (0.00s)\n"}
{"Action":"skip","Package":"p","Test":"TestB","Elapsed":0}
{"Action":"pass","Package":"p","Elapsed":1.5}
{"Action":"skip","Package":"q","Elapsed":0}
`

func file(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestReport(t *testing.T) {
	failing := someRun + `{"Action":"output","Package":"p","Test":"TestC","Output":"boom\n"}
{"Action":"fail","Package":"p","Test":"TestC"}
`
	broken := `{"ImportPath":"p","Action":"build-output","Output":"p.go:1: syntax error\n"}
{"Action":"fail","Package":"p","Elapsed":0,"FailedBuild":"p"}
`
	ranElsewhere := `{"Action":"pass","Package":"p","Test":"TestB","Elapsed":0}` + "\n"
	nothing, allowB := file(t, "# none\n"), file(t, "# some\np.Test* it depends\n")
	listed := file(t, "# what\np BenchmarkHot\n")
	const hot = "pkg: p\nBenchmarkHot/one-2 \t 1000\t 12 ns/op\t 0 B/op\t 0 allocs/op\n"
	for _, c := range []struct {
		name    string
		args    []string
		ci      bool
		wantErr string // "" is success
		wantOut string
	}{
		{"passes", []string{"run", file(t, someRun)}, true, "", "1 tests passed, 1 skipped, 2 packages"},
		{"fails", []string{"run", file(t, failing)}, false, "1 tests or packages failed", "--- FAILED p.TestC\nboom"},
		{"does not build", []string{"run", file(t, broken)}, false, "failed", "syntax error"},
		{"empty", []string{"run", file(t, "")}, false, "no test ran", ""},
		{"not json", []string{"run", file(t, "{x")}, false, "not the output", ""},
		{"skip in CI", []string{"skips", nothing, file(t, someRun)}, true, "1 tests were skipped", "skipped (UNEXPECTED): p.TestB: b_test.go:1: no device"},
		{"skip at home", []string{"skips", nothing, file(t, someRun)}, false, "", "UNEXPECTED"},
		{"skip allowed", []string{"skips", allowB, file(t, someRun)}, true, "", "skipped (allowed): p.TestB"},
		{"skip made up for", []string{"skips", nothing, file(t, someRun), file(t, ranElsewhere)}, true, "", ""},
		{"no reason", []string{"skips", file(t, "p.TestB\n"), file(t, someRun)}, true, "has no reason", ""},
		{"hot", []string{"hot", listed, file(t, hot)}, true, "", "0 allocs/op  p BenchmarkHot/one-2"},
		{"hot allocates", []string{"hot", listed, file(t, hot+"BenchmarkHot/two-16 \t 1000\t 12 ns/op\t 8 B/op\t 1 allocs/op\n")}, true, "1 measurements allocate", "ALLOCATES 1"},
		{"another allocates", []string{"hot", listed, file(t, hot+"BenchmarkCold-2 \t 1000\t 12 ns/op\t 8 B/op\t 1 allocs/op\n")}, true, "", ""},
		{"not there", []string{"hot", listed, file(t, "pkg: q\n"+hot[7:])}, true, "1 did not run", "MISSING   p BenchmarkHot"},
		{"bad list", []string{"hot", file(t, "p\n"), file(t, hot)}, true, "is not a package and a benchmark", ""},
		{"empty list", []string{"hot", nothing, file(t, hot)}, true, "of 0 hot paths", ""},
		{"usage", []string{"hop"}, true, "usage", ""},
	} {
		var out strings.Builder
		err := run(c.args, &out, c.ci)
		switch {
		case c.wantErr == "" && err != nil, c.wantErr != "" && (err == nil || !strings.Contains(err.Error(), c.wantErr)):
			t.Errorf("%s: error %v, want %q", c.name, err, c.wantErr)
		case !strings.Contains(out.String(), c.wantOut):
			t.Errorf("%s: printed %q, want %q", c.name, out.String(), c.wantOut)
		}
	}
}
