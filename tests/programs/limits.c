// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The memory that a program may use: locks, limits, the number of its mappings, overcommit. A
// transcript, the same on Linux. The program's other mappings differ, so all numbers are relative
// to them.

#include "children.h"
#include "transcript.h"

#include <fcntl.h>
#include <sys/resource.h>

#define PAGE 4096L
#define RW (PROT_READ | PROT_WRITE)
#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)

#ifndef MLOCK_ONFAULT
#define MLOCK_ONFAULT 1
#endif
#ifndef MCL_ONFAULT
#define MCL_ONFAULT 4
#endif
#define ADVICE_DONTNEED_LOCKED 24

// Only this program maps memory there.
static char *const at = (char *)0x100000000000;
static char *const to = (char *)0x100040005000;

// A number of `/proc`, in kB; without the C library's files, which map memory.
static long number(const char *path, const char *name)
{
    static char text[8192];
    int fd = open(path, O_RDONLY);
    long length = read(fd, text, sizeof text - 1);
    char *found;

    CHECK(fd >= 0 && length > 0);
    close(fd);
    text[length] = 0;
    found = strstr(text, name);
    EXPECT(found != NULL, "no %s in %s", name, path);
    return strtol(found + strlen(name), NULL, 10);
}

static long status(const char *name)
{
    return number("/proc/self/status", name);
}

static long first_size, first_data, first_stack, first_locked;

static void begin(void)
{
    first_size = status("VmSize:");
    first_data = status("VmData:");
    first_stack = status("VmStk:");
    first_locked = status("VmLck:");
}

static void say_totals(void)
{
    printf("size %ld data %ld stack %ld locked %ld\n", status("VmSize:") - first_size,
           status("VmData:") - first_data, status("VmStk:") - first_stack,
           status("VmLck:") - first_locked);
}

static long map(char *where, long pages, int protection, int flags)
{
    char *got = mmap(where, pages * PAGE, protection, ANON | MAP_FIXED | flags, -1, 0);

    return got == MAP_FAILED ? -1 : got - at;
}

static long moved(void *result)
{
    return result == MAP_FAILED ? -1 : (char *)result - at;
}

static void say_present(const char *where, long pages)
{
    unsigned char there[64];
    int result = mincore((void *)where, pages * PAGE, there);

    printf("there: ");
    for (long page = 0; result == 0 && page < pages; page++)
        putchar('0' + (there[page] & 1));
    puts(result == 0 ? "" : strerror(errno));
}

static long lock(char *where, long pages, int flags)
{
    return syscall(SYS_mlock2, where, pages * PAGE, flags);
}

static void set_limit(int which, long amount)
{
    struct rlimit limit;

    CHECK(getrlimit(which, &limit) == 0);
    limit.rlim_cur = amount < 0 ? limit.rlim_max : (rlim_t)amount;
    CHECK(setrlimit(which, &limit) == 0);
}

static void locking(void)
{
    begin();
    SAY(map(at, 12, RW, 0));
    SAY(mlock(at + 2 * PAGE + 5, 3 * PAGE));
    say_present(at, 12);
    say_totals();
    SAY(lock(at + 6 * PAGE, 3, MLOCK_ONFAULT));
    SAY(lock(at + 7 * PAGE, 1, 0));
    say_present(at, 12);
    SAY(lock(at, 1, 2));
    SAY(mlock(at + 9 * PAGE, 9 * PAGE));
    SAY(mlock(at + 12 * PAGE, PAGE));
    SAY(mlock(at, -1UL));
    SAY(mlock(at, -2 * PAGE));
    say_totals();
    SAY(madvise(at, 12 * PAGE, MADV_DONTNEED));
    SAY(madvise(at, 12 * PAGE, ADVICE_DONTNEED_LOCKED));
    say_present(at, 12);
    SAY(munlock(at + 3 * PAGE, PAGE));
    SAY(munlock(at + 11 * PAGE, 2 * PAGE));
    say_totals();
    SAY(mprotect(at + 4 * PAGE, 4 * PAGE, PROT_READ));
    SAY(mprotect(at + 4 * PAGE, 4 * PAGE, RW));
    say_present(at, 12);
    SAY(map(at + 20 * PAGE, 4, PROT_NONE, MAP_LOCKED));
    SAY(mlock(at + 20 * PAGE, PAGE));
    SAY(mprotect(at + 20 * PAGE, 2 * PAGE, RW));
    say_present(at + 20 * PAGE, 4);
    SAY(moved(mremap(at + 20 * PAGE, 2 * PAGE, 5 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to)));
    say_present(to, 5);
    say_totals();
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        first_locked = 0;
        say_totals();
        fflush(stdout);
        _exit(0);
    }
    SAY(status_of(child));
    SAY(munmap(at, 30 * PAGE));
    SAY(munmap(to, 5 * PAGE));
    say_totals();

    SAY(mlockall(0));
    SAY(mlockall(MCL_ONFAULT));
    SAY(mlockall(8));
    SAY(mlockall(MCL_FUTURE));
    SAY(map(at, 4, RW, 0));
    say_present(at, 4);
    say_totals();
    SAY(mlockall(MCL_FUTURE | MCL_ONFAULT));
    SAY(map(at + 4 * PAGE, 4, RW, MAP_POPULATE));
    say_present(at, 8);
    SAY(mlockall(MCL_CURRENT));
    say_present(at, 8);
    SAY(munlockall());
    SAY(map(at + 4 * PAGE, 4, RW, 0));
    say_present(at, 8);
    // With the capability, any amount may be locked.
    set_limit(RLIMIT_MEMLOCK, 0);
    SAY(mlock(at, 8 * PAGE));
    SAY(munmap(at, 8 * PAGE));
    say_totals();
}

static void grow(char *where)
{
    pid_t child;

    fflush(stdout);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        *(volatile char *)where = 1;
        say_totals();
        fflush(stdout);
        _exit(0);
    }
    SAY(status_of(child) & 0xff);
}

static void limiting(void)
{
    begin();
    set_limit(RLIMIT_AS, (first_size << 10) + 20 * PAGE + 4095);
    SAY(map(at, 21, RW, 0));
    SAY(map(at, 20, RW, 0));
    SAY(map(at + 30 * PAGE, 1, PROT_NONE, 0));
    SAY(map(at + 5 * PAGE, 10, PROT_READ, 0));
    SAY(map(at + 15 * PAGE, 6, PROT_READ, 0));
    SAY(moved(mremap(at + 15 * PAGE, 5 * PAGE, 6 * PAGE, MREMAP_MAYMOVE)));
    SAY(moved(mremap(at + 15 * PAGE, 5 * PAGE, 5 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to)));
    SAY(sbrk(PAGE) == (void *)-1);
    say_totals();
    SAY(munmap(at, 40 * PAGE));
    SAY(munmap(to, 5 * PAGE));
    set_limit(RLIMIT_AS, -1);

    set_limit(RLIMIT_DATA, (first_data << 10) + 10 * PAGE);
    SAY(map(at, 30, PROT_READ | PROT_EXEC, 0));
    SAY(map(at + 30 * PAGE, 8, RW, 0));
    SAY(map(at + 40 * PAGE, 3, RW, 0));
    SAY(map(at + 40 * PAGE, 2, RW, 0));
    SAY(mprotect(at, PAGE, RW));
    SAY(mprotect(at + 30 * PAGE, PAGE, PROT_READ));
    SAY(mprotect(at, 2 * PAGE, RW));
    SAY(mprotect(at, PAGE, RW));
    say_totals();
    SAY(munmap(at, 50 * PAGE));
    set_limit(RLIMIT_DATA, -1);

    SAY(map(at + 600 * PAGE, 2, RW, MAP_GROWSDOWN));
    set_limit(RLIMIT_STACK, 200 * PAGE);
    grow(at + 402 * PAGE);
    grow(at + 401 * PAGE);
    set_limit(RLIMIT_STACK, 8 << 20);
    set_limit(RLIMIT_AS, (status("VmSize:") << 10) + 30 * PAGE);
    grow(at + 570 * PAGE);
    grow(at + 569 * PAGE);
    set_limit(RLIMIT_AS, -1);
    SAY(munmap(at, 700 * PAGE));
    say_totals();
}

static void counting(void)
{
    char *const many = at + (1L << 30);
    long made = 0;

    begin();
    SAY(map(at, 20, RW, 0));
    while (mmap(many + 2 * made * PAGE, PAGE, PROT_NONE, ANON | MAP_FIXED, -1, 0) != MAP_FAILED)
        made++;
    puts(strerror(errno));
    SAY(made > 65400 && made < 65530);
    // One mapping above the limit.
    SAY(map(at + 30 * PAGE, 1, RW, 0));
    SAY(map(at + 19 * PAGE, 1, RW, 0));
    SAY(sbrk(PAGE) == (void *)-1);
    SAY(munmap(many, PAGE));
    // Exactly at the limit.
    SAY(munmap(at + 5 * PAGE, PAGE));
    SAY(mprotect(at, PAGE, PROT_READ));
    SAY(mprotect(at + 5 * PAGE, PAGE, PROT_READ));
    SAY(mlock(at, PAGE));
    SAY(madvise(at, PAGE, MADV_DONTFORK));
    SAY(moved(mremap(at + 19 * PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to)));
    SAY(moved(mremap(at + 10 * PAGE, 2 * PAGE, PAGE, 0)));
    SAY(map(at + 5 * PAGE, 1, PROT_READ, 0));
    SAY(munmap(at + 19 * PAGE, PAGE));
    SAY(map(at + 19 * PAGE, 1, RW, 0));
    SAY(mprotect(at, 20 * PAGE, PROT_READ));
    SAY(mprotect(at, 20 * PAGE, RW));
    // One mapping below the limit, and two.
    SAY(munmap(many + 2 * PAGE, PAGE));
    SAY(mprotect(at + 5 * PAGE, PAGE, PROT_READ));
    // Linux has split once and does not merge the two; this merges them.
    SAY(mprotect(at, 20 * PAGE, PROT_READ));
    SAY(mprotect(at, 20 * PAGE, RW));
    SAY(mprotect(at, PAGE, PROT_READ));
    SAY(mprotect(at + PAGE, PAGE, PROT_READ));
    SAY(mprotect(at, 2 * PAGE, RW));
    SAY(munmap(many + 4 * PAGE, PAGE));
    SAY(mprotect(at + 5 * PAGE, PAGE, PROT_READ));
    for (long page = 6; page < 14; page += 2)
        CHECK(munmap(many + page * PAGE, PAGE) == 0);
    SAY(moved(mremap(at + 19 * PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to)));
    for (long page = 14; page < 18; page += 2)
        CHECK(munmap(many + page * PAGE, PAGE) == 0);
    SAY(moved(mremap(at + 19 * PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to)));
    SAY(munmap(many, 2 * made * PAGE));
    SAY(munmap(at, 20 * PAGE));
    SAY(munmap(to, PAGE));
    say_totals();
}

static void committing(void)
{
    long pages = (number("/proc/meminfo", "MemTotal:") + number("/proc/meminfo", "SwapTotal:")) / 4;

    begin();
    SAY(map(at, pages + 1000, RW, 0));
    SAY(map(at, pages + 1000, RW, MAP_NORESERVE));
    SAY(map(at, pages + 1000, PROT_READ, 0));
    SAY(mprotect(at, (pages + 1000) * PAGE, RW));
    SAY(mprotect(at, pages / 2 * PAGE, RW));
    SAY(mprotect(at + pages / 2 * PAGE, pages / 2 * PAGE, RW));
    SAY(moved(mremap(at, PAGE, (pages + 1000) * PAGE, MREMAP_MAYMOVE)));
    SAY(munmap(at, (pages + 1000) * PAGE));
    say_totals();
    SAY(number("/proc/sys/vm/max_map_count", ""));
    SAY(number("/proc/sys/vm/overcommit_memory", ""));
    SAY(number("/proc/sys/vm/overcommit_ratio", ""));
    SAY(number("/proc/meminfo", "Committed_AS:") > 0);
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    locking();
    limiting();
    counting();
    committing();
    return 0;
}
