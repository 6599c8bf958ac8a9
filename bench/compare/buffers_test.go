package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestBufferCalls checks the requests about buffers, and that what a buffer
// has is summed as what was put there.
func TestBufferCalls(t *testing.T) {
	var data []byte
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /v1/buffers/m", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || !strings.Contains(string(body), `"bytes":"70001B"`) {
			t.Errorf("asked for %s, %v", body, err)
		}
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, `{"name":"m"}`)
	})
	mux.HandleFunc("PUT /v1/buffers/m/data", func(_ http.ResponseWriter, r *http.Request) {
		var err error
		if data, err = io.ReadAll(r.Body); err != nil || r.ContentLength != 70001 {
			t.Errorf("length %d, %v", r.ContentLength, err)
		}
	})
	mux.HandleFunc("GET /v1/buffers/m/data", func(w http.ResponseWriter, _ *http.Request) { w.Write(data) })
	mux.HandleFunc("DELETE /v1/buffers/m", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	server := httptest.NewServer(mux)
	defer server.Close()
	c := newJobClient(1)
	c.base = server.URL
	defer c.http.CloseIdleConnections()
	if err := c.makeBuffer(t.Context(), "m", 70001); err != nil {
		t.Fatal(err)
	}
	sum, err := c.fillBuffer(t.Context(), "m", 70001)
	if err != nil || len(data) != 70001 {
		t.Fatalf("%d bytes, %v", len(data), err)
	}
	if got, err := c.bufferSum(t.Context(), "m"); err != nil || got != sum {
		t.Errorf("sum %s, want %s, %v", got, sum, err)
	}
	data[5] ^= 1
	if got, err := c.bufferSum(t.Context(), "m"); err != nil || got == sum {
		t.Errorf("a flipped bit has the same sum, %v", err)
	}
	if err := c.deleteBuffer(t.Context(), "m"); err != nil {
		t.Error(err)
	}
	if err := c.makeBuffer(t.Context(), "n", 1); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("a refusal gives %v", err)
	}
	if _, err := c.fillBuffer(t.Context(), "n", 1); err == nil {
		t.Error("a refused fill is none")
	}
	if _, err := c.bufferSum(t.Context(), "n"); err == nil {
		t.Error("nothing was summed")
	}
	if err := c.deleteBuffer(t.Context(), "n"); err == nil {
		t.Error("nothing was deleted")
	}
}
