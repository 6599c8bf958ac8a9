package main

import (
	"io"
	"log/slog"

	"mover/node/config"
)

// newLogger makes the service's logger. The handlers of slog escape control
// characters, so that no file name can forge a line.
func newLogger(c config.Log, w io.Writer) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.Level)); err != nil {
		level = slog.LevelInfo // config has checked the word
	}
	options := &slog.HandlerOptions{Level: level}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}
