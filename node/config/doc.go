// Package config reads a node's configuration file.
//
// It knows the settings, their units, defaults and limits, and which of them
// contradict each other. It must not know what the settings do: it opens no
// device, creates no directory and reads no file but the one it is given, so
// that `mover config check` can run anywhere, on a file meant for another host.
// What only the host can tell (a root's directory is missing, a certificate
// cannot be read, an address is not local) is checked when the node starts,
// and beforehand by `mover doctor`.
//
//	cfg, err := config.Load("/etc/mover/config.yaml")
//	if err != nil {
//		fmt.Fprintln(os.Stderr, err) // one line per problem: file:line: field: what; allowed: ...
//		os.Exit(2)
//	}
//
// Every setting, with its default, is in config.yaml at the top of the source
// tree; a test keeps that file and [Default] equal. A value that has a unit is
// written with it: a bare number is refused, because it is the commonest way
// to be wrong by a factor of eight or of a million.
package config
