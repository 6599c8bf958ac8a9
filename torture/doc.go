//go:build linux

// Command torture runs two real nodes on loopback, gives them mixed jobs, and
// meanwhile does to them what a bad week does to a host: it kills and stops
// them, cuts and stalls their connections, fills a disk, cancels, pauses and
// submits again. Then calm returns, every job has to end, and every byte is
// compared.
//
// It knows mover by what anyone can see: the binary, the HTTP API, the files.
// A seed draws the schedule and the jobs; the timing of the processes is the
// host's, so a seed that failed may have to be run again a few times.
//
//	go run ./torture -mover out/mover -minutes 2
//
// docs/torture.md says what is done and what is checked.
package main
