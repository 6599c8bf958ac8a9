package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/urfave/cli/v2"

	"mover/bench/fabric"
)

// fabricOutput is where the results of a measurement go: text as they come,
// JSON at the end.
type fabricOutput struct {
	text     io.Writer
	stdout   io.Writer
	table    fabric.Table
	json     string // a file, - for stdout, "" for none
	gigabits bool
	report   *fabric.Report
}

func newFabricOutput(c *cli.Context) *fabricOutput {
	o := &fabricOutput{gigabits: c.Bool("report_gbits"), text: c.App.Writer, stdout: c.App.Writer}
	if c.Bool("out_json") || c.IsSet("out_json_file") {
		o.json = c.String("out_json_file")
	}
	if o.json == "-" {
		o.text = io.Discard
	}
	o.table = fabric.Table{W: o.text, Gigabits: o.gigabits}
	return o
}

func (o *fabricOutput) show() fabric.Show {
	return fabric.Show{
		Agreed:   func(r *fabric.Report) { o.report = r; o.table.Begin(r) },
		Measured: func(x fabric.Result) { o.table.Line(o.report, x) },
	}
}

// end writes what follows from the whole report. Only the client has figures
// for a file.
func (o *fabricOutput) end(r *fabric.Report) (err error) {
	o.table.End(r)
	if o.json == "" || !r.Client {
		return nil
	}
	if o.json == "-" {
		return r.WriteJSON(o.stdout, o.gigabits)
	}
	f, err := os.Create(o.json)
	if err != nil {
		return fmt.Errorf("--out_json_file: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return r.WriteJSON(f, o.gigabits)
}
