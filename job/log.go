package job

import "log/slog"

// Lines of the log tell a job's story to who has only the log: what was asked,
// each failure with its cause and when the next attempt comes, and how it
// ended. The states between are for debugging. Places and details come from
// clients and peers; slog's handlers quote them, cleanDetail and cleanPath
// bound and escape them.

// logSubmitted tells what was asked.
func (q *Queue) logSubmitted(s *Snapshot) {
	q.cfg.Logger.Info("job submitted", "job", s.ID, "source", placeText(s.Spec.Source),
		"destination", placeText(s.Spec.Destination), "owner", s.Owner)
}

// logChange tells that s came to its state from another one.
func (q *Queue) logChange(s *Snapshot, from State) {
	switch s.State {
	case Queued:
		if q.closed {
			q.cfg.Logger.Warn("job back in the queue: the node stops", "job", s.ID, "attempt", s.Attempts, "from", from)
			return
		}
		if s.NextAttemptAt == nil {
			// Resumed, interrupted by a restart, or waiting for a place.
			q.cfg.Logger.Info("job queued", "job", s.ID, "attempt", s.Attempts, "from", from)
			return
		}
		args := append([]any{"job", s.ID, "attempt", s.Attempts, "from", from}, reasonArgs(s)...)
		args = append(args, "next_attempt_at", *s.NextAttemptAt)
		q.cfg.Logger.Warn("attempt failed, another follows", args...)
	case Failed, Expired, Partial:
		args := append([]any{"job", s.ID, "attempts", s.Attempts, "from", from}, reasonArgs(s)...)
		q.cfg.Logger.Warn("job "+string(s.State), args...)
	case Canceled:
		q.cfg.Logger.Info("job canceled", "job", s.ID, "attempts", s.Attempts)
	case Succeeded:
		args := []any{"job", s.ID, "attempts", s.Attempts}
		if r := s.Result; r != nil {
			args = append(args, "bytes", r.Bytes, "seconds", r.Seconds, "providers", r.Providers)
			if r.Skipped {
				args = append(args, "skipped", true)
			}
		}
		q.cfg.Logger.Info("job succeeded", args...)
	default:
		q.cfg.Logger.Debug("job", "job", s.ID, "from", from, "to", s.State, "attempt", s.Attempts)
	}
}

func reasonArgs(s *Snapshot) []any {
	if s.LastReason == nil {
		return nil
	}
	return []any{"code", s.LastReason.Code, "detail", s.LastReason.Detail}
}

// placeText is a place as people write it. A path may be any bytes: a handler
// of JSON would change what is not UTF-8, so it is made printable here.
func placeText(p Place) slog.Value {
	return slog.StringValue(p.Node + ":" + cleanDetail(p.FullPath()))
}
