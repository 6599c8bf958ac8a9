package node

import (
	"context"
	"encoding/json"
	"errors"
	"time"
	"unicode/utf8"

	"mover/api"
	v1 "mover/api/v1"
	"mover/fileio"
	"mover/job"
	"mover/reason"
)

// planMost bounds the entries that a plan looks at.
const planMost = 1_000_000

// planAnswer is how much earlier a plan ends than its asker gives up, for its
// answer to arrive.
const planAnswer = 5 * time.Second

// planner implements api.Planner.
type planner struct{ node *Node }

// planQuestion asks the owner of the source for a plan.
type planQuestion struct {
	Owner string   `json:"owner"`
	Spec  job.Spec `json:"spec"`
}

// Plan implements api.Planner. The node that has the source walks it, and asks
// the destination about what it finds.
func (p planner) Plan(ctx context.Context, spec job.Spec, owner string) (v1.Plan, error) {
	n := p.node
	ctx, cancel := context.WithTimeout(ctx, api.PlanTimeout-planAnswer)
	defer cancel()
	if spec.Source.Node == n.cfg.Node.Name {
		return n.plan(ctx, spec)
	}
	body, err := json.Marshal(planQuestion{owner, spec})
	if err != nil {
		return v1.Plan{}, err
	}
	if body, err = n.control.Ask(ctx, spec.Source.Node, askPlan, body); err != nil {
		return v1.Plan{}, asReason(err)
	}
	var out v1.Plan
	if err := json.Unmarshal(body, &out); err != nil {
		return v1.Plan{}, reason.New(reason.TransportError, "node %s answered what cannot be read: %w", spec.Source.Node, err)
	}
	return out, nil
}

// answerPlan plans for a peer's user.
func (n *Node) answerPlan(ctx context.Context, from string, body []byte) ([]byte, error) {
	if err := n.delegated(from); err != nil {
		return nil, err
	}
	var q planQuestion
	if err := json.Unmarshal(body, &q); err != nil {
		return nil, reason.New(reason.PeerRefused, "the question is malformed")
	}
	spec, err := q.Spec.Normalize(n.cfg.Node.Name)
	if err != nil || spec.Source.Node != n.cfg.Node.Name {
		return nil, reason.New(reason.PeerRefused, "the question is not for this node")
	}
	plan, err := n.plan(ctx, spec)
	if err != nil {
		return nil, err
	}
	return json.Marshal(plan)
}

// plan walks the source, which is here. What speaks against the job as a whole
// is in the plan.
func (n *Node) plan(ctx context.Context, spec job.Spec) (v1.Plan, error) {
	w := &planWalk{Node: n, spec: spec, ctx: ctx, plan: v1.Plan{Spec: spec, Complete: true, Examples: []v1.PlanConflict{}}}
	err := w.run()
	var why *reason.Error
	switch {
	case errors.Is(err, errPlanMost), ctx.Err() != nil && w.plan.Items > 0:
		w.plan.Complete = false
	case errors.As(err, &why) && why.Code != reason.PeerUnreachable && why.Code != reason.PeerRefused:
		r := job.NewReason(why)
		w.plan.Reason = &r
	case err != nil:
		return v1.Plan{}, err
	}
	w.plan.SpaceNeededBytes = w.plan.Bytes - w.kept
	return w.plan, nil
}

var errPlanMost = errors.New("more entries than a plan looks at")

// planWalk is one plan being made.
type planWalk struct {
	*Node
	spec      job.Spec
	ctx       context.Context
	selection job.Selection
	group     pack
	plan      v1.Plan
	kept      int64 // bytes of what is skipped
}

func (w *planWalk) run() error {
	if w.spec.Source.Buffer != "" {
		return w.buffer()
	}
	root, err := w.roots.readable(w.spec.Source.Root(), w.spec.Destination.Node)
	if err != nil {
		return err
	}
	info, err := root.Stat(w.spec.Source.Sub())
	if err != nil {
		return err
	}
	if !info.IsDir() || !w.spec.Recursive {
		src, err := root.OpenSource(w.spec.Source.Sub())
		if err != nil {
			return err
		}
		src.Close()
		w.plan.Items, w.plan.Files, w.plan.Bytes = 1, 1, src.Size()
		if w.spec.Destination.Buffer != "" {
			return nil
		}
		// As a tree of one entry: the base is where it goes.
		base, name := splitPath(w.spec.Destination.Sub())
		return w.look(base, []job.GroupEntry{{Kind: job.EntryFile, Path: []byte(name), Size: min(src.Size(), job.MaxGroupBytes), MtimeNS: job.MtimeNS(src.MTime())}},
			[]fileio.Entry{{Rel: "", Size: src.Size()}})
	}
	if w.selection, err = job.ParseSelection(w.spec.Include, w.spec.Exclude); err != nil {
		return reason.New(reason.Internal, "%w", err)
	}
	err = root.Walk(w.ctx, w.spec.Source.Sub(), fileio.WalkConfig{
		Visit: w.visit,
		Skip: func(rel string, dir bool) bool {
			take, descend := w.selection.Take(rel, dir)
			if !take && !descend {
				w.plan.Excluded++
			}
			return !take && !descend
		},
		Problem: func(rel string, err *reason.Error) error {
			w.conflict(rel, err)
			return nil
		},
	})
	return errors.Join(err, w.flush())
}

func (w *planWalk) buffer() error {
	if err := w.buffers.Readable(w.spec.Source.Buffer, w.spec.Destination.Node); err != nil {
		return err
	}
	sh := shipping{Node: w.Node}
	_, length, err := sh.rangeOf(w.spec.Source)
	w.plan.Items, w.plan.Files, w.plan.Bytes = 1, 1, length
	return err
}

func (w *planWalk) visit(e fileio.Entry) error {
	if take, _ := w.selection.Take(e.Rel, e.Kind == fileio.KindDir); !take && e.Rel != "." {
		return nil
	}
	if w.plan.Items == planMost {
		return errPlanMost
	}
	w.plan.Items++
	w.plan.Bytes += e.Size
	switch e.Kind {
	case fileio.KindDir:
		w.plan.Directories++
	case fileio.KindSymlink:
		w.plan.Symlinks++
	default:
		w.plan.Files++
	}
	if err := tooLong(w.spec.Destination.Sub(), e.Rel); err != nil {
		w.conflict(e.Rel, err)
		return nil
	}
	d := job.GroupEntry{Kind: entryKinds[e.Kind], Path: []byte(e.Rel), Size: min(e.Size, smallBytes), MtimeNS: job.MtimeNS(e.MTime), Target: []byte(e.Target)}
	g := &w.group
	if len(g.entries) == job.MaxGroupEntries || g.meta+d.EncodedSize() > packMetaBytes || g.bytes+d.Size > job.MaxGroupBytes {
		if err := w.flush(); err != nil {
			return err
		}
	}
	g.entries, g.described = append(g.entries, e), append(g.described, d)
	g.meta += d.EncodedSize()
	g.bytes += d.Size
	return nil
}

func (w *planWalk) flush() error {
	g := w.group
	w.group = pack{}
	if len(g.entries) == 0 {
		return nil
	}
	return w.look(w.spec.Destination.Sub(), g.described, g.entries)
}

// look asks the destination about entries below base. Sizes are only compared
// where they are exact, which those of large files are not here.
func (w *planWalk) look(base string, described []job.GroupEntry, entries []fileio.Entry) error {
	g := job.GroupManifest{Job: planJob, Group: 1, Attempt: 1, Owner: w.cfg.Node.Name + "/plan", SourceNode: w.cfg.Node.Name, SourceRoot: w.spec.Source.Root(),
		Root: w.spec.Destination.Root(), Base: []byte(base), Overwrite: w.spec.Overwrite, Compare: job.CompareMtime, Entries: described}
	body, err := g.Append(nil)
	if err != nil {
		return reason.New(reason.Internal, "%w", err)
	}
	if w.spec.Destination.Node == w.cfg.Node.Name {
		body, err = w.answerLook(w.ctx, w.cfg.Node.Name, body)
	} else {
		body, err = w.control.Ask(w.ctx, w.spec.Destination.Node, askLook, body)
	}
	if err != nil {
		return asReason(err)
	}
	var told looked
	if err := json.Unmarshal(body, &told); err != nil || len(told.Verdicts) != len(entries) {
		return reason.New(reason.TransportError, "node %s answered what cannot be read", w.spec.Destination.Node)
	}
	w.plan.SpaceFreeBytes = told.FreeBytes
	for i, v := range told.Verdicts {
		switch fileio.Verdict(v.Verdict) {
		case fileio.VerdictSkip:
			w.plan.Skipped++
			w.kept += entries[i].Size
		case fileio.VerdictReplace:
			w.plan.Replaced++
		case fileio.VerdictFail:
			w.conflict(entries[i].Rel, &reason.Error{Code: v.Code, Detail: v.Detail})
		}
	}
	return nil
}

func (w *planWalk) conflict(rel string, err *reason.Error) {
	w.plan.Conflicts++
	if len(w.plan.Examples) < v1.MaxPlanExamples {
		c := v1.PlanConflict{Reason: job.NewReason(err)}
		if utf8.ValidString(rel) {
			c.Path = rel
		} else {
			c.PathB64 = []byte(rel)
		}
		w.plan.Examples = append(w.plan.Examples, c)
	}
}

// looked is the answer to askLook.
type looked struct {
	FreeBytes int64     `json:"free_bytes"`
	Verdicts  []verdict `json:"verdicts"` // one an entry
}

// verdict is what would become of an entry.
type verdict struct {
	Verdict uint8       `json:"v"` // fileio.Verdict
	Code    reason.Code `json:"code,omitempty"`
	Detail  string      `json:"detail,omitempty"`
}

// answerLook tells what would become of entries that a node offered.
func (n *Node) answerLook(ctx context.Context, from string, body []byte) ([]byte, error) {
	g, err := job.DecodeGroup(body)
	if err != nil || g.SourceNode != from {
		return nil, reason.New(reason.PeerRefused, "the question is malformed")
	}
	root, err := n.roots.writable(g.Root, from)
	if err != nil {
		return nil, err
	}
	spec, err := groupSpec(g)
	if err != nil {
		return nil, err
	}
	looks, err := root.Look(ctx, spec)
	if err != nil {
		return nil, err
	}
	out := looked{FreeBytes: n.roots.free(g.Root), Verdicts: make([]verdict, len(looks))}
	for i, l := range looks {
		out.Verdicts[i].Verdict = uint8(l.Verdict)
		if l.Err != nil {
			x := failedEntry(i, l.Err)
			out.Verdicts[i].Code, out.Verdicts[i].Detail = x.Code, x.Detail
		}
	}
	return json.Marshal(out)
}

// free is how much a root's file system has room for, less what stays free.
func (r *roots) free(name string) int64 {
	root, c := r.get(name)
	if root == nil {
		return 0
	}
	fs, err := r.space.ask(root.Path())
	if err != nil {
		return 0
	}
	free := max(int64(fs.Bavail)*fs.Bsize-int64(c.MinFree), 0)
	if c.Quota > 0 {
		free = min(free, int64(c.Quota))
	}
	return free
}

// planJob stands for the job that a plan is about: it has no id yet.
var planJob = job.ID{6: 0x70, 8: 0x80, 15: 1}
