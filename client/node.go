package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	v1 "mover/api/v1"
)

// planWait is how long a node may take to plan a large tree.
const planWait = 60 * time.Second

// Version, Devices, Peers, Roots and Pollers return what the node says of itself.
func (c *Client) Version(ctx context.Context) (v1.Version, error) {
	return get[v1.Version](ctx, c, "/v1/version")
}
func (c *Client) Devices(ctx context.Context) (v1.Devices, error) {
	return get[v1.Devices](ctx, c, "/v1/devices")
}
func (c *Client) Peers(ctx context.Context) (v1.Peers, error) {
	return get[v1.Peers](ctx, c, "/v1/peers")
}
func (c *Client) Roots(ctx context.Context) (v1.Roots, error) {
	return get[v1.Roots](ctx, c, "/v1/roots")
}
func (c *Client) Pollers(ctx context.Context) (v1.Pollers, error) {
	return get[v1.Pollers](ctx, c, "/v1/pollers")
}

// Drain makes the node take no new jobs, or take them again (undo). It returns
// at once; asked again, it tells how many attempts still run.
func (c *Client) Drain(ctx context.Context, undo bool) (v1.Drain, error) {
	body, err := json.Marshal(v1.DrainRequest{Undo: undo})
	if err != nil {
		return v1.Drain{}, fmt.Errorf("drain: %w", err)
	}
	var d v1.Drain
	_, err = c.call(ctx, request{method: http.MethodPost, path: "/v1/drain", body: body}, &d)
	return d, wrap("drain the node", err)
}
