package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
)

// Client is the host's side of one connection. Safe for concurrent use. Every
// call ends with its context; there is no other time limit, for a guest may be
// as slow as it likes.
type Client struct {
	conn net.Conn
	http *http.Client
}

// NewClient returns a client that owns conn. It sends nothing yet.
func NewClient(conn net.Conn) *Client {
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	var used atomic.Bool
	transport := &http.Transport{
		Protocols: &protocols,
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			if used.Swap(true) {
				return nil, ErrGone
			}
			return conn, nil
		},
		DisableCompression: true,
		HTTP2:              &http.HTTP2Config{StrictMaxConcurrentRequests: true},
	}
	return &Client{conn: conn, http: &http.Client{Transport: transport}}
}

// ErrGone means that the connection to the agent has ended: the guest has.
var ErrGone = errors.New("the connection to the guest's agent has ended; its console says why")

// Close ends the connection, and with it whatever runs there.
func (c *Client) Close() error {
	err := c.conn.Close()
	c.http.CloseIdleConnections()
	return err
}

// request makes one request and returns an answer with status 200; its body is
// the caller's to close. what names the request in errors.
func (c *Client) request(ctx context.Context, what, method, path string, query url.Values, body io.Reader, header http.Header) (*http.Response, error) {
	// The host's name means nothing here but must be there.
	u := url.URL{Scheme: "http", Host: "guest", Path: path, RawQuery: query.Encode()}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", shorten(what, 200), err)
	}
	for k, v := range header {
		req.Header[k] = v
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return nil, fmt.Errorf("%s: %w", shorten(what, 200), cause)
		}
		var wrapped *url.Error
		if errors.As(err, &wrapped) {
			err = wrapped.Err // the URL says nothing
		}
		return nil, fmt.Errorf("%s: %w", shorten(what, 200), err)
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 4096)) // what came of the message
		return nil, &RefusedError{What: what, Status: resp.StatusCode, Text: strings.TrimSpace(string(text))}
	}
	return resp, nil
}

// Hello asks the agent what runs there. It may be called while the guest is
// still booting: the answer comes when the agent is up.
func (c *Client) Hello(ctx context.Context) (Hello, error) {
	var h Hello
	resp, err := c.request(ctx, "hello", http.MethodGet, "/v1/hello", nil, nil, nil)
	if err != nil {
		return h, err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(io.LimitReader(resp.Body, 4096)).Decode(&h); err != nil {
		return h, fmt.Errorf("hello: %w", err)
	}
	return h, nil
}

// Get copies a file's content to w. A file that does not exist is
// fs.ErrNotExist. Files of proc and sysfs can be read too.
func (c *Client) Get(ctx context.Context, path string, w io.Writer) error {
	resp, err := c.request(ctx, "read "+path, http.MethodGet, "/v1/file", url.Values{"path": {path}}, nil, nil)
	if err != nil {
		return noFile(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(w, resp.Body); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

// maxReadFile bounds ReadFile, which is for what people and sysfs write.
const maxReadFile = 16 << 20

// ReadFile returns the content of a file of at most 16 MiB, as Get does.
func (c *Client) ReadFile(ctx context.Context, path string) ([]byte, error) {
	var b boundedBuffer
	b.limit = maxReadFile
	if err := c.Get(ctx, path, &b); err != nil {
		return nil, err
	}
	return b.buf.Bytes(), nil
}

type boundedBuffer struct {
	buf   bytes.Buffer
	limit int
}

func (b *boundedBuffer) Write(p []byte) (int, error) {
	if b.buf.Len()+len(p) > b.limit {
		return 0, fmt.Errorf("more than %d bytes", b.limit)
	}
	return b.buf.Write(p)
}

// Put writes a file, which is made, with mode less the umask, or truncated.
func (c *Client) Put(ctx context.Context, path string, mode fs.FileMode, content io.Reader) error {
	query := url.Values{"path": {path}, "mode": {strconv.FormatUint(uint64(mode.Perm()), 8)}}
	resp, err := c.request(ctx, "write "+path, http.MethodPut, "/v1/file", query, content, nil)
	if err != nil {
		return noFile(err)
	}
	return resp.Body.Close()
}

// WriteFile is Put of a slice.
func (c *Client) WriteFile(ctx context.Context, path string, content []byte, mode fs.FileMode) error {
	return c.Put(ctx, path, mode, bytes.NewReader(content))
}

func noFile(err error) error {
	var refused *RefusedError
	if errors.As(err, &refused) && refused.Status == http.StatusNotFound {
		return fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	return err
}

// Dial makes a connection in the guest, "tcp" or "unix", so that a client on
// the host can talk to a server that listens on the guest's loopback. It ends
// with Close, not with ctx.
func (c *Client) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	defer stop()
	up, upWriter := io.Pipe()
	resp, err := c.request(life, "dial "+address, http.MethodPost, "/v1/dial",
		url.Values{"network": {network}, "address": {address}}, up, nil)
	if err != nil {
		cancel()
		_ = up.Close()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, err
	}
	// A net.Pipe between, because it has deadlines.
	ours, theirs := net.Pipe()
	go func() {
		_, _ = io.Copy(upWriter, theirs)
		_ = upWriter.Close()
		cancel() // our side is closed: nobody reads any more
	}()
	go func() {
		_, _ = io.Copy(theirs, resp.Body)
		_ = resp.Body.Close()
		_ = theirs.Close()
		_ = up.Close()
		cancel()
	}()
	return ours, nil
}
