package api

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	v1 "mover/api/v1"
)

const (
	// copyBytes is what is moved at a time between a client and a buffer.
	copyBytes = 256 << 10
	// copyTimeout is how long that may take: a client slower than 9 kB/s is
	// cut off, so that it cannot hold its lease for ever.
	copyTimeout = 30 * time.Second
)

var copyPool = sync.Pool{New: func() any { return new([copyBytes]byte) }}

const busyCopies = "as many transfers of buffers' data are under way as may; try again when some have ended"

// getData is GET /v1/buffers/{name}/data: the whole, or one range.
func (a *API) getData(w http.ResponseWriter, r *http.Request, who *caller) error {
	name, err := bufferName(r)
	if err != nil {
		return err
	}
	if _, err := query(r); err != nil {
		return err
	}
	b, err := a.cfg.Buffers.Get(r.Context(), name)
	if err != nil {
		return err
	}
	if !who.mayChange(b.Owner) && !who.mayRead(a.cfg.NodeName, name) {
		return refuse(http.StatusForbidden, v1.CodeRootNotAllowed, "this token does not list the buffer under read; use a token made with it")
	}
	leave, err := a.place(a.copies, v1.CodeTooManyStreams, busyCopies)
	if err != nil {
		return err
	}
	defer leave()
	h := w.Header()
	h.Set("Accept-Ranges", "bytes")
	part, partial, err := rangeOf(r.Header.Get("Range"), b.Bytes)
	if err != nil {
		return err
	}
	if !partial {
		part = span{0, b.Bytes}
	}
	data, err := a.cfg.Buffers.Open(r.Context(), name, BufferRange{Offset: part.first, Length: part.length}, "api "+who.owner)
	if err != nil {
		return notJob(err)
	}
	tag := dataTag(data.Generation())
	if ifRange := r.Header.Get("If-Range"); partial && ifRange != "" && ifRange != tag {
		// It changed since the client got its first part: all of it again.
		_, closeErr := data.Close()
		part, partial = span{0, b.Bytes}, false
		if data, err = a.cfg.Buffers.Open(r.Context(), name, BufferRange{Length: b.Bytes}, "api "+who.owner); err != nil {
			return errors.Join(err, closeErr)
		}
		tag = dataTag(data.Generation())
	}
	defer data.Close()
	if err := precondition(r, tag); err != nil {
		return err
	}
	h.Set("ETag", tag)
	if none := tagsOf(r.Header.Values("If-None-Match")); slices.Contains(none, tag) || slices.Contains(none, "*") {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	h.Set("Content-Type", mediaBytes)
	h.Set("Content-Length", strconv.FormatInt(part.length, 10))
	status := http.StatusOK
	if partial {
		status = http.StatusPartialContent
		h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", part.first, part.first+part.length-1, b.Bytes))
	}
	w.WriteHeader(status)
	if r.Method == http.MethodHead {
		return nil
	}
	return a.send(w, r, data, part)
}

// send writes a range of a buffer to a client. After the first byte there is no
// way to tell an error but to end the connection, which the client sees: the
// length is known.
func (a *API) send(w http.ResponseWriter, r *http.Request, data BufferData, part span) error {
	block := copyPool.Get().(*[copyBytes]byte)
	defer copyPool.Put(block)
	control := http.NewResponseController(w)
	for part.length > 0 {
		p := block[:min(copyBytes, part.length)]
		if _, err := data.ReadAt(p, part.first); err != nil && !errors.Is(err, io.EOF) {
			a.cfg.Logger.Error("read of a buffer for a client", "err", err)
			panic(http.ErrAbortHandler)
		}
		_ = control.SetWriteDeadline(time.Now().Add(copyTimeout))
		if _, err := w.Write(p); err != nil || r.Context().Err() != nil {
			panic(http.ErrAbortHandler) // a client that left, or is too slow
		}
		part.first, part.length = part.first+int64(len(p)), part.length-int64(len(p))
	}
	return nil
}

// putData is PUT /v1/buffers/{name}/data: all of it, or the range that
// Content-Range names.
func (a *API) putData(w http.ResponseWriter, r *http.Request, who *caller) error {
	name, err := bufferName(r)
	if err != nil {
		return err
	}
	if _, err := query(r); err != nil {
		return err
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != mediaBytes {
		return refuse(http.StatusUnsupportedMediaType, v1.CodeMediaType, "the body must be bytes: send the header Content-Type: %s", mediaBytes)
	}
	b, err := a.cfg.Buffers.Get(r.Context(), name)
	if err != nil {
		return err
	}
	if !who.mayChange(b.Owner) && !who.mayWrite(a.cfg.NodeName, name) {
		return refuse(http.StatusForbidden, v1.CodeRootNotAllowed, "this token does not list the buffer under write; use a token made with it")
	}
	part, err := partOf(r, b.Bytes)
	if err != nil {
		return err
	}
	leave, err := a.place(a.copies, v1.CodeTooManyStreams, busyCopies)
	if err != nil {
		return err
	}
	defer leave()
	data, err := a.cfg.Buffers.Open(r.Context(), name, BufferRange{Offset: part.first, Length: part.length, Write: true}, "api "+who.owner)
	if err != nil {
		return notJob(err)
	}
	// Under the lease nobody else changes it.
	err = precondition(r, dataTag(data.Generation()))
	if err == nil {
		err = receive(w, r, data, part)
	}
	generation, closeErr := data.Close()
	if err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	w.Header().Set("ETag", dataTag(generation))
	return answer(w, http.StatusOK, v1.BufferWritten{Offset: part.first, Bytes: part.length, Generation: generation})
}

// partOf is the range that the body of a PUT fills. Without Content-Range it is
// the whole buffer: a body that is shorter would leave old bytes behind it.
func partOf(r *http.Request, size int64) (span, error) {
	part, partial, err := contentRangeOf(r.Header.Values("Content-Range"), size)
	if err != nil {
		return part, err
	}
	if !partial {
		part = span{0, size}
	}
	switch {
	case r.ContentLength > part.length:
		return part, refuse(http.StatusRequestEntityTooLarge, v1.CodeTooLarge, "the body is larger than the %d bytes that it is for", part.length)
	case r.ContentLength >= 0 && r.ContentLength < part.length:
		return part, refuse(http.StatusBadRequest, v1.CodeInvalidRequest,
			"the body is shorter than the %d bytes that it is for; name the range that it fills with Content-Range", part.length)
	}
	return part, nil
}

// receive fills a range of a buffer from a request's body, which has to have
// exactly its length. What came before an error is in the buffer.
func receive(w http.ResponseWriter, r *http.Request, data BufferData, part span) error {
	block := copyPool.Get().(*[copyBytes]byte)
	defer copyPool.Put(block)
	control := http.NewResponseController(w)
	want := part.length
	for part.length > 0 {
		_ = control.SetReadDeadline(time.Now().Add(copyTimeout))
		n, err := io.ReadFull(r.Body, block[:min(copyBytes, part.length)])
		if n > 0 {
			if _, err := data.WriteAt(block[:n], part.first); err != nil {
				return fmt.Errorf("write to the buffer: %w", err)
			}
		}
		part.first, part.length = part.first+int64(n), part.length-int64(n)
		if err != nil {
			return refuse(http.StatusBadRequest, v1.CodeInvalidRequest,
				"%d of %d bytes came; the buffer has those. Send it again", want-part.length, want)
		}
	}
	_ = control.SetReadDeadline(time.Now().Add(copyTimeout))
	if n, _ := io.ReadFull(r.Body, block[:1]); n > 0 {
		return refuse(http.StatusRequestEntityTooLarge, v1.CodeTooLarge, "the body is larger than the %d bytes that it is for, which are in the buffer", want)
	}
	// Reading on would end with the deadline what the server does between
	// requests; the answer has its own.
	_ = control.SetReadDeadline(time.Time{})
	_ = control.SetWriteDeadline(time.Now().Add(writeTimeout))
	return nil
}

// tagsOf are the entity tags of If-Match or If-None-Match headers, whose own
// tags have no comma.
func tagsOf(headers []string) []string {
	var tags []string
	for part := range strings.SplitSeq(strings.Join(headers, ","), ",") {
		if tag := strings.TrimSpace(part); tag != "" {
			tags = append(tags, tag)
		}
	}
	return tags
}

// precondition is If-Match: the strong tag is one of those named, or 412.
func precondition(r *http.Request, tag string) error {
	headers := r.Header.Values("If-Match")
	if len(headers) == 0 {
		return nil
	}
	if tags := tagsOf(headers); slices.Contains(tags, "*") || slices.Contains(tags, tag) {
		return nil
	}
	return changedSince()
}

func changedSince() *problem {
	return refuse(http.StatusPreconditionFailed, v1.CodeVersionMismatch, "it has changed since; get it again, and decide again")
}
