// Opening libibverbs at run time: no symbol of it is linked, so the binary starts
// where the library is missing.
#define _GNU_SOURCE // dlvsym(3)

#include "library.h"

#ifdef HAVE_VERBS_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
		dlclose(so);
		return r;
	}
	for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
		void *f = dlvsym(so, symbols[i].name, symbols[i].version);
		if (!f && !symbols[i].optional) {
			r.failure = MV_NO_SYMBOL;
			snprintf(r.text, sizeof r.text, "%s@%s", symbols[i].name, symbols[i].version);
			free(l);
			dlclose(so); // nothing of it was called, so it has loaded no driver
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

#endif
