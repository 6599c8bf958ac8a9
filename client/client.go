package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	v1 "mover/api/v1"
)

// DefaultServer is where a node's API listens unless told otherwise.
const DefaultServer = "http://127.0.0.1:9470"

// Config says where the server is and who asks. The zero value of an optional
// field means the default given.
type Config struct {
	// Server is "https://host-a:9470", or on the node's own host
	// "unix:///run/mover/api.sock", which needs no token; DefaultServer.
	Server    string
	Token     string // the secret; or TokenFile
	TokenFile string // a file with the secret alone
	CAFile    string // PEM certificates that sign the server's; the system's
	// HTTPClient replaces the client's own, and CAFile. It must not have a
	// Timeout shorter than a long poll.
	HTTPClient *http.Client
	// RetryDelay is the pause before the first retry, doubling; 200 ms.
	RetryDelay time.Duration
}

// FromEnv returns the configuration that MOVER_SERVER, MOVER_TOKEN_FILE and
// MOVER_CA describe. getenv is os.Getenv.
func FromEnv(getenv func(string) string) Config {
	return Config{Server: getenv("MOVER_SERVER"), TokenFile: getenv("MOVER_TOKEN_FILE"), CAFile: getenv("MOVER_CA")}
}

// Client talks to one server. Safe for concurrent use.
type Client struct {
	name  string   // of the server, as given
	base  *url.URL // without path
	token string
	http  *http.Client
	delay time.Duration
}

// Limits.
const (
	maxSecretBytes = 4096
	maxAnswerBytes = 32 << 20 // a page of 500 jobs with long paths
	answerTimeout  = 30 * time.Second
	maxTries       = 4
	maxRetryAfter  = 10 * time.Second
)

// New returns a client. It reads the files named, and asks nothing of the
// server.
func New(cfg Config) (*Client, error) {
	if cfg.Server == "" {
		cfg.Server = DefaultServer
	}
	c := &Client{name: cfg.Server, http: cfg.HTTPClient, delay: cfg.RetryDelay}
	if c.delay <= 0 {
		c.delay = 200 * time.Millisecond
	}
	var err error
	if path, local := strings.CutPrefix(cfg.Server, "unix://"); local {
		err = c.overSocket(path)
	} else {
		err = c.overTCP(cfg)
	}
	if err != nil {
		return nil, err
	}
	// A copy: following a redirect would carry the token somewhere else.
	own := *c.http
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.http = &own
	return c, nil
}

// overSocket sets c up for a Unix socket, where the kernel says who asks.
func (c *Client) overSocket(path string) error {
	if !filepath.IsAbs(path) {
		return errors.New("the server's address must be unix:///path/of/the/socket, with three slashes; check --server or MOVER_SERVER")
	}
	c.base = &url.URL{Scheme: "http", Host: "mover"} // the host means nothing
	if c.http == nil {
		dialer := &net.Dialer{Timeout: 5 * time.Second}
		c.http = &http.Client{Transport: &http.Transport{
			DialContext:     func(ctx context.Context, _, _ string) (net.Conn, error) { return dialer.DialContext(ctx, "unix", path) },
			IdleConnTimeout: time.Minute, MaxIdleConnsPerHost: 4,
		}}
	}
	return nil
}

func (c *Client) overTCP(cfg Config) error {
	base, err := url.Parse(cfg.Server)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" ||
		base.User != nil || base.RawQuery != "" || strings.Trim(base.Path, "/") != "" {
		return errors.New("the server's address must be http://host:port, https://host:port or unix:///path; check --server or MOVER_SERVER")
	}
	if base.Scheme == "http" && !loopback(base.Hostname()) {
		return errors.New("the server is another host and its address begins with http://, which would show the token to the network; use https://")
	}
	base.Path = ""
	c.base, c.name = base, base.String()
	if c.token, err = secret(cfg); err != nil {
		return err
	}
	if c.http == nil {
		transport, err := transportFor(cfg.CAFile)
		if err != nil {
			return err
		}
		c.http = &http.Client{Transport: transport}
	}
	return nil
}

// Server returns the address used.
func (c *Client) Server() string { return c.name }

// Close ends idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

func secret(cfg Config) (string, error) {
	token := cfg.Token
	if token == "" {
		if cfg.TokenFile == "" {
			return "", errors.New("no token: name a file that holds one with --token-file or MOVER_TOKEN_FILE; `mover run` prints where the first is, `mover token new` makes more")
		}
		f, err := os.Open(cfg.TokenFile)
		if err != nil {
			return "", fmt.Errorf("read the token: %w; check --token-file or MOVER_TOKEN_FILE", err)
		}
		defer f.Close()
		data, err := io.ReadAll(io.LimitReader(f, maxSecretBytes+1))
		if err != nil {
			return "", fmt.Errorf("read the token: %w", err)
		}
		token = string(data)
	}
	token = strings.TrimSpace(token)
	if token == "" || len(token) > maxSecretBytes || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", errors.New("the token must be one word, as `mover token new` prints it; check --token-file or MOVER_TOKEN_FILE")
	}
	return token, nil
}

func transportFor(caFile string) (*http.Transport, error) {
	t := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		TLSHandshakeTimeout: 10 * time.Second,
		IdleConnTimeout:     time.Minute,
		MaxIdleConnsPerHost: 4,
		ForceAttemptHTTP2:   true,
	}
	if caFile == "" {
		return t, nil
	}
	pem, err := os.ReadFile(caFile)
	if err != nil {
		return nil, fmt.Errorf("read the CA's certificates: %w; check --ca or MOVER_CA", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate in PEM; check --ca or MOVER_CA", caFile)
	}
	t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	return t, nil
}

// request is one call of the API.
type request struct {
	method string
	path   string // with query
	body   []byte
	header map[string]string
	wait   time.Duration // how long the server may take on purpose
	// once: whether it happened cannot be told from a second answer, so there
	// is none.
	once bool
}

// call makes the request, again if that may help, and decodes the answer into
// out, which may be nil. Every request may be repeated unless it says once: a
// submit has its key, actions are idempotent, the others change nothing. It
// reports whether there was an answer (304 has none).
func (c *Client) call(ctx context.Context, r request, out any) (fresh bool, err error) {
	for try := 1; ; try++ {
		var after time.Duration
		fresh, after, err = c.try(ctx, r, out)
		if try > 1 && r.method == http.MethodDelete && isStatus(err, http.StatusNotFound) {
			return false, nil // an earlier try deleted it, and its answer was lost
		}
		if err == nil || try == maxTries || !worthAnother(err) || ctx.Err() != nil || r.once {
			return fresh, err
		}
		if !c.pause(ctx, try, after) {
			return fresh, err // says more than the context does
		}
	}
}

// pause waits before the next try, or until ctx ends, which it reports.
func (c *Client) pause(ctx context.Context, try int, after time.Duration) bool {
	timer := time.NewTimer(max(c.delay<<(try-1), min(after, maxRetryAfter)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func isStatus(err error, status int) bool {
	var refused *Error
	return errors.As(err, &refused) && refused.Status == status
}

// worthAnother reports whether the same request may succeed a moment later.
func worthAnother(err error) bool {
	var refused *Error
	if errors.As(err, &refused) {
		if refused.Code == v1.CodeDraining {
			return false // somebody's decision, and no matter of moments
		}
		switch refused.Status {
		case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			return true
		}
		return false
	}
	var unreachable *UnreachableError
	var cert *tls.CertificateVerificationError
	return errors.As(err, &unreachable) && !errors.As(err, &cert)
}

func (c *Client) try(ctx context.Context, r request, out any) (fresh bool, retryAfter time.Duration, err error) {
	limited, cancel := context.WithTimeout(ctx, r.wait+answerTimeout)
	defer cancel()
	req, err := c.newRequest(limited, r.method, r.path, bytes.NewReader(r.body), r.header)
	if err != nil {
		return false, 0, err
	}
	if r.body != nil && req.Header.Get("Content-Type") == "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return false, 0, c.unreachable(ctx, err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes+1))
	if err != nil {
		return false, 0, c.unreachable(ctx, err)
	}
	if len(data) > maxAnswerBytes {
		return false, 0, fmt.Errorf("the answer of %s is larger than %d bytes", c.name, maxAnswerBytes)
	}
	if resp.StatusCode == http.StatusNotModified {
		return false, 0, nil
	}
	if resp.StatusCode/100 != 2 {
		return false, askedPause(resp), problemOf(resp, data)
	}
	if out == nil || resp.StatusCode == http.StatusNoContent {
		return true, 0, nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		return false, 0, fmt.Errorf("the answer of %s is not that of mover's API; check --server or MOVER_SERVER: %w", c.name, err)
	}
	return true, 0, nil
}

// newRequest makes a request with who asks in it.
func (c *Client) newRequest(ctx context.Context, method, path string, body io.Reader, header map[string]string) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base.String()+path, body)
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	req.Header.Set("Accept", "application/json")
	for k, v := range header {
		req.Header.Set(k, v)
	}
	return req, nil
}

func askedPause(resp *http.Response) time.Duration {
	seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
	return time.Duration(max(min(seconds, 3600), 0)) * time.Second
}

// unreachable is a failure of the transport, unless the caller gave up.
func (c *Client) unreachable(ctx context.Context, err error) error {
	if cause := ctx.Err(); errors.Is(cause, context.Canceled) {
		return cause
	}
	// Without the URL around it, which the message has already.
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return &UnreachableError{Server: c.name, Err: err}
}

func problemOf(resp *http.Response, data []byte) error {
	e := &Error{Status: resp.StatusCode}
	var p v1.Problem
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if kind == "application/problem+json" && json.Unmarshal(data, &p) == nil {
		e.Code, e.Detail, e.Field, e.Reason, e.RequestID = p.Code, p.Detail, p.Field, p.Reason, p.RequestID
	}
	return e
}
