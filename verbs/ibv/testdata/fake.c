// A libibverbs for tests: no device, no kernel. What it shall do and what it
// was told are numbers in a page shared with the test (knobs.h is made by the
// test from its own list); the page is the file named like this library, with
// ".ctl" behind. A copy of the library under another name has a state of its
// own.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#include "knobs.h"

#undef ibv_query_port
#undef ibv_reg_mr

static uint64_t *knob; // CTL_BYTES: the knobs, then GIDs at GID_OFFSET, then the last posts at POST_OFFSET

__attribute__((constructor)) static void attach(void)
{
	Dl_info info;
	char path[4096];
	if (!dladdr((void *)attach, &info))
		abort();
	snprintf(path, sizeof path, "%s.ctl", info.dli_fname);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		abort();
	knob = mmap(NULL, CTL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (knob == MAP_FAILED)
		abort();
}

// A GID table entry as the test writes it.
struct fake_gid {
	uint8_t raw[16];
	uint32_t type, err, port, pad;
};
static struct fake_gid *gids(void) { return (struct fake_gid *)((char *)knob + GID_OFFSET); }

// A posted send as the test reads it: the WR and its first four SGEs.
struct fake_post {
	struct ibv_send_wr wr;
	struct ibv_sge sge[4];
};
static struct fake_post *posts(void) { return (struct fake_post *)((char *)knob + POST_OFFSET); }

#define DEPTH 4096
struct fake_cq {
	struct ibv_cq cq;
	struct ibv_wc wc[DEPTH];
	unsigned head, tail, armed;
	unsigned reported, acked; // events
};

struct fake_qp {
	struct ibv_qp qp;
	struct ibv_qp_cap cap;
	struct ibv_qp_attr attr;
	int sig_all;
	uint64_t held[DEPTH]; // sends not completed
	unsigned sends;
	uint64_t recv[DEPTH]; // receives posted
	unsigned recvs;
	unsigned reported, acked;
	struct fake_qp *next;
};

struct fake_ctx {
	struct verbs_context v; // context is its last member
	int event_write;
};

struct fake_channel {
	struct ibv_comp_channel channel;
	int write;
};

static struct fake_qp *qps;
static struct fake_cq *cqs[64];
static struct ibv_device device = { .name = "fake0", .dev_name = "uverbs0" };

static void *fail(int err)
{
	errno = err;
	return NULL;
}

// live counts what exists; K_LIVE of the test must be 0 at the end.
static void live(int n) { __atomic_add_fetch(&knob[K_LIVE], n, __ATOMIC_SEQ_CST); }

struct ibv_device **ibv_get_device_list(int *n)
{
	if (knob[K_LIST_ERRNO])
		return fail(knob[K_LIST_ERRNO]);
	struct ibv_device **list = calloc(2, sizeof *list);
	list[0] = knob[K_HIDDEN] ? NULL : &device;
	if (n)
		*n = !knob[K_HIDDEN];
	live(1);
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
	live(-1);
}

static int query_port_ex(struct ibv_context *c, uint8_t port, struct ibv_port_attr *a, size_t len)
{
	(void)c;
	(void)port;
	memset(a, 0, len);
	if (knob[K_PORT_ERRNO])
		return knob[K_PORT_ERRNO];
	a->state = knob[K_PORT_STATE];
	a->max_mtu = IBV_MTU_4096;
	a->active_mtu = knob[K_PORT_MTU];
	a->gid_tbl_len = knob[K_GID_COUNT];
	a->pkey_tbl_len = 1;
	a->lid = knob[K_PORT_LID];
	a->active_width = knob[K_PORT_WIDTH];
	a->active_speed = knob[K_PORT_SPEED];
	a->link_layer = knob[K_LINK_LAYER];
	a->flags = knob[K_PORT_FLAGS];
	if (knob[K_PORT_SPEED_EX] && len > sizeof *a)
		((uint32_t *)a)[13] = knob[K_PORT_SPEED_EX]; // offset 52, as rdma-core 57 has it
	return 0;
}

int ibv_query_port(struct ibv_context *c, uint8_t port, struct _compat_ibv_port_attr *a)
{
	struct ibv_port_attr full;
	int err = query_port_ex(c, port, &full, sizeof full);
	memcpy(a, &full, offsetof(struct ibv_port_attr, flags)); // no further: link_layer is its last
	return err;
}

static int full_wc(struct fake_cq *cq, struct ibv_wc wc)
{
	if (cq->tail - cq->head == DEPTH)
		return -1;
	cq->wc[cq->tail++ % DEPTH] = wc;
	if (cq->armed && cq->cq.channel) {
		uint64_t event = (uintptr_t)cq;
		cq->armed = 0;
		if (write(((struct fake_channel *)cq->cq.channel)->write, &event, 8) != 8)
			abort();
	}
	return 0;
}

static enum ibv_wc_opcode completion_of(enum ibv_wr_opcode op)
{
	switch (op) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return IBV_WC_RDMA_WRITE;
	case IBV_WR_RDMA_READ:
		return IBV_WC_RDMA_READ;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		return IBV_WC_COMP_SWAP;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return IBV_WC_FETCH_ADD;
	default:
		return IBV_WC_SEND;
	}
}

static int post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct fake_qp *qp = (struct fake_qp *)ibqp;
	knob[K_POST_CALLS]++;
	int ret = knob[K_POST_RET], sign = knob[K_NEGATIVE] ? -1 : 1;
	if (ret && knob[K_POST_SILENT])
		return sign * ret; // and bad untouched
	for (unsigned i = 0; wr; wr = wr->next, i++) {
		if (ret && i == knob[K_POST_GOOD]) {
			*bad = wr;
			return sign * ret;
		}
		if (qp->sends == qp->cap.max_send_wr) {
			*bad = wr;
			return sign * ENOMEM;
		}
		struct fake_post *p = &posts()[knob[K_POSTED]++ % POSTS];
		p->wr = *wr;
		memset(p->sge, 0, sizeof p->sge);
		for (int j = 0; j < wr->num_sge && j < 4; j++)
			p->sge[j] = wr->sg_list[j];
		if (knob[K_HOLD] || qp->attr.qp_state == IBV_QPS_ERR) {
			qp->held[qp->sends++] = wr->wr_id;
			continue;
		}
		struct ibv_wc wc = { .wr_id = wr->wr_id, .opcode = completion_of(wr->opcode), .qp_num = ibqp->qp_num,
				     .status = knob[K_WC_STATUS], .vendor_err = 0x77, .byte_len = 0x1234,
				     .imm_data = wr->imm_data, .src_qp = 0x99, .wc_flags = knob[K_WC_FLAGS] };
		if ((wr->send_flags & IBV_SEND_SIGNALED) || qp->sig_all)
			full_wc((struct fake_cq *)ibqp->send_cq, wc);
	}
	return 0;
}

static int post_recv(struct ibv_qp *ibqp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct fake_qp *qp = (struct fake_qp *)ibqp;
	for (; wr; wr = wr->next) {
		if (qp->recvs == qp->cap.max_recv_wr) {
			*bad = wr;
			return ENOMEM;
		}
		struct fake_post *p = &posts()[knob[K_POSTED]++ % POSTS];
		memset(p, 0, sizeof *p);
		p->wr.wr_id = wr->wr_id;
		p->wr.num_sge = wr->num_sge;
		for (int j = 0; j < wr->num_sge && j < 4; j++)
			p->sge[j] = wr->sg_list[j];
		qp->recv[qp->recvs++] = wr->wr_id;
	}
	return 0;
}

static int poll_cq(struct ibv_cq *ibcq, int n, struct ibv_wc *wc)
{
	struct fake_cq *cq = (struct fake_cq *)ibcq;
	int i = 0;
	knob[K_POLL_CALLS]++;
	if (knob[K_POLL_FAILS])
		return -1;
	for (; i < n && cq->head != cq->tail; i++)
		wc[i] = cq->wc[cq->head++ % DEPTH];
	return i;
}

// The stub operations touch the memory that a driver would, and nothing more:
// what remains of a measurement is the caller's own.
static int stub_post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct fake_cq *cq = (struct fake_cq *)ibqp->send_cq;
	(void)bad;
	for (; wr; wr = wr->next) {
		struct ibv_wc *wc = &cq->wc[cq->tail++ % DEPTH];
		wc->wr_id = wr->wr_id;
		wc->byte_len = wr->sg_list->length;
		wc->opcode = wr->opcode;
		wc->qp_num = ibqp->qp_num;
	}
	return 0;
}

static int stub_poll_cq(struct ibv_cq *ibcq, int n, struct ibv_wc *wc)
{
	struct fake_cq *cq = (struct fake_cq *)ibcq;
	int i = 0;
	for (; i < n && cq->head != cq->tail; i++)
		wc[i] = cq->wc[cq->head++ % DEPTH];
	return i;
}

static int req_notify(struct ibv_cq *ibcq, int solicited)
{
	knob[K_SOLICITED] = solicited;
	((struct fake_cq *)ibcq)->armed = 1;
	return knob[K_ARM_ERRNO];
}

struct ibv_context *ibv_open_device(struct ibv_device *d)
{
	if (knob[K_OPEN_ERRNO])
		return fail(knob[K_OPEN_ERRNO]);
	struct fake_ctx *c = calloc(1, sizeof *c);
	int fds[2];
	if (pipe2(fds, O_CLOEXEC))
		return fail(EMFILE);
	c->v.sz = sizeof c->v;
	c->v.query_port = knob[K_OLD_CONTEXT] ? NULL : query_port_ex;
	struct ibv_context *x = &c->v.context;
	x->device = d;
	x->abi_compat = __VERBS_ABI_IS_EXTENDED;
	x->async_fd = fds[0];
	x->num_comp_vectors = 2;
	x->ops.post_send = knob[K_STUB] ? stub_post_send : post_send;
	x->ops.post_recv = post_recv;
	x->ops.poll_cq = knob[K_STUB] ? stub_poll_cq : poll_cq;
	x->ops.req_notify_cq = req_notify;
	c->event_write = fds[1];
	knob[K_EVENT_FD] = fds[1];
	live(1);
	return x;
}

int ibv_close_device(struct ibv_context *x)
{
	struct fake_ctx *c = (struct fake_ctx *)((char *)x - offsetof(struct fake_ctx, v.context));
	close(x->async_fd);
	close(c->event_write);
	free(c);
	live(-1);
	return 0;
}

int ibv_query_device(struct ibv_context *c, struct ibv_device_attr *a)
{
	(void)c;
	*a = (struct ibv_device_attr){ .max_mr_size = knob[K_MAX_MR_SIZE], .max_qp = 100, .max_qp_wr = 1000, .max_sge = 8,
				       .max_cq = 50, .max_cqe = 2000, .max_mr = 200, .max_pd = 40, .max_ah = 30,
				       .max_qp_rd_atom = 16, .page_size_cap = 0xfffff000, .phys_port_cnt = 1 };
	return knob[K_DEVICE_ERRNO];
}

int ibv_query_gid(struct ibv_context *c, uint8_t port, int index, union ibv_gid *gid)
{
	(void)c;
	(void)port;
	struct fake_gid *g = &gids()[index];
	if (g->err) {
		errno = g->err;
		return -1;
	}
	memcpy(gid->raw, g->raw, 16);
	return 0;
}

int _ibv_query_gid_ex(struct ibv_context *c, uint32_t port, uint32_t index, struct ibv_gid_entry *e, uint32_t flags, size_t size)
{
	(void)c;
	(void)flags;
	struct fake_gid *g = &gids()[index];
	if (knob[K_GID_EX_ERRNO])
		return knob[K_GID_EX_ERRNO];
	if (g->err)
		return g->err;
	memset(e, 0, size);
	memcpy(e->gid.raw, g->raw, 16);
	e->gid_index = index;
	e->port_num = port;
	e->gid_type = g->type;
	return 0;
}

ssize_t _ibv_query_gid_table(struct ibv_context *c, struct ibv_gid_entry *e, size_t max, uint32_t flags, size_t size)
{
	size_t n = 0;
	if (knob[K_GID_TABLE_ERRNO])
		return -(ssize_t)knob[K_GID_TABLE_ERRNO];
	for (unsigned i = knob[K_GID_COUNT]; i-- > 0 && n < max;) { // backwards: the order is not promised
		struct fake_gid *g = &gids()[i];
		if (g->err)
			continue;
		_ibv_query_gid_ex(c, g->port, i, &e[n], flags, size);
		n++;
	}
	return n;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *c)
{
	if (knob[K_PD_ERRNO])
		return fail(knob[K_PD_ERRNO]);
	struct ibv_pd *pd = calloc(1, sizeof *pd);
	pd->context = c;
	live(1);
	return pd;
}

// A destroy that K_DESTROY_ERRNO lets fail.
#define DESTROY(object)                            \
	do {                                       \
		if (knob[K_DESTROY_ERRNO])         \
			return knob[K_DESTROY_ERRNO]; \
		free(object);                      \
		live(-1);                          \
		return 0;                          \
	} while (0)

int ibv_dealloc_pd(struct ibv_pd *pd) { DESTROY(pd); }

static struct ibv_mr *reg(struct ibv_pd *pd, void *addr, size_t length, unsigned access)
{
	if (knob[K_REG_ERRNO])
		return fail(knob[K_REG_ERRNO]);
	struct ibv_mr *mr = calloc(1, sizeof *mr);
	mr->context = pd->context;
	mr->pd = pd;
	mr->addr = addr;
	mr->length = length - knob[K_REG_SHORT];
	mr->lkey = 0x100 + ++knob[K_REG_CALLS];
	mr->rkey = 0x9000 + knob[K_REG_CALLS];
	knob[K_REG_ACCESS] = access;
	live(1);
	return mr;
}

#ifndef OMIT_REG_MR
struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return reg(pd, addr, length, access);
}
#endif

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned access)
{
	knob[K_IOVA2] = iova;
	return reg(pd, addr, length, access);
}

int ibv_dereg_mr(struct ibv_mr *mr) { DESTROY(mr); }

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *a)
{
	if (knob[K_AH_ERRNO])
		return fail(knob[K_AH_ERRNO]);
	struct ibv_ah *ah = calloc(1, sizeof *ah);
	ah->context = pd->context;
	ah->pd = pd;
	knob[K_AH_GLOBAL] = a->is_global;
	knob[K_AH_HOPS] = a->grh.hop_limit;
	knob[K_AH_INDEX] = a->grh.sgid_index;
	knob[K_AH_LID] = a->dlid;
	knob[K_AH_HANDLE] = (uintptr_t)ah;
	live(1);
	return ah;
}

int ibv_destroy_ah(struct ibv_ah *ah) { DESTROY(ah); }

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *c)
{
	struct fake_channel *ch = calloc(1, sizeof *ch);
	int fds[2];
	if (pipe2(fds, O_CLOEXEC))
		return fail(EMFILE);
	ch->channel.context = c;
	ch->channel.fd = fds[0];
	ch->write = fds[1];
	live(1);
	return &ch->channel;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	if (knob[K_DESTROY_ERRNO])
		return knob[K_DESTROY_ERRNO];
	close(channel->fd);
	close(((struct fake_channel *)channel)->write);
	DESTROY(channel);
}

struct ibv_cq *ibv_create_cq(struct ibv_context *c, int cqe, void *context, struct ibv_comp_channel *channel, int vector)
{
	if (knob[K_CQ_ERRNO])
		return fail(knob[K_CQ_ERRNO]);
	struct fake_cq *cq = calloc(1, sizeof *cq);
	cq->cq.context = c;
	cq->cq.cq_context = context;
	cq->cq.channel = channel;
	cq->cq.cqe = cqe;
	knob[K_VECTOR] = vector;
	for (unsigned i = 0; i < 64; i++)
		if (!cqs[i]) {
			cqs[i] = cq;
			knob[K_LAST_CQ] = i;
			break;
		}
	live(1);
	return &cq->cq;
}

// Real destroys wait for the acknowledgements; here it is counted when they
// would have to.
int ibv_destroy_cq(struct ibv_cq *ibcq)
{
	struct fake_cq *cq = (struct fake_cq *)ibcq;
	if (knob[K_DESTROY_ERRNO])
		return knob[K_DESTROY_ERRNO];
	if (cq->reported != cq->acked)
		knob[K_UNACKED]++;
	for (unsigned i = 0; i < 64; i++)
		if (cqs[i] == cq)
			cqs[i] = NULL;
	DESTROY(cq);
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **context)
{
	uint64_t event;
	if (read(channel->fd, &event, 8) != 8)
		return -1;
	*cq = (struct ibv_cq *)(uintptr_t)event;
	*context = (*cq)->cq_context;
	((struct fake_cq *)*cq)->reported++;
	return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned n)
{
	knob[K_CQ_ACK_CALLS]++;
	knob[K_CQ_ACKED] += n;
	((struct fake_cq *)cq)->acked += n;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *a)
{
	if (knob[K_QP_ERRNO])
		return fail(knob[K_QP_ERRNO]);
	struct fake_qp *qp = calloc(1, sizeof *qp);
	qp->qp.context = pd->context;
	qp->qp.qp_context = a->qp_context;
	qp->qp.pd = pd;
	qp->qp.send_cq = a->send_cq;
	qp->qp.recv_cq = a->recv_cq;
	qp->qp.qp_num = 0x100 + ++knob[K_QP_CALLS];
	qp->qp.qp_type = a->qp_type;
	qp->sig_all = a->sq_sig_all;
	qp->cap = a->cap;
	qp->cap.max_send_wr += knob[K_ROUND_UP]; // and a->cap is left alone, as rxe does
	qp->cap.max_recv_wr += knob[K_ROUND_UP];
	qp->next = qps;
	qps = qp;
	live(1);
	return &qp->qp;
}

static void flush(struct fake_qp *qp)
{
	struct ibv_wc wc = { .status = IBV_WC_WR_FLUSH_ERR, .qp_num = qp->qp.qp_num, .vendor_err = 0x55, .byte_len = 0x4444,
			     .wc_flags = IBV_WC_WITH_IMM, .opcode = IBV_WC_RECV };
	for (unsigned i = 0; i < qp->sends; i++) {
		wc.wr_id = qp->held[i];
		full_wc((struct fake_cq *)qp->qp.send_cq, wc);
	}
	for (unsigned i = 0; i < qp->recvs; i++) {
		wc.wr_id = qp->recv[i];
		full_wc((struct fake_cq *)qp->qp.recv_cq, wc);
	}
	qp->sends = qp->recvs = 0;
}

int ibv_modify_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *a, int mask)
{
	struct fake_qp *qp = (struct fake_qp *)ibqp;
	knob[K_MODIFY_CALLS]++;
	knob[K_MOD_MASK] = mask;
	if (knob[K_MODIFY_ERRNO])
		return knob[K_MODIFY_ERRNO];
	knob[K_MOD_STATE] = a->qp_state;
	knob[K_MOD_MTU] = a->path_mtu;
	knob[K_MOD_DEST] = a->dest_qp_num;
	knob[K_MOD_RQ_PSN] = a->rq_psn;
	knob[K_MOD_SQ_PSN] = a->sq_psn;
	knob[K_MOD_ACCESS] = a->qp_access_flags;
	knob[K_MOD_QKEY] = a->qkey;
	knob[K_MOD_PKEY] = a->pkey_index;
	knob[K_MOD_PORT] = a->port_num;
	knob[K_MOD_RD] = a->max_rd_atomic;
	knob[K_MOD_DEST_RD] = a->max_dest_rd_atomic;
	knob[K_MOD_RNR_TIMER] = a->min_rnr_timer;
	knob[K_MOD_TIMEOUT] = a->timeout;
	knob[K_MOD_RETRY] = a->retry_cnt;
	knob[K_MOD_RNR_RETRY] = a->rnr_retry;
	knob[K_AH_GLOBAL] = a->ah_attr.is_global;
	knob[K_AH_HOPS] = a->ah_attr.grh.hop_limit;
	knob[K_AH_INDEX] = a->ah_attr.grh.sgid_index;
	knob[K_AH_LID] = a->ah_attr.dlid;
	knob[K_AH_PORT] = a->ah_attr.port_num;
	knob[K_AH_DGID_LAST] = a->ah_attr.grh.dgid.raw[15];
	qp->attr = *a;
	ibqp->state = a->qp_state;
	if (a->qp_state == IBV_QPS_ERR)
		flush(qp);
	return 0;
}

int ibv_query_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *a, int mask, struct ibv_qp_init_attr *init)
{
	struct fake_qp *qp = (struct fake_qp *)ibqp;
	(void)mask;
	if (knob[K_QUERY_ERRNO])
		return knob[K_QUERY_ERRNO];
	*a = qp->attr;
	a->cap = qp->cap;
	if (knob[K_QP_FAILED])
		a->qp_state = IBV_QPS_ERR;
	memset(init, 0, sizeof *init);
	init->cap = qp->cap;
	return 0;
}

int ibv_destroy_qp(struct ibv_qp *ibqp)
{
	struct fake_qp *qp = (struct fake_qp *)ibqp;
	if (knob[K_DESTROY_ERRNO])
		return knob[K_DESTROY_ERRNO];
	if (qp->reported != qp->acked)
		knob[K_UNACKED]++;
	for (struct fake_qp **p = &qps; *p; p = &(*p)->next)
		if (*p == qp) {
			*p = qp->next;
			break;
		}
	DESTROY(qp);
}

// Events come as pairs of 32-bit numbers: the type, and the port, the QPN or
// the index of the CQ. A type of 0xffff is the kernel's closed queue.
int ibv_get_async_event(struct ibv_context *c, struct ibv_async_event *e)
{
	uint32_t in[2];
	memset(e, 0, sizeof *e);
	for (;;) {
		if (read(c->async_fd, in, sizeof in) != sizeof in)
			return -1;
		if (in[0] == 0xffff) {
			errno = EIO;
			return -1;
		}
		e->event_type = in[0];
		knob[K_EVENTS]++;
		switch (in[0]) {
		case IBV_EVENT_CQ_ERR:
			if (!cqs[in[1]])
				continue; // the kernel forgets the events of what is destroyed
			e->element.cq = &cqs[in[1]]->cq;
			cqs[in[1]]->reported++;
			return 0;
		case IBV_EVENT_QP_FATAL:
		case IBV_EVENT_QP_REQ_ERR:
		case IBV_EVENT_QP_ACCESS_ERR:
		case IBV_EVENT_COMM_EST:
			for (struct fake_qp *qp = qps; qp; qp = qp->next)
				if (qp->qp.qp_num == in[1]) {
					e->element.qp = &qp->qp;
					qp->reported++;
					return 0;
				}
			continue;
		default:
			e->element.port_num = in[1];
			return 0;
		}
	}
}

void ibv_ack_async_event(struct ibv_async_event *e)
{
	knob[K_ACKS]++;
	if (e->event_type == IBV_EVENT_CQ_ERR)
		((struct fake_cq *)e->element.cq)->acked++;
	if (e->event_type >= IBV_EVENT_QP_FATAL && e->event_type <= IBV_EVENT_COMM_EST)
		((struct fake_qp *)e->element.qp)->acked++;
}
