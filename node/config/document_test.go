package config

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

const shipped = "../../config.yaml"

func TestShippedFileIsTheDefault(t *testing.T) {
	text, err := os.ReadFile(shipped)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Parse(shipped, text)
	if err != nil {
		t.Fatal(err)
	}
	want, err := Parse("empty", nil)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("config.yaml differs from Default() (-default +file):\n%s", d)
	}
}

var (
	commentedExample = regexp.MustCompile(`(?m)^#(  .*)$`)
	emptySection     = regexp.MustCompile(`(?m)^(peers|roots|buffers|  socket_users): \{\}$`)
)

// TestShippedFileHasEverySetting walks the struct: each setting is written in
// config.yaml with its default, spelled as Default spells it, with a comment
// above it. The entries of sections like peers are there as commented examples.
func TestShippedFileHasEverySetting(t *testing.T) {
	text, err := os.ReadFile(shipped)
	if err != nil {
		t.Fatal(err)
	}
	text = emptySection.ReplaceAll(text, []byte("$1:"))
	text = commentedExample.ReplaceAll(text, []byte("$1"))
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		t.Fatalf("with the examples uncommented: %v", err)
	}
	everySetting(t, "", doc.Content[0], reflect.ValueOf(*Default()))
}

func everySetting(t *testing.T, at string, n *yaml.Node, v reflect.Value) {
	t.Helper()
	if n.Kind != yaml.MappingNode {
		t.Errorf("%s is not a section", at)
		return
	}
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name := join(at, f.Tag.Get("yaml"))
		key, value := lookup(n, f.Tag.Get("yaml"))
		if key == nil {
			t.Errorf("config.yaml does not mention %s", name)
			continue
		}
		switch f.Type.Kind() {
		case reflect.Struct:
			everySetting(t, name, value, v.Field(i))
			continue
		case reflect.Map:
			if len(value.Content) != 2 {
				t.Errorf("%s has no commented example, or several", name)
				continue
			}
			everySetting(t, name+".NAME", value.Content[1], newEntry(f.Type.Elem()))
			continue
		}
		if !strings.Contains(key.HeadComment, ".") {
			t.Errorf("config.yaml does not say why for %s", name)
		}
		got := written(t, value)
		if d, err := parseDuration(got); err == nil && f.Type == typeOfDuration {
			got = canonical(t, reflect.ValueOf(d)) // 30d is 720h0m0s
		}
		if want := canonical(t, v.Field(i)); got != want {
			t.Errorf("config.yaml has %s: %s, the default is %s", name, got, want)
		}
	}
	if got, want := len(n.Content)/2, v.NumField(); got != want {
		t.Errorf("%s: %d settings in config.yaml, %d exist", at, got, want)
	}
}

func lookup(n *yaml.Node, name string) (key, value *yaml.Node) {
	for i := 0; i < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i], n.Content[i+1]
		}
	}
	return nil, nil
}

// written is a value as the file has it, a lone scalar and a list of one alike.
func written(t *testing.T, n *yaml.Node) string {
	t.Helper()
	if n.Kind == yaml.ScalarNode {
		return n.Value
	}
	var parts []string
	for _, e := range n.Content {
		parts = append(parts, e.Value)
	}
	return strings.Join(parts, " ")
}

func canonical(t *testing.T, v reflect.Value) string {
	t.Helper()
	if v.Type() == typeOfDuration {
		return strings.ReplaceAll(v.Interface().(interface{ String() string }).String(), "µ", "u")
	}
	var n yaml.Node
	if err := n.Encode(v.Interface()); err != nil {
		t.Fatal(err)
	}
	return written(t, &n)
}
