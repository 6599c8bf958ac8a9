package main

import (
	"context"
	"log/slog"
	"os"
	"strings"

	"mover/node"
	"mover/node/config"
)

// startNode builds the node and runs it until ctx ends. Each of reloads makes
// it read file again.
func startNode(ctx context.Context, cfg *config.Config, file string, reloads <-chan os.Signal, log *slog.Logger) error {
	n, err := node.New(cfg, versionText(), log)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		reloadOn(ctx, reloads, file, n, log)
	}()
	defer func() { stop(); <-done }()
	return n.Run(ctx)
}

// reloadable is what takes over a configuration; *node.Node is one.
type reloadable interface {
	Reload(next *config.Config) (needRestart []string, err error)
}

// reloadOn reads file again at each signal, until ctx ends. Whatever is wrong
// with it, the node goes on: with what it has.
func reloadOn(ctx context.Context, signals <-chan os.Signal, file string, n reloadable, log *slog.Logger) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-signals:
		}
		next, err := config.Load(file)
		if err != nil {
			log.Error("not reloaded: correct the configuration and send SIGHUP again; see `mover config check`", "file", file, "err", err)
			continue
		}
		needRestart, err := n.Reload(next)
		if len(needRestart) > 0 {
			log.Warn("some settings that were changed hold after a restart only", "settings", strings.Join(needRestart, " "))
		}
		if err != nil {
			log.Error("not all was reloaded; what is named is as before", "err", err)
			continue
		}
		log.Info("reloaded", "file", file)
	}
}
