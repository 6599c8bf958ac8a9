package fabric

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"mover/verbs"
)

// hello is the first frame of each side, the client's first.
type hello struct {
	Terms terms     `json:"terms"`
	Port  portTerms `json:"port"`
}

// portTerms describe a port to the other side.
type portTerms struct {
	Provider  string `json:"provider"`
	Device    string `json:"device"`
	LinkLayer uint8  `json:"link_layer"`
	GIDType   uint8  `json:"gid_type"`
	GID       gidHex `json:"gid"`
	MTU       uint8  `json:"mtu"` // enum ibv_mtu
}

// maxNameBytes bounds names of devices and providers (IB_DEVICE_NAME_MAX is
// 64).
const maxNameBytes = 64

func (h *hello) check() error {
	t := &h.Terms
	for _, s := range []string{t.Test, t.Transport, t.Op, h.Port.Provider, h.Port.Device} {
		if len(s) > maxNameBytes || !printable(s) {
			return errors.New("a name is too long or unprintable")
		}
	}
	for _, n := range []int{t.SizeBytes, t.AllBytes, t.QPs, t.Pollers, t.Iterations, t.Depth, t.RingBytes} {
		if n < 0 || n > MaxSizeBytes {
			return fmt.Errorf("%d is out of range", n)
		}
	}
	if t.DurationNS < 0 || t.DurationNS > int64(MaxDuration) {
		return fmt.Errorf("duration %d", t.DurationNS)
	}
	if !verbs.MTU(h.Port.MTU).Valid() {
		return fmt.Errorf("MTU %d", h.Port.MTU)
	}
	return nil
}

// family names the address family of a GID that holds an IP address.
func (p *portTerms) family() string {
	switch {
	case verbs.GIDType(p.GIDType) == verbs.GIDInfiniBand:
		return "none"
	case verbs.GID(p.GID).Addr().Is4():
		return "IPv4"
	}
	return "IPv6"
}

// setup carries the ends of one run's QPs, the client's first.
type setup struct {
	Run  int    `json:"run"`  // from 0
	Seed uint64 `json:"seed"` // of the pattern; the client's counts
	Ends []end  `json:"ends"` // poller by poller
}

// end is one side of a QP pair and the places behind it.
type end struct {
	QPN      uint32 `json:"qpn"`
	PSN      uint32 `json:"psn"`
	LID      uint16 `json:"lid"`
	GID      gidHex `json:"gid"`
	ConnData []byte `json:"conn_data,omitempty"`
	Addr     uint64 `json:"addr"` // of its ring of places; 0: not to be written
	Bytes    uint64 `json:"bytes"`
	RKey     uint32 `json:"rkey"`
}

func (s *setup) check() error {
	if s.Run < 0 || len(s.Ends) == 0 || len(s.Ends) > MaxQPs*MaxPollers {
		return fmt.Errorf("run %d with %d QPs", s.Run, len(s.Ends))
	}
	for i := range s.Ends {
		e := &s.Ends[i]
		switch {
		case e.QPN >= 1<<24 || e.PSN >= 1<<24:
			return fmt.Errorf("QPN %#x or PSN %#x does not fit 24 bits", e.QPN, e.PSN)
		case len(e.ConnData) > verbs.MaxConnData:
			return fmt.Errorf("%d bytes of connection data", len(e.ConnData))
		case e.Bytes > maxMemory || e.Addr > ^uint64(0)-e.Bytes:
			return fmt.Errorf("a ring of %d bytes at %#x", e.Bytes, e.Addr)
		}
	}
	return nil
}

// ready says that the QPs are in RTS and the receives posted.
type ready struct {
	Run int `json:"run"`
}

func (r *ready) check() error { return nil }

// done says what the client sent on each QP.
type done struct {
	Run  int      `json:"run"`
	Sent []uint64 `json:"sent"`
}

func (d *done) check() error {
	if len(d.Sent) == 0 || len(d.Sent) > MaxQPs*MaxPollers {
		return fmt.Errorf("%d QPs", len(d.Sent))
	}
	return nil
}

// outcome is what the server says of a run.
type outcome struct {
	Run     int     `json:"run"`
	Known   bool    `json:"known"`   // Arrived was counted
	Arrived uint64  `json:"arrived"` // messages, over all QPs
	Checked uint64  `json:"checked"` // messages whose content was looked at
	Wrong   string  `json:"wrong"`   // what was found to be wrong, "" nothing
	CPU     float64 `json:"cpu"`     // CPUs used, from ready to done
}

func (o *outcome) check() error {
	if len(o.Wrong) > maxTextBytes || !printable(o.Wrong) {
		return errors.New("the text is too long or unprintable")
	}
	if !(o.CPU >= 0 && o.CPU < 1e6) {
		return errors.New("the CPU use is no number of CPUs")
	}
	return nil
}

// failed says why the sender of it ends.
type failed struct {
	Text string `json:"text"`
}

// maxTextBytes bounds what a peer may have printed here.
const maxTextBytes = 2000

func (f *failed) check() error {
	if len(f.Text) > maxTextBytes || !printable(f.Text) {
		return errors.New("the text is too long or unprintable")
	}
	return nil
}

// fitText makes a text that check lets pass.
func fitText(s string) string {
	s = strings.ToValidUTF8(s, "?")
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
	for len(s) > maxTextBytes {
		s = strings.ToValidUTF8(s[:maxTextBytes], "")
	}
	return s
}

func printable(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}

// gidHex is a GID as 32 hexadecimal digits.
type gidHex verbs.GID

func (g gidHex) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, g[:]), nil }

func (g *gidHex) UnmarshalText(text []byte) error {
	if len(text) != 2*len(g) {
		return errors.New("a GID has 32 digits")
	}
	_, err := hex.Decode(g[:], text)
	return err
}
