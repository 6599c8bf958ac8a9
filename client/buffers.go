package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	v1 "mover/api/v1"
)

// Buffers returns the node's buffers, by name.
func (c *Client) Buffers(ctx context.Context) (v1.BufferList, error) {
	return get[v1.BufferList](ctx, c, "/v1/buffers")
}

// Buffer returns one.
func (c *Client) Buffer(ctx context.Context, name string) (v1.Buffer, error) {
	return get[v1.Buffer](ctx, c, bufferPath(name, ""))
}

// CreateBuffer makes a buffer, or returns the one that exists with the same
// spec. Another spec is an *Error with the code buffer_exists.
func (c *Client) CreateBuffer(ctx context.Context, name string, spec v1.BufferSpec) (v1.Buffer, error) {
	body, err := json.Marshal(spec)
	if err != nil {
		return v1.Buffer{}, fmt.Errorf("create the buffer: %w", err)
	}
	var b v1.Buffer
	_, err = c.call(ctx, request{method: http.MethodPut, path: bufferPath(name, ""), body: body}, &b)
	return b, wrap("create the buffer", err)
}

// DeleteBuffer deletes a buffer when its transfers have ended, for which the
// server waits up to wait (0 is its default, at most 60 s); then the error is
// an *Error with the code buffer_busy.
func (c *Client) DeleteBuffer(ctx context.Context, name string, wait time.Duration) error {
	q := ""
	if wait > 0 {
		q = query("wait", wait.String())
	}
	_, err := c.call(ctx, request{method: http.MethodDelete, path: bufferPath(name, "") + q, wait: max(wait, answerTimeout)}, nil)
	return wrap("delete the buffer", err)
}

// bufferPath escapes what cannot be a buffer's name too, so that the server is
// who refuses it.
func bufferPath(name, rest string) string {
	return "/v1/buffers/" + url.PathEscape(name) + rest
}

// stallTimeout is how long a transfer of data may make no progress.
const stallTimeout = 60 * time.Second

// BufferReader reads a range of a buffer. A connection that breaks is made
// again where it was, as long as the content is the same. One goroutine uses
// it; Close it.
type BufferReader struct {
	c          *Client
	ctx        context.Context
	name       string
	tag        string // of the content
	generation uint64
	offset     int64 // of the next byte
	end        int64
	body       io.ReadCloser
	cancel     context.CancelFunc
	stall      *time.Timer
	failures   int // since bytes came
}

// ReadBuffer opens length bytes at offset of a buffer, or with length -1 the
// rest. They are leased while the reader is open. ctx ends the reading too.
func (c *Client) ReadBuffer(ctx context.Context, name string, offset, length int64) (*BufferReader, error) {
	r := &BufferReader{c: c, ctx: ctx, name: name, offset: offset, end: -1}
	if length >= 0 {
		r.end = offset + length
	}
	for try := 1; ; try++ {
		err := r.open()
		if err == nil {
			return r, nil
		}
		if try == maxTries || !worthAnother(err) || !c.pause(ctx, try, 0) {
			return nil, wrap("read the buffer", err)
		}
	}
}

// Generation is the content's.
func (r *BufferReader) Generation() uint64 { return r.generation }

// Remaining is how many bytes are still to be read.
func (r *BufferReader) Remaining() int64 { return r.end - r.offset }

// open asks for what is left.
func (r *BufferReader) open() error {
	if r.end == r.offset {
		r.body = http.NoBody
		return nil
	}
	span := "bytes=" + strconv.FormatInt(r.offset, 10) + "-"
	if r.end >= 0 {
		span += strconv.FormatInt(r.end-1, 10)
	}
	header := map[string]string{"Range": span, "Accept": "application/octet-stream"}
	if r.tag != "" {
		header["If-Match"] = r.tag
	}
	ctx, cancel := context.WithCancel(r.ctx)
	stall := time.AfterFunc(answerTimeout, cancel)
	fail := func(err error) error {
		stall.Stop()
		cancel()
		return err
	}
	req, err := r.c.newRequest(ctx, http.MethodGet, bufferPath(r.name, "/data"), nil, header)
	if err != nil {
		return fail(err)
	}
	resp, err := r.c.http.Do(req)
	if err != nil {
		return fail(r.broke(err))
	}
	if resp.StatusCode != http.StatusPartialContent {
		data, _ := io.ReadAll(io.LimitReader(resp.Body, maxEventBytes))
		resp.Body.Close()
		return fail(problemOf(resp, data))
	}
	var first, last, size int64
	if _, err := fmt.Sscanf(resp.Header.Get("Content-Range"), "bytes %d-%d/%d", &first, &last, &size); err != nil ||
		first != r.offset || last < first || r.end >= 0 && last != r.end-1 {
		resp.Body.Close()
		return fail(fmt.Errorf("%s answered with another range than was asked for; does the buffer end before it?", r.c.name))
	}
	r.end, r.tag = last+1, resp.Header.Get("ETag")
	r.generation, _ = strconv.ParseUint(strings.Trim(r.tag, `g"`), 10, 64)
	r.body, r.cancel, r.stall = resp.Body, cancel, stall
	return nil
}

// broke is a failure of the transport, unless the caller gave up.
func (r *BufferReader) broke(err error) error {
	if r.ctx.Err() != nil {
		return r.ctx.Err()
	}
	return r.c.lost(err)
}

// Read implements io.Reader. An error that is not io.EOF says that the content
// changed (*Error, status 412) or that the server is gone.
func (r *BufferReader) Read(p []byte) (int, error) {
	if r.offset == r.end {
		return 0, io.EOF
	}
	for {
		if r.body != nil {
			r.stall.Reset(stallTimeout)
			n, err := r.body.Read(p[:min(int64(len(p)), r.end-r.offset)])
			if n > 0 || len(p) == 0 {
				r.offset += int64(n)
				r.failures = 0
				return n, nil
			}
			if err == nil {
				continue
			}
			r.shut()
			if err = r.broke(err); !worthAnother(err) {
				return 0, wrap("read the buffer", err)
			}
		}
		if r.failures++; r.failures > maxTries || !r.c.pause(r.ctx, r.failures, 0) {
			return 0, wrap("read the buffer", r.broke(io.ErrUnexpectedEOF))
		}
		if err := r.open(); err != nil && !worthAnother(err) {
			return 0, wrap("read the buffer", err)
		}
	}
}

func (r *BufferReader) shut() {
	if r.body == nil {
		return
	}
	r.body.Close()
	r.body = nil
	if r.cancel != nil {
		r.stall.Stop()
		r.cancel()
	}
}

// Close ends the reading. It may be called again.
func (r *BufferReader) Close() error {
	r.shut()
	r.end = r.offset
	return nil
}

// WriteBuffer fills length bytes at offset of a buffer from a reader, which has
// at least as many. ifGeneration, unless 0, is the generation that the buffer
// must have; else the error is an *Error with status 412. When the connection
// breaks, a part is written; the transfer is made again if from is an
// io.Seeker and ifGeneration 0.
func (c *Client) WriteBuffer(ctx context.Context, name string, offset, length int64, from io.Reader, ifGeneration uint64) (v1.BufferWritten, error) {
	if offset < 0 || length < 1 {
		return v1.BufferWritten{}, errors.New("write the buffer: the range must have at least one byte")
	}
	seeker, again := from.(io.Seeker)
	var start int64
	if again {
		var err error
		if start, err = seeker.Seek(0, io.SeekCurrent); err != nil {
			again = false // a pipe, say
		}
	}
	for try := 1; ; try++ {
		w, err := c.writeOnce(ctx, name, offset, length, from, ifGeneration)
		if err == nil || !again || ifGeneration != 0 || try == maxTries || !worthAnother(err) || !c.pause(ctx, try, 0) {
			return w, wrap("write the buffer", err)
		}
		if _, seekErr := seeker.Seek(start, io.SeekStart); seekErr != nil {
			return w, wrap("write the buffer", errors.Join(err, seekErr))
		}
	}
}

func (c *Client) writeOnce(ctx context.Context, name string, offset, length int64, from io.Reader, ifGeneration uint64) (out v1.BufferWritten, err error) {
	limited, cancel := context.WithCancel(ctx)
	defer cancel()
	stall := time.AfterFunc(stallTimeout, cancel)
	defer stall.Stop()
	header := map[string]string{"Content-Type": "application/octet-stream",
		"Content-Range": fmt.Sprintf("bytes %d-%d/*", offset, offset+length-1)}
	if ifGeneration != 0 {
		header["If-Match"] = `"g` + strconv.FormatUint(ifGeneration, 10) + `"`
	}
	body := &movingReader{r: io.LimitReader(from, length), stall: stall}
	req, err := c.newRequest(limited, http.MethodPut, bufferPath(name, "/data"), body, header)
	if err != nil {
		return out, err
	}
	req.ContentLength = length
	resp, err := c.http.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return out, ctx.Err()
		}
		return out, c.lost(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxEventBytes))
	if err != nil {
		return out, c.lost(err)
	}
	if resp.StatusCode != http.StatusOK {
		return out, problemOf(resp, data)
	}
	if err := json.Unmarshal(data, &out); err != nil {
		return out, fmt.Errorf("the answer of %s is not that of mover's API: %w", c.name, err)
	}
	return out, nil
}

// movingReader puts the timer off with everything that is read.
type movingReader struct {
	r     io.Reader
	stall *time.Timer
}

func (m *movingReader) Read(p []byte) (int, error) {
	n, err := m.r.Read(p)
	m.stall.Reset(stallTimeout)
	return n, err
}
