// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Memory operations beyond mmap: mremap, mincore, advice about fork, and realloc,
// which moves pages. A transcript, the same on Linux.

#include "children.h"
#include "transcript.h"

#define PAGE 4096L
// Only this program maps memory there.
static char *const at = (char *)0x100000000000;
static char *const to = (char *)0x100040005000;

static char *map(char *where, long pages)
{
    char *got = mmap(where, pages * PAGE, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

    EXPECT(got == where, "mmap %p", (void *)where);
    return got;
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

static void moving(void)
{
    map(at, 20);
    for (long page = 0; page < 20; page += 2)
        at[page * PAGE] = (char)(page + 1);
    say_present(at, 20);
    SAY(moved(mremap(at, 20 * PAGE, 20 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to)));
    say_present(to, 20);
    say_present(at, 1);
    printf("%d %d\n", to[0], to[18 * PAGE]);
    SAY(moved(mremap(to, 20 * PAGE, 8 * PAGE, 0)));
    SAY(moved(mremap(to, 8 * PAGE, 30 * PAGE, 0)));
    say_present(to, 30);
    SAY(moved(mremap(to + 2 * PAGE, 3 * PAGE, 5 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, at)));
    printf("%d %d\n", at[0], at[2 * PAGE]);
    say_present(at, 5);
    SAY(moved(mremap(at, 5 * PAGE, 5 * PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP | MREMAP_FIXED,
                     at + 64 * PAGE)));
    say_present(at, 5);
    say_present(at + 64 * PAGE, 5);
    SAY(moved(mremap(at, 5 * PAGE, 5 * PAGE, 16)));
    SAY(moved(mremap(at + 1, PAGE, PAGE, 0)));
    SAY(moved(mremap(at + 32 * PAGE, PAGE, 2 * PAGE, 0)));
    SAY(moved(mremap(at, 0, PAGE, MREMAP_MAYMOVE)));
    SAY(mincore(at + 1, PAGE, (unsigned char *)at));
    SAY(mincore(at, 6 * PAGE, (unsigned char *)at));
    SAY(mincore(at, PAGE, (unsigned char *)8));
    SAY(mincore(at, -1UL, (unsigned char *)at));
    SAY(munmap(at, 70 * PAGE));
    SAY(munmap(to, 30 * PAGE));
}

static void growing(void)
{
    char *all = NULL;
    long sum = 0;

    for (long size = 1; size < 16 << 20; size += size) {
        all = realloc(all, size);
        CHECK(all);
        all[size - 1] = (char)size;
        all[size / 2] = 3;
    }
    for (long size = 1; size < 16 << 20; size += size)
        sum += all[size - 1] + all[size / 2];
    printf("realloc: %ld\n", sum);
    free(all);
}

static void forking(void)
{
    map(at, 6);
    for (long page = 0; page < 6; page++)
        at[page * PAGE] = (char)(page + 1);
    SAY(madvise(at + PAGE, PAGE, MADV_DONTFORK));
    SAY(madvise(at + 2 * PAGE, 2 * PAGE, MADV_WIPEONFORK));
    SAY(madvise(at + 3 * PAGE, PAGE, MADV_KEEPONFORK));
    SAY(madvise(at, 7 * PAGE, MADV_DONTDUMP));
    SAY(madvise(at, 6 * PAGE, MADV_SEQUENTIAL));
    SAY(madvise(at, 6 * PAGE, 999));
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        say_present(at, 1);
        say_present(at + PAGE, 1);
        printf("%d %d %d\n", at[2 * PAGE], at[3 * PAGE], at[4 * PAGE]);
        fflush(stdout);
        _exit(0);
    }
    SAY(status_of(child));
    for (long page = 0; page < 6; page++)
        printf("%d ", at[page * PAGE]);
    puts("");
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    moving();
    growing();
    forking();
    return 0;
}
