package engine

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// impureImports are packages whose use alone makes a run differ from its
// replay, or blocks. time is there for Duration only; see impureCalls.
var impureImports = []string{"math/rand", "math/rand/v2", "crypto/rand", "runtime", "os", "os/signal", "net", "log",
	"log/slog", "context", "maps", "golang.org/x/sys/unix", "syscall"}

// impureNames are what must not be used of packages that are allowed.
var impureNames = map[string][]string{
	"time": {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker", "Timer", "Ticker"},
	"sync": {"Cond", "NewCond", "WaitGroup"}, // they block until another goroutine acts
	// Parking is the thread's business, around the machine.
	"mover/ring": {"NewParker", "NewBell", "NewPool"},
}

// impurities lists what of a package would keep the simulation from replaying
// it: goroutines, channels, clocks, randomness, and the order of map iteration.
func impurities(fset *token.FileSet, files []*ast.File, info *types.Info) []string {
	var found []string
	report := func(n ast.Node, format string, args ...any) {
		found = append(found, fmt.Sprintf("%s: %s", fset.Position(n.Pos()), fmt.Sprintf(format, args...)))
	}
	for _, f := range files {
		for _, spec := range f.Imports {
			if path := strings.Trim(spec.Path.Value, `"`); slices.Contains(impureImports, path) {
				report(spec, "imports %s", path)
			}
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				report(n, "a go statement")
			case *ast.SelectStmt:
				report(n, "a select statement")
			case *ast.SendStmt:
				report(n, "a channel send")
			case *ast.ChanType:
				report(n, "a channel type")
			case *ast.UnaryExpr:
				if n.Op == token.ARROW {
					report(n, "a channel receive")
				}
			case *ast.RangeStmt:
				switch t := info.TypeOf(n.X); t.Underlying().(type) {
				case *types.Map:
					report(n, "range over a map: its order is random")
				case *types.Chan:
					report(n, "range over a channel")
				}
			case *ast.SelectorExpr:
				used := info.Uses[n.Sel]
				if used != nil && used.Pkg() != nil && slices.Contains(impureNames[used.Pkg().Path()], used.Name()) {
					report(n, "uses %s.%s", used.Pkg().Path(), used.Name())
				}
			}
			return true
		})
	}
	return found
}

// exportImporter imports what the compiler has left in the build cache: type-
// checking the standard library from source takes ten seconds.
func exportImporter(t *testing.T, fset *token.FileSet) types.Importer {
	t.Helper()
	args := append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}}={{.Export}}", "."}, "math/rand/v2", "crypto/rand",
		"runtime", "os", "log", "maps", "time")
	out, err := exec.Command("go", args...).Output()
	if err != nil {
		t.Fatalf("go %s: %v", strings.Join(args, " "), err)
	}
	exports := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), "=")
		exports[path] = file
	}
	return importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		if exports[path] == "" {
			return nil, fmt.Errorf("no export data of %s", path)
		}
		return os.Open(exports[path])
	})
}

// checkPure type-checks files and lists their impurities.
func checkPure(t *testing.T, fset *token.FileSet, from types.Importer, files []*ast.File) []string {
	t.Helper()
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}, Types: map[ast.Expr]types.TypeAndValue{},
		Defs: map[*ast.Ident]types.Object{}}
	conf := types.Config{Importer: from}
	if _, err := conf.Check("mover/engine", fset, files, info); err != nil {
		t.Fatalf("type-checking: %v", err)
	}
	return impurities(fset, files, info)
}

// TestEngineIsPure enforces what package doc promises.
func TestEngineIsPure(t *testing.T) {
	fset := token.NewFileSet()
	from := exportImporter(t, fset)
	t.Run("the engine", func(t *testing.T) { testEngineIsPure(t, fset, from) })
	t.Run("teeth", func(t *testing.T) { testPurityHasTeeth(t, fset, from) })
}

func testEngineIsPure(t *testing.T, fset *token.FileSet, from types.Importer) {
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, e := range entries {
		if name := e.Name(); strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
			f, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, f)
		}
	}
	if len(files) < 10 {
		t.Fatalf("found only %d files", len(files))
	}
	for _, bad := range checkPure(t, fset, from, files) {
		t.Error(bad)
	}
}

// testPurityHasTeeth: every kind of impurity is found, and its harmless
// neighbour is not.
func testPurityHasTeeth(t *testing.T, fset *token.FileSet, from types.Importer) {
	for _, c := range []struct{ name, code, want string }{
		{"go", "func f() { go f() }", "a go statement"},
		{"channel field", "type t struct{ c chan int }", "a channel type"},
		{"send", "func f(c chan int) { c <- 1 }", "a channel send"},
		{"receive", "func f(c chan int) int { return <-c }", "a channel receive"},
		{"range over channel", "func f(c chan int) { for range c {} }", "range over a channel"},
		{"select", "func f() { select {} }", "a select statement"},
		{"clock", "import \"time\"\nvar x = time.Now()", "uses time.Now"},
		{"renamed clock", "import clock \"time\"\nvar x = clock.Since", "uses time.Since"},
		{"sleep", "import \"time\"\nfunc f() { time.Sleep(1) }", "uses time.Sleep"},
		{"timer", "import \"time\"\nvar x *time.Timer", "uses time.Timer"},
		{"random", "import \"math/rand/v2\"\nvar x = rand.Int()", "imports math/rand/v2"},
		{"crypto", "import \"crypto/rand\"\nvar x = rand.Reader", "imports crypto/rand"},
		{"scheduler", "import \"runtime\"\nfunc f() { runtime.Gosched() }", "imports runtime"},
		{"files", "import \"os\"\nvar x = os.Args", "imports os"},
		{"log", "import \"log\"\nfunc f() { log.Print() }", "imports log"},
		{"map", "func f(m map[int]int) { for range m {} }", "range over a map"},
		{"named map", "type set map[int]bool\ntype alias = set\nfunc f(m alias) { for k := range m { _ = k } }", "range over a map"},
		{"map from a call", "func m() map[string]int { return nil }\nfunc f() { for range m() {} }", "range over a map"},
		{"maps.Keys", "import \"maps\"\nfunc f(m map[int]int) { for range maps.Keys(m) {} }", "imports maps"},
		{"duration", "import \"time\"\nvar x time.Duration = time.Second", ""},
		{"slice", "func f(m []int, l map[int]int) int { for range m {}; return l[1] }", ""},
		{"a field named Now", "type t struct{ Now int }\nfunc f(x t) int { return x.Now }", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := parser.ParseFile(fset, "snippet.go", "package engine\n"+c.code, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			found := checkPure(t, fset, from, []*ast.File{f})
			switch all := strings.Join(found, "; "); {
			case c.want == "" && all != "":
				t.Errorf("harmless code was refused: %s", all)
			case !strings.Contains(all, c.want):
				t.Errorf("found %q, want %q", all, c.want)
			}
		})
	}
}
