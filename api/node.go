package api

import (
	"context"
	"net/http"

	v1 "mover/api/v1"
	"mover/job"
)

// show makes a handler of one of NodeInfo's methods.
func show[T any](get func(context.Context) (T, error)) handler {
	return func(w http.ResponseWriter, r *http.Request, _ *caller) error {
		if _, err := query(r); err != nil {
			return err
		}
		v, err := get(r.Context())
		if err != nil {
			return err
		}
		return answer(w, http.StatusOK, v)
	}
}

func (a *API) version(w http.ResponseWriter, r *http.Request, _ *caller) error {
	if _, err := query(r); err != nil {
		return err
	}
	return answer(w, http.StatusOK, a.cfg.Info.Version())
}

// showCaller is GET /v1/caller: who asks, as this node sees it. A program need not
// try what its token does not allow.
func (a *API) showCaller(w http.ResponseWriter, r *http.Request, who *caller) error {
	if _, err := query(r); err != nil {
		return err
	}
	return answer(w, http.StatusOK, v1.Caller{Owner: who.owner, Scope: who.scope.String(), Read: filled(who.roots.Read), Write: filled(who.roots.Write)})
}

// healthz is GET /healthz: the process answers. It tells nothing else.
func (a *API) healthz(w http.ResponseWriter, _ *http.Request, _ *caller) error {
	return answer(w, http.StatusOK, map[string]string{"status": "ok"})
}

// tellReadiness logs why the node is not ready, and that it is again: once,
// however often orchestrators and open pages ask.
func (a *API) tellReadiness(err error) {
	var why string
	if err != nil {
		why = err.Error()
	}
	switch before := a.notReady.Swap(why); {
	case before == why || before == nil && why == "":
	case why == "":
		a.cfg.Logger.Info("ready again")
	default:
		a.cfg.Logger.Warn("not ready", "err", err)
	}
}

// readyz is GET /readyz: the node takes jobs. Why not is in the log alone,
// since who asks has no token.
func (a *API) readyz(w http.ResponseWriter, r *http.Request, _ *caller) error {
	err := a.stopping.Err()
	if err == nil {
		err = a.cfg.Info.Ready(r.Context())
	}
	if err == nil && a.cfg.Queue.Draining() {
		err = job.ErrDraining
	}
	a.tellReadiness(err)
	if err != nil {
		return refuse(http.StatusServiceUnavailable, v1.CodeNotReady, "the node does not take jobs now; its log says why").retryAfter("5")
	}
	return answer(w, http.StatusOK, map[string]string{"status": "ready"})
}
