// The verbs of the control path: each translates between the flat structs of
// shim.h and those of libibverbs.
#include "library.h"

#ifdef HAVE_VERBS_H

#include <stddef.h>
#include <string.h>

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

#endif
