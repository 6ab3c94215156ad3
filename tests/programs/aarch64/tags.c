// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Addresses with a tag in their top byte, as AArch64 programs may have them, in calls on memory; and flags of mmap that
// are those of x86-64.

#include "../common.h"

#include <fcntl.h>

enum { PAGE = 4096 };

#define TAG (0x5aull << 56)
#define SAY(call) (errno = 0, printf("%s: %ld, error %d\n", #call, (long)(call), errno))

static char *tagged(void *at)
{
    return (char *)((uintptr_t)at | TAG);
}

int main(void)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS, both = PROT_READ | PROT_WRITE;
    char *at = mmap(NULL, 8 * PAGE, both, flags, -1, 0);
    unsigned char there[8];

    CHECK(at != MAP_FAILED);
    *(volatile char *)tagged(at) = 1;
    printf("a store with a tag: %d\n", *at);
    SAY(mprotect(tagged(at), PAGE, PROT_READ));
    SAY(madvise(tagged(at + PAGE), PAGE, MADV_DONTNEED));
    SAY(mlock(tagged(at + 2 * PAGE), PAGE));
    SAY(munlock(tagged(at + 2 * PAGE), PAGE));
    SAY(syscall(SYS_mlock2, tagged(at + 2 * PAGE), PAGE, 1));
    SAY(mincore(tagged(at), 2 * PAGE, there));
    SAY(msync(tagged(at), PAGE, MS_ASYNC));
    SAY(mremap(tagged(at + 7 * PAGE), PAGE, PAGE, 0) == at + 7 * PAGE);
    SAY(mremap(at + 7 * PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, tagged(at + 6 * PAGE)) == MAP_FAILED);
    SAY(mmap(tagged(at + 5 * PAGE), PAGE, both, flags | MAP_FIXED, -1, 0) == MAP_FAILED);
    SAY(mmap(tagged(at + 5 * PAGE), PAGE, both, flags, -1, 0) == MAP_FAILED);
    SAY(munmap(tagged(at + 4 * PAGE), PAGE));
    SAY(read(open("/dev/zero", 0), tagged(at + 2 * PAGE), 8));
    SAY(munmap((void *)(1ull << 62), PAGE));
    SAY(munmap((void *)(1ull << 55), PAGE));
    SAY(munmap((void *)(1ull << 54), PAGE));
    SAY(mmap(NULL, PAGE, both, flags | 0x40, -1, 0) > (void *)0x100000000);
    SAY(mmap(NULL, PAGE, both, flags | 0x80, -1, 0) > (void *)0x100000000);
    SAY(mmap(NULL, PAGE, both, MAP_SHARED_VALIDATE | MAP_ANONYMOUS | 0x40, -1, 0) == MAP_FAILED);
    return 0;
}
