// The calls of every chain and every poll, through context->ops.
#include "library.h"

#ifdef HAVE_VERBS_H

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
