package image

import (
	"bytes"
	_ "embed"
	"fmt"
	"path"
	"strings"
)

//go:embed modules.txt
var modulesText string

// wanted is a module to load, with its options.
type wanted struct {
	name    string
	options string
}

// parseWanted reads modules.txt.
func parseWanted(text string) []wanted {
	var all []wanted
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		name, options, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name != "" {
			all = append(all, wanted{name, strings.TrimSpace(options)})
		}
	}
	return all
}

// moduleName is how the kernel names a module: a file's "-" is "_".
func moduleName(file string) string {
	name := path.Base(file)
	name, _, _ = strings.Cut(name, ".ko")
	return strings.ReplaceAll(name, "-", "_")
}

// loadOrder returns the files to load, in order and each once, with options:
// every module after those it depends on. dep is modules.dep, builtin
// modules.builtin (modules.dep(5)); what is built in needs no loading.
func loadOrder(modules []wanted, dep, builtin string) ([]wanted, error) {
	files, depends := map[string]string{}, map[string][]string{}
	for line := range strings.Lines(dep) {
		file, rest, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok {
			return nil, fmt.Errorf("modules.dep: a line without a colon: %q", line)
		}
		files[moduleName(file)] = file
		depends[file] = strings.Fields(rest)
	}
	inKernel := map[string]bool{}
	for line := range strings.Lines(builtin) {
		inKernel[moduleName(strings.TrimSpace(line))] = true
	}

	var order []wanted
	loaded := map[string]bool{}
	var load func(file, options string)
	load = func(file, options string) {
		if loaded[file] {
			return
		}
		loaded[file] = true
		// A module's list has all it needs, the deepest last.
		for _, needed := range depends[file] {
			load(needed, "")
		}
		order = append(order, wanted{file, options})
	}
	for _, m := range modules {
		file, ok := files[moduleName(m.name)]
		switch {
		case ok:
			load(file, m.options)
		case !inKernel[moduleName(m.name)]:
			return nil, fmt.Errorf("the kernel has no module %s", m.name)
		}
	}
	return order, nil
}

// orderFile is what init.sh reads: file names without directories, options.
func orderFile(order []wanted) ([]byte, error) {
	var b bytes.Buffer
	seen := map[string]bool{}
	for _, m := range order {
		base := path.Base(m.name)
		if seen[base] {
			return nil, fmt.Errorf("two modules are named %s", base)
		}
		seen[base] = true
		fmt.Fprintln(&b, strings.TrimSpace(base+" "+m.options))
	}
	return b.Bytes(), nil
}
