package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	v1 "mover/api/v1"
)

// healthWithin bounds the whole question.
const healthWithin = 4 * time.Second

func healthzCommand() *cli.Command {
	return &cli.Command{
		Name:  "healthz",
		Usage: "exit with 0 if the node answers that it is healthy, else with 1",
		Description: "Needs no token. For a container's HEALTHCHECK and for scripts; with --ready, for\n" +
			"load balancers: a node that drains or still starts is healthy and not ready.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "server", EnvVars: []string{"MOVER_SERVER"}, DefaultText: "this host's socket, else http://127.0.0.1:9470",
				Usage: "the `URL` of the node's HTTP API, or unix:///path/of/its/socket"},
			&cli.StringFlag{Name: "ca", EnvVars: []string{"MOVER_CA"}, Usage: "a PEM `FILE` that vouches for the node, for https"},
			&cli.BoolFlag{Name: "ready", Usage: "ask whether it takes jobs, too"},
		},
		Action: func(c *cli.Context) error {
			if err := wantArgs(c); err != nil {
				return err
			}
			page := "/healthz"
			if c.Bool("ready") {
				page = "/readyz"
			}
			// One code for all that is wrong: a HEALTHCHECK knows no other.
			if err := askHealth(c.Context, serverOf(c), c.String("ca"), page); err != nil {
				return &exitError{code: exitFailed, err: err}
			}
			return nil
		},
	}
}

func askHealth(ctx context.Context, server, caFile, page string) error {
	ctx, cancel := context.WithTimeout(ctx, healthWithin)
	defer cancel()
	transport := &http.Transport{DisableKeepAlives: true}
	address := strings.TrimSuffix(server, "/") + page
	if socket, is := strings.CutPrefix(server, socketScheme); is {
		address = "http://mover" + page // the host means nothing there
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}
	}
	if caFile != "" {
		pem, err := os.ReadFile(caFile)
		if err != nil {
			return fmt.Errorf("--ca: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return fmt.Errorf("--ca: %s holds no certificate in PEM", caFile)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return errors.New("--server must be http://host:port, https://host:port or unix:///path")
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return fmt.Errorf("%w; is `mover run` up?", err)
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10)) // for people; the status is the answer
	if response.StatusCode != http.StatusOK {
		var problem v1.Problem
		if json.Unmarshal(text, &problem) == nil && problem.Detail != "" {
			text = []byte(problem.Detail)
		}
		return fmt.Errorf("%s%s answers with HTTP status %d: %.200q", server, page, response.StatusCode, strings.TrimSpace(string(text)))
	}
	return nil
}
