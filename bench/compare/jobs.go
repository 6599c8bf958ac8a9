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
	// once, with nothing new; after one of the latter the harness pauses as
	// long, so that watching a job does not take the CPU the job needs.
	quickAnswer = 5 * time.Millisecond
	// answerLimit bounds what is read of one answer.
	answerLimit = 1 << 20
)

// jobClient submits jobs to a node and waits for them, over HTTP as any user
// would. Once it has its token it may be used by many goroutines at once.
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
		// A connection is kept for every client of the busiest figure.
		http: &http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: submitClients + 1}},
	}
}

type jobPlace struct {
	Node   string `json:"node,omitempty"`
	Path   string `json:"path,omitempty"`
	Buffer string `json:"buffer,omitempty"`
}

// jobRequest is the part of a job the harness uses.
type jobRequest struct {
	Source      jobPlace `json:"source"`
	Destination jobPlace `json:"destination"`
	Recursive   bool     `json:"recursive,omitempty"`
	Verify      string   `json:"verify"`
	Durable     bool     `json:"durable"`
	// BandwidthLimit is a rate with its unit, "64KiB/s"; empty is none.
	BandwidthLimit string `json:"bandwidth_limit,omitempty"`
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
	id, err := c.submit(ctx, job)
	if err != nil {
		return err
	}
	now, text, err := c.await(ctx, id)
	switch {
	case err != nil:
		return err
	case now.State != "succeeded":
		return fmt.Errorf("job %s ended %s: %s", id, now.State, text)
	case now.Result.Durable != job.Durable || now.Result.Verified != (job.Verify == "crc32c"):
		return fmt.Errorf("job %s succeeded, but not verified and durable as asked: %s", id, text)
	}
	return nil
}

// submit submits a job and returns its ID: it is on disk then.
func (c *jobClient) submit(ctx context.Context, job jobRequest) (id string, err error) {
	body, err := json.Marshal(job)
	if err != nil {
		return "", fmt.Errorf("submitting a job: %w", err)
	}
	var submitted jobState
	if _, err := c.call(ctx, http.MethodPost, "/v1/jobs", body, http.StatusAccepted, &submitted); err != nil {
		return "", fmt.Errorf("submitting a job: %w", err)
	}
	if submitted.ID == "" {
		return "", fmt.Errorf("submitting a job: the answer names no id")
	}
	return submitted.ID, nil
}

// await returns the job, and its text, once it has ended.
func (c *jobClient) await(ctx context.Context, id string) (now jobState, text string, err error) {
	for {
		before, asked := now.State, time.Now()
		now, text, err = c.get(ctx, id, longPoll)
		if err != nil || terminal[now.State] {
			return now, text, err
		}
		if now.State == before && time.Since(asked) < quickAnswer {
			if err := pause(ctx, quickAnswer); err != nil {
				return now, text, fmt.Errorf("waiting for job %s: %w", id, err)
			}
		}
	}
}

// awaitStart returns the job, and its text, once it is not queued any more. It
// asks again and again: a long poll misses a state that was there before it.
func (c *jobClient) awaitStart(ctx context.Context, id string) (now jobState, text string, err error) {
	for {
		now, text, err = c.get(ctx, id, "0s")
		if err != nil || now.State != "queued" {
			return now, text, err
		}
		if err := pause(ctx, quickAnswer); err != nil {
			return now, text, fmt.Errorf("waiting for job %s to start: %w", id, err)
		}
	}
}

// get returns the job and its text; the server may wait for its next state.
func (c *jobClient) get(ctx context.Context, id, wait string) (now jobState, text string, err error) {
	text, err = c.call(ctx, http.MethodGet, "/v1/jobs/"+url.PathEscape(id)+"?wait="+wait, nil, http.StatusOK, &now)
	if err != nil {
		err = fmt.Errorf("waiting for job %s: %w", id, err)
	}
	return now, text, err
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// terminal are the states a job does not leave.
var terminal = map[string]bool{"succeeded": true, "partial": true, "failed": true, "canceled": true, "expired": true}

// cancel ends a job that has not ended.
func (c *jobClient) cancel(ctx context.Context, id string) error {
	var now jobState
	if _, err := c.call(ctx, http.MethodPost, "/v1/jobs/"+url.PathEscape(id)+"/cancel", nil, http.StatusOK, &now); err != nil {
		return fmt.Errorf("canceling job %s: %w", id, err)
	}
	return nil
}

// call makes one request, decodes the answer into out, and returns its text.
// A status other than want is an error that carries the answer.
func (c *jobClient) call(ctx context.Context, method, path string, body []byte, want int, out any) (text string, err error) {
	contentType := ""
	if body != nil {
		contentType = "application/json"
	}
	resp, err := c.send(ctx, method, path, body, contentType)
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

// send makes one request with the token. The caller must close the answer's
// body.
func (c *jobClient) send(ctx context.Context, method, path string, body []byte, contentType string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	return c.http.Do(req)
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
