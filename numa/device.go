package numa

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// maxDeviceDepth bounds how far a device is followed: down from a bond or VLAN to what it is made of.
const maxDeviceDepth = 4

// NetdevNode returns the NUMA node of a network device, read below root ("/sys" except in tests), or -1 with the
// reason when it cannot be known. Devices without hardware of their own (VLAN, bond, bridge) have the node of the ones
// below them, if these agree.
func NetdevNode(root, netdev string) (node int, reason string) {
	return netdevNode(root, netdev, maxDeviceDepth)
}

func netdevNode(root, netdev string, depth int) (int, string) {
	if !isDeviceName(netdev) {
		return -1, fmt.Sprintf("%q is not a device name", abbreviate(netdev))
	}
	dir := filepath.Join(root, "class/net", netdev)
	if _, err := os.Stat(dir); err != nil {
		return -1, fmt.Sprintf("no network device %s: %v", netdev, err)
	}
	node, reason := hardwareNode(root, filepath.Join(dir, "device"))
	if node >= 0 {
		return node, ""
	}
	lower, _ := filepath.Glob(filepath.Join(dir, "lower_*")) // the pattern is well formed: a name has no metacharacters
	if len(lower) == 0 {
		return -1, netdev + ": " + reason
	}
	if depth == 0 {
		return -1, fmt.Sprintf("%s: more than %d devices on top of each other", netdev, maxDeviceDepth)
	}
	found := -1
	for _, path := range lower {
		name := strings.TrimPrefix(filepath.Base(path), "lower_")
		node, reason := netdevNode(root, name, depth-1)
		if node < 0 {
			return -1, netdev + ": " + reason
		}
		if found >= 0 && found != node {
			return -1, fmt.Sprintf("%s: made of devices on nodes %d and %d", netdev, found, node)
		}
		found = node
	}
	return found, ""
}

// InfinibandNode returns the NUMA node of an RDMA device, read below root ("/sys" except in tests), or -1 with the
// reason when it cannot be known. A software device (rxe, siw) has the node of the network device it runs over.
func InfinibandNode(root, device string) (node int, reason string) {
	if !isDeviceName(device) {
		return -1, fmt.Sprintf("%q is not a device name", abbreviate(device))
	}
	dir := filepath.Join(root, "class/infiniband", device)
	if _, err := os.Stat(dir); err != nil {
		return -1, fmt.Sprintf("no RDMA device %s: %v", device, err)
	}
	node, reason = hardwareNode(root, filepath.Join(dir, "device"))
	if node >= 0 {
		return node, ""
	}
	for _, netdev := range parentNetdevs(dir) {
		node, parentReason := NetdevNode(root, netdev)
		if node >= 0 {
			return node, ""
		}
		reason = parentReason
	}
	return -1, device + ": " + reason
}

// parentNetdevs lists the network devices of an RDMA device: "parent" is an attribute of rxe, gid_attrs/ndevs is the
// core's (Documentation/ABI/stable/sysfs-class-infiniband).
func parentNetdevs(dir string) []string {
	var names []string
	paths := []string{filepath.Join(dir, "parent")}
	for _, pattern := range []string{"ports/*/gid_attrs/ndevs/0", "ports/*/gid_attrs/ndevs/1"} {
		matches, _ := filepath.Glob(filepath.Join(dir, pattern)) // the pattern is well formed
		paths = append(paths, matches...)
	}
	for _, path := range paths {
		// An unused entry of the GID table answers EINVAL.
		if text, err := readText(path); err == nil && isDeviceName(strings.TrimSpace(text)) {
			names = append(names, strings.TrimSpace(text))
		}
	}
	return names
}

// hardwareNode reads numa_node of a device or of the nearest device above it: a virtio device, for one, has none, but
// the PCI function it sits on has.
func hardwareNode(root, link string) (int, string) {
	path, err := filepath.EvalSymlinks(link)
	if err != nil {
		return -1, "it has no hardware device"
	}
	top, err := filepath.EvalSymlinks(filepath.Join(root, "devices"))
	if err != nil {
		return -1, err.Error()
	}
	reason := "no numa_node attribute"
	for ; strings.HasPrefix(path, top+string(filepath.Separator)); path = filepath.Dir(path) {
		text, err := readText(filepath.Join(path, "numa_node"))
		if err != nil {
			continue
		}
		node, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || node >= MaxNodes {
			return -1, fmt.Sprintf("numa_node of %s is %q", filepath.Base(path), abbreviate(strings.TrimSpace(text)))
		}
		if node >= 0 {
			return node, ""
		}
		// Firmware often does not tell (-1); a bridge above may still know.
		reason = "the firmware does not tell its node (numa_node is -1)"
	}
	return -1, reason
}

// isDeviceName keeps a name that came from a user or peer inside its directory. The kernel's own rule is no slash, no
// white space, not "." or ".." (dev_valid_name), and 63 bytes at most (IB_DEVICE_NAME_MAX); glob characters are left
// out as well.
func isDeviceName(name string) bool {
	return name != "" && len(name) < 64 && name != "." && name != ".." && !strings.ContainsAny(name, "/\x00 \t\r\n*?[\\")
}
