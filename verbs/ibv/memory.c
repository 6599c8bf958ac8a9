#include <stdlib.h>
#include <string.h>

#include "shim.h"

void *mv_alloc(size_t bytes)
{
	// aligned_alloc wants a multiple of the alignment (aligned_alloc(3)).
	size_t rounded = (bytes + 63) & ~(size_t)63;
	void *p = aligned_alloc(64, rounded);
	if (p)
		memset(p, 0, rounded);
	return p;
}

void mv_free(void *p) { free(p); }
