package api

import (
	"net/http"
	"time"

	v1 "mover/api/v1"
	"mover/job"
)

// PlanTimeout bounds Planner.Plan: a larger tree is counted as far as that.
const PlanTimeout = 60 * time.Second

// plan is POST /v1/plan: the body of a job, and what it would do. Nothing is
// kept of it.
func (a *API) plan(w http.ResponseWriter, r *http.Request, who *caller) error {
	if a.cfg.Planner == nil {
		return absent("way to plan jobs")
	}
	if _, err := query(r); err != nil {
		return err
	}
	spec, owner, err := a.readSpec(w, r, who)
	if err != nil {
		return err
	}
	leave, err := a.place(a.waits, v1.CodeTooManyWaiters, "as many requests wait as may; try again later")
	if err != nil {
		return err
	}
	defer leave()
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(PlanTimeout + writeTimeout))
	ctx, cancel := a.until(r.Context(), PlanTimeout)
	defer cancel()
	p, err := a.cfg.Planner.Plan(ctx, spec, owner)
	if err != nil {
		return err
	}
	p.Spec, p.Examples = spec, filled(p.Examples)
	return answer(w, http.StatusOK, p)
}

// drain is POST /v1/drain.
func (a *API) drain(w http.ResponseWriter, r *http.Request, _ *caller) error {
	if a.cfg.Drainer == nil {
		return absent("way to drain it")
	}
	if _, err := query(r); err != nil {
		return err
	}
	body, err := readBody(w, r, maxActionBytes)
	if err != nil {
		return err
	}
	var req v1.DrainRequest
	if len(body) > 0 {
		if err := job.DecodeStrict(body, &req, maxActionBytes); err != nil {
			return notJob(err)
		}
	}
	d, err := a.cfg.Drainer.Drain(r.Context(), req.Undo)
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, d)
}
