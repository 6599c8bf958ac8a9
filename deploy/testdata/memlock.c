// Prints whether this process may lock 1 MiB: "locked", or why not. What a test
// of the memlock limit asks first, since CAP_IPC_LOCK ignores the limit.
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

int main(void)
{
	size_t bytes = 1 << 20;
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED) {
		perror("mmap");
		return 2;
	}
	puts(mlock(p, bytes) ? strerror(errno) : "locked");
	return 0;
}
