// SPDX-License-Identifier: MIT OR Apache-2.0
//
// A mapped device: the machine's timer (/dev/hpet). Its registers are read through the
// mapping, and operations on the mapping are tried. Ends with 0 if all is as on Linux 6.12.

#define _GNU_SOURCE
#include "children.h"
#include "touch.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/wait.h>

// The vendor and the period of a tick, in femtoseconds: at most 100 ns.
static void is_timer(const volatile uint32_t *registers)
{
    EXPECT(registers[0] != 0 && registers[0] != ~0u, "vendor %x", registers[0]);
    EXPECT(registers[1] != 0 && registers[1] <= 100000000, "period %u", registers[1]);
}

#define FAILS(with, ...)                                                       \
    do {                                                                       \
        long result = (long)(__VA_ARGS__);                                     \
        EXPECT(result == -1 && errno == (with), "%s: %ld", #__VA_ARGS__, result); \
    } while (0)

static bool smaps_say(const char *what)
{
    static char text[1 << 16];
    int file = open("/proc/self/smaps", O_RDONLY);
    size_t length = 0;
    ssize_t more;

    CHECK(file >= 0);
    while ((more = read(file, text + length, sizeof text - 1 - length)) > 0)
        length += more;
    CHECK(more == 0 && close(file) == 0);
    text[length] = 0;
    char *line = strstr(text, "/dev/hpet\n");
    CHECK(line != NULL);
    char *flags = strstr(line, "VmFlags:");
    char *resident = strstr(line, "Rss:");
    CHECK(flags != NULL && resident != NULL && strtol(resident + 4, NULL, 10) == 0);
    *strchr(flags, '\n') = 0;
    return strstr(flags, what) != NULL;
}

int main(void)
{
    struct stat status;
    unsigned char there = 9;
    uint64_t known;
    int self, pagemap, status_of_child;
    int timer = open("/dev/hpet", O_RDONLY);
    volatile uint32_t *at;

    catch_traps();
    CHECK(timer >= 0);
    CHECK(fstat(timer, &status) == 0 && S_ISCHR(status.st_mode));
    CHECK(status.st_rdev == makedev(10, 228));
    FAILS(EINVAL, open("/dev/hpet", O_RDWR));
    FAILS(EIO, read(timer, &known, sizeof known));

    // One page, read-only.
    FAILS(EINVAL, mmap(NULL, 2 * PAGE, PROT_READ, MAP_SHARED, timer, 0));
    FAILS(EINVAL, mmap(NULL, PAGE, PROT_READ, MAP_SHARED, timer, PAGE));
    FAILS(EACCES, mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, timer, 0));
    at = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, timer, 0);
    CHECK(at != MAP_FAILED);
    CHECK(close(timer) == 0);
    is_timer(at);
    CHECK(smaps_say(" pf ") && smaps_say(" io ") && smaps_say(" de ") && smaps_say(" dd "));
    if (sigsetjmp(touched, 1) == 0) {
        at[0] = 0;
        CHECK(!"a store went through");
    }
    CHECK(trapped.si_signo == SIGSEGV && trapped.si_code == SEGV_ACCERR);

    // Operations for memory are refused.
    void *page = (void *)at;
    FAILS(EACCES, mprotect(page, PAGE, PROT_READ | PROT_WRITE));
    FAILS(EINVAL, madvise(page, PAGE, MADV_DONTNEED));
    FAILS(EINVAL, madvise(page, PAGE, MADV_FREE));
    FAILS(EINVAL, madvise(page, PAGE, MADV_DODUMP));
    FAILS(EINVAL, madvise(page, PAGE, MADV_DOFORK));
    FAILS(EINVAL, madvise(page, PAGE, 20));
    FAILS(EACCES, madvise(page, PAGE, MADV_REMOVE));
    FAILS(EFAULT, mremap(page, PAGE, 2 * PAGE, MREMAP_MAYMOVE));
    CHECK(mlock(page, PAGE) == 0 && !smaps_say(" lo "));
    CHECK(mincore(page, PAGE, &there) == 0 && there == 0);
    pagemap = open("/proc/self/pagemap", O_RDONLY);
    CHECK(pagemap >= 0);
    CHECK(pread(pagemap, &known, 8, (uintptr_t)page / PAGE * 8) == 8);
    CHECK(known >> 63 == 0);
    struct iovec here = {&known, 4}, remote = {page, 4};
    FAILS(EFAULT, process_vm_readv(getpid(), &here, 1, &remote, 1, 0));
    self = open("/proc/self/mem", O_RDONLY);
    CHECK(self >= 0);
    FAILS(EIO, pread(self, &known, 4, (uintptr_t)page));

    // It can be moved, inherited by a child, and unmapped.
    void *place = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(mremap(page, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, place) == place);
    is_timer(place);
    pid_t child = fork();
    if (child == 0) {
        is_timer(place);
        _exit(munmap(place, PAGE));
    }
    CHECK(waitpid(child, &status_of_child, 0) == child && status_of_child == 0);
    is_timer(place);
    CHECK(munmap(place, PAGE) == 0);
    if (sigsetjmp(touched, 1) == 0) {
        is_timer(place);
        CHECK(!"it is still mapped");
    }
    CHECK(trapped.si_signo == SIGSEGV && trapped.si_code == SEGV_MAPERR);
    printf("device: all as it should be\n");
    return 0;
}
