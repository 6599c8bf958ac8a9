package job_test

import (
	"context"

	"mover/job"
)

type routerFunc func(context.Context, *job.Attempt) (job.Result, error)

func (f routerFunc) Run(ctx context.Context, a *job.Attempt) (job.Result, error) { return f(ctx, a) }

func spec(name string) job.Spec {
	return job.Spec{Source: job.Place{Path: "data/" + name}, Destination: job.Place{Node: "b", Path: "in/"}}
}
