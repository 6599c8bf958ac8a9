package verbs

// Provider opens devices of one kind. Its methods may be called from any
// goroutine.
type Provider interface {
	// Name is "ibv", "soft" or "sim".
	Name() string
	// Devices lists the devices found, sorted by name. An empty list is no
	// error; an error says what is missing on this host and what to do.
	Devices() ([]DeviceInfo, error)
	// OpenDevice opens a device listed by Devices: ibv_open_device(3).
	OpenDevice(name string) (Context, error)
}
