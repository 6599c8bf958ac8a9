package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

const (
	// longPoll is how long the server may hold an answer until the job
	// changes.
	longPoll = "30s"
	// quickAnswer is what tells a long poll from a server that answers at
	// once; after one of the latter the harness pauses as long, so that
	// watching a job does not take the CPU the job needs.
	quickAnswer = 5 * time.Millisecond
	// answerLimit bounds what is read of one answer.
	answerLimit = 1 << 20
)

// jobClient submits jobs to a node and waits for them, over HTTP as any user
// would. It is used by one goroutine.
type jobClient struct {
	base  string // "http://127.0.0.1:PORT"
	token string
	http  *http.Client
}

// newJobClient is a client of the node whose API listens on a port of
// loopback. It has no token yet; its connections are its own.
func newJobClient(port int) *jobClient {
	return &jobClient{
		base: "http://" + loopback(port),
		// More than longPoll.
		http: &http.Client{Timeout: time.Minute, Transport: &http.Transport{}},
	}
}

type jobPlace struct {
	Node string `json:"node,omitempty"`
	Path string `json:"path"`
}

// jobRequest is the part of a job the harness uses.
type jobRequest struct {
	Source      jobPlace `json:"source"`
	Destination jobPlace `json:"destination"`
	Verify      string   `json:"verify"`
	Durable     bool     `json:"durable"`
}

// jobState is the part of a job's answer the harness uses.
type jobState struct {
	ID     string `json:"id"`
	State  string `json:"state"`
	Result struct {
		Durable  bool `json:"durable"`
		Verified bool `json:"verified"`
	} `json:"result"`
}

// run submits a job and returns once it succeeded; any other end is an error
// with the job as the server shows it. So is a success that is not as verified
// or durable as was asked: it would be measured against peers that are.
func (c *jobClient) run(ctx context.Context, job jobRequest) error {
	body, err := json.Marshal(job)
	if err != nil {
		return fmt.Errorf("submitting a job: %w", err)
	}
	var submitted jobState
	if _, err := c.call(ctx, http.MethodPost, "/v1/jobs", body, http.StatusAccepted, &submitted); err != nil {
		return fmt.Errorf("submitting a job: %w", err)
	}
	if submitted.ID == "" {
		return fmt.Errorf("submitting a job: the answer names no id")
	}
	for {
		var now jobState
		asked := time.Now()
		text, err := c.call(ctx, http.MethodGet, "/v1/jobs/"+url.PathEscape(submitted.ID)+"?wait="+longPoll, nil, http.StatusOK, &now)
		if err != nil {
			return fmt.Errorf("waiting for job %s: %w", submitted.ID, err)
		}
		switch now.State {
		case "succeeded":
			if now.Result.Durable != job.Durable || now.Result.Verified != (job.Verify == "crc32c") {
				return fmt.Errorf("job %s succeeded, but not verified and durable as asked: %s", submitted.ID, text)
			}
			return nil
		case "partial", "failed", "canceled", "expired":
			return fmt.Errorf("job %s ended %s: %s", submitted.ID, now.State, text)
		}
		if time.Since(asked) < quickAnswer {
			select {
			case <-ctx.Done():
				return fmt.Errorf("waiting for job %s: %w", submitted.ID, ctx.Err())
			case <-time.After(quickAnswer):
			}
		}
	}
}

// call makes one request, decodes the answer into out, and returns its text.
// A status other than want is an error that carries the answer.
func (c *jobClient) call(ctx context.Context, method, path string, body []byte, want int, out any) (text string, err error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, answerLimit))
	if err != nil {
		return "", err
	}
	text = string(bytes.TrimSpace(data))
	if resp.StatusCode != want {
		return text, fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, tail(text, 2048))
	}
	if err := json.Unmarshal(data, out); err != nil {
		return text, fmt.Errorf("%s %s: %w", method, path, err)
	}
	return text, nil
}

// ready is a readiness check of the node.
func (c *jobClient) ready(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+"/readyz", nil)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 2048)) // only for the message
		return fmt.Errorf("/readyz: %s: %s", resp.Status, bytes.TrimSpace(text))
	}
	return nil
}
