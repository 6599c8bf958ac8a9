//go:build linux

package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"

	"mover/job"
	"mover/reason"
)

func surveyOf(content []byte) survey {
	sum := sha256.Sum256(content)
	return survey{"": "file " + hex.EncodeToString(sum[:])}
}

// judge compares how the job ended with what it was and with what is at its
// destination.
func (c *customer) judge() {
	o, s := c.order, c.last
	c.t.counts.ended(s.State)
	if s.State != job.Succeeded {
		c.judgeReason()
	} else if problem := c.judgeResult(); problem != "" {
		c.t.wrong("%v: %s", o, problem)
	}
	var problem string
	var err error
	switch {
	case o.shared != nil:
		problem, err = o.shared.check()
	case o.span != nil:
		problem, err = c.judgeSpan()
	default:
		problem, err = c.judgeOwn()
	}
	if err != nil {
		c.t.wrong("%v: could not be compared: %v", o, err)
	}
	if problem != "" {
		c.t.counts.wrongPlaces.Add(1)
		c.t.wrong("%v: WRONG BYTES after %s: %s", o, c.told(), problem)
	} else if s.State == job.Succeeded && (s.Result == nil || !s.Result.Skipped) {
		c.t.counts.bytes.Add(o.bytes)
	}
}

// judgeReason reports a bad end that has no reason, or none that can be.
func (c *customer) judgeReason() {
	why, state := c.last.LastReason, c.last.State
	if why == nil || !why.Code.Valid() {
		c.t.wrong("%v: ended %s without a reason of the table", c.order, state)
		return
	}
	c.suspect()
	fits := true
	switch state {
	case job.Canceled:
		fits = why.Code == reason.Canceled
	case job.Expired:
		fits = why.Code == reason.Deadline
	case job.Partial:
		fits = c.order.spec.OnError == job.OnErrorContinue
	}
	if !fits {
		c.t.wrong("%v: the state and the reason do not go together: %s", c.order, c.told())
	}
}

// judgeResult says what is wrong with the result of a job that succeeded.
func (c *customer) judgeResult() string {
	o, result := c.order, c.last.Result
	// A buffer is memory, and never durable.
	durable := (o.spec.Durable == nil || *o.spec.Durable) && o.span == nil
	switch {
	case result == nil:
		return "succeeded without a result"
	case result.Skipped || o.spec.Overwrite != "":
		// What was left as it is was neither moved nor compared.
		if o.spec.Overwrite == job.OverwriteFail {
			return "succeeded, although its destination was there"
		}
		return ""
	case result.Durable != durable || !result.Verified:
		return fmt.Sprintf("succeeded with durable %t, verified %t", result.Durable, result.Verified)
	case !o.spec.Recursive && result.Bytes != o.bytes:
		return fmt.Sprintf("succeeded with %d of %d bytes", result.Bytes, o.bytes)
	}
	return ""
}

// judgeOwn compares a destination that no other job has, and removes it. What
// did not succeed may have been published, wholly or, a tree, in part.
func (c *customer) judgeOwn() (problem string, err error) {
	path := c.order.path()
	found, left, err := look(path)
	if err != nil {
		return "", err
	}
	if c.last.State == job.Succeeded {
		problem = c.order.want.differs(found)
	} else {
		problem = c.order.want.hasAll(found)
	}
	// What is removed must not come back: the last look at the roots knows it.
	c.t.endedOwn(c.order, c.last.State == job.Succeeded)
	if problem != "" || left > 0 {
		return problem, nil // partial files have to go by themselves
	}
	return "", os.RemoveAll(path)
}

// path is where the order's file or tree arrives.
func (o *order) path() string {
	place := o.spec.Destination
	if place.Root() == "small" {
		return o.to.path("small", smallRoot, place.Sub())
	}
	return o.to.path(place.Root(), place.Sub())
}

// judgeSpan compares a range of a buffer, if the job succeeded: without that
// nothing is promised of the range, but of those beside it, which are other
// jobs' to compare.
func (c *customer) judgeSpan() (string, error) {
	if c.last.State != job.Succeeded {
		return "", nil
	}
	f, err := os.Open(c.t.targets[c.order.to.name])
	if err != nil {
		return "", fmt.Errorf("the target buffer: %w", err)
	}
	defer f.Close()
	content := make([]byte, spanBytes)
	if _, err := f.ReadAt(content, c.order.span.offset()); err != nil && err != io.EOF {
		return "", fmt.Errorf("the target buffer: %w", err)
	}
	if problem := c.order.want.differs(surveyOf(content[:c.order.bytes])); problem != "" {
		return fmt.Sprintf("%s (%d bytes; all zero: %t)", problem, c.order.bytes,
			len(bytes.Trim(content[:c.order.bytes], "\x00")) == 0), nil
	}
	return "", nil
}
