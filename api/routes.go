package api

import (
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"mover/job"
)

// route is one method of one path.
type route struct {
	scope  Scope // 0: open to all
	handle handler
	media  []string // what it answers with; JSON if there is none
	// remote: other nodes may ask it for their users (ServeRemote).
	remote bool
}

const (
	mediaJSON    = "application/json"
	mediaText    = "text/plain"
	mediaEvents  = "text/event-stream"
	mediaBytes   = "application/octet-stream"
	mediaYAML    = "application/yaml"
	mediaMetrics = "application/openmetrics-text"
)

func (r route) makes() []string {
	if r.media == nil {
		return []string{mediaJSON}
	}
	return r.media
}

// muxPattern is what the mux calls a path of the table: to it "/" alone would
// be every path that nothing else matches.
func muxPattern(path string) string {
	if path == "/" {
		return "/{$}"
	}
	return path
}

// tablePath is muxPattern the other way.
func tablePath(pattern string) string { return strings.TrimSuffix(pattern, "{$}") }

// handler answers a request that who may make; who is nil on open routes. An
// error becomes a problem.
type handler func(w http.ResponseWriter, r *http.Request, who *caller) error

// table is every path and method there is; openapi.yaml describes the same.
func (a *API) table() map[string]map[string]route {
	info := a.cfg.Info
	metrics := promhttp.HandlerFor(a.cfg.Registry, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(a.cfg.Logger.Handler(), slog.LevelWarn), ErrorHandling: promhttp.ContinueOnError,
		MaxRequestsInFlight: 8, Timeout: 10 * time.Second,
	})
	shows := func(h handler) map[string]route { return map[string]route{"GET": {scope: ScopeRead, handle: h}} }
	queue := a.cfg.Queue
	action := func(name string, do func(job.ID) (job.Snapshot, error)) map[string]route {
		return map[string]route{"POST": {scope: ScopeSubmit, handle: a.action(name, do), remote: true}}
	}
	events := func(h handler) map[string]route {
		return map[string]route{"GET": {scope: ScopeRead, handle: h, media: []string{mediaJSON, mediaEvents}}}
	}
	return map[string]map[string]route{
		"/":             pageRoute("index.html", mediaHTML),
		"/page.css":     pageRoute("page.css", mediaCSS),
		"/page.js":      pageRoute("page.js", mediaScript),
		"/healthz":      {"GET": {handle: a.healthz}},
		"/readyz":       {"GET": {handle: a.readyz}},
		"/metrics":      {"GET": {scope: ScopeMetrics, handle: fromHTTP(metrics), media: []string{mediaText, mediaMetrics}}},
		"/openapi.yaml": {"GET": {scope: ScopeRead, handle: a.openapi, media: []string{mediaYAML, mediaText}}},
		"/v1/jobs": {
			"GET":  {scope: ScopeRead, handle: a.listJobs},
			"POST": {scope: ScopeSubmit, handle: a.submitJob},
		},
		"/v1/jobs/{id}": {
			"GET":    {scope: ScopeRead, handle: a.getJob, remote: true},
			"PATCH":  {scope: ScopeSubmit, handle: a.patchJob, remote: true},
			"DELETE": {scope: ScopeSubmit, handle: a.deleteJob, remote: true},
		},
		"/v1/jobs/{id}/cancel": action("cancel", queue.Cancel),
		"/v1/jobs/{id}/pause":  action("pause", queue.Pause),
		"/v1/jobs/{id}/resume": action("resume", queue.Resume),
		"/v1/jobs/{id}/retry":  action("retry", queue.Retry),
		"/v1/jobs/{id}/items":  {"GET": {scope: ScopeRead, handle: a.listItems, remote: true}},
		"/v1/jobs/{id}/events": events(a.jobEvents),
		"/v1/events":           events(a.nodeEvents),
		"/v1/plan":             {"POST": {scope: ScopeSubmit, handle: a.plan}},
		"/v1/drain":            {"POST": {scope: ScopeAdmin, handle: a.drain}},
		"/v1/buffers":          shows(a.withBuffers(a.listBuffers)),
		"/v1/buffers/{name}": {
			"GET":    {scope: ScopeRead, handle: a.withBuffers(a.getBuffer)},
			"PUT":    {scope: ScopeSubmit, handle: a.withBuffers(a.putBuffer)},
			"DELETE": {scope: ScopeSubmit, handle: a.withBuffers(a.deleteBuffer)},
		},
		"/v1/buffers/{name}/data": {
			"GET": {scope: ScopeRead, handle: a.withBuffers(a.getData), media: []string{mediaBytes}},
			"PUT": {scope: ScopeSubmit, handle: a.withBuffers(a.putData)},
		},
		"/v1/caller":  shows(a.showCaller),
		"/v1/version": shows(a.version),
		"/v1/devices": shows(show(info.Devices)),
		"/v1/peers":   shows(show(info.Peers)),
		"/v1/roots":   shows(show(info.Roots)),
		"/v1/pollers": shows(show(info.Pollers)),
	}
}

// fromHTTP makes a handler of a finished http.Handler.
func fromHTTP(h http.Handler) handler {
	return func(w http.ResponseWriter, r *http.Request, _ *caller) error {
		h.ServeHTTP(w, r)
		return nil
	}
}
