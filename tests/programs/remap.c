// SPDX-License-Identifier: MIT OR Apache-2.0
//
// `remap_file_pages`: other parts of a file in a shared mapping. A transcript, the same on Linux.

#include "transcript.h"

#include <fcntl.h>

#define PAGE 4096L
#define RW (PROT_READ | PROT_WRITE)

enum { PAGES = 6 };

// Only this program maps memory there.
static char *const at = (char *)0x100000000000;
static int file;

static long remap(long first, long pages, int protection, long page, int flags)
{
    return syscall(SYS_remap_file_pages, at + first * PAGE, pages * PAGE, protection, page, flags);
}

static void map(long first, long pages, int protection, int flags, int fd, long page)
{
    char *where = at + first * PAGE;

    CHECK(mmap(where, pages * PAGE, protection, flags | MAP_FIXED, fd, page * PAGE) == where);
}

// The pages of the file that are mapped, by their first byte.
static void say(long pages)
{
    printf("shows ");
    for (long page = 0; page < pages; page++)
        putchar(at[page * PAGE]);
    puts("");
}

static void fill(char *to)
{
    for (long page = 0; page < PAGES; page++)
        to[page * PAGE] = (char)('a' + page);
}

static void of_a_file(void)
{
    map(0, PAGES, RW, MAP_SHARED, file, 0);
    fill(at);
    say(PAGES);
    SAY(remap(0, 1, 0, 5, 0));
    SAY(remap(1, 2, 0, 0, 0));
    say(PAGES);
    at[0] = 'F';
    SAY(remap(0, PAGES, 0, 0, 0));
    say(PAGES);
    SAY(remap(3, 1, 0, 4, MAP_NONBLOCK));
    say(PAGES);
    // Bytes of a page and unknown flags do not count.
    SAY(syscall(SYS_remap_file_pages, at + 5, PAGE + 7, 0, 2, 0x1234));
    say(PAGES);
    SAY(remap(0, 1, RW, 1, 0));
    SAY(remap(0, 0, 0, 1, 0));
    SAY(remap(0, -1, 0, 1, 0));
    SAY(remap(0, 1, 0, -1, 0));
    SAY(remap(0, 1, 0, 1L << 52, 0));
    SAY(remap(0, 1, 0, 1L << 51, 0));
    SAY(remap(0, PAGES + 1, 0, 0, 0));
    SAY(remap(PAGES, 1, 0, 0, 0));
    // Behind the end of the file.
    SAY(remap(5, 1, 0, PAGES, 0));
    CHECK(munmap(at, PAGES * PAGE) == 0);
}

static void of_several(void)
{
    int other = memfd_create("other", 0), again = dup(file);

    CHECK(other >= 0 && again >= 0 && ftruncate(other, PAGES * PAGE) == 0);
    map(0, 1, RW, MAP_SHARED, file, 0);
    map(1, 1, RW, MAP_SHARED, file, 3);
    map(2, 1, RW, MAP_SHARED, again, 2);
    SAY(remap(0, 3, 0, 1, 0));
    say(3);
    map(1, 1, PROT_READ, MAP_SHARED, file, 3);
    SAY(remap(0, 2, 0, 1, 0));
    SAY(remap(1, 1, 0, 4, 0));
    say(2);
    map(1, 1, RW, MAP_SHARED, other, 3);
    SAY(remap(0, 2, 0, 1, 0));
    map(1, 1, RW, MAP_PRIVATE, file, 3);
    SAY(remap(0, 2, 0, 1, 0));
    SAY(remap(1, 1, 0, 1, 0));
    CHECK(munmap(at + PAGE, PAGE) == 0);
    SAY(remap(0, 3, 0, 1, 0));
    map(1, 1, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    SAY(remap(1, 1, 0, 0, 0));
    CHECK(munmap(at, 3 * PAGE) == 0);
}

static void of_memory(void)
{
    unsigned char there[PAGES];

    map(0, PAGES, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    fill(at);
    SAY(remap(1, 1, 0, 4, 0));
    say(PAGES);
    CHECK(munmap(at, PAGES * PAGE) == 0);
    // Two pieces of shared memory are different files.
    map(0, 1, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    map(1, 1, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    SAY(remap(0, 2, 0, 0, 0));
    CHECK(munmap(at, 2 * PAGE) == 0);
    // Pages that are remapped are brought in, unless that must not wait.
    map(0, PAGES, RW, MAP_SHARED, file, 0);
    SAY(remap(0, 2, 0, 2, 0));
    CHECK(mincore(at, PAGES * PAGE, there) == 0);
    printf("%d%d\n", there[0] & 1, there[1] & 1);
    CHECK(munmap(at, PAGES * PAGE) == 0);
}

static void read_only(void)
{
    char path[32];
    int fd;

    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    fd = open(path, O_RDONLY);
    CHECK(fd >= 0);
    map(0, 2, PROT_READ, MAP_SHARED, fd, 0);
    SAY(remap(0, 1, 0, 1, 0));
    CHECK(munmap(at, 2 * PAGE) == 0);
    map(0, 2, RW, MAP_SHARED, file, 0);
    map(2, 2, PROT_READ, MAP_SHARED, file, 0);
    SAY(fcntl(file, F_ADD_SEALS, 0x10 /* F_SEAL_FUTURE_WRITE */));
    SAY(remap(0, 1, 0, 1, 0));
    SAY(remap(2, 1, 0, 1, 0));
    SAY(mprotect(at + 2 * PAGE, PAGE, RW));
    SAY(mprotect(at + 3 * PAGE, PAGE, RW));
    CHECK(munmap(at, 4 * PAGE) == 0);
}

int main(void)
{
    file = memfd_create("test", MFD_ALLOW_SEALING);
    CHECK(file >= 0 && ftruncate(file, PAGES * PAGE) == 0);
    of_a_file();
    of_several();
    of_memory();
    read_only();
    return 0;
}
