package config

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Config is a whole configuration. Load returns it checked and with the
// derived values (node.name, api.socket, api.tokens_file, an admin's roots)
// filled in. It is plain data: nobody changes it after Load, so any goroutine
// may read it.
//
// The struct tags are the schema. yaml names the setting; min and max bound it
// (in the setting's own unit), allow lists the words it may be, and form names
// a check of its form (see forms in value.go). They also make the "allowed:"
// part of an error. reload:"yes" marks what Reloadable lets a node take over
// while it runs.
type Config struct {
	Node    Node            `yaml:"node"`
	Log     Log             `yaml:"log"`
	API     API             `yaml:"api"`
	Control Control         `yaml:"control"`
	Peers   map[string]Peer `yaml:"peers" form:"node-name" reload:"yes"`
	// Delegates are the nodes that may submit jobs whose source is here, for
	// users that they have authenticated themselves; "*" is all.
	Delegates []string          `yaml:"delegates" form:"peer-name" max:"1024" reload:"yes"`
	Roots     map[string]Root   `yaml:"roots" form:"root-name" reload:"yes"`
	Buffers   map[string]Buffer `yaml:"buffers" form:"buffer-name"`
	Devices   Devices           `yaml:"devices"`
	Soft      Soft              `yaml:"soft"`
	Pollers   Pollers           `yaml:"pollers"`
	// Workers is the number of reader and writer threads; 0 chooses from the
	// CPUs that pollers leave.
	Workers int     `yaml:"workers" min:"0" max:"1024"`
	Memory  Memory  `yaml:"memory"`
	Session Session `yaml:"session"`
	Jobs    Jobs    `yaml:"jobs"`
}

// Node names this node and says where it keeps what must survive a restart.
type Node struct {
	Name     string `yaml:"name" form:"node-name?"` // "" is the host name, until Load fills it in
	StateDir string `yaml:"state_dir" form:"path"`
}

// Log says what is logged, to standard error.
type Log struct {
	Level  string `yaml:"level" allow:"debug,info,warn,error"`
	Format string `yaml:"format" allow:"text,json"`
}

// API is the HTTP side.
type API struct {
	Listen string `yaml:"listen" form:"listen"`
	// Socket is the path of the Unix socket, SocketOff for none. "" is
	// mover.sock in the state directory, until Load fills it in.
	Socket string `yaml:"socket" form:"socket"`
	// SocketUsers are who may use the socket besides root and the user that
	// mover runs as, by user name or uid. Names are this host's to look up.
	SocketUsers map[string]SocketUser `yaml:"socket_users" form:"user" reload:"yes"`
	TLSCert     string                `yaml:"tls_cert" form:"path?" reload:"yes"`
	TLSKey      string                `yaml:"tls_key" form:"path?" reload:"yes"`
	TokensFile  string                `yaml:"tokens_file" form:"path?" reload:"yes"` // "" is tokens.yaml in the state directory, until Load fills it in
}

// SocketUser is what a user of the Unix socket may do, as a token says it.
type SocketUser struct {
	Scope string   `yaml:"scope" allow:"metrics,read,submit,admin"`
	Read  []string `yaml:"read" form:"job-root" max:"256"`  // NODE:root, either may be *; an admin without any has all
	Write []string `yaml:"write" form:"job-root" max:"256"` // likewise
}

// SocketOff is the API.Socket of a node without one.
const SocketOff = "off"

// Control is the control plane between nodes: gRPC under mutual TLS.
type Control struct {
	Listen      []string      `yaml:"listen" form:"listen" max:"16"`
	CA          string        `yaml:"ca" form:"path?" reload:"yes"` // "" trusts the peers' fingerprints alone
	DialTimeout time.Duration `yaml:"dial_timeout" min:"100ms" max:"1m"`
}

// Peer is another node.
type Peer struct {
	// Addresses are its control addresses, dialled in turn; {node} stands for
	// the peer's name. Empty: the peer is never dialled, it can only dial.
	Addresses []string `yaml:"addresses" form:"dial" max:"16"`
	// Fingerprint is sha256: and 64 hexadecimal digits, lower case; "" needs
	// control.ca.
	Fingerprint string `yaml:"fingerprint" form:"fingerprint"`
}

// Root is a directory that jobs may read or write, and who may.
type Root struct {
	Path  string   `yaml:"path" form:"path"`
	Read  []string `yaml:"read" form:"peer-name" max:"1024"`  // nodes that may be the destination of what is here
	Write []string `yaml:"write" form:"peer-name" max:"1024"` // nodes that may be the source of what arrives here
	// Owner and Group are whose what arrives shall be, a name or a number of
	// this host; "" leaves it to the user that mover runs as.
	Owner   string `yaml:"owner" form:"user?"`
	Group   string `yaml:"group" form:"user?"`
	Mode    string `yaml:"mode" form:"root-mode"` // of files whose own mode is not kept; see FileMode and DirMode
	Quota   Size   `yaml:"quota"`                 // bytes that jobs may keep here; 0 is no limit
	MinFree Size   `yaml:"min_free"`              // bytes of the file system that jobs leave free
}

// Buffer is memory that applications and jobs share, made at start if it does
// not exist yet.
type Buffer struct {
	Bytes    Size   `yaml:"bytes" min:"1B" max:"64TiB"` // 0 only until Load refuses it
	PageSize string `yaml:"page_size" allow:"auto,4KiB,2MiB,1GiB"`
	NUMANode int    `yaml:"numa_node" min:"-1" max:"1023"` // -1 is anywhere
	Mode     string `yaml:"mode" form:"buffer-mode"`       // of the file that applications map; see FileMode
	Group    string `yaml:"group" form:"user?"`            // of that file; "" is the group mover runs as
	// Read and Write are as those of a Root.
	Read  []string `yaml:"read" form:"peer-name" max:"1024"`
	Write []string `yaml:"write" form:"peer-name" max:"1024"`
}

// Devices chooses the verbs providers and devices.
type Devices struct {
	Providers []string `yaml:"providers" allow:"auto,ibv,soft"` // ["auto"], or providers in order of preference
	Fallback  string   `yaml:"fallback" allow:"allow,forbid"`
	// Names are DeviceNames, checked; empty is every device found.
	Names []string `yaml:"names" form:"device" max:"64"`
	// Libibverbs is the library to open instead of the system's; "" is that.
	Libibverbs string `yaml:"libibverbs" form:"path?"`
	// RelaxedOrdering lets hardware reorder PCIe writes into registered memory.
	RelaxedOrdering string `yaml:"relaxed_ordering" allow:"auto,on,off"`
}

// Soft configures software verbs.
type Soft struct {
	Addresses      []string `yaml:"addresses" form:"ip" max:"16"` // one device, and so one rail, each
	AllowCleartext bool     `yaml:"allow_cleartext"`
}

// Pollers configures the busy-polling threads.
type Pollers struct {
	PerNode int           `yaml:"per_node" min:"1" max:"16"` // on each NUMA node that has a port
	CPUs    []int         `yaml:"cpus" min:"0" max:"8191"`   // of the pollers, in order; empty chooses
	Idle    string        `yaml:"idle" allow:"auto,spin,adaptive"`
	Spin    time.Duration `yaml:"spin" min:"0s" max:"1s"` // adaptive: how long to spin before parking
}

// Memory configures the registered memory.
type Memory struct {
	Arena        Size   `yaml:"arena" min:"32MiB" max:"1TiB"`         // on each NUMA node that has a port
	SessionShare Size   `yaml:"session_share" min:"16MiB" max:"1TiB"` // of one session, in one direction
	HugePages    string `yaml:"hugepages" allow:"auto,1GiB,2MiB,transparent,none"`
	Buffers      Size   `yaml:"buffers"` // of all buffers together; 0 is no limit
}

// Session configures the data path between two nodes.
type Session struct {
	SlotPayload  Size          `yaml:"slot_payload" min:"64KiB" max:"16MiB"`
	Segment      Size          `yaml:"segment" min:"1MiB" max:"1GiB"`
	LanesPerRail int           `yaml:"lanes_per_rail" min:"1" max:"32"`
	LaneDepth    int           `yaml:"lane_depth" min:"1" max:"1024"` // writes outstanding on a lane
	RailRate     Rate          `yaml:"rail_rate" min:"1Mbit/s" max:"10Tbit/s"`
	AckTimeout   time.Duration `yaml:"ack_timeout" min:"1ms" max:"5s"`
	DrainTimeout time.Duration `yaml:"drain_timeout" min:"100ms" max:"1m"`
}

// Jobs configures the queue of the node that owns the source.
type Jobs struct {
	MaxRunning  int           `yaml:"max_running" min:"1" max:"1024"`
	MaxQueued   int           `yaml:"max_queued" min:"1" max:"10000000"`
	MaxAttempts int           `yaml:"max_attempts" min:"1" max:"1000"`
	StallAfter  time.Duration `yaml:"stall_after" min:"1s" max:"1h"`
	// SmallBytes is the size up to which a job counts as small: small jobs and
	// large ones have max_running places each.
	SmallBytes     Size          `yaml:"small" min:"4KiB" max:"1TiB"`
	BandwidthLimit Rate          `yaml:"bandwidth_limit" reload:"yes"` // of all jobs together; 0 is no limit
	Keep           time.Duration `yaml:"keep" min:"1s" max:"3650d"`    // how long finished jobs are remembered
	KeepMax        int           `yaml:"keep_max" min:"1" max:"10000000"`
}

const (
	_       = iota
	kiB int = 1 << (10 * iota)
	miB
)

// Default is the configuration of an empty file, before Load fills in what is
// derived. It is the one place where defaults are.
func Default() *Config {
	return &Config{
		Node:    Node{StateDir: "/var/lib/mover"},
		Log:     Log{Level: "info", Format: "text"},
		API:     API{Listen: "127.0.0.1:9470", SocketUsers: map[string]SocketUser{}},
		Control: Control{Listen: []string{"127.0.0.1:9471"}, DialTimeout: 5 * time.Second},
		Peers:   map[string]Peer{}, Delegates: []string{},
		Roots:   map[string]Root{},
		Buffers: map[string]Buffer{},
		Devices: Devices{Providers: []string{"auto"}, Fallback: "allow", Names: []string{}, RelaxedOrdering: "auto"},
		Soft:    Soft{Addresses: []string{"127.0.0.1"}},
		Pollers: Pollers{PerNode: 1, CPUs: []int{}, Idle: "auto", Spin: 50 * time.Microsecond},
		Memory:  Memory{Arena: Size(512 * miB), SessionShare: Size(64 * miB), HugePages: "auto"},
		Session: Session{
			SlotPayload: Size(2 * miB), Segment: Size(16 * miB), LanesPerRail: 4, LaneDepth: 32,
			RailRate: Rate(100e9), AckTimeout: 67 * time.Millisecond, DrainTimeout: 2 * time.Second,
		},
		Jobs: Jobs{
			MaxRunning: 8, MaxQueued: 10000, MaxAttempts: 10, StallAfter: 30 * time.Second,
			SmallBytes: Size(64 * miB), Keep: 30 * 24 * time.Hour, KeepMax: 100000,
		},
	}
}

// setDefaults of an entry that a configuration adds to a section.
func (r *Root) setDefaults() { r.Mode = "0644" }

func (b *Buffer) setDefaults() { b.PageSize, b.NUMANode, b.Mode = "auto", -1, "0600" }

// maxFileBytes bounds the file read: ten thousand peers fit.
const maxFileBytes = 4 << 20

// Load reads, checks and completes the configuration in the file at path. The
// error is an *os.PathError when the file cannot be read, and otherwise an
// *Invalid that holds every problem found.
func Load(path string) (*Config, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	defer f.Close()
	text, err := readAll(f)
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	return Parse(path, text)
}

// Parse is Load on text; file is the name that errors show.
func Parse(file string, text []byte) (*Config, error) {
	c := Default()
	d := decoder{invalid: Invalid{File: file}, lines: map[string]int{}}
	d.document(text, c)
	if len(d.invalid.Problems) == 0 {
		// Cross-field checks after a field that is wrong by itself would
		// report its default.
		c.derive(&d)
		c.check(&d)
	}
	if len(d.invalid.Problems) > 0 {
		return nil, &d.invalid
	}
	return c, nil
}

// derive fills in the defaults that depend on other settings or on the host.
func (c *Config) derive(d *decoder) {
	if c.Node.Name == "" {
		host, err := os.Hostname()
		host = strings.ToLower(host)
		if err == nil {
			err = forms["node-name"].check(host)
		}
		if err != nil {
			d.problem("node.name", fmt.Sprintf("is not set, and the host name %q cannot serve: %v; set node.name", host, err), forms["node-name"].allowed)
		}
		c.Node.Name = host
	}
	if c.API.TokensFile == "" {
		c.API.TokensFile = filepath.Join(c.Node.StateDir, "tokens.yaml")
	}
	if c.API.Socket == "" {
		c.API.Socket = filepath.Join(c.Node.StateDir, "mover.sock")
	}
	for name, u := range c.API.SocketUsers {
		if u.Scope == "admin" && len(u.Read)+len(u.Write) == 0 {
			u.Read, u.Write = []string{"*:*"}, []string{"*:*"}
			c.API.SocketUsers[name] = u
		}
	}
}

// SocketPath is the path of the API's Unix socket, "" when it has none.
func (c *Config) SocketPath() string {
	if c.API.Socket == SocketOff {
		return ""
	}
	return c.API.Socket
}

// FileMode is Mode as permission bits, 0 when it is "".
func (r Root) FileMode() fs.FileMode { return modeBits(r.Mode) }

// DirMode is the mode of directories made for the files: who may read those may
// also enter these.
func (r Root) DirMode() fs.FileMode {
	m := modeBits(r.Mode)
	return m | m>>2&0o111
}

// FileMode is Mode as permission bits, 0 when it is "".
func (b Buffer) FileMode() fs.FileMode { return modeBits(b.Mode) }

// IdentityDir is the directory of the node's key and certificate.
func (c *Config) IdentityDir() string { return filepath.Join(c.Node.StateDir, "identity") }

// TokenFile is where a first start leaves the plain admin token, 0600, for the
// tools on this host.
func (c *Config) TokenFile() string { return filepath.Join(c.Node.StateDir, TokenFileName) }

// TokenFileName is the name of TokenFile in the state directory.
const TokenFileName = "token"
