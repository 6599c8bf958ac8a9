// The shim where <infiniband/verbs.h> is missing at build time: mv_have_verbs
// says so, New answers with a *BuildError, and nothing else is ever called.
#include <errno.h>

#include "library.h"

#ifndef HAVE_VERBS_H

#define NONE(type, name, ...) \
	type name(__VA_ARGS__) { return (type){ .err = ENOSYS }; }
#define NONE_INT(name, ...) \
	int name(__VA_ARGS__) { return ENOSYS; }
typedef uintptr_t H;

int mv_have_verbs(void) { return 0; }
struct mv_loaded mv_load(char *path)
{
	(void)path;
	return (struct mv_loaded){ .failure = MV_NO_LIBRARY, .text = "built without infiniband/verbs.h" };
}
NONE(struct mv_opened, mv_open, H l, char *n)
NONE(struct mv_device_attr, mv_query_device, H l, H c)
NONE(struct mv_port_attr, mv_query_port, H l, H c, uint8_t p)
NONE(struct mv_gid, mv_query_gid, H l, H c, uint8_t p, int i)
NONE(struct mv_event, mv_get_event, H l, H c)
NONE(struct mv_result, mv_alloc_pd, H l, H c)
NONE(struct mv_mr, mv_reg_mr, H l, H p, H a, uint64_t n, uint32_t f)
NONE(struct mv_result, mv_create_ah, H l, H p, struct mv_ah_attr a)
NONE(struct mv_channel, mv_create_channel, H l, H c)
NONE(struct mv_cq, mv_create_cq, H l, H c, int n, uint64_t o, H ch, int v)
NONE(struct mv_qp, mv_create_qp, H l, H p, struct mv_qp_init i)
NONE(struct mv_qp_attr, mv_query_qp, H l, H q)
NONE_INT(mv_close, H l, H c)
NONE_INT(mv_dealloc_pd, H l, H p)
NONE_INT(mv_dereg_mr, H l, H m)
NONE_INT(mv_destroy_ah, H l, H a)
NONE_INT(mv_drain_channel, H l, H c)
NONE_INT(mv_destroy_channel, H l, H c)
NONE_INT(mv_destroy_cq, H l, H c)
NONE_INT(mv_modify_qp, H l, H q, struct mv_qp_attr a, uint32_t m)
NONE_INT(mv_destroy_qp, H l, H q)
NONE_INT(mv_req_notify, H c, int s)

int mv_query_gid_table(H l, H c, struct mv_gid_entry *o, int m) { return -ENOSYS; }
uint64_t mv_post_send(H q, H f, uint32_t n) { return ENOSYS; }
uint64_t mv_post_recv(H q, H f, uint32_t n) { return ENOSYS; }
int mv_poll(H c, H w, int n) { return -ENOSYS; }

#endif
