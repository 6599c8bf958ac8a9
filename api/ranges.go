package api

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	v1 "mover/api/v1"
)

// span is a range of bytes: [first, first+length).
type span struct{ first, length int64 }

// rangeOf reads a Range header about size bytes (RFC 9110 section 14.2): one
// range of bytes, as "bytes=0-99", "bytes=100-" or "bytes=-100". Several at a
// time are not served. ok is false when there is no header, or one of another
// unit, which is ignored as the RFC wants. The error is a *problem: 416 for a
// range that the buffer does not have.
func rangeOf(header string, size int64) (s span, ok bool, err error) {
	unit, set, found := strings.Cut(header, "=")
	if header == "" || found && !strings.EqualFold(strings.TrimSpace(unit), "bytes") {
		return span{}, false, nil
	}
	from, to, dash := strings.Cut(strings.TrimSpace(set), "-")
	first, fromErr := number(from)
	last, toErr := number(to)
	switch {
	case !found || !dash || strings.Contains(set, ",") || from == "" && to == "" || from != "" && fromErr != nil || to != "" && toErr != nil ||
		from != "" && to != "" && last < first:
		return s, false, refuse(http.StatusBadRequest, v1.CodeInvalidRequest,
			"Range: must be one range, such as bytes=0-99, bytes=100- or bytes=-100")
	case from == "": // the last so many
		if last == 0 {
			return s, false, badRange(size)
		}
		n := min(last, size)
		return span{size - n, n}, true, nil
	case first >= size:
		return s, false, badRange(size)
	case to == "" || last >= size:
		last = size - 1
	}
	return span{first, last - first + 1}, true, nil
}

// contentRangeOf reads a Content-Range header of a PUT (RFC 9110 section 14.4
// and 14.5): "bytes 0-99/1000" or "bytes 0-99/*". ok is false when there is none.
func contentRangeOf(headers []string, size int64) (s span, ok bool, err error) {
	if len(headers) == 0 {
		return span{}, false, nil
	}
	unit, rest, _ := strings.Cut(headers[0], " ")
	set, total, found := strings.Cut(rest, "/")
	from, to, dash := strings.Cut(set, "-")
	first, err1 := number(from)
	last, err2 := number(to)
	whole, err3 := number(total)
	if len(headers) != 1 || !strings.EqualFold(unit, "bytes") || !found || !dash || err1 != nil || err2 != nil || last < first ||
		total != "*" && err3 != nil {
		return s, false, refuse(http.StatusBadRequest, v1.CodeInvalidRequest, "Content-Range: must be such as bytes 0-99/* or bytes 0-99/1000")
	}
	if last >= size || total != "*" && whole != size {
		return s, false, badRange(size)
	}
	return span{first, last - first + 1}, true, nil
}

// number reads digits alone: no sign, no space.
func number(s string) (int64, error) {
	if strings.TrimLeft(s, "0123456789") != "" {
		return 0, strconv.ErrSyntax
	}
	return strconv.ParseInt(s, 10, 64)
}

func badRange(size int64) *problem {
	p := refuse(http.StatusRequestedRangeNotSatisfiable, v1.CodeBadRange, "the buffer has no such range; it has %d bytes", size)
	p.header = map[string]string{"Content-Range": fmt.Sprintf("bytes */%d", size)}
	return p
}
