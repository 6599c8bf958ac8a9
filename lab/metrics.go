package main

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// Sample is one value of the node's /metrics.
type Sample struct {
	Name   string
	Labels map[string]string
	Value  float64
}

// Metrics are all values at one moment.
type Metrics []Sample

// Metrics asks the node for its metrics.
func (n *Node) Metrics(ctx context.Context) (Metrics, error) {
	token, err := n.token(ctx)
	if err != nil {
		return nil, err
	}
	status, text, err := n.get(ctx, "/metrics", token)
	if err != nil {
		return nil, fmt.Errorf("metrics of node %s: %w", n.Name, err)
	}
	if status != http.StatusOK {
		return nil, fmt.Errorf("metrics of node %s: %d: %s", n.Name, status, text)
	}
	m, err := parseMetrics(text)
	if err != nil {
		return nil, fmt.Errorf("metrics of node %s: %w", n.Name, err)
	}
	return m, nil
}

// Sum adds the samples of a name that have all the labels, given as name,
// value, name, value. It is 0 if there are none.
func (m Metrics) Sum(name string, labels ...string) float64 {
	sum := 0.0
next:
	for _, s := range m {
		if s.Name != name {
			continue
		}
		for i := 0; i+1 < len(labels); i += 2 {
			if s.Labels[labels[i]] != labels[i+1] {
				continue next
			}
		}
		sum += s.Value
	}
	return sum
}

// RailBytes is what the node has sent and received over each of its rails,
// since its session with the peer began. The devices are named as for the
// provider: "rxe0" or "soft0" is rail 0.
func (m Metrics) RailBytes(rail int) (sent, received int64) {
	for _, device := range []string{"rxe", "soft"} {
		device += strconv.Itoa(rail)
		sent += int64(m.Sum("mover_rail_sent_bytes_total", "device", device))
		received += int64(m.Sum("mover_rail_received_bytes_total", "device", device))
	}
	return sent, received
}

// parseMetrics reads the text format of Prometheus.
func parseMetrics(text string) (Metrics, error) {
	var all Metrics
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		end := strings.IndexAny(line, "{ ")
		if end < 0 {
			return nil, fmt.Errorf("no value: %q", line)
		}
		s, rest := Sample{Name: line[:end], Labels: map[string]string{}}, line[end:]
		if rest[0] == '{' {
			var err error
			if rest, err = parseLabels(rest[1:], s.Labels); err != nil {
				return nil, fmt.Errorf("%w: %q", err, line)
			}
		}
		fields := strings.Fields(rest) // value, perhaps a time
		if len(fields) == 0 {
			return nil, fmt.Errorf("no value: %q", line)
		}
		v, err := strconv.ParseFloat(fields[0], 64)
		if err != nil {
			return nil, fmt.Errorf("%w: %q", err, line)
		}
		s.Value = v
		all = append(all, s)
	}
	return all, nil
}

// parseLabels reads name="value",... up to the closing brace.
func parseLabels(text string, labels map[string]string) (rest string, err error) {
	for {
		text = strings.TrimLeft(text, ", ")
		if after, ok := strings.CutPrefix(text, "}"); ok {
			return after, nil
		}
		name, after, ok := strings.Cut(text, "=")
		if !ok {
			return "", fmt.Errorf("a label without a value")
		}
		// The escapes of the format are Go's.
		quoted, err := strconv.QuotedPrefix(after)
		if err != nil {
			return "", fmt.Errorf("label %s: %w", name, err)
		}
		value, err := strconv.Unquote(quoted)
		if err != nil {
			return "", fmt.Errorf("label %s: %w", name, err)
		}
		labels[name] = value
		text = after[len(quoted):]
	}
}
