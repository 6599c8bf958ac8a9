package job

import (
	"context"
)

// script is a Router whose attempts end when, and as, the test says.
type script struct{ calls chan *scripted }

type scripted struct {
	ctx     context.Context
	attempt *Attempt
	reply   chan outcome
}

type outcome struct {
	res Result
	err error
}

func newScript() *script { return &script{calls: make(chan *scripted, 1000)} }

func (s *script) Run(ctx context.Context, a *Attempt) (Result, error) {
	c := &scripted{ctx: ctx, attempt: a, reply: make(chan outcome, 1)}
	s.calls <- c
	o := <-c.reply
	return o.res, o.err
}

func (c *scripted) end(err error) { c.reply <- outcome{err: err} }
