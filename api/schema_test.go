package api

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// check validates a value (of a decoder that keeps numbers) against a schema:
// the part of JSON Schema 2020-12 that the document uses, and nothing else. An
// answer has no property that its schema does not name (closed), although
// clients have to expect some: that keeps the document whole.
func (d *document) check(schema node, v any, closed bool) error {
	schema = d.at(schema)
	m, ok := schema.(map[string]any)
	if !ok {
		return errors.New("there is no schema")
	}
	for key, arg := range m {
		if err := d.keyword(m, key, arg, v, closed); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	return nil
}

func (d *document) keyword(schema map[string]any, key string, arg, v any, closed bool) error {
	bad := errors.New("not met")
	text, isText := v.(string)
	num, isNum := v.(json.Number)
	object, isObject := v.(map[string]any)
	switch key {
	case "description", "example", "default", "contentMediaType":
	case "type":
		kinds, ok := arg.([]any)
		if !ok {
			kinds = []any{arg}
		}
		if !slices.ContainsFunc(kinds, func(k any) bool { return hasType(v, k.(string)) }) {
			return fmt.Errorf("%T is not %v", v, arg)
		}
	case "enum":
		if !slices.Contains(arg.([]any), v) {
			return bad
		}
	case "const":
		if arg != v {
			return bad
		}
	case "oneOf":
		n := 0
		var last error
		for _, s := range arg.([]any) {
			if err := d.check(s, v, closed); err == nil {
				n++
			} else {
				last = err
			}
		}
		if n != 1 && !(n > 1 && isObject) { // an empty list of jobs is both lists
			return fmt.Errorf("%d of them: %w", n, last)
		}
	case "required":
		for _, name := range arg.([]any) {
			if _, ok := object[name.(string)]; isObject && !ok {
				return fmt.Errorf("%s is missing", name)
			}
		}
	case "properties":
		for name, x := range object {
			s, ok := arg.(map[string]any)[name]
			if !ok && closed {
				return fmt.Errorf("%s is not described", name)
			}
			if ok {
				if err := d.check(s, x, closed); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
			}
		}
	case "additionalProperties":
		props, _ := schema["properties"].(map[string]any)
		for name, x := range object {
			if _, ok := props[name]; ok {
				continue
			}
			if arg == false {
				return fmt.Errorf("%s is unknown", name)
			}
			if err := d.check(arg, x, closed); err != nil {
				return err
			}
		}
	case "items":
		list, _ := v.([]any)
		for i, x := range list {
			if err := d.check(arg, x, closed); err != nil {
				return fmt.Errorf("[%d]: %w", i, err)
			}
		}
	case "pattern":
		if isText && !regexp.MustCompile(arg.(string)).MatchString(text) {
			return bad
		}
	case "minLength", "maxLength":
		if n := utf8.RuneCountInString(text); isText && (key == "minLength" && n < arg.(int) || key == "maxLength" && n > arg.(int)) {
			return bad
		}
	case "minimum", "maximum":
		if f, err := num.Float64(); isNum && (err != nil || key == "minimum" && f < float64(arg.(int)) || key == "maximum" && f > float64(arg.(int))) {
			return bad
		}
	case "format":
		if arg != "date-time" {
			return fmt.Errorf("%v is not known", arg)
		}
		if _, err := time.Parse(time.RFC3339Nano, text); isText && err != nil {
			return err
		}
	case "contentEncoding":
		if _, err := base64.StdEncoding.DecodeString(text); isText && err != nil {
			return err
		}
	default:
		return errors.New("the document uses a keyword that is not checked")
	}
	return nil
}

func hasType(v any, kind string) bool {
	switch v := v.(type) {
	case nil:
		return kind == "null"
	case bool:
		return kind == "boolean"
	case string:
		return kind == "string"
	case json.Number:
		_, err := strconv.ParseInt(v.String(), 10, 64)
		_, errU := strconv.ParseUint(v.String(), 10, 64)
		return kind == "number" || kind == "integer" && (err == nil || errU == nil)
	case []any:
		return kind == "array"
	case map[string]any:
		return kind == "object"
	}
	return false
}

// checkText validates a parameter, which travels as text.
func (d *document) checkText(schema node, text string) error {
	var v any = text
	if sub(d.at(schema), "type") == "integer" {
		v = json.Number(text)
	}
	return d.check(schema, v, false)
}

// TestCheck: a validator that takes everything would prove nothing.
func TestCheck(t *testing.T) {
	d := &document{map[string]any{}}
	schema := map[string]any{"type": "object", "additionalProperties": false, "required": []any{"n"}, "properties": map[string]any{
		"n": map[string]any{"type": "integer", "minimum": 1, "maximum": 3},
		"s": map[string]any{"type": []any{"string", "null"}, "pattern": "^a", "maxLength": 2},
		"l": map[string]any{"type": "array", "items": map[string]any{"enum": []any{"x"}}},
		"t": map[string]any{"type": "string", "format": "date-time"},
		"b": map[string]any{"type": "string", "contentEncoding": "base64"},
		"o": map[string]any{"oneOf": []any{map[string]any{"type": "integer"}, map[string]any{"type": "null"}}},
	}}
	for _, ok := range []string{`{"n":1}`, `{"n":3,"s":null}`, `{"n":2,"s":"ab","l":["x"],"t":"2026-01-01T00:00:00Z","b":"AAA=","o":null}`} {
		if err := d.check(schema, decoded(t, []byte(ok)), false); err != nil {
			t.Errorf("%s: %v", ok, err)
		}
	}
	for _, bad := range []string{`{}`, `[]`, `null`, `{"n":0}`, `{"n":4}`, `{"n":1.5}`, `{"n":"1"}`, `{"n":1,"s":"b"}`, `{"n":1,"s":"abc"}`, `{"n":1,"l":["y"]}`,
		`{"n":1,"l":{}}`, `{"n":1,"t":"today"}`, `{"n":1,"b":"A"}`, `{"n":1,"o":"x"}`, `{"n":1,"x":1}`} {
		if d.check(schema, decoded(t, []byte(bad)), false) == nil {
			t.Errorf("%s is taken", bad)
		}
	}
	if err := d.check(map[string]any{"multipleOf": 2}, "x", false); err == nil || !strings.Contains(err.Error(), "not checked") {
		t.Errorf("%v", err)
	}
}
