package sim

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"
)

// TestSourceIsDeterministic forbids in the package's source what would make a
// seed run differently: goroutines, channels, clocks, the global random
// source, and sync.
func TestSourceIsDeterministic(t *testing.T) {
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, file := range files {
		if !strings.HasSuffix(file.Name(), ".go") || strings.HasSuffix(file.Name(), "_test.go") {
			continue
		}
		checked++
		fset := token.NewFileSet()
		tree, err := parser.ParseFile(fset, file.Name(), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			if what := forbidden(n); what != "" {
				t.Errorf("%s: %s", fset.Position(n.Pos()), what)
			}
			return true
		})
	}
	if checked < 10 {
		t.Errorf("only %d files were checked", checked)
	}
}

func forbidden(n ast.Node) string {
	switch n := n.(type) {
	case *ast.GoStmt:
		return "a go statement"
	case *ast.ChanType, *ast.SelectStmt, *ast.SendStmt:
		return "a channel"
	case *ast.ImportSpec:
		switch n.Path.Value {
		case `"math/rand"`, `"crypto/rand"`, `"sync"`, `"sync/atomic"`, `"hash/maphash"`:
			return "import of " + n.Path.Value
		}
	case *ast.SelectorExpr:
		pkg, ok := n.X.(*ast.Ident)
		if !ok {
			return ""
		}
		switch pkg.Name + "." + n.Sel.Name {
		case "time.Now", "time.Since", "time.Until", "time.Sleep", "time.After", "time.AfterFunc", "time.NewTimer",
			"time.NewTicker", "time.Tick":
			return "a clock: time." + n.Sel.Name
		}
		if pkg.Name == "rand" && n.Sel.Name != "New" && n.Sel.Name != "NewPCG" && n.Sel.Name != "Rand" {
			return "the global random source: rand." + n.Sel.Name
		}
	case *ast.RangeStmt:
		// Maps of the package; none may be ranged over.
		if sel, ok := n.X.(*ast.SelectorExpr); ok {
			switch sel.Sel.Name {
			case "qps":
				if id, ok := sel.X.(*ast.Ident); ok && id.Name == "f" {
					return "iteration over the map f.qps"
				}
			case "used", "cuts", "lkeys", "rkeys", "revoked", "lastTo", "lost":
				return "iteration over the map " + sel.Sel.Name
			}
		}
	}
	return ""
}
