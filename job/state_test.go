package job

import (
	"strings"
	"testing"
)

// The whole table again, written as a person reads it. Rows and columns in the
// order of States(): x is legal.
const golden = `
queued     . x . . . x . . . x x x
preparing  x . x . . x x x . x . x
running    x . . x x x x . . x . x
verifying  x . . . x x x . . x . x
publishing x . . . . x x x x x . x
paused     x . . . . . . . . . x x
canceling  . . . . . . . . . . x .
succeeded  . . . . . . . . . . . .
partial    x . . . . . . . . . . .
failed     x . . . . . . . . . . .
canceled   x . . . . . . . . . . .
expired    x . . . . . . . . . . .
`

func TestTransitionTable(t *testing.T) {
	states := States()
	rows := strings.Split(strings.TrimSpace(golden), "\n")
	if len(rows) != len(states) || len(moves) != len(states) {
		t.Fatalf("%d rows, %d states, %d in the table", len(rows), len(states), len(moves))
	}
	for i, row := range rows {
		f := strings.Fields(row)
		from := states[i]
		if f[0] != string(from) || len(f) != len(states)+1 {
			t.Fatalf("row %d is %q", i, row)
		}
		for j, to := range states {
			if got, want := from.CanMove(to), f[j+1] == "x"; got != want {
				t.Errorf("%s -> %s: %v, want %v", from, to, got, want)
			}
		}
		if from.Terminal() && len(moves[from]) > 0 && (len(moves[from]) > 1 || moves[from][0] != Queued) {
			t.Errorf("%s: an ended job can do more than be queued again", from)
		}
		if from.Terminal() && from.Active() {
			t.Errorf("%s is both", from)
		}
	}
	if State("nope").Valid() || State("nope").CanMove(Queued) || Queued.CanMove("nope") {
		t.Error("an unknown state is taken for one")
	}
}

func TestIllegalChangePanics(t *testing.T) {
	q, err := NewQueue(Config{NodeName: "n", Router: newScript()})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close(t.Context())
	for _, from := range States() {
		for _, to := range States() {
			if from.CanMove(to) {
				continue
			}
			e := &entry{rec: record{snap: Snapshot{ID: ID{1}, State: from, Version: 7}}}
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%s -> %s went through", from, to)
					}
				}()
				q.change(e, to)
			}()
			if e.rec.snap.State != from || e.rec.snap.Version != 7 {
				t.Errorf("%s -> %s left a trace", from, to)
			}
		}
	}
}
