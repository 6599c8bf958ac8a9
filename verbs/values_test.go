package verbs

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"
)

// TestValues compares with <infiniband/verbs.h> (rdma-core): providers over
// libibverbs pass the numbers through.
func TestValues(t *testing.T) {
	for _, c := range []struct {
		name      string
		got, want int
	}{
		{"IBV_QPT_RC", int(RC), 2}, {"IBV_QPT_UC", int(UC), 3}, {"IBV_QPT_UD", int(UD), 4},
		{"IBV_QPS_RESET", int(StateReset), 0}, {"IBV_QPS_INIT", int(StateInit), 1}, {"IBV_QPS_RTR", int(StateRTR), 2},
		{"IBV_QPS_RTS", int(StateRTS), 3}, {"IBV_QPS_SQD", int(StateSQD), 4}, {"IBV_QPS_SQE", int(StateSQE), 5},
		{"IBV_QPS_ERR", int(StateErr), 6},
		{"IBV_WR_RDMA_WRITE", int(OpWrite), 0}, {"IBV_WR_RDMA_WRITE_WITH_IMM", int(OpWriteWithImm), 1},
		{"IBV_WR_SEND", int(OpSend), 2}, {"IBV_WR_SEND_WITH_IMM", int(OpSendWithImm), 3},
		{"IBV_WR_RDMA_READ", int(OpRead), 4}, {"IBV_WR_ATOMIC_CMP_AND_SWP", int(OpCompareSwap), 5},
		{"IBV_WR_ATOMIC_FETCH_AND_ADD", int(OpFetchAdd), 6},
		{"IBV_SEND_FENCE", int(SendFence), 1}, {"IBV_SEND_SIGNALED", int(SendSignaled), 2},
		{"IBV_SEND_SOLICITED", int(SendSolicited), 4}, {"IBV_SEND_INLINE", int(SendInline), 8},
		{"IBV_ACCESS_LOCAL_WRITE", int(AccessLocalWrite), 1}, {"IBV_ACCESS_REMOTE_WRITE", int(AccessRemoteWrite), 2},
		{"IBV_ACCESS_REMOTE_READ", int(AccessRemoteRead), 4}, {"IBV_ACCESS_REMOTE_ATOMIC", int(AccessRemoteAtomic), 8},
		{"IBV_ACCESS_RELAXED_ORDERING", int(AccessRelaxedOrdering), 1 << 20},
		{"IBV_WC_SEND", int(WCSend), 0}, {"IBV_WC_RDMA_WRITE", int(WCRDMAWrite), 1}, {"IBV_WC_RDMA_READ", int(WCRDMARead), 2},
		{"IBV_WC_COMP_SWAP", int(WCCompSwap), 3}, {"IBV_WC_FETCH_ADD", int(WCFetchAdd), 4}, {"IBV_WC_RECV", int(WCRecv), 128},
		{"IBV_WC_RECV_RDMA_WITH_IMM", int(WCRecvRDMAWithIm), 129},
		{"IBV_WC_GRH", int(WCGRH), 1}, {"IBV_WC_WITH_IMM", int(WCWithImm), 2},
		{"IBV_MTU_256", int(MTU256), 1}, {"IBV_MTU_4096", int(MTU4096), 5},
		{"IBV_PORT_DOWN", int(PortDown), 1}, {"IBV_PORT_ACTIVE", int(PortActive), 4},
		{"IBV_EVENT_CQ_ERR", int(EventCQErr), 0}, {"IBV_EVENT_QP_FATAL", int(EventQPFatal), 1},
		{"IBV_EVENT_QP_REQ_ERR", int(EventQPReqErr), 2}, {"IBV_EVENT_QP_ACCESS_ERR", int(EventQPAccessErr), 3},
		{"IBV_EVENT_DEVICE_FATAL", int(EventDeviceFatal), 8}, {"IBV_EVENT_PORT_ACTIVE", int(EventPortActive), 9},
		{"IBV_EVENT_PORT_ERR", int(EventPortErr), 10}, {"IBV_EVENT_LID_CHANGE", int(EventLIDChange), 11},
		{"IBV_EVENT_PKEY_CHANGE", int(EventPKeyChange), 12}, {"IBV_EVENT_GID_CHANGE", int(EventGIDChange), 18},
	} {
		if c.got != c.want {
			t.Errorf("%s is %d, want %d", c.name, c.got, c.want)
		}
	}
}

// TestBlame: every status has a class, and the unknown are nobody else's
// fault.
func TestBlame(t *testing.T) {
	want := map[Blame][]WCStatus{
		BlameNone:   {WCSuccess, WCFlushErr},
		BlameRemote: {WCBadRespErr, WCRemInvReqErr, WCRemAccessErr, WCRemOpErr, WCRemInvRDReqErr, WCRemAbortErr},
		BlamePath:   {WCRetryExcErr, WCRNRRetryExcErr, WCRespTimeoutErr},
		BlameLocal: {WCLocLenErr, WCLocQPOpErr, WCLocEECOpErr, WCLocProtErr, WCMWBindErr, WCLocAccessErr, WCLocRDDViolErr,
			WCInvEECNErr, WCInvEECStateErr, WCFatalErr, WCGeneralErr, WCStatus(22), WCStatus(255)},
	}
	seen := map[WCStatus]bool{}
	for blame, statuses := range want {
		for _, s := range statuses {
			seen[s] = true
			if s.Blame() != blame {
				t.Errorf("%v: blame %d, want %d", s, s.Blame(), blame)
			}
		}
	}
	names := map[string]bool{}
	for s := range WCStatus(wcStatusCount) {
		if !seen[s] {
			t.Errorf("%v is in no class", s)
		}
		if names[s.String()] || s.String() == "" {
			t.Errorf("status %d has the name %q", s, s)
		}
		names[s.String()] = true
	}
	for s, name := range map[WCStatus]string{0: "SUCCESS", 4: "LOC_PROT_ERR", 5: "WR_FLUSH_ERR", 9: "REM_INV_REQ_ERR",
		10: "REM_ACCESS_ERR", 12: "RETRY_EXC_ERR", 13: "RNR_RETRY_EXC_ERR", 21: "GENERAL_ERR", 22: "WCStatus(22)"} {
		if s.String() != name {
			t.Errorf("status %d is %q, want %q", uint8(s), s, name)
		}
	}
}

func TestMTU(t *testing.T) {
	for m, bytes := range map[MTU]int{0: 0, 1: 256, 2: 512, 3: 1024, 4: 2048, 5: 4096, 6: 0, 255: 0} {
		if m.Bytes() != bytes || m.Valid() != (bytes > 0) || m.String() != fmt.Sprint(bytes) {
			t.Errorf("MTU %d: %d bytes, valid %v, %q", uint8(m), m.Bytes(), m.Valid(), m)
		}
	}
}

func TestGID(t *testing.T) {
	for _, c := range []struct{ addr, text string }{
		{"10.1.2.3", "0000:0000:0000:0000:0000:ffff:0a01:0203"},
		{"fe80::1", "fe80:0000:0000:0000:0000:0000:0000:0001"},
		{"fd00:1::2", "fd00:0001:0000:0000:0000:0000:0000:0002"},
	} {
		addr := netip.MustParseAddr(c.addr)
		g := GIDFromAddr(addr)
		if g.Addr() != addr || g.IsZero() {
			t.Errorf("%v became %v", addr, g.Addr())
		}
		// netip writes the IPv4-mapped form with dots; what matters is that it
		// reads back.
		if back, err := netip.ParseAddr(g.String()); err != nil || GIDFromAddr(back) != g {
			t.Errorf("%q does not read back: %v", g, err)
		}
		if want := netip.MustParseAddr(c.text); GIDFromAddr(want) != g {
			t.Errorf("GID of %v is %v", addr, g)
		}
	}
	if !(GID{}).IsZero() {
		t.Error("the zero GID is not zero")
	}
}

func TestErrors(t *testing.T) {
	var err error = &UnsupportedError{Provider: "soft", What: "RDMA read"}
	wrapped := fmt.Errorf("post: %w", err)
	if !errors.Is(wrapped, ErrUnsupported) || errors.Is(wrapped, ErrTimeout) {
		t.Errorf("%v is not ErrUnsupported", wrapped)
	}
	if !strings.Contains(err.Error(), "soft") || !strings.Contains(err.Error(), "RDMA read") {
		t.Errorf("message %q", err)
	}
	err = &Error{Op: "create QP", Errno: syscall.ENOMEM, Detail: "the device has max_qp QPs"}
	if !errors.Is(err, syscall.ENOMEM) || errors.Is(err, syscall.EINVAL) {
		t.Errorf("%v is not ENOMEM", err)
	}
	for _, part := range []string{"create QP", "cannot allocate memory", "max_qp"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("message %q lacks %q", err, part)
		}
	}
	if s := (&Error{Op: "close", Errno: syscall.EBUSY}).Error(); strings.Contains(s, "(") {
		t.Errorf("message without a detail: %q", s)
	}
}

// TestNames: every enumerator has a name of its own, and what is beyond the
// last one is a number.
func TestNames(t *testing.T) {
	for _, c := range []struct {
		known, beyond fmt.Stringer
		name, number  string
	}{
		{RC, QPType(9), "RC", "QPType(9)"}, {UC, QPType(0), "UC", "QPType(0)"}, {UD, QPType(255), "UD", "QPType(255)"},
		{StateErr, QPState(7), "ERR", "QPState(7)"}, {StateRTS, QPState(255), "RTS", "QPState(255)"},
		{OpFetchAdd, Opcode(7), "ATOMIC_FETCH_AND_ADD", "Opcode(7)"}, {OpWrite, Opcode(200), "RDMA_WRITE", "Opcode(200)"},
		{PortActive, PortState(5), "ACTIVE", "PortState(5)"}, {GIDSim, GIDType(6), "sim", "GIDType(6)"},
		{EventGIDChange, EventType(99), "GID_CHANGE", "EventType(99)"}, {EventCQErr, EventType(14), "CQ_ERR", "EventType(14)"},
		{LinkInfiniBand, LinkLayer(7), "InfiniBand", "unspecified"}, {LinkEthernet, LinkLayer(0), "Ethernet", "unspecified"},
	} {
		if c.known.String() != c.name || c.beyond.String() != c.number {
			t.Errorf("names %q and %q, want %q and %q", c.known, c.beyond, c.name, c.number)
		}
	}
}
