package device

import "mover/verbs"

// RelaxedOrdering decides whether a device's memory is registered with
// relaxed ordering, by devices.relaxed_ordering, and says why. On is a wish: a
// device that does not have it goes without, and why says so.
func RelaxedOrdering(setting string, info verbs.DeviceInfo, attr verbs.DeviceAttr) (on bool, why string) {
	switch {
	case setting == "off":
		return false, "devices.relaxed_ordering is off"
	case info.Software:
		return false, "the data path of " + info.Name + " is software, which has no PCIe"
	case !attr.RelaxedOrdering:
		return false, "neither library nor driver of " + info.Name + " has it"
	case setting == "on":
		return true, "devices.relaxed_ordering is on"
	}
	return true, "hardware that has it, and devices.relaxed_ordering is auto"
}
