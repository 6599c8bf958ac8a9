package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// A decoder fills a Config from YAML nodes. yaml.v3's own decoding is not used
// because its errors name Go types, stop at the first problem of a scalar and
// know nothing of units or limits.
type decoder struct {
	invalid Invalid
	lines   map[string]int // field -> line, of what the file sets
}

func readAll(r io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxFileBytes+1))
	if err == nil && len(text) > maxFileBytes {
		err = fmt.Errorf("larger than %v", Size(maxFileBytes))
	}
	return text, err
}

// problem records what is wrong with a field, at its line or else at the line
// of the nearest section around it that the file has.
func (d *decoder) problem(field, message, allowed string) {
	line := 1
	for at := field; at != ""; {
		if l, ok := d.lines[at]; ok {
			line = l
			break
		}
		dot := strings.LastIndexByte(at, '.')
		at = at[:max(dot, 0)]
	}
	d.at(line, field, message, allowed)
}

func (d *decoder) at(line int, field, message, allowed string) {
	d.invalid.add(Problem{Line: max(line, 1), Field: field, Message: message, Allowed: allowed})
}

var yamlLine = regexp.MustCompile(`^(?:yaml: )?(?:line (\d+): )?(?s)(.*)$`)

func (d *decoder) document(text []byte, c *Config) {
	in := yaml.NewDecoder(bytes.NewReader(text))
	var doc, second yaml.Node
	switch err := in.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return // an empty file, or comments alone: the defaults
	case err != nil:
		m := yamlLine.FindStringSubmatch(err.Error())
		line, _ := strconv.Atoi(m[1])
		d.at(line, "", "not YAML: "+m[2], "")
		return
	}
	if err := in.Decode(&second); !errors.Is(err, io.EOF) {
		d.at(second.Line, "", "a second document, or text after the first", "one YAML document")
		return
	}
	if len(doc.Content) == 1 {
		d.value("", doc.Content[0], reflect.ValueOf(c).Elem(), "")
	}
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// value decodes n into v; tag is the struct tag of the setting.
func (d *decoder) value(field string, n *yaml.Node, v reflect.Value, tag reflect.StructTag) {
	d.lines[field] = n.Line
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		// An alias would make the line an error names the wrong one, and
		// nested aliases grow without bound.
		d.at(n.Line, field, "anchors and aliases are not supported", "the value itself")
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		d.section(field, n, v)
	case reflect.Map:
		d.named(field, n, v, tag)
	case reflect.Slice:
		d.list(field, n, v, tag)
	default:
		d.scalar(field, n, v, tag)
	}
}

// pairs calls f for every key of a mapping, refusing what is no plain key and
// what is there twice. A section left empty (`peers:` and nothing) is one
// without entries, not an error: that is what commenting out its lines leaves.
func (d *decoder) pairs(field string, n *yaml.Node, what string, f func(key string, at *yaml.Node, value *yaml.Node)) {
	if isNull(n) {
		return
	}
	if n.Kind != yaml.MappingNode {
		d.at(n.Line, field, "is not a section", what)
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i]
		if k.Kind != yaml.ScalarNode || k.Anchor != "" || k.ShortTag() == "!!merge" {
			d.at(k.Line, field, "has a key that is not a plain word", what)
			continue
		}
		if line, twice := seen[k.Value]; twice {
			d.at(k.Line, join(field, k.Value), fmt.Sprintf("is set twice, first in line %d", line), "once")
			continue
		}
		seen[k.Value] = k.Line
		f(k.Value, k, n.Content[i+1])
	}
}

func join(field, key string) string {
	if field == "" {
		return key
	}
	return field + "." + key
}

func (d *decoder) section(field string, n *yaml.Node, v reflect.Value) {
	t := v.Type()
	names := make([]string, 0, t.NumField())
	index := map[string]int{}
	for i := range t.NumField() {
		name := t.Field(i).Tag.Get("yaml")
		names = append(names, name)
		index[name] = i
	}
	all := strings.Join(names, ", ")
	d.pairs(field, n, "a section with any of "+all, func(key string, at, value *yaml.Node) {
		i, ok := index[key]
		if !ok {
			message := "is not a setting"
			if near := nearest(key, names); near != "" {
				message += "; did you mean " + near + "?"
			}
			d.at(at.Line, join(field, key), message, all)
			return
		}
		d.value(join(field, key), value, v.Field(i), t.Field(i).Tag)
		d.lines[join(field, key)] = at.Line // a block's own line is that of its first entry
	})
}

// named decodes a mapping whose keys are chosen by the user: peers, roots and
// the like.
func (d *decoder) named(field string, n *yaml.Node, v reflect.Value, tag reflect.StructTag) {
	key := forms[tag.Get("form")]
	m := reflect.MakeMap(v.Type())
	d.pairs(field, n, "a section with one entry for each name", func(name string, at, value *yaml.Node) {
		if err := key.check(name); err != nil {
			d.at(at.Line, field, err.Error(), key.allowed)
			return
		}
		entry := newEntry(v.Type().Elem())
		d.value(join(field, name), value, entry, "")
		d.lines[join(field, name)] = at.Line
		m.SetMapIndex(reflect.ValueOf(name), entry)
	})
	v.Set(m)
}

// newEntry is an entry with its defaults.
func newEntry(t reflect.Type) reflect.Value {
	entry := reflect.New(t)
	if e, has := entry.Interface().(interface{ setDefaults() }); has {
		e.setDefaults()
	}
	return entry.Elem()
}

// list decodes a sequence; a lone scalar is a list of one, so that
// `providers: auto` reads as it should. The tag's max bounds the length of a
// list of strings, and the elements of a list of numbers.
func (d *decoder) list(field string, n *yaml.Node, v reflect.Value, tag reflect.StructTag) {
	elements := []*yaml.Node{n}
	switch {
	case n.Kind == yaml.SequenceNode:
		elements = n.Content
	case n.Kind != yaml.ScalarNode || isNull(n):
		d.at(n.Line, field, "is not a list", "[...], with any number of entries")
		return
	}
	limit := maxListLength
	if most, err := strconv.Atoi(tag.Get("max")); err == nil && v.Type().Elem().Kind() == reflect.String {
		limit = most
	}
	if len(elements) > limit {
		d.at(n.Line, field, fmt.Sprintf("has %d entries", len(elements)), fmt.Sprintf("at most %d", limit))
		return
	}
	out := reflect.MakeSlice(v.Type(), len(elements), len(elements))
	for i, e := range elements {
		at := field
		if n.Kind == yaml.SequenceNode {
			at = fmt.Sprintf("%s[%d]", field, i)
		}
		d.value(at, e, out.Index(i), tag)
		for j := range i {
			if out.Index(j).Equal(out.Index(i)) {
				d.at(e.Line, at, fmt.Sprintf("repeats %v", out.Index(i)), "each entry once")
				break
			}
		}
	}
	d.lines[field] = n.Line
	v.Set(out)
}

// maxListLength bounds lists of numbers: more CPUs than any host has.
const maxListLength = 1024

var typeOfDuration = reflect.TypeFor[time.Duration]()

// scalar decodes a string, number, word, size, rate, duration or truth value.
func (d *decoder) scalar(field string, n *yaml.Node, v reflect.Value, tag reflect.StructTag) {
	allowed := allowedOf(v.Type(), tag)
	if n.Kind != yaml.ScalarNode {
		d.at(n.Line, field, "is not a single value", allowed)
		return
	}
	if isNull(n) {
		d.at(n.Line, field, `has no value; remove the line for the default`, allowed)
		return
	}
	if err := parseScalar(n.Value, v, tag); err != nil {
		d.at(n.Line, field, err.Error(), allowed)
	}
}

func parseScalar(s string, v reflect.Value, tag reflect.StructTag) error {
	var number int64
	switch {
	case v.Kind() == reflect.Bool:
		// Not YAML 1.1's yes, on and y.
		if s != "true" && s != "false" {
			return fmt.Errorf("%q is neither true nor false", s)
		}
		v.SetBool(s == "true")
		return nil
	case v.Kind() == reflect.String:
		if words := tag.Get("allow"); words != "" && !slices.Contains(strings.Split(words, ","), s) {
			return fmt.Errorf("%q is not one of the words", s)
		}
		if name := tag.Get("form"); name != "" {
			if err := forms[name].check(s); err != nil {
				return err
			}
		}
		v.SetString(s)
		return nil
	default:
		var err error
		if number, err = parseNumber(s, v.Type()); err != nil {
			return err
		}
	}
	if least := tag.Get("min"); least != "" && number < bound(least, v.Type()) {
		return fmt.Errorf("%s is less than %s", s, least)
	}
	if most := tag.Get("max"); most != "" && number > bound(most, v.Type()) {
		return fmt.Errorf("%s is more than %s", s, most)
	}
	v.SetInt(number)
	return nil
}

func parseNumber(s string, t reflect.Type) (int64, error) {
	switch t {
	case reflect.TypeFor[Size]():
		n, err := ParseSize(s)
		return int64(n), err
	case reflect.TypeFor[Rate]():
		n, err := ParseRate(s)
		return int64(n), err
	case typeOfDuration:
		n, err := parseDuration(s)
		return int64(n), err
	}
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%q is not a whole number", s)
	}
	return n, nil
}

// bound reads a min or max tag; a bad one is a mistake in this package that
// every test of Load would meet.
func bound(s string, t reflect.Type) int64 {
	n, err := parseNumber(s, t)
	if err != nil {
		panic("config: tag " + s + ": " + err.Error())
	}
	return n
}

// allowedOf says what a setting may be.
func allowedOf(t reflect.Type, tag reflect.StructTag) string {
	var what string
	switch {
	case tag.Get("allow") != "":
		return strings.ReplaceAll(tag.Get("allow"), ",", ", ")
	case tag.Get("form") != "":
		return forms[tag.Get("form")].allowed
	case t == reflect.TypeFor[Size]():
		what = sizeAllowed
	case t == reflect.TypeFor[Rate]():
		what = rateAllowed
	case t == typeOfDuration:
		what = durationAllowed
	case t.Kind() == reflect.Bool:
		what = "true, false"
	case t.Kind() == reflect.String:
		what = "text"
	default:
		what = "a whole number"
	}
	if least, most := tag.Get("min"), tag.Get("max"); least != "" && most != "" {
		what += ", from " + least + " to " + most
	}
	return what
}

// nearest is the name most like key, or "" when none is.
func nearest(key string, names []string) string {
	best, bestDistance := "", 3 // two slips
	for _, name := range names {
		if d := editDistance(key, name); d < bestDistance {
			best, bestDistance = name, d
		}
	}
	return best
}

// editDistance is Levenshtein's, or a large number for words of very different
// length.
func editDistance(a, b string) int {
	if len(a)-len(b) > 2 || len(b)-len(a) > 2 {
		return len(a) + len(b)
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			substitute := diagonal
			if a[i] != b[j] {
				substitute++
			}
			diagonal = row[j+1]
			row[j+1] = min(substitute, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
