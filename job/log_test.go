package job

import (
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mover/job/jobtest"
	"mover/reason"
)

func TestLogTellsTheStory(t *testing.T) {
	var log strings.Builder
	began := jobtest.NewClock().Now()
	b := newBench(t, func(c *Config) {
		c.MaxAttempts = 2
		c.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{
			ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				switch a.Key {
				case slog.TimeKey:
					return slog.Attr{}
				case "job":
					return slog.String("job", "ID")
				case "next_attempt_at":
					return slog.String("next", a.Value.Time().Sub(began).String())
				}
				return a
			},
		}))
	})
	defer b.close()
	id := b.submit("a/t", func(s *Spec) { s.Source.Path = "data/x\n" + `level=ERROR "` })
	b.next().end(reason.New(reason.PeerUnreachable, "no answer\nfrom b"))
	b.until(id, Queued)
	b.settled()
	b.clock.Advance(time.Second)
	b.next().reply <- outcome{res: Result{Bytes: 5, Providers: []string{"soft"}}}
	b.until(id, Succeeded)
	id = b.submit("a/t", nil)
	b.next().end(reason.New(reason.NoSpace, "the disk is full"))
	b.until(id, Failed)
	b.settled()

	got := regexp.MustCompile(`seconds=\S+`).ReplaceAllString(log.String(), "seconds=N")
	want := `level=INFO msg="job submitted" job=ID source="a:data/x\\u000alevel=ERROR \"" destination="b:in/x\\u000alevel=ERROR \"" owner=a/t
level=WARN msg="attempt failed, another follows" job=ID attempt=1 from=preparing code=PEER_UNREACHABLE detail="no answer\\u000afrom b" next=1s
level=INFO msg="job succeeded" job=ID attempts=2 bytes=5 seconds=N providers=[soft]
level=INFO msg="job submitted" job=ID source=a:data/x destination=b:in/x owner=a/t
level=WARN msg="job failed" job=ID attempts=1 from=preparing code=NO_SPACE detail="the disk is full"
`
	if d := cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")); d != "" {
		t.Error(d)
	}
}
