package v1

import "mover/job"

// Plan is POST /v1/plan: what a job of this body would do now. Nothing is
// changed, created or reserved, so the answer may be out of date at once.
type Plan struct {
	Spec        job.Spec `json:"spec"`        // all defaults written out
	Items       int64    `json:"items"`       // entries that the job would take
	Files       int64    `json:"files"`       // regular files, or buffer ranges, among them
	Directories int64    `json:"directories"` // among them
	Symlinks    int64    `json:"symlinks"`    // among them
	Excluded    int64    `json:"excluded"`    // entries that include and exclude leave out; below an excluded directory none are counted
	Bytes       int64    `json:"bytes"`       // of the items
	Skipped     int64    `json:"skipped"`     // items that overwrite leaves as they are at the destination
	Replaced    int64    `json:"replaced"`    // items that would take the place of another
	// Conflicts are items that would fail. Examples has the first of them.
	Conflicts int64          `json:"conflicts"`
	Examples  []PlanConflict `json:"conflict_examples"` // at most MaxPlanExamples; never null
	// SpaceNeededBytes is what the destination has to have room for, the
	// replaced files not deducted: they go when the new ones are whole.
	SpaceNeededBytes int64 `json:"space_needed_bytes"`
	SpaceFreeBytes   int64 `json:"space_free_bytes"` // of the root, its quota and min_free considered
	// Complete is false when the walk was ended by its limit of entries or of
	// time: the numbers are then lower bounds.
	Complete bool `json:"complete"`
	// Reason is why the job would fail as a whole, null if nothing speaks
	// against it.
	Reason *job.Reason `json:"reason"`
}

// MaxPlanExamples is the most conflicts that a Plan shows.
const MaxPlanExamples = 100

// PlanConflict is an item that would fail.
type PlanConflict struct {
	Path    string     `json:"path,omitempty"`     // below the source; "" is the source itself
	PathB64 []byte     `json:"path_b64,omitempty"` // instead of path when it is not UTF-8
	Reason  job.Reason `json:"reason"`
}
