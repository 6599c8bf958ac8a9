package config

import (
	"fmt"
	"strings"
)

// Problem is one thing wrong with a configuration.
type Problem struct {
	Line    int    // 1-based
	Field   string // "memory.arena"; "" when it concerns the file
	Message string
	Allowed string // what would be right; "" when the message says it
}

// Invalid is the error of a configuration that cannot be used. Its text has
// one line per problem.
type Invalid struct {
	File     string
	Problems []Problem
}

// maxProblems bounds what is collected: a file that is something else entirely
// would otherwise produce a line for each of its own.
const maxProblems = 20

func (e *Invalid) Error() string {
	var b strings.Builder
	for i, p := range e.Problems {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%s:%d: ", e.File, p.Line)
		if p.Field != "" {
			b.WriteString(p.Field + ": ")
		}
		b.WriteString(p.Message)
		if p.Allowed != "" {
			b.WriteString("; allowed: " + p.Allowed)
		}
	}
	return b.String()
}

func (e *Invalid) add(p Problem) {
	if len(e.Problems) < maxProblems {
		e.Problems = append(e.Problems, p)
	}
}
