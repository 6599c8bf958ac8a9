// Package memory measures the data path alone: memory to memory between two
// processes on this host, over the same devices, pollers, sessions and direct
// transfers as the service, with no file and no job in between.
//
// Run starts the two processes, both this same program, in the roles Receive
// and Send, and gathers their reports.
package memory
