package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/urfave/cli/v2"

	"mover/node/config"
	"mover/node/device"
)

// verdict is how a check ended.
type verdict int

const (
	verdictOK verdict = iota
	verdictWarn
	verdictFail
)

func (v verdict) String() string { return [...]string{"ok", "warn", "fail"}[v] }

// finding is one line of `mover doctor`.
type finding struct {
	verdict verdict
	subject string // "memlock"
	detail  string // what was found
	fix     string // what to do; "" when ok
}

func ok(subject, format string, args ...any) finding {
	return finding{verdictOK, subject, fmt.Sprintf(format, args...), ""}
}

func warn(subject, fix, format string, args ...any) finding {
	return finding{verdictWarn, subject, fmt.Sprintf(format, args...), fix}
}

func fail(subject, fix, format string, args ...any) finding {
	return finding{verdictFail, subject, fmt.Sprintf(format, args...), fix}
}

// checkWithin bounds what may block: names, connections, bindings.
const checkWithin = 3 * time.Second

func doctorCommand() *cli.Command {
	return &cli.Command{
		Name:  "doctor",
		Usage: "check this host against a configuration, and say how to fix what is wrong",
		Description: "Each line is ok, warn (it works, but not at its best) or fail (it does not\n" +
			"work), with a fix below it. Exit code 1 when a check failed. Nothing is changed;\n" +
			"without a configuration the defaults are checked. Peers are asked which ports they\n" +
			"would offer: run it as the user mover runs as, since that takes this node's key.",
		Flags: []cli.Flag{configFlag()},
		Action: func(c *cli.Context) error {
			if err := wantArgs(c); err != nil {
				return err
			}
			cfg, from, err := configOrDefault(c)
			if err != nil {
				return err
			}
			findings := append([]finding{ok("config", "%s", from)}, diagnose(c.Context, cfg)...)
			if failed := report(c.App.Writer, findings); failed > 0 {
				return &exitError{code: exitFailed, err: fmt.Errorf("%d of %d checks failed", failed, len(findings))}
			}
			return nil
		},
	}
}

func diagnose(ctx context.Context, cfg *config.Config) []finding {
	var all []finding
	host := device.ThisHost()
	selection, err := host.Select(cfg, discard)
	all = append(all, checkCPU(cfg)...)
	all = append(all, checkMemory(cfg, selection)...)
	all = append(all, checkRDMA(host, cfg)...)
	devices, offers := checkDevices(cfg, selection, err)
	all = append(all, devices...)
	all = append(all, checkSoft(ctx, cfg)...)
	all = append(all, checkFiles(cfg)...)
	all = append(all, checkPorts(ctx, cfg)...)
	return append(all, checkPeers(ctx, cfg, offers)...)
}

// report prints the findings and counts the failed ones.
func report(w io.Writer, findings []finding) (failed int) {
	for _, f := range findings {
		fmt.Fprintf(w, "%-5s %-14s %s\n", f.verdict, f.subject, f.detail)
		if f.fix != "" {
			fmt.Fprintf(w, "%-5s %-14s fix: %s\n", "", "", f.fix)
		}
		if f.verdict == verdictFail {
			failed++
		}
	}
	return failed
}
