package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"mover/bench/pairs"
)

const (
	// bufferName is what each node calls its buffer.
	bufferName = "compare"
	// bufferBytes is long enough for the rate to be that of the transfer and
	// not of the job's start and end, which are measured too.
	bufferBytes = 1 << 30
)

// bufferJob moves the whole buffer of the source into the destination's. What
// is in memory is not durable, and nobody may ask that it is.
func bufferJob(verify string) jobRequest {
	return jobRequest{
		Source:      jobPlace{Buffer: bufferName},
		Destination: jobPlace{Node: string(destinationNode), Buffer: bufferName},
		Verify:      verify,
	}
}

// bufferFigure measures jobs from buffer to buffer, one after the other for
// the seconds of a memory run, against iperf3.
func (b *bench) bufferFigure(ctx context.Context, f figure, peer *iperf, setting int) (_ pairs.Entry, err error) {
	theirs := func(ctx context.Context, _ int) (float64, error) { return peer.run(ctx, setting, b.seconds) }
	if b.ours == nil {
		return b.pairsOf(ctx, f, "memory", peer.describe(setting), nil, theirs)
	}
	if err := checkSpace(onTmpfs, b.tmpfs, bufferBytes); err != nil {
		return pairs.Entry{}, err
	}
	p, err := b.newPlace(ctx, onTmpfs, 0, false)
	if err != nil {
		return pairs.Entry{}, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	nodes, err := b.ours.StartNodes(ctx, p, p.dir)
	if err != nil {
		return pairs.Entry{}, err
	}
	defer func() { err = errors.Join(err, nodes.Stop()) }()
	source, destination := nodes.Clients()
	for _, c := range []*jobClient{source, destination} {
		if err := c.makeBuffer(ctx, bufferName, bufferBytes); err != nil {
			return pairs.Entry{}, err
		}
		defer func() { err = errors.Join(err, c.deleteBuffer(context.WithoutCancel(ctx), bufferName)) }()
	}
	sum, err := source.fillBuffer(ctx, bufferName, bufferBytes)
	if err != nil {
		return pairs.Entry{}, err
	}
	b.say("%s: warm-up", f.name)
	if err := source.run(ctx, bufferJob(f.verify)); err != nil {
		return pairs.Entry{}, fmt.Errorf("warm-up: %w", err)
	}
	ours := func(ctx context.Context, _ int) (float64, error) {
		return bufferRate(ctx, source, f.verify, bufferBytes, time.Duration(b.seconds)*time.Second)
	}
	e, err := b.pairsOf(ctx, f, "memory", peer.describe(setting), ours, theirs)
	if err != nil {
		return pairs.Entry{}, err
	}
	// What came is what was sent; before the first job it was all zero.
	got, err := destination.bufferSum(ctx, bufferName)
	if err != nil {
		return pairs.Entry{}, err
	}
	if got != sum {
		return pairs.Entry{}, fmt.Errorf("the destination's buffer has sha256 %s, the source's %s", got, sum)
	}
	return e, nil
}

// bufferRate runs jobs of size bytes until the time is over, at least one, and
// returns their goodput in decimal Gbit/s, from the first submit to the last
// end.
func bufferRate(ctx context.Context, c *jobClient, verify string, size int64, least time.Duration) (float64, error) {
	start := time.Now()
	for moved := size; ; moved += size {
		if err := c.run(ctx, bufferJob(verify)); err != nil {
			return 0, err
		}
		if took := time.Since(start); took >= least {
			return gbitPerSecond(moved, took), nil
		}
	}
}

func gbitPerSecond(size int64, took time.Duration) float64 {
	return float64(size) * 8 / took.Seconds() / 1e9
}

func bufferPath(name string) string { return "/v1/buffers/" + name }

// makeBuffer creates a buffer that every peer may read and write.
func (c *jobClient) makeBuffer(ctx context.Context, name string, size int64) error {
	body, err := json.Marshal(map[string]any{
		"bytes": fmt.Sprintf("%dB", size), "read": []string{"*"}, "write": []string{"*"},
	})
	if err != nil {
		return err
	}
	var made struct{ Name string }
	if _, err := c.call(ctx, http.MethodPut, bufferPath(name), body, http.StatusCreated, &made); err != nil {
		return fmt.Errorf("making a buffer: %w", err)
	}
	return nil
}

func (c *jobClient) deleteBuffer(ctx context.Context, name string) error {
	resp, err := c.send(ctx, http.MethodDelete, bufferPath(name)+"?wait=10s", nil, "")
	if err != nil {
		return fmt.Errorf("deleting a buffer: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 2048)) // only for the message
		return fmt.Errorf("deleting a buffer: %s: %s", resp.Status, bytes.TrimSpace(text))
	}
	return nil
}

// fillBuffer fills a buffer with size pseudo-random bytes and returns their
// SHA-256.
func (c *jobClient) fillBuffer(ctx context.Context, name string, size int64) (sum string, err error) {
	hash := sha256.New()
	data := io.TeeReader(io.LimitReader(rand.NewChaCha8([32]byte{'b', 'u', 'f', 'f', 'e', 'r'}), size), hash)
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, c.base+bufferPath(name)+"/data", data)
	if err != nil {
		return "", err
	}
	req.ContentLength = size
	req.Header.Set("Authorization", "Bearer "+c.token)
	req.Header.Set("Content-Type", "application/octet-stream")
	resp, err := c.http.Do(req)
	if err != nil {
		return "", fmt.Errorf("filling a buffer: %w", err)
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(io.LimitReader(resp.Body, 2048)); err != nil || resp.StatusCode != http.StatusOK {
		return "", errors.Join(err, fmt.Errorf("filling a buffer: %s: %s", resp.Status, bytes.TrimSpace(text)))
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// bufferSum is the SHA-256 of what is in a buffer.
func (c *jobClient) bufferSum(ctx context.Context, name string) (string, error) {
	resp, err := c.send(ctx, http.MethodGet, bufferPath(name)+"/data", nil, "")
	if err != nil {
		return "", fmt.Errorf("reading a buffer: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("reading a buffer: %s", resp.Status)
	}
	hash := sha256.New()
	if _, err := io.Copy(hash, resp.Body); err != nil {
		return "", fmt.Errorf("reading a buffer: %w", err)
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}
