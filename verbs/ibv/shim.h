// What Go sees of libibverbs: flat structs without unions, handles as integers,
// results by value. shim.c translates to <infiniband/verbs.h>; the structs which
// Go fills in place (mv_sge, mv_send_wr, mv_recv_wr, mv_wc, mv_gid_entry) have
// libibverbs' own layout (layout.c). Every function returns an errno or a struct
// with one in err; nothing here is a Go pointer but the GID table's buffer.
#ifndef MOVER_IBV_SHIM_H
#define MOVER_IBV_SHIM_H

#include <stddef.h>
#include <stdint.h>

// A scatter/gather entry, struct ibv_sge.
struct mv_sge {
	uint64_t addr;
	uint32_t length;
	uint32_t lkey;
};

// A send work request, struct ibv_send_wr. arg is the union wr:
//   writes and reads  remote address, rkey
//   atomics           remote address, compare or add, swap, rkey
//   UD                address handle, remote QPN | remote Q_Key << 32
struct mv_send_wr {
	uint64_t wr_id;
	uint64_t next;
	uint64_t sg_list;
	int32_t num_sge;
	uint32_t opcode;
	uint32_t send_flags;
	uint32_t imm; // network order
	uint64_t arg[4];
	uint64_t unused[7];
};

// A receive work request, struct ibv_recv_wr.
struct mv_recv_wr {
	uint64_t wr_id;
	uint64_t next;
	uint64_t sg_list;
	int32_t num_sge;
	uint32_t pad;
};

// A work completion, struct ibv_wc.
struct mv_wc {
	uint64_t wr_id;
	uint32_t status;
	uint32_t opcode;
	uint32_t vendor_err;
	uint32_t byte_len;
	uint32_t imm; // network order
	uint32_t qp_num;
	uint32_t src_qp;
	uint32_t wc_flags;
	uint64_t unused;
};

enum { MV_LOADED, MV_NO_LIBRARY, MV_NO_SYMBOL };

// What mv_load found. text is dlerror's, or the symbol and its version.
struct mv_loaded {
	uintptr_t lib;
	int failure;
	int iova2;     // ibv_reg_mr_iova2 is there
	int gid_table; // _ibv_query_gid_table is there
	char text[512];
};

struct mv_result {
	uintptr_t ptr;
	int err;
};

struct mv_opened {
	uintptr_t ctx;
	int err;
	int listed; // the device is in libibverbs' list
	int async_fd;
	int vectors;
};

struct mv_device_attr {
	int err;
	uint64_t max_mr_size, page_size_cap;
	int max_qp, max_qp_wr, max_sge, max_cq, max_cqe, max_mr, max_pd, max_ah, max_qp_rd_atom;
};

struct mv_port_attr {
	int err;
	uint32_t state, max_mtu, active_mtu;
	int gid_tbl_len;
	uint16_t pkey_tbl_len, lid;
	uint8_t width, link_layer, flags;
	uint32_t speed; // active_speed, or active_speed_ex when the library fills it
};

// A GID table entry, struct ibv_gid_entry.
struct mv_gid_entry {
	uint8_t gid[16];
	uint32_t index, port, type, ifindex;
};

struct mv_gid {
	int err;
	int typed; // entry.type is known
	struct mv_gid_entry entry;
};

struct mv_mr {
	uintptr_t ptr;
	int err;
	uint32_t lkey, rkey;
	uint64_t addr, length;
};

struct mv_channel {
	uintptr_t ptr;
	int err;
	int fd;
};

struct mv_cq {
	uintptr_t ptr;
	int err;
	int entries;
};

struct mv_cap {
	uint32_t send_wr, recv_wr, send_sge, recv_sge, inline_bytes;
};

struct mv_qp_init {
	uintptr_t send_cq, recv_cq;
	uint64_t owner; // comes back with the QP's events
	uint32_t qp_type;
	int signal_all;
	struct mv_cap cap;
};

struct mv_qp {
	uintptr_t ptr;
	int err;
	uint32_t qpn;
	struct mv_cap cap;
};

struct mv_ah_attr {
	uint8_t dgid[16];
	uint32_t flow_label;
	uint16_t dlid;
	uint8_t sl, port, is_global, sgid_index, hop_limit, tclass;
};

struct mv_qp_attr {
	int err; // of mv_query_qp
	uint32_t state, access, qkey, mtu, dest_qpn, rq_psn, sq_psn;
	uint16_t pkey_index;
	uint8_t port, max_dest_rd_atomic, max_rd_atomic, min_rnr_timer, timeout, retry_cnt, rnr_retry;
	struct mv_ah_attr ah;
};

// An asynchronous event, already acknowledged.
struct mv_event {
	int err;
	uint32_t kind;
	uint32_t qpn;
	uint32_t port;
	uint64_t owner; // of the CQ
};

// 1 when compiled against <infiniband/verbs.h>; without it the rest answers
// ENOSYS and must not be called.
int mv_have_verbs(void);

struct mv_loaded mv_load(char *path);
struct mv_opened mv_open(uintptr_t lib, char *name);
int mv_close(uintptr_t lib, uintptr_t ctx);
struct mv_device_attr mv_query_device(uintptr_t lib, uintptr_t ctx);
struct mv_port_attr mv_query_port(uintptr_t lib, uintptr_t ctx, uint8_t port);
struct mv_gid mv_query_gid(uintptr_t lib, uintptr_t ctx, uint8_t port, int index);
// Fills at most max entries of all ports and returns how many, or -errno.
int mv_query_gid_table(uintptr_t lib, uintptr_t ctx, struct mv_gid_entry *out, int max);
struct mv_event mv_get_event(uintptr_t lib, uintptr_t ctx);

struct mv_result mv_alloc_pd(uintptr_t lib, uintptr_t ctx);
int mv_dealloc_pd(uintptr_t lib, uintptr_t pd);
struct mv_mr mv_reg_mr(uintptr_t lib, uintptr_t pd, uintptr_t addr, uint64_t length, uint32_t access);
int mv_dereg_mr(uintptr_t lib, uintptr_t mr);
struct mv_result mv_create_ah(uintptr_t lib, uintptr_t pd, struct mv_ah_attr attr);
int mv_destroy_ah(uintptr_t lib, uintptr_t ah);

struct mv_channel mv_create_channel(uintptr_t lib, uintptr_t ctx);
int mv_drain_channel(uintptr_t lib, uintptr_t channel);
int mv_destroy_channel(uintptr_t lib, uintptr_t channel);
struct mv_cq mv_create_cq(uintptr_t lib, uintptr_t ctx, int entries, uint64_t owner, uintptr_t channel, int vector);
int mv_destroy_cq(uintptr_t lib, uintptr_t cq);

struct mv_qp mv_create_qp(uintptr_t lib, uintptr_t pd, struct mv_qp_init init);
int mv_modify_qp(uintptr_t lib, uintptr_t qp, struct mv_qp_attr attr, uint32_t mask);
struct mv_qp_attr mv_query_qp(uintptr_t lib, uintptr_t qp);
int mv_destroy_qp(uintptr_t lib, uintptr_t qp);

// The data path. first is an array of n linked WRs; the result is how many were
// accepted << 32 | errno. MV_UNKNOWN_POST is set when the library reported an
// error but not where: how far it got is not known.
#define MV_UNKNOWN_POST 0x80000000u
uint64_t mv_post_send(uintptr_t qp, uintptr_t first, uint32_t n);
uint64_t mv_post_recv(uintptr_t qp, uintptr_t first, uint32_t n);
// How many completions were written to wc, negative when the CQ failed.
int mv_poll(uintptr_t cq, uintptr_t wc, int n);
int mv_req_notify(uintptr_t cq, int solicited_only);

// Zeroed memory off the Go heap, aligned to a cache line; NULL without memory.
void *mv_alloc(size_t bytes);
void mv_free(void *p);
// How many blocks mv_alloc gave out and mv_free did not get back: tests want
// none at the end.
long mv_blocks(void);

#endif
