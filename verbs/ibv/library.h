// libibverbs as the C files of this package see it. HAVE_VERBS_H tells whether
// <infiniband/verbs.h> was there at build time; without it shim_none.c stands
// for all of them.
#ifndef MOVER_IBV_LIBRARY_H
#define MOVER_IBV_LIBRARY_H

#include "shim.h"

#if !defined(MOVER_NO_VERBS_H) && defined(__has_include)
#if __has_include(<infiniband/verbs.h>)
#define HAVE_VERBS_H 1
#endif
#endif

#ifdef HAVE_VERBS_H

#include <errno.h>

#include <infiniband/verbs.h>

// These names are macros of the header.
#undef ibv_query_port
#undef ibv_reg_mr

// The symbols of libibverbs; the optional ones may be NULL.
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

#define LIB(h) ((struct lib *)(h))
#define CTX(h) ((struct ibv_context *)(h))
#define PD(h) ((struct ibv_pd *)(h))
#define CQ(h) ((struct ibv_cq *)(h))
#define QP(h) ((struct ibv_qp *)(h))

// A verb that returns NULL sets errno; one that forgets to is EIO.
static inline int null_errno(void) { return errno ? errno : EIO; }

// Verbs return 0, an errno, a negative errno, or -1 with errno set.
static inline int code(int ret)
{
	if (ret == -1 && errno)
		return errno;
	return ret < 0 ? -ret : ret;
}

#endif
#endif
