#include <stdlib.h>
#include <string.h>

#include "shim.h"

static long blocks;

void *mv_alloc(size_t bytes)
{
	// aligned_alloc wants a multiple of the alignment (aligned_alloc(3)).
	size_t rounded = (bytes + 63) & ~(size_t)63;
	void *p = aligned_alloc(64, rounded);
	if (p) {
		memset(p, 0, rounded);
		__atomic_add_fetch(&blocks, 1, __ATOMIC_RELAXED);
	}
	return p;
}

void mv_free(void *p)
{
	if (p)
		__atomic_sub_fetch(&blocks, 1, __ATOMIC_RELAXED);
	free(p);
}

long mv_blocks(void) { return __atomic_load_n(&blocks, __ATOMIC_RELAXED); }
