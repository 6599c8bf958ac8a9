// Package device chooses the verbs provider and the devices that a node uses,
// from its configuration and what the host has.
//
// It is one package so that the node that starts, `mover devices` that
// explains and `mover doctor` that warns cannot disagree. It must not know what
// the devices are used for. Falling back to software verbs is never silent:
// Selection.Fallback and Reason are to be shown wherever a rail is.
//
//	s, err := device.Select(cfg, log)
//	if err != nil { ... } // what is missing, and what to do
//	for _, d := range s.Used() {
//		ctx, err := s.Provider.OpenDevice(d.Name)
//	}
package device
