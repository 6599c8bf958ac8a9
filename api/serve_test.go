package api

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"mover/job"
)

func TestCheckListen(t *testing.T) {
	for addr, ok := range map[string]bool{
		"127.0.0.1:9470": true, "127.9.9.9:0": true, "[::1]:9470": true, "localhost:9470": true, "[::ffff:127.0.0.1]:1": true,
		":9470": false, "0.0.0.0:9470": false, "[::]:9470": false, "10.0.0.1:9470": false, "host-a:9470": false,
		"[fe80::1%lo]:9470": false, "localhost.evil:1": false,
	} {
		if err := CheckListen(addr, false); (err == nil) != ok {
			t.Errorf("%s: %v", addr, err)
		}
		if err := CheckListen(addr, true); err != nil {
			t.Errorf("%s with TLS: %v", addr, err)
		}
	}
	for _, addr := range []string{"", "127.0.0.1", "::1:9470", "127.0.0.1:http", "127.0.0.1:70000", "127.0.0.1:-1"} {
		if err := CheckListen(addr, true); err == nil {
			t.Errorf("%s: accepted", addr)
		}
	}
}

// serve starts a server on loopback; stop ends it and returns Serve's error.
func (f *fixture) serve() (addr string, stop func() error) {
	f.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.Serve(ctx, ln) }()
	return ln.Addr().String(), func() error {
		cancel()
		select {
		case err := <-ended:
			return err
		case <-time.After(20 * time.Second):
			f.t.Fatal("Serve does not return")
			return nil
		}
	}
}

func (f *fixture) request(client *http.Client, url, token string) (*http.Response, error) {
	r, err := http.NewRequest("GET", url, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+f.tokens[token])
	return client.Do(r)
}

func TestServeEndsWithALongPollUnderWay(t *testing.T) {
	f := newFixture(t, nil)
	s := f.submit()
	<-f.calls
	addr, stop := f.serve()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	answer := make(chan int, 1)
	go func() {
		resp, err := f.request(client, "http://"+addr+"/v1/jobs/"+s.ID.String()+"?wait=60s", "read")
		if err != nil {
			t.Error(err)
			answer <- 0
			return
		}
		defer resp.Body.Close()
		answer <- resp.StatusCode
	}()
	f.waitFor(1)
	if err := stop(); err != nil {
		t.Error(err)
	}
	if status := <-answer; status != 200 {
		t.Errorf("the request that waited got %d", status)
	}
	if w := f.do("GET", "/readyz", "", ""); w.Code != http.StatusServiceUnavailable {
		t.Errorf("ready while stopping: %d", w.Code)
	}
}

func TestServeCutsOffAStuckRequest(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.ShutdownTimeout = 10 * time.Millisecond })
	addr, stop := f.serve()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// The body never comes.
	if _, err := io.WriteString(conn, "POST /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+f.tokens["submit"]+
		"\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(conn).ReadString('\n') // the handler reads the body
	if err != nil || !strings.Contains(line, "100 Continue") {
		t.Fatalf("%q, %v", line, err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestServeLimitsConnectionsAndHeaders(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.MaxConnections = 1 })
	addr, stop := f.serve()
	first, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	ask := "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
	in := bufio.NewReader(first)
	get := func(conn net.Conn, r *bufio.Reader, request string) int {
		t.Helper()
		if _, err := io.WriteString(conn, request); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode
	}
	if got := get(first, in, ask); got != 200 {
		t.Errorf("%d", got)
	}
	second, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if _, err := io.WriteString(second, ask); err != nil {
		t.Fatal(err)
	}
	// The only place is taken until the first leaves.
	if got := get(first, in, ask); got != 200 {
		t.Errorf("%d", got)
	}
	first.Close()
	in = bufio.NewReader(second)
	resp, err := http.ReadResponse(in, nil)
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("%v", err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	if got := get(second, in, "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n"); got != 401 {
		t.Errorf("OPTIONS *: %d", got)
	}
	huge := "GET /healthz HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 64<<10) + "\r\n\r\n"
	if got := get(second, in, huge); got != 431 {
		t.Errorf("huge header: %d", got)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// testTLS is a server's configuration with a certificate for 127.0.0.1.
func testTLS(t *testing.T) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
}

func TestServeTLS(t *testing.T) {
	conf := testTLS(t)
	cert, err := x509.ParseCertificate(conf.Certificates[0].Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	f := newFixture(t, func(c *Config) { c.TLS = conf })
	addr, stop := f.serve()
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}}
	defer client.CloseIdleConnections()
	s := f.submit()
	(<-f.calls).end <- nil
	for !s.State.Terminal() {
		s, _ = f.queue.Wait(t.Context(), s.ID, s.Version)
	}
	resp, err := f.request(client, "https://"+addr+"/v1/jobs/"+s.ID.String()+"?wait=1s", "read")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 200 || s.State != job.Succeeded {
		t.Errorf("%d", resp.StatusCode)
	}
	client.CloseIdleConnections()
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestServeRefusesClearTextOffLoopback(t *testing.T) {
	f := newFixture(t, nil)
	ln, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Serve(t.Context(), ln); err == nil || !strings.Contains(err.Error(), "TLS") {
		t.Errorf("%v", err)
	}
	if _, err := ln.Accept(); err == nil {
		t.Error("the listener stays open")
	}
}

// deadlined remembers the last deadline for reads.
type deadlined struct {
	*httptest.ResponseRecorder
	last time.Time
	set  int
}

func (w *deadlined) SetReadDeadline(t time.Time) error {
	w.last = t
	w.set++
	return nil
}

// TestABodysDeadlineEndsWithIt: else a plan, or a pause that another node has
// to do, would be canceled when it is over.
func TestABodysDeadlineEndsWithIt(t *testing.T) {
	f := newWhole(t)
	f.do("PUT", "/v1/buffers/in", "submit", `{"bytes":10}`)
	for target, kind := range map[string]string{
		"POST /v1/plan": mediaJSON, "POST /v1/jobs": mediaJSON, "PUT /v1/buffers/in/data": mediaBytes,
	} {
		method, path, _ := strings.Cut(target, " ")
		text := body
		if kind == mediaBytes {
			text = "0123456789"
		}
		r := httptest.NewRequest(method, path, strings.NewReader(text))
		r.Header.Set("Authorization", "Bearer "+f.tokens["submit"])
		r.Header.Set("Content-Type", kind)
		w := &deadlined{ResponseRecorder: httptest.NewRecorder()}
		f.ServeHTTP(w, r)
		if w.Code/100 != 2 || w.set < 2 || !w.last.IsZero() {
			t.Errorf("%s: %d, %d deadlines, the last %v", target, w.Code, w.set, w.last)
		}
	}
}
