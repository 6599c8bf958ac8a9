// Compiled against <infiniband/verbs.h>, opened at run time: no symbol of
// libibverbs is linked, so the binary starts where the library is missing.
// See shim_none.c for builds without the header.
#define _GNU_SOURCE // dlvsym(3)

#include "shim.h"

#if !defined(MOVER_NO_VERBS_H) && defined(__has_include)
#if __has_include(<infiniband/verbs.h>)
#define HAVE_VERBS_H 1
#endif
#endif

#ifdef HAVE_VERBS_H

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

// Go writes immediates and the unions with little-endian shifts.
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "amd64 and arm64 only");
_Static_assert(sizeof(void *) == 8, "64 bit only");

#define SAME(a, fa, b, fb) _Static_assert(offsetof(struct a, fa) == offsetof(struct b, fb), #b "." #fb)
_Static_assert(sizeof(struct mv_sge) == sizeof(struct ibv_sge), "ibv_sge");
SAME(mv_sge, addr, ibv_sge, addr);
SAME(mv_sge, length, ibv_sge, length);
SAME(mv_sge, lkey, ibv_sge, lkey);
_Static_assert(sizeof(struct mv_send_wr) == sizeof(struct ibv_send_wr), "ibv_send_wr");
SAME(mv_send_wr, wr_id, ibv_send_wr, wr_id);
SAME(mv_send_wr, next, ibv_send_wr, next);
SAME(mv_send_wr, sg_list, ibv_send_wr, sg_list);
SAME(mv_send_wr, num_sge, ibv_send_wr, num_sge);
SAME(mv_send_wr, opcode, ibv_send_wr, opcode);
SAME(mv_send_wr, send_flags, ibv_send_wr, send_flags);
SAME(mv_send_wr, imm, ibv_send_wr, imm_data);
SAME(mv_send_wr, arg[0], ibv_send_wr, wr.rdma.remote_addr);
SAME(mv_send_wr, arg[1], ibv_send_wr, wr.rdma.rkey);
SAME(mv_send_wr, arg[0], ibv_send_wr, wr.atomic.remote_addr);
SAME(mv_send_wr, arg[1], ibv_send_wr, wr.atomic.compare_add);
SAME(mv_send_wr, arg[2], ibv_send_wr, wr.atomic.swap);
SAME(mv_send_wr, arg[3], ibv_send_wr, wr.atomic.rkey);
SAME(mv_send_wr, arg[0], ibv_send_wr, wr.ud.ah);
SAME(mv_send_wr, arg[1], ibv_send_wr, wr.ud.remote_qpn);
_Static_assert(offsetof(struct ibv_send_wr, wr.ud.remote_qkey) == offsetof(struct mv_send_wr, arg[1]) + 4, "wr.ud.remote_qkey");
_Static_assert(sizeof(struct mv_recv_wr) == sizeof(struct ibv_recv_wr), "ibv_recv_wr");
SAME(mv_recv_wr, wr_id, ibv_recv_wr, wr_id);
SAME(mv_recv_wr, next, ibv_recv_wr, next);
SAME(mv_recv_wr, sg_list, ibv_recv_wr, sg_list);
SAME(mv_recv_wr, num_sge, ibv_recv_wr, num_sge);
_Static_assert(sizeof(struct mv_wc) == sizeof(struct ibv_wc), "ibv_wc");
SAME(mv_wc, wr_id, ibv_wc, wr_id);
SAME(mv_wc, status, ibv_wc, status);
SAME(mv_wc, opcode, ibv_wc, opcode);
SAME(mv_wc, vendor_err, ibv_wc, vendor_err);
SAME(mv_wc, byte_len, ibv_wc, byte_len);
SAME(mv_wc, imm, ibv_wc, imm_data);
SAME(mv_wc, qp_num, ibv_wc, qp_num);
SAME(mv_wc, src_qp, ibv_wc, src_qp);
SAME(mv_wc, wc_flags, ibv_wc, wc_flags);
_Static_assert(sizeof(struct mv_gid_entry) == sizeof(struct ibv_gid_entry), "ibv_gid_entry");
SAME(mv_gid_entry, gid, ibv_gid_entry, gid);
SAME(mv_gid_entry, index, ibv_gid_entry, gid_index);
SAME(mv_gid_entry, port, ibv_gid_entry, port_num);
SAME(mv_gid_entry, type, ibv_gid_entry, gid_type);

// These names are macros of the header.
#undef ibv_query_port
#undef ibv_reg_mr

struct lib {
	struct ibv_device **(*get_device_list)(int *);
	void (*free_device_list)(struct ibv_device **);
	struct ibv_context *(*open_device)(struct ibv_device *);
	int (*close_device)(struct ibv_context *);
	int (*query_device)(struct ibv_context *, struct ibv_device_attr *);
	int (*query_port)(struct ibv_context *, uint8_t, struct ibv_port_attr *);
	int (*query_gid)(struct ibv_context *, uint8_t, int, union ibv_gid *);
	int (*get_async_event)(struct ibv_context *, struct ibv_async_event *);
	void (*ack_async_event)(struct ibv_async_event *);
	struct ibv_pd *(*alloc_pd)(struct ibv_context *);
	int (*dealloc_pd)(struct ibv_pd *);
	struct ibv_mr *(*reg_mr)(struct ibv_pd *, void *, size_t, int);
	int (*dereg_mr)(struct ibv_mr *);
	struct ibv_comp_channel *(*create_comp_channel)(struct ibv_context *);
	int (*destroy_comp_channel)(struct ibv_comp_channel *);
	struct ibv_cq *(*create_cq)(struct ibv_context *, int, void *, struct ibv_comp_channel *, int);
	int (*destroy_cq)(struct ibv_cq *);
	int (*get_cq_event)(struct ibv_comp_channel *, struct ibv_cq **, void **);
	void (*ack_cq_events)(struct ibv_cq *, unsigned int);
	struct ibv_qp *(*create_qp)(struct ibv_pd *, struct ibv_qp_init_attr *);
	int (*modify_qp)(struct ibv_qp *, struct ibv_qp_attr *, int);
	int (*query_qp)(struct ibv_qp *, struct ibv_qp_attr *, int, struct ibv_qp_init_attr *);
	int (*destroy_qp)(struct ibv_qp *);
	struct ibv_ah *(*create_ah)(struct ibv_pd *, struct ibv_ah_attr *);
	int (*destroy_ah)(struct ibv_ah *);
	// optional
	struct ibv_mr *(*reg_mr_iova2)(struct ibv_pd *, void *, size_t, uint64_t, unsigned int);
	ssize_t (*query_gid_table)(struct ibv_context *, struct ibv_gid_entry *, size_t, uint32_t, size_t);
	int (*query_gid_ex)(struct ibv_context *, uint32_t, uint32_t, struct ibv_gid_entry *, uint32_t, size_t);
};

// The versions are those of libibverbs' map file: a symbol of another version
// has other structs, and calling it would corrupt memory.
#define SYMBOL(field, name, version, optional) { offsetof(struct lib, field), name, version, optional }
static const struct {
	size_t at;
	const char *name, *version;
	int optional;
} symbols[] = {
	SYMBOL(get_device_list, "ibv_get_device_list", "IBVERBS_1.1", 0),
	SYMBOL(free_device_list, "ibv_free_device_list", "IBVERBS_1.1", 0),
	SYMBOL(open_device, "ibv_open_device", "IBVERBS_1.1", 0),
	SYMBOL(close_device, "ibv_close_device", "IBVERBS_1.1", 0),
	SYMBOL(query_device, "ibv_query_device", "IBVERBS_1.1", 0),
	SYMBOL(query_port, "ibv_query_port", "IBVERBS_1.1", 0),
	SYMBOL(query_gid, "ibv_query_gid", "IBVERBS_1.1", 0),
	SYMBOL(get_async_event, "ibv_get_async_event", "IBVERBS_1.1", 0),
	SYMBOL(ack_async_event, "ibv_ack_async_event", "IBVERBS_1.1", 0),
	SYMBOL(alloc_pd, "ibv_alloc_pd", "IBVERBS_1.1", 0),
	SYMBOL(dealloc_pd, "ibv_dealloc_pd", "IBVERBS_1.1", 0),
	SYMBOL(reg_mr, "ibv_reg_mr", "IBVERBS_1.1", 0),
	SYMBOL(dereg_mr, "ibv_dereg_mr", "IBVERBS_1.1", 0),
	SYMBOL(create_comp_channel, "ibv_create_comp_channel", "IBVERBS_1.0", 0),
	SYMBOL(destroy_comp_channel, "ibv_destroy_comp_channel", "IBVERBS_1.0", 0),
	SYMBOL(create_cq, "ibv_create_cq", "IBVERBS_1.1", 0),
	SYMBOL(destroy_cq, "ibv_destroy_cq", "IBVERBS_1.1", 0),
	SYMBOL(get_cq_event, "ibv_get_cq_event", "IBVERBS_1.1", 0),
	SYMBOL(ack_cq_events, "ibv_ack_cq_events", "IBVERBS_1.1", 0),
	SYMBOL(create_qp, "ibv_create_qp", "IBVERBS_1.1", 0),
	SYMBOL(modify_qp, "ibv_modify_qp", "IBVERBS_1.1", 0),
	SYMBOL(query_qp, "ibv_query_qp", "IBVERBS_1.1", 0),
	SYMBOL(destroy_qp, "ibv_destroy_qp", "IBVERBS_1.1", 0),
	SYMBOL(create_ah, "ibv_create_ah", "IBVERBS_1.1", 0),
	SYMBOL(destroy_ah, "ibv_destroy_ah", "IBVERBS_1.1", 0),
	SYMBOL(reg_mr_iova2, "ibv_reg_mr_iova2", "IBVERBS_1.8", 1),
	SYMBOL(query_gid_table, "_ibv_query_gid_table", "IBVERBS_1.11", 1),
	SYMBOL(query_gid_ex, "_ibv_query_gid_ex", "IBVERBS_1.11", 1),
};

#define LIB(h) ((struct lib *)(h))
#define CTX(h) ((struct ibv_context *)(h))
#define PD(h) ((struct ibv_pd *)(h))
#define CQ(h) ((struct ibv_cq *)(h))
#define QP(h) ((struct ibv_qp *)(h))

// A verb that returns NULL sets errno; one that forgets to is EIO.
static int null_errno(void) { return errno ? errno : EIO; }

// Verbs return 0, an errno, a negative errno, or -1 with errno set.
static int code(int ret)
{
	if (ret == -1 && errno)
		return errno;
	return ret < 0 ? -ret : ret;
}

int mv_have_verbs(void) { return 1; }

struct mv_loaded mv_load(char *path)
{
	struct mv_loaded r = { 0 };
	// libibverbs reads this at its first call: what belonged to an unplugged
	// device can then be destroyed without EIO, and its memory is freed. The
	// kernel has destroyed its own half already. A value of the user's stays.
	setenv("RDMAV_ALLOW_DISASSOC_DESTROY", "1", 0);
	void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!so) {
		r.failure = MV_NO_LIBRARY;
		const char *why = dlerror();
		snprintf(r.text, sizeof r.text, "%s", why ? why : "unknown error");
		return r;
	}
	struct lib *l = calloc(1, sizeof *l);
	if (!l) {
		r.failure = MV_NO_LIBRARY;
		snprintf(r.text, sizeof r.text, "out of memory");
		return r;
	}
	for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
		void *f = dlvsym(so, symbols[i].name, symbols[i].version);
		if (!f && !symbols[i].optional) {
			r.failure = MV_NO_SYMBOL;
			snprintf(r.text, sizeof r.text, "%s@%s", symbols[i].name, symbols[i].version);
			free(l);
			return r;
		}
		memcpy((char *)l + symbols[i].at, &f, sizeof f);
	}
	// Never closed again: the drivers that libibverbs loads stay in the process.
	r.lib = (uintptr_t)l;
	r.iova2 = l->reg_mr_iova2 != NULL;
	r.gid_table = l->query_gid_table != NULL;
	return r;
}

struct mv_opened mv_open(uintptr_t h, char *name)
{
	struct mv_opened r = { 0 };
	errno = 0;
	struct ibv_device **list = LIB(h)->get_device_list(NULL);
	if (!list) {
		r.err = null_errno();
		return r;
	}
	for (int i = 0; list[i] && !r.listed; i++) {
		if (strcmp(list[i]->name, name))
			continue;
		r.listed = 1;
		errno = 0;
		struct ibv_context *c = LIB(h)->open_device(list[i]);
		if (!c) {
			r.err = null_errno();
			break;
		}
		r.ctx = (uintptr_t)c;
		r.async_fd = c->async_fd;
		r.vectors = c->num_comp_vectors;
	}
	LIB(h)->free_device_list(list);
	if (!r.listed)
		r.err = ENODEV;
	return r;
}

int mv_close(uintptr_t h, uintptr_t ctx)
{
	errno = 0;
	return code(LIB(h)->close_device(CTX(ctx)));
}

struct mv_device_attr mv_query_device(uintptr_t h, uintptr_t ctx)
{
	struct ibv_device_attr a = { 0 };
	errno = 0;
	int err = code(LIB(h)->query_device(CTX(ctx), &a));
	return (struct mv_device_attr){
		.err = err, .max_mr_size = a.max_mr_size, .page_size_cap = a.page_size_cap, .max_qp = a.max_qp,
		.max_qp_wr = a.max_qp_wr, .max_sge = a.max_sge, .max_cq = a.max_cq, .max_cqe = a.max_cqe, .max_mr = a.max_mr,
		.max_pd = a.max_pd, .max_ah = a.max_ah, .max_qp_rd_atom = a.max_qp_rd_atom,
	};
}

struct mv_port_attr mv_query_port(uintptr_t h, uintptr_t ctx, uint8_t port)
{
	// The symbol fills the struct only up to link_layer; flags come through the
	// context, as in the header's inline. Newer libraries have a 32-bit
	// active_speed_ex behind port_cap_flags2 (XDR does not fit 8 bits); older
	// ones leave what they do not know zero.
	union {
		struct ibv_port_attr a;
		struct {
			uint8_t known[(offsetof(struct ibv_port_attr, port_cap_flags2) + 2 + 3) / 4 * 4];
			uint32_t active_speed_ex;
			uint8_t room[40];
		} wide;
	} u;
	memset(&u, 0, sizeof u);
	errno = 0;
	struct verbs_context *v = verbs_get_ctx_op(CTX(ctx), query_port);
	int err = v ? v->query_port(CTX(ctx), port, &u.a, sizeof u) : LIB(h)->query_port(CTX(ctx), port, &u.a);
	return (struct mv_port_attr){
		.err = code(err), .state = u.a.state, .max_mtu = u.a.max_mtu, .active_mtu = u.a.active_mtu,
		.gid_tbl_len = u.a.gid_tbl_len, .pkey_tbl_len = u.a.pkey_tbl_len, .lid = u.a.lid, .width = u.a.active_width,
		.link_layer = u.a.link_layer, .flags = u.a.flags,
		.speed = u.wide.active_speed_ex ? u.wide.active_speed_ex : u.a.active_speed,
	};
}

struct mv_gid mv_query_gid(uintptr_t h, uintptr_t ctx, uint8_t port, int index)
{
	struct mv_gid r = { 0 };
	r.entry.index = index;
	r.entry.port = port;
	errno = 0;
	if (LIB(h)->query_gid_ex) {
		struct ibv_gid_entry e = { 0 };
		if (!LIB(h)->query_gid_ex(CTX(ctx), port, index, &e, 0, sizeof e)) {
			memcpy(r.entry.gid, e.gid.raw, 16);
			r.entry.type = e.gid_type;
			r.entry.ifindex = e.ndev_ifindex;
			r.typed = 1;
			return r;
		}
	}
	union ibv_gid g = { 0 };
	errno = 0;
	if (LIB(h)->query_gid(CTX(ctx), port, index, &g))
		r.err = null_errno();
	memcpy(r.entry.gid, g.raw, 16);
	return r;
}

int mv_query_gid_table(uintptr_t h, uintptr_t ctx, struct mv_gid_entry *out, int max)
{
	if (!LIB(h)->query_gid_table)
		return -ENOSYS;
	ssize_t n = LIB(h)->query_gid_table(CTX(ctx), (struct ibv_gid_entry *)out, max, 0, sizeof(struct ibv_gid_entry));
	return n > max ? max : (int)n;
}

struct mv_event mv_get_event(uintptr_t h, uintptr_t ctx)
{
	struct mv_event r = { 0 };
	struct ibv_async_event e;
	errno = 0;
	if (LIB(h)->get_async_event(CTX(ctx), &e)) {
		r.err = null_errno();
		return r;
	}
	r.kind = e.event_type;
	// The object cannot go away before the event is acknowledged: destroying it
	// waits for that (ibv_ack_async_event(3)). So look, acknowledge, and only
	// then let Go take its locks.
	switch (e.event_type) {
	case IBV_EVENT_CQ_ERR:
		r.owner = (uintptr_t)e.element.cq->cq_context;
		break;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		r.qpn = e.element.qp->qp_num;
		break;
	case IBV_EVENT_PORT_ACTIVE:
	case IBV_EVENT_PORT_ERR:
	case IBV_EVENT_LID_CHANGE:
	case IBV_EVENT_PKEY_CHANGE:
	case IBV_EVENT_SM_CHANGE:
	case IBV_EVENT_CLIENT_REREGISTER:
	case IBV_EVENT_GID_CHANGE:
		r.port = e.element.port_num;
		break;
	default:
		break;
	}
	LIB(h)->ack_async_event(&e);
	return r;
}

struct mv_result mv_alloc_pd(uintptr_t h, uintptr_t ctx)
{
	errno = 0;
	struct ibv_pd *pd = LIB(h)->alloc_pd(CTX(ctx));
	return (struct mv_result){ .ptr = (uintptr_t)pd, .err = pd ? 0 : null_errno() };
}

int mv_dealloc_pd(uintptr_t h, uintptr_t pd)
{
	errno = 0;
	return code(LIB(h)->dealloc_pd(PD(pd)));
}

struct mv_mr mv_reg_mr(uintptr_t h, uintptr_t pd, uintptr_t addr, uint64_t length, uint32_t access)
{
	struct mv_mr r = { 0 };
	struct ibv_mr *mr;
	errno = 0;
	// As the header does: the optional flags need the newer symbol, and are
	// dropped where it is missing.
	if ((access & IBV_ACCESS_OPTIONAL_RANGE) && LIB(h)->reg_mr_iova2)
		mr = LIB(h)->reg_mr_iova2(PD(pd), (void *)addr, length, addr, access);
	else
		mr = LIB(h)->reg_mr(PD(pd), (void *)addr, length, access & ~IBV_ACCESS_OPTIONAL_RANGE);
	if (!mr) {
		r.err = null_errno();
		return r;
	}
	r.ptr = (uintptr_t)mr;
	r.lkey = mr->lkey;
	r.rkey = mr->rkey;
	r.addr = (uintptr_t)mr->addr;
	r.length = mr->length;
	return r;
}

int mv_dereg_mr(uintptr_t h, uintptr_t mr)
{
	errno = 0;
	return code(LIB(h)->dereg_mr((struct ibv_mr *)mr));
}

static struct ibv_ah_attr to_ah(const struct mv_ah_attr *a)
{
	struct ibv_ah_attr r = {
		.dlid = a->dlid, .sl = a->sl, .port_num = a->port, .is_global = a->is_global,
		.grh = { .flow_label = a->flow_label, .sgid_index = a->sgid_index, .hop_limit = a->hop_limit,
			 .traffic_class = a->tclass },
	};
	memcpy(r.grh.dgid.raw, a->dgid, 16);
	return r;
}

struct mv_result mv_create_ah(uintptr_t h, uintptr_t pd, struct mv_ah_attr attr)
{
	struct ibv_ah_attr a = to_ah(&attr);
	errno = 0;
	struct ibv_ah *ah = LIB(h)->create_ah(PD(pd), &a);
	return (struct mv_result){ .ptr = (uintptr_t)ah, .err = ah ? 0 : null_errno() };
}

int mv_destroy_ah(uintptr_t h, uintptr_t ah)
{
	errno = 0;
	return code(LIB(h)->destroy_ah((struct ibv_ah *)ah));
}

struct mv_channel mv_create_channel(uintptr_t h, uintptr_t ctx)
{
	errno = 0;
	struct ibv_comp_channel *c = LIB(h)->create_comp_channel(CTX(ctx));
	return (struct mv_channel){ .ptr = (uintptr_t)c, .err = c ? 0 : null_errno(), .fd = c ? c->fd : -1 };
}

int mv_drain_channel(uintptr_t h, uintptr_t channel)
{
	struct ibv_cq *cq, *last = NULL;
	unsigned int n = 0;
	void *context;
	// Acknowledging takes a mutex (ibv_ack_cq_events(3)), so events of one CQ
	// that follow each other share an acknowledgement. The bound keeps a CQ that
	// is armed again meanwhile from holding the caller.
	for (int round = 0; round < 4096; round++) {
		errno = 0;
		if (LIB(h)->get_cq_event((struct ibv_comp_channel *)channel, &cq, &context)) {
			int err = null_errno();
			if (err == EINTR)
				continue;
			if (last)
				LIB(h)->ack_cq_events(last, n);
			return err == EAGAIN ? 0 : err;
		}
		if (cq != last && last) {
			LIB(h)->ack_cq_events(last, n);
			n = 0;
		}
		last = cq;
		n++;
	}
	if (last)
		LIB(h)->ack_cq_events(last, n);
	return 0;
}

int mv_destroy_channel(uintptr_t h, uintptr_t channel)
{
	errno = 0;
	return code(LIB(h)->destroy_comp_channel((struct ibv_comp_channel *)channel));
}

struct mv_cq mv_create_cq(uintptr_t h, uintptr_t ctx, int entries, uint64_t owner, uintptr_t channel, int vector)
{
	errno = 0;
	struct ibv_cq *cq = LIB(h)->create_cq(CTX(ctx), entries, (void *)(uintptr_t)owner,
					      (struct ibv_comp_channel *)channel, vector);
	return (struct mv_cq){ .ptr = (uintptr_t)cq, .err = cq ? 0 : null_errno(), .entries = cq ? cq->cqe : 0 };
}

int mv_destroy_cq(uintptr_t h, uintptr_t cq)
{
	errno = 0;
	return code(LIB(h)->destroy_cq(CQ(cq)));
}

static uint32_t larger(uint32_t a, uint32_t b) { return a > b ? a : b; }

struct mv_qp mv_create_qp(uintptr_t h, uintptr_t pd, struct mv_qp_init init)
{
	struct ibv_qp_init_attr a = {
		.qp_context = (void *)(uintptr_t)init.owner, .send_cq = CQ(init.send_cq), .recv_cq = CQ(init.recv_cq),
		.cap = { .max_send_wr = init.cap.send_wr, .max_recv_wr = init.cap.recv_wr,
			 .max_send_sge = init.cap.send_sge, .max_recv_sge = init.cap.recv_sge,
			 .max_inline_data = init.cap.inline_bytes },
		.qp_type = init.qp_type, .sq_sig_all = init.signal_all,
	};
	struct mv_qp r = { 0 };
	errno = 0;
	struct ibv_qp *qp = LIB(h)->create_qp(PD(pd), &a);
	if (!qp) {
		r.err = null_errno();
		return r;
	}
	r.ptr = (uintptr_t)qp;
	r.qpn = qp->qp_num;
	r.cap = (struct mv_cap){ a.cap.max_send_wr, a.cap.max_recv_wr, a.cap.max_send_sge, a.cap.max_recv_sge,
				 a.cap.max_inline_data };
	// Some drivers (rxe) answer with what was asked for and round their rings
	// up all the same; asked for the QP's attributes they tell.
	struct ibv_qp_attr q = { 0 };
	struct ibv_qp_init_attr qi = { 0 };
	if (!LIB(h)->query_qp(qp, &q, IBV_QP_CAP, &qi)) {
		r.cap.send_wr = larger(r.cap.send_wr, q.cap.max_send_wr);
		r.cap.recv_wr = larger(r.cap.recv_wr, q.cap.max_recv_wr);
	}
	return r;
}

int mv_modify_qp(uintptr_t h, uintptr_t qp, struct mv_qp_attr m, uint32_t mask)
{
	struct ibv_qp_attr a = {
		.qp_state = m.state, .qp_access_flags = m.access, .pkey_index = m.pkey_index, .port_num = m.port,
		.qkey = m.qkey, .ah_attr = to_ah(&m.ah), .path_mtu = m.mtu, .dest_qp_num = m.dest_qpn, .rq_psn = m.rq_psn,
		.sq_psn = m.sq_psn, .max_dest_rd_atomic = m.max_dest_rd_atomic, .max_rd_atomic = m.max_rd_atomic,
		.min_rnr_timer = m.min_rnr_timer, .timeout = m.timeout, .retry_cnt = m.retry_cnt, .rnr_retry = m.rnr_retry,
	};
	errno = 0;
	return code(LIB(h)->modify_qp(QP(qp), &a, mask));
}

struct mv_qp_attr mv_query_qp(uintptr_t h, uintptr_t qp)
{
	struct ibv_qp_attr a = { 0 };
	struct ibv_qp_init_attr init = { 0 };
	errno = 0;
	int err = code(LIB(h)->query_qp(QP(qp), &a,
					IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY |
						IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_SQ_PSN |
						IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER |
						IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY,
					&init));
	struct mv_qp_attr r = {
		.err = err, .state = a.qp_state, .access = a.qp_access_flags, .qkey = a.qkey, .mtu = a.path_mtu,
		.dest_qpn = a.dest_qp_num, .rq_psn = a.rq_psn, .sq_psn = a.sq_psn, .pkey_index = a.pkey_index,
		.port = a.port_num, .max_dest_rd_atomic = a.max_dest_rd_atomic, .max_rd_atomic = a.max_rd_atomic,
		.min_rnr_timer = a.min_rnr_timer, .timeout = a.timeout, .retry_cnt = a.retry_cnt, .rnr_retry = a.rnr_retry,
		.ah = { .flow_label = a.ah_attr.grh.flow_label, .dlid = a.ah_attr.dlid, .sl = a.ah_attr.sl,
			.port = a.ah_attr.port_num, .is_global = a.ah_attr.is_global, .sgid_index = a.ah_attr.grh.sgid_index,
			.hop_limit = a.ah_attr.grh.hop_limit, .tclass = a.ah_attr.grh.traffic_class },
	};
	memcpy(r.ah.dgid, a.ah_attr.grh.dgid.raw, 16);
	return r;
}

int mv_destroy_qp(uintptr_t h, uintptr_t qp)
{
	errno = 0;
	return code(LIB(h)->destroy_qp(QP(qp)));
}

// outcome packs the answer of a post: accepted << 32 | errno.
static uint64_t outcome(int ret, uint32_t n, uintptr_t first, uintptr_t bad, size_t size)
{
	if (!ret)
		return (uint64_t)n << 32;
	uint64_t err = (uint32_t)code(ret);
	if (!bad)
		return err | MV_UNKNOWN_POST;
	return (uint64_t)((bad - first) / size) << 32 | err;
}

uint64_t mv_post_send(uintptr_t qp, uintptr_t first, uint32_t n)
{
	struct ibv_send_wr *wr = (struct ibv_send_wr *)first, *bad = NULL, *next = wr[n - 1].next;
	wr[n - 1].next = NULL;
	errno = 0;
	int ret = ibv_post_send(QP(qp), wr, &bad);
	wr[n - 1].next = next;
	return outcome(ret, n, first, (uintptr_t)bad, sizeof *wr);
}

uint64_t mv_post_recv(uintptr_t qp, uintptr_t first, uint32_t n)
{
	struct ibv_recv_wr *wr = (struct ibv_recv_wr *)first, *bad = NULL, *next = wr[n - 1].next;
	wr[n - 1].next = NULL;
	errno = 0;
	int ret = ibv_post_recv(QP(qp), wr, &bad);
	wr[n - 1].next = next;
	return outcome(ret, n, first, (uintptr_t)bad, sizeof *wr);
}

int mv_poll(uintptr_t cq, uintptr_t wc, int n) { return ibv_poll_cq(CQ(cq), n, (struct ibv_wc *)wc); }

int mv_req_notify(uintptr_t cq, int solicited_only)
{
	errno = 0;
	return code(ibv_req_notify_cq(CQ(cq), solicited_only));
}

#endif
