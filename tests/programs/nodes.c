// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Memory policies and calls about nodes, on a machine with one node. A transcript, the same on Linux.

#include "children.h"
#include "transcript.h"

#define PAGE 4096L
#define RW (PROT_READ | PROT_WRITE)
#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)

enum { DEFAULT, PREFERRED, BIND, INTERLEAVE, LOCAL, PREFERRED_MANY, WEIGHTED };
enum { STATIC = 1 << 15, RELATIVE = 1 << 14, BALANCING = 1 << 13 };
enum { NODE = 1, ADDRESS = 2, ALLOWED = 4 };
enum { STRICT = 1, MOVE = 2, MOVE_ALL = 4 };

// Only this program maps memory there.
static char *const at = (char *)0x100000000000;
static unsigned long mask[1024];

static unsigned long *nodes(unsigned long first)
{
    memset(mask, 0, sizeof mask);
    mask[0] = first;
    return mask;
}

static unsigned long *node(int number)
{
    nodes(0)[number / 64] = 1UL << number % 64;
    return mask;
}

static long set(int mode, unsigned long *set, long count)
{
    return syscall(SYS_set_mempolicy, mode, set, count);
}

static void get(const char *what, long flags, void *address)
{
    int mode = -1;
    unsigned long got[4] = {~0UL, ~0UL, ~0UL, ~0UL};
    long result = syscall(SYS_get_mempolicy, &mode, got, 130, address, flags);

    if (result < 0)
        printf("%s: %s\n", what, strerror(errno));
    else
        printf("%s: mode %#x nodes %lx %lx %lx %lx\n", what, mode, got[0], got[1], got[2], got[3]);
}

static void modes(void)
{
    for (int mode = -1; mode <= 8; mode++) {
        if (mode >= WEIGHTED)
            continue;
        printf("mode %d:\n", mode);
        SAY(set(mode, NULL, 0));
        SAY(set(mode, nodes(0), 65));
        SAY(set(mode, nodes(1), 65));
        get("now", 0, NULL);
        SAY(set(mode, nodes(5), 65));
        get("now", 0, NULL);
        SAY(set(mode, nodes(4), 65));
        SAY(set(mode | STATIC, nodes(0), 65));
        SAY(set(mode | STATIC, nodes(4), 65));
        SAY(set(mode | STATIC, nodes(5), 65));
        get("now", 0, NULL);
        SAY(set(mode | RELATIVE, nodes(0), 65));
        SAY(set(mode | RELATIVE, nodes(4), 65));
        get("now", 0, NULL);
        SAY(set(mode | STATIC | RELATIVE, nodes(1), 65));
        SAY(set(mode | BALANCING, nodes(1), 65));
        get("now", 0, NULL);
        get("next node", NODE, NULL);
    }
    SAY(set(9, nodes(1), 65));
    SAY(set(DEFAULT, NULL, 0));
}

static void masks(void)
{
    SAY(set(BIND, nodes(3), 1));
    SAY(set(BIND, nodes(3), 2));
    SAY(set(BIND, nodes(2), 2));
    SAY(set(BIND, NULL, -1L));
    SAY(set(BIND, nodes(1), 0));
    SAY(set(BIND, nodes(1), 1025));
    SAY(set(BIND, node(1023), 1025));
    SAY(set(BIND | RELATIVE, node(1023), 1025));
    get("now", 0, NULL);
    SAY(set(BIND, nodes(1), 2000));
    SAY(set(BIND, node(1030), 2000));
    SAY(set(BIND | RELATIVE, node(1030), 1031));
    SAY(set(BIND | RELATIVE, node(1100), 1200));
    SAY(set(BIND, nodes(1), 32769));
    SAY(set(BIND, nodes(1), 32770));
    SAY(set(BIND, (void *)8, 65));
    SAY(set(BIND, (void *)-8L, 65));
    SAY(set(77, (void *)8, 65));
}

static void queries(void)
{
    int mode = -1;
    unsigned long got[2];

    SAY(set(INTERLEAVE, nodes(1), 65));
    get("allowed", ALLOWED, NULL);
    get("allowed node", ALLOWED | NODE, NULL);
    get("allowed address", ALLOWED | ADDRESS, NULL);
    get("unknown", 8, NULL);
    get("next node", NODE, NULL);
    get("address without the flag", 0, at);
    get("unmapped", ADDRESS, at);
    CHECK(mmap(at, 4 * PAGE, RW, ANON | MAP_FIXED, -1, 0) == at);
    CHECK(mmap(at + 4 * PAGE, PAGE, PROT_NONE, ANON | MAP_FIXED, -1, 0) == at + 4 * PAGE);
    get("mapped", ADDRESS, at + 5);
    get("its node", ADDRESS | NODE, at + 5);
    get("no access", ADDRESS | NODE, at + 4 * PAGE);
    unsigned char there[4];
    CHECK(mincore(at, 4 * PAGE, there) == 0);
    printf("brought in: %d %d\n", there[0] & 1, there[1] & 1);
    SAY(syscall(SYS_get_mempolicy, NULL, NULL, 0, NULL, 0));
    SAY(syscall(SYS_get_mempolicy, &mode, got, 0, NULL, 0));
    SAY(syscall(SYS_get_mempolicy, &mode, NULL, 0, NULL, 0));
    got[0] = got[1] = 77;
    SAY(syscall(SYS_get_mempolicy, &mode, got, 1, NULL, 0));
    printf("%d %lu\n", mode, got[0]);
    SAY(syscall(SYS_get_mempolicy, &mode, got, 2, NULL, 0));
    printf("%d %lu %lu\n", mode, got[0], got[1]);
    SAY(syscall(SYS_get_mempolicy, &mode, mask, 32769, NULL, 0));
    SAY(syscall(SYS_get_mempolicy, &mode, mask, 32770, NULL, 0));
    SAY(syscall(SYS_get_mempolicy, (void *)8, NULL, 0, NULL, 0));
    SAY(syscall(SYS_get_mempolicy, &mode, (void *)8, 65, NULL, 0));
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        get("in a child", 0, NULL);
        fflush(stdout);
        _exit(0);
    }
    SAY(status_of(child));
    SAY(set(DEFAULT, NULL, 0));
    CHECK(munmap(at, 5 * PAGE) == 0);
}

static long range(long first, long pages, int mode, unsigned long *set, unsigned flags)
{
    return syscall(SYS_mbind, at + first * PAGE, pages * PAGE, mode, set, 65, flags);
}

static void ranges(void)
{
    SAY(range(0, 4, BIND, nodes(1), 0));
    SAY(range(0, 4, DEFAULT, NULL, 0));
    CHECK(mmap(at, 4 * PAGE, RW, ANON | MAP_FIXED, -1, 0) == at);
    CHECK(mmap(at + 6 * PAGE, PAGE, RW, ANON | MAP_FIXED, -1, 0) == at + 6 * PAGE);
    SAY(range(0, 4, BIND, nodes(1), 0));
    SAY(range(0, 4, BIND, nodes(2), 0));
    SAY(range(0, 4, BIND, nodes(0), 0));
    SAY(range(0, 4, 77, nodes(1), 0));
    SAY(range(0, 4, PREFERRED, NULL, 0));
    SAY(range(0, 4, DEFAULT, nodes(1), 0));
    SAY(range(0, 5, BIND, nodes(1), 0));
    SAY(range(0, 7, BIND, nodes(1), 0));
    SAY(range(-1, 3, BIND, nodes(1), 0));
    SAY(range(-1, 9, DEFAULT, NULL, 0));
    SAY(range(4, 2, DEFAULT, NULL, 0));
    SAY(range(0, 0, BIND, nodes(2), 0));
    SAY(range(0, 0, BIND, (void *)8, 0));
    SAY(range(0, -1, BIND, nodes(1), 0));
    SAY(range(0, 4, BIND, nodes(1), 8));
    SAY(range(0, 4, BIND, nodes(1), STRICT | MOVE | MOVE_ALL));
    SAY(syscall(SYS_mbind, at + 1, PAGE, BIND, nodes(1), 65, 0));
    SAY(syscall(SYS_mbind, at, PAGE + 1, BIND, nodes(1), 65, 0));
    SAY(range(0, 4, LOCAL, NULL, STRICT));
    (void)*(volatile char *)at;
    SAY(range(0, 4, LOCAL, NULL, STRICT));
    at[PAGE] = 1;
    SAY(range(0, 4, LOCAL, NULL, STRICT));
    SAY(range(2, 2, LOCAL, NULL, STRICT));
    SAY(range(0, 4, PREFERRED, NULL, STRICT));
    SAY(range(0, 4, LOCAL, NULL, STRICT | MOVE));
    SAY(range(0, 4, BIND, nodes(1), STRICT));
    SAY(range(0, 4, DEFAULT, NULL, STRICT));
    CHECK(munmap(at, 7 * PAGE) == 0);
}

enum { PAGES = 6 };

static void say_status(const char *what, long result, const int *status)
{
    printf("%s: %s:", what, result < 0 ? strerror(errno) : "done");
    for (int i = 0; i < PAGES; i++)
        printf(" %d", status[i]);
    puts("");
}

static void pages(void)
{
    // Written, read, untouched, no access, unmapped, of a file that was touched.
    void *pages[PAGES] = {at, at + PAGE, at + 2 * PAGE, at + 3 * PAGE, at + 4 * PAGE, at + 5 * PAGE + 7};
    int to[PAGES] = {0}, status[PAGES];
    long result;

    CHECK(mmap(at, 4 * PAGE, RW, ANON | MAP_FIXED, -1, 0) == at);
    CHECK(mmap(at + 5 * PAGE, PAGE, RW, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0)
          == at + 5 * PAGE);
    at[0] = at[3 * PAGE] = at[5 * PAGE] = 1;
    (void)*(volatile char *)(at + PAGE);
    CHECK(mprotect(at + 3 * PAGE, PAGE, PROT_NONE) == 0);
#define MOVE_PAGES(what, pid, count, from, to, flags)                                              \
    memset(status, 0x55, sizeof status);                                                           \
    result = syscall(SYS_move_pages, pid, count, from, to, status, flags);                         \
    say_status(what, result, status)
    MOVE_PAGES("where", 0, PAGES, pages, NULL, 0);
    MOVE_PAGES("where, by number", getpid(), PAGES, pages, NULL, MOVE);
    MOVE_PAGES("to node 0", 0, PAGES, pages, to, MOVE);
    MOVE_PAGES("to node 0, all", 0, PAGES, pages, to, MOVE_ALL);
    to[2] = 1;
    MOVE_PAGES("to node 1", 0, PAGES, pages, to, MOVE);
    to[2] = -1;
    MOVE_PAGES("to node -1", 0, PAGES, pages, to, MOVE);
    MOVE_PAGES("no pages", 0, 0, NULL, NULL, 0);
    MOVE_PAGES("bad pages", 0, PAGES, (void *)8, NULL, 0);
    MOVE_PAGES("bad nodes", 0, PAGES, pages, (void *)8, MOVE);
    MOVE_PAGES("bad flags", 0, PAGES, pages, to, STRICT);
    MOVE_PAGES("no process", 1 << 22, PAGES, pages, to, MOVE);
    SAY(syscall(SYS_move_pages, 0, PAGES, pages, NULL, (void *)8, 0));
    CHECK(munmap(at, 6 * PAGE) == 0);

    SAY(syscall(SYS_migrate_pages, 0, 65, nodes(1), nodes(1)));
    SAY(syscall(SYS_migrate_pages, 0, 65, nodes(4), nodes(1)));
    SAY(syscall(SYS_migrate_pages, 0, 65, nodes(4), nodes(4)));
    SAY(syscall(SYS_migrate_pages, 0, 65, NULL, nodes(5)));
    SAY(syscall(SYS_migrate_pages, getpid(), 65, nodes(1), NULL));
    SAY(syscall(SYS_migrate_pages, 1 << 22, 65, nodes(1), nodes(1)));
    SAY(syscall(SYS_migrate_pages, 1 << 22, 65, nodes(1), (void *)8));
    SAY(syscall(SYS_migrate_pages, 0, 65, (void *)8, nodes(1)));
}

int main(void)
{
    modes();
    masks();
    queries();
    ranges();
    pages();
    return 0;
}
