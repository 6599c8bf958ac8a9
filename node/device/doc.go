// Package device chooses the verbs provider, the devices and the ports that a
// node uses, from its configuration and what the host has, and says in one line
// what is in the way of those that it can't.
//
// It is one package so that the node that starts, `mover devices` that
// explains and `mover doctor` that warns cannot disagree. What can be told from
// sysfs and /dev is told before a library is opened, since a container or a
// host half set up fails there. It must not know what moves over a port.
// Falling back to software verbs is never silent: Selection.Fallback and Reason
// are to be shown wherever a rail is, and Problems in the log.
//
//	s, err := device.Select(cfg, log)
//	if err != nil { ... } // what is missing, and what to do
//	err = s.CheckMemory(cfg, topology) // before anything is mapped
//	for _, d := range s.Used() {
//		ctx, err := s.Provider.OpenDevice(d.Name)
//		for n := 1; n <= d.Ports; n++ {
//			if s.UsesPort(d.Name, uint8(n)) {
//				p := device.QueryPort(ctx, uint8(n), s.Wish(d.Name, uint8(n)), nil)
//			}
//		}
//	}
package device
