package node

import (
	"context"
	"log/slog"

	"mover/job"
)

// itemLine is the item that a line of a receiver's log is about.
type itemLine struct {
	job           job.ID
	attempt, item uint32
}

func (in *inbound) line() itemLine { return itemLine{in.key.job, in.attempt, in.item} }

// firstOfTree is the number of a tree's first item. A file is number 0.
const firstOfTree = 1

// tell logs what became of an item: the first of an attempt, which every
// attempt has, where everybody sees it; the others, of which a tree may have a
// million, for debugging.
func (r *receiver) tell(what string, about *itemLine, args ...any) {
	level := slog.LevelDebug
	if about.item <= firstOfTree {
		level = slog.LevelInfo
	}
	r.log(level, what, about, args)
}

// warn logs what went wrong with an item; about is nil when that is not known.
// A peer can cause any number of such lines, so their rate is limited.
func (r *receiver) warn(what string, about *itemLine, args ...any) {
	ok, skipped := r.node.itemLines.allow()
	if !ok {
		return
	}
	if skipped > 0 {
		args = append(args, "similar_left_out", skipped)
	}
	r.log(slog.LevelWarn, what, about, args)
}

func (r *receiver) log(level slog.Level, what string, about *itemLine, args []any) {
	if !r.node.log.Enabled(context.Background(), level) {
		return
	}
	line := []any{"peer", r.peer}
	if r.session != "" {
		line = append(line, "session", r.session)
	}
	if about != nil {
		line = append(line, "job", about.job, "attempt", about.attempt, "item", about.item)
	}
	r.node.log.Log(context.Background(), level, what, append(line, args...)...)
}
