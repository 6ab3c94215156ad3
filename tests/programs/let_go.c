// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Memory is short while a program has lazily freed pages (MADV_FREE): no process dies, pages that were
// written since keep their content, and all other pages keep theirs or are zero. To be run with
// little memory: it takes more than is free.

#include "common.h"

#include <sys/sysinfo.h>
#include <sys/wait.h>

enum { PAGE = 4096 };

static char *map(long pages)
{
    char *memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    EXPECT(memory != MAP_FAILED, "mmap");
    return memory;
}

static long *word(char *memory, long page)
{
    return (long *)(memory + page * PAGE);
}

static char *filled(long pages)
{
    char *memory = map(pages);

    for (long page = 0; page < pages; page++)
        word(memory, page)[3] = page + 1;
    return memory;
}

// Marks the pages; every third is written again, every fifth read.
static void let_go(char *memory, long pages)
{
    CHECK(madvise(memory, pages * PAGE, MADV_FREE) == 0);
    for (long page = 0; page < pages; page += 3)
        word(memory, page)[7] = page;
    for (long page = 0; page < pages; page += 5)
        CHECK(word(memory, page)[3] == page + 1);
}

// The number of reclaimed pages.
static long gone(char *memory, long pages)
{
    long count = 0;

    for (long page = 0; page < pages; page++) {
        long *words = word(memory, page);
        bool is_gone = words[3] == 0;

        EXPECT(is_gone || words[3] == page + 1, "page %ld has %ld", page, words[3]);
        EXPECT(!is_gone || page % 3 != 0, "page %ld is gone", page);
        EXPECT(words[7] == (page % 3 == 0 ? page : 0), "page %ld has %ld", page, words[7]);
        count += is_gone;
    }
    return count;
}

// A fault reclaims them from its own process.
static void by_myself(long pages)
{
    char *memory = filled(pages);

    let_go(memory, pages);
    char *more = filled(pages);
    long count = gone(memory, pages);
    EXPECT(count > 0 && gone(more, 1) == 0, "%ld pages are gone", count);
    CHECK(munmap(memory, pages * PAGE) == 0);
    CHECK(munmap(more, pages * PAGE) == 0);
}

// A fault reclaims them from another process, which is not killed.
static void by_another(long pages)
{
    int to_child[2], to_parent[2], status;
    char byte = 0;

    CHECK(pipe(to_child) == 0 && pipe(to_parent) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char *memory = filled(pages);

        let_go(memory, pages);
        CHECK(write(to_parent[1], &byte, 1) == 1);
        CHECK(read(to_child[0], &byte, 1) == 1);
        EXPECT(gone(memory, pages) > 0, "nothing is gone");
        _exit(0);
    }
    CHECK(read(to_parent[0], &byte, 1) == 1);
    char *memory = filled(pages);
    for (long page = 0; page < pages; page++)
        CHECK(word(memory, page)[3] == page + 1);
    CHECK(munmap(memory, pages * PAGE) == 0);
    CHECK(write(to_child[1], &byte, 1) == 1);
    CHECK(waitpid(child, &status, 0) == child);
    EXPECT(status == 0, "the other one ended with %x", status);
}

int main(void)
{
    struct sysinfo info;

    CHECK(sysinfo(&info) == 0);
    long pages = info.freeram * info.mem_unit / PAGE * 6 / 10;
    by_myself(pages);
    by_another(pages);
    puts("no process died");
    return 0;
}
