package fileio

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestEveryCallGoesThroughKernel reads the package: a call made past the kernel
// interface would be one that no sweep can let fail.
func TestEveryCallGoesThroughKernel(t *testing.T) {
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	// What these packages do without asking the system.
	pure := map[string]bool{"filepath.Clean": true, "filepath.IsAbs": true, "filepath.Join": true, "fs.FileMode": true, "unix.Errno": true}
	checked := 0
	for _, e := range entries {
		name := e.Name()
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || name == "kernel_linux.go" {
			continue
		}
		checked++
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok && sel.Sel.Name == "osRoot" {
				t.Errorf("%s: looks into a confined directory; add a method to kernel", set.Position(n.Pos()))
			}
			c, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			sel, ok := c.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			pkg, ok := sel.X.(*ast.Ident)
			if !ok {
				return true
			}
			switch pkg.Name {
			case "os", "unix", "syscall", "filepath", "fs", "ioutil":
				if !pure[pkg.Name+"."+sel.Sel.Name] {
					t.Errorf("%s: %s.%s is called directly; add a method to kernel", set.Position(n.Pos()), pkg.Name, sel.Sel.Name)
				}
			}
			return true
		})
	}
	if checked < 20 {
		t.Fatalf("only %d files were read", checked)
	}
}

// TestEveryCallCanFail: each method of kernel has its hook in faulty, or a sweep
// over all calls would silently leave it out.
func TestEveryCallCanFail(t *testing.T) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "faulty_test.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	hooked := map[string]bool{
		"closeRoot": true, // nothing was written through it, and its error is the caller's
		"realPath":  true, // compares text, and a failure means less text
	}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil {
			hooked[f.Name.Name] = true
		}
	}
	kernels := reflect.TypeFor[kernel]()
	if kernels.NumMethod() < 30 {
		t.Fatalf("kernel has %d methods", kernels.NumMethod())
	}
	for m := range kernels.Methods() {
		if !hooked[m.Name] {
			t.Errorf("faulty has no hook for %s", m.Name)
		}
	}
}

// TestInterrupted: a signal is no reason to fail.
func TestInterrupted(t *testing.T) {
	calls := 0
	err := uninterrupted(func() error {
		if calls++; calls < 4 {
			return unix.EINTR
		}
		return unix.ENOSPC
	})
	if calls != 4 || !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("%d calls, %v", calls, err)
	}
}
