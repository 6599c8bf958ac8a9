package node

// portCounters are the files below ports/N/counters and ports/N/hw_counters
// that become metrics: a fixed list, so that a driver with hundreds of counters
// does not make hundreds of series. Those are the standard's, and what drivers
// say of congestion, loss and errors; not what counts something else than
// events, such as lifespan or active_qps.
var portCounters = setOf(
	// Of the port (Documentation/ABI/stable/sysfs-class-infiniband).
	"port_xmit_data", "port_rcv_data", "port_xmit_packets", "port_rcv_packets", "port_xmit_wait",
	"port_xmit_discards", "port_rcv_errors", "port_rcv_remote_physical_errors", "port_rcv_switch_relay_errors",
	"port_xmit_constraint_errors", "port_rcv_constraint_errors", "symbol_error", "link_error_recovery", "link_downed",
	"local_link_integrity_errors", "excessive_buffer_overrun_errors", "VL15_dropped",

	// mlx5, and others under the same names.
	"np_cnp_sent", "rp_cnp_handled", "rp_cnp_ignored", "np_ecn_marked_roce_packets",
	"out_of_sequence", "out_of_buffer", "packet_seq_err", "implied_nak_seq_err", "duplicate_request",
	"local_ack_timeout_err", "rnr_nak_retry_err", "rx_icrc_encapsulated",
	"req_cqe_error", "req_cqe_flush_error", "req_remote_access_errors", "req_remote_invalid_request",
	"resp_cqe_error", "resp_cqe_flush_error", "resp_local_length_error", "resp_remote_access_errors",
	"roce_adp_retrans", "roce_adp_retrans_to", "roce_slow_restart", "roce_slow_restart_cnps", "roce_slow_restart_trans",

	// bnxt_re.
	"tx_cnp_pkts", "rx_cnp_pkts", "rx_ecn_marked_pkts", "oos_drop_count", "rx_out_of_buffer",
	"to_retransmits", "seq_err_naks_rcvd", "rnr_naks_rcvd", "max_retry_exceeded", "missing_resp",
	"rx_roce_errors", "tx_roce_errors", "rx_roce_discards", "tx_roce_discards", "recoverable_errors", "unrecoverable_err",

	// irdma.
	"cnpSent", "cnpHandled", "cnpIgnored", "RxECNMrkd", "RetransSegs",

	// rxe, in software.
	"out_of_seq_request", "rcvd_seq_err", "rcvd_rnr_err", "send_rnr_err", "send_err", "retry_exceeded_err",
	"retry_rnr_exceeded_err", "completer_retry_err", "sent_pkts", "rcvd_pkts",
)

func setOf(names ...string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, n := range names {
		set[n] = true
	}
	return set
}
