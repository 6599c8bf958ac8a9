package main

import "strings"

// inOptions puts the options of `mover bench` where a text speaks of the
// configuration, which these commands do not read. The longer words come
// first: of those that fit at a place the first is taken.
var inOptions = strings.NewReplacer(
	"set `soft.allow_cleartext: true`", "give --allow-cleartext",
	"set soft.allow_cleartext: true", "give --allow-cleartext",
	"soft.allow_cleartext", "--allow-cleartext",
	"soft.addresses", "--soft-address",
	"its path is devices.libibverbs", "its path is --libibverbs",
	"devices.libibverbs", "--libibverbs",
	"devices.providers", "--provider",
	"is not in devices.names", "is not what -d names",
	"is in devices.names", "is what -d names",
	"correct devices.names, or remove it", "correct -d, or leave it away",
	"devices.names", "-d",
)

// optionsError is an error in the words of the options.
type optionsError struct{ err error }

// ofOptions makes one, nil of nil.
func ofOptions(err error) error {
	if err == nil {
		return nil
	}
	return &optionsError{err}
}

func (e *optionsError) Error() string { return inOptions.Replace(e.err.Error()) }

func (e *optionsError) Unwrap() error { return e.err }
