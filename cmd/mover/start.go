package main

import (
	"context"
	"log/slog"

	"mover/node"
	"mover/node/config"
)

// startNode builds the node and runs it until ctx ends.
func startNode(ctx context.Context, cfg *config.Config, log *slog.Logger) error {
	n, err := node.New(cfg, versionText(), log)
	if err != nil {
		return err
	}
	return n.Run(ctx)
}
