// SPDX-License-Identifier: MIT OR Apache-2.0
//
// More memory than there is, of every kind: private, shared by forks, shared
// anonymous, memfd, a file that is written and never mapped, a file that is
// only read. Each page has a word that says which it is. Every word is checked
// by several processes, again and again, while others press.
//
// reclaim MEBIBYTES: of each kind. Prints a line for each kind.

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, CHILDREN = 3, LOCKED = 64 };

static size_t pages;

static void fail(const char *what, size_t page)
{
    printf("%s: page %zu is wrong\n", what, page);
    exit(1);
}

static void check(int is_right, const char *what)
{
    if (!is_right) {
        perror(what);
        exit(1);
    }
}

static uint64_t *word(char *memory, size_t page)
{
    return (uint64_t *)(memory + page * PAGE);
}

static void fill(char *memory, uint64_t kind)
{
    for (size_t i = 0; i < pages; i++)
        *word(memory, i) = kind << 32 | i;
}

static void expect(const char *what, char *memory, uint64_t kind)
{
    for (size_t i = 0; i < pages; i++)
        if (*word(memory, i) != (kind << 32 | i))
            fail(what, i);
}

static char *map(int flags, int fd)
{
    char *memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, flags, fd, 0);

    check(memory != MAP_FAILED, "mmap");
    return memory;
}

static void expect_file(const char *what, int fd, uint64_t kind)
{
    uint64_t found;

    for (size_t i = 0; i < pages; i++)
        if (pread(fd, &found, sizeof found, (off_t)(i * PAGE)) != sizeof found ||
            found != (kind << 32 | i))
            fail(what, i);
}

int main(int argc, char **argv)
{
    char *private, *shared, *mapped;
    int memfd, file;
    unsigned char resident[LOCKED];

    pages = (argc > 1 ? strtoul(argv[1], NULL, 10) : 16) * (1 << 20) / PAGE;
    private = map(MAP_PRIVATE | MAP_ANONYMOUS, -1);
    shared = map(MAP_SHARED | MAP_ANONYMOUS, -1);
    memfd = memfd_create("pages", 0);
    check(memfd >= 0 && ftruncate(memfd, (off_t)(pages * PAGE)) == 0, "memfd");
    mapped = map(MAP_SHARED, memfd);
    file = open("/tmp/pages", O_RDWR | O_CREAT | O_TRUNC, 0600);
    check(file >= 0, "open");

    check(mlock(private, LOCKED * PAGE) == 0, "mlock");
    fill(private, 1);
    fill(shared, 2);
    fill(mapped, 3);
    for (size_t i = 0; i < pages; i++) {
        uint64_t content = 4ull << 32 | i;

        check(pwrite(file, &content, sizeof content, (off_t)(i * PAGE)) == sizeof content, "pwrite");
    }
    for (int child = 0; child < CHILDREN; child++) {
        pid_t id = fork();

        check(id >= 0, "fork");
        if (id == 0) {
            // Reads what all share, then makes it its own, and sees nothing of what others make of it.
            for (int round = 0; round < 2; round++) {
                expect("shared by fork", private, 1);
                expect("shared", shared, 2);
                expect("memfd", mapped, 3);
                expect_file("file", file, 4);
            }
            fill(private, 10 + (uint64_t)child);
            expect("memfd", mapped, 3);
            expect("own", private, 10 + (uint64_t)child);
            _exit(0);
        }
    }
    for (int child = 0; child < CHILDREN; child++) {
        int status;

        check(wait(&status) > 0, "wait");
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
            printf("a child failed: %#x\n", (unsigned)status);
            return 1;
        }
    }
    check(mincore(private, LOCKED * PAGE, resident) == 0, "mincore");
    for (size_t i = 0; i < LOCKED; i++)
        if (!(resident[i] & 1))
            fail("locked", i);
    expect("private", private, 1);
    expect_file("memfd by read", memfd, 3);
    // Holes and ends of what was swapped out.
    check(fallocate(memfd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE * 8) == 0, "punch");
    for (size_t i = 0; i < 8; i++)
        if (*word(mapped, i) != 0)
            fail("hole", i);
    check(ftruncate(file, PAGE) == 0, "ftruncate");
    check(munmap(private, pages * PAGE) == 0, "munmap");
    expect("shared at the end", shared, 2);
    printf("all pages are right\n");
    return 0;
}
