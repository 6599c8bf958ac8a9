package job

import (
	"bytes"
	"encoding"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// FieldError is input that is refused. Its text never repeats the input, which
// may be hostile or hold something private: it names the field, in the
// project's own words, and what is allowed.
type FieldError struct {
	Field       string // "source.path"; "" is the document as a whole
	Problem     string // continues a sentence that begins with the field
	Unsupported bool   // the input is right, and this version cannot do it yet
}

func (e *FieldError) Error() string {
	if e.Field == "" {
		return e.Problem
	}
	return e.Field + ": " + e.Problem
}

func refuse(field, format string, args ...any) *FieldError {
	return &FieldError{Field: field, Problem: fmt.Sprintf(format, args...)}
}

var (
	unmarshalerType = reflect.TypeFor[json.Unmarshaler]()
	textType        = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// decodeStrict reads one JSON value into the struct that into points to. It
// refuses what encoding/json lets pass: unknown fields, keys that differ only
// in case from a field, repeated keys, null, text that is not UTF-8, lone
// surrogates, and anything behind the value. Nesting is bounded by into's type.
func decodeStrict(data []byte, into any, maxBytes int) error {
	if len(data) > maxBytes {
		return refuse("", "the document is larger than %d bytes", maxBytes)
	}
	if !utf8.Valid(data) {
		return refuse("", "the document is not UTF-8; names that are not go into path_b64")
	}
	var whole json.RawMessage
	if err := json.Unmarshal(data, &whole); err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			return refuse("", "the document is not one JSON value: look at byte %d", syntax.Offset)
		}
		return refuse("", "the document is not one JSON value")
	}
	if loneSurrogate(data) {
		return refuse("", "a \\u escape is half of a surrogate pair; names that are not Unicode go into path_b64")
	}
	w := walker{dec: json.NewDecoder(bytes.NewReader(data))}
	w.dec.UseNumber()
	if err := w.value(reflect.TypeOf(into).Elem(), ""); err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		// The walk decides everything json.Unmarshal does; this is a backstop.
		return refuse("", "the document does not have the expected form")
	}
	return nil
}

// loneSurrogate reports whether valid JSON data has a \u escape for half of a
// surrogate pair, which encoding/json would turn into U+FFFD: another name.
func loneSurrogate(data []byte) bool {
	unit := func(i int) (uint64, bool) {
		if i+6 > len(data) || data[i] != '\\' || data[i+1] != 'u' {
			return 0, false
		}
		n, err := strconv.ParseUint(string(data[i+2:i+6]), 16, 16)
		return n, err == nil
	}
	for i := 0; i < len(data); i++ {
		if data[i] != '\\' {
			continue
		}
		hi, ok := unit(i)
		switch {
		case !ok || hi < 0xD800 || hi > 0xDFFF:
			i++ // the escaped character, which may be a backslash
		case hi >= 0xDC00:
			return true
		default:
			lo, ok := unit(i + 6)
			if !ok || lo < 0xDC00 || lo > 0xDFFF {
				return true
			}
			i += 11
		}
	}
	return false
}

// walker compares a document with a type, token by token.
type walker struct{ dec *json.Decoder }

func (w *walker) value(t reflect.Type, field string) error {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if reflect.PointerTo(t).Implements(unmarshalerType) {
		return w.custom(t, field)
	}
	token, err := w.dec.Token()
	if err != nil {
		return refuse(field, "is not valid JSON")
	}
	switch v := token.(type) {
	case json.Delim:
		switch {
		case v == '{' && t.Kind() == reflect.Struct:
			return w.object(t, field)
		case v == '{' && t.Kind() == reflect.Map:
			return w.mapping(t, field)
		case v == '[' && t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8:
			return w.list(t, field)
		}
	case string:
		if reflect.PointerTo(t).Implements(textType) {
			if reflect.New(t).Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(v)) != nil {
				return refuse(field, "does not have the form that such a value has")
			}
			return nil
		}
		if t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8 {
			if _, err := base64.StdEncoding.DecodeString(v); err != nil {
				return refuse(field, "must be base64 (RFC 4648 section 4, with padding)")
			}
			return nil
		}
		if t.Kind() == reflect.String {
			return nil
		}
	case json.Number:
		return number(v, t, field)
	case bool:
		if t.Kind() == reflect.Bool {
			return nil
		}
	case nil:
		return refuse(field, "must not be null; leave it out for the default")
	}
	return refuse(field, "must be %s", wanted(t))
}

func (w *walker) custom(t reflect.Type, field string) error {
	var raw json.RawMessage
	if err := w.dec.Decode(&raw); err != nil {
		return refuse(field, "is not valid JSON")
	}
	if string(raw) == "null" {
		return refuse(field, "must not be null; leave it out for the default")
	}
	if err := reflect.New(t).Interface().(json.Unmarshaler).UnmarshalJSON(raw); err != nil {
		return refuse(field, "%s", err)
	}
	return nil
}

func (w *walker) object(t reflect.Type, field string) error {
	fields := map[string]reflect.Type{}
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		fields[name] = t.Field(i).Type
	}
	seen := map[string]bool{}
	for w.dec.More() {
		key, err := w.key(field, seen)
		if err != nil {
			return err
		}
		ft, ok := fields[key]
		if !ok {
			names := make([]string, 0, len(fields))
			for name := range fields {
				names = append(names, name)
			}
			slices.Sort(names)
			return refuse(field, "has an unknown field just before byte %d; this version knows %s",
				w.dec.InputOffset(), strings.Join(names, ", "))
		}
		if err := w.value(ft, join(field, key)); err != nil {
			return err
		}
	}
	_, err := w.dec.Token()
	return err
}

func (w *walker) mapping(t reflect.Type, field string) error {
	seen := map[string]bool{}
	for w.dec.More() {
		if _, err := w.key(field, seen); err != nil {
			return err
		}
		// The key is the user's, so the message names the map alone.
		if err := w.value(t.Elem(), field); err != nil {
			return err
		}
	}
	_, err := w.dec.Token()
	return err
}

func (w *walker) key(field string, seen map[string]bool) (string, error) {
	token, err := w.dec.Token()
	key, ok := token.(string)
	if err != nil || !ok {
		return "", refuse(field, "is not valid JSON")
	}
	if seen[key] {
		return "", refuse(field, "has the same key twice, just before byte %d", w.dec.InputOffset())
	}
	seen[key] = true
	return key, nil
}

func (w *walker) list(t reflect.Type, field string) error {
	for i := 0; w.dec.More(); i++ {
		if err := w.value(t.Elem(), fmt.Sprintf("%s[%d]", field, i)); err != nil {
			return err
		}
	}
	_, err := w.dec.Token()
	return err
}

func number(n json.Number, t reflect.Type, field string) error {
	var err error
	switch t.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		_, err = strconv.ParseInt(n.String(), 10, t.Bits())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		_, err = strconv.ParseUint(n.String(), 10, t.Bits())
	default:
		return refuse(field, "must be %s", wanted(t))
	}
	if err != nil {
		return refuse(field, "must be a whole number in range")
	}
	return nil
}

func wanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "a base64 string"
		}
		return "a list"
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	}
	return "a whole number"
}

func join(field, name string) string {
	if field == "" {
		return name
	}
	return field + "." + name
}
