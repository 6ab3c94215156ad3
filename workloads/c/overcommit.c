// SPDX-License-Identifier: MIT OR Apache-2.0
//
// overcommit: random writes to more memory than there is.
//
// Every page is first written once, in order. Then pages are written in random
// order. Each page has a word of its own, which counts its writes. Each write
// checks it, so that a page that comes back empty, old or as another one is
// noticed. The rest of a page is zero, but for as many random words as asked for:
// they say how well the page compresses.
//
// Major faults prove that memory was really short. The figure is the time for
// each random write that faulted.

#define _GNU_SOURCE
#include "common.h"

#include <sys/mman.h>
#include <sys/resource.h>

static const char *program;
static size_t pages, writes, words;
static char *memory;
static uint32_t *counts;
static uint64_t state = 88172645463325252ull;

static uint64_t major_faults(void)
{
    struct rusage usage;

    if (getrusage(RUSAGE_SELF, &usage) != 0)
        die(program, "cannot count faults: %s", strerror(errno));
    return (uint64_t)usage.ru_majflt;
}

// xorshift64
static uint64_t next_number(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

// The word of a page after this many writes: different for all pages.
static uint64_t word(size_t page, uint32_t count)
{
    return (uint64_t)(page + 1) << 32 | count;
}

static volatile uint64_t *word_of(size_t page)
{
    return (volatile uint64_t *)(memory + page * page_size());
}

static void fill(size_t page)
{
    size_t count = page_size() / sizeof(uint64_t);

    for (size_t i = 0; i < words; i++)
        word_of(page)[1 + i * (count - 1) / words] = next_number();
    *word_of(page) = word(page, 0);
}

static void write_one(size_t page)
{
    volatile uint64_t *at = word_of(page);
    uint64_t found = *at;

    if (found != word(page, counts[page]))
        die(program, "page %zu has %#" PRIx64 " instead of %#" PRIx64, page, found,
            word(page, counts[page]));
    *at = word(page, ++counts[page]);
}

static void usage(FILE *to)
{
    fprintf(to,
            "Usage: %s MEBIBYTES WRITES [WORDS]\n\n"
            "\tMEBIBYTES\tMemory to use: more than there is\n"
            "\tWRITES\t\tRandom writes\n"
            "\tWORDS\t\tRandom words in each page (0), of 8 bytes; the rest is zero\n"
            "\t--help\t\tPrint this\n"
            "Needs swap.\n"
            "Example: %s 384 100000\n",
            program, program);
}

static size_t argument(const char *name, const char *text, uint64_t most)
{
    uint64_t n;

    if (parse_number(text, false, 1, most, &n))
        return (size_t)n;
    fprintf(stderr, "%s: %s: not a number from 1 to %" PRIu64 ": %s\n", program, name, most, text);
    usage(stderr);
    exit(1);
}

int main(int argc, char **argv)
{
    uint64_t faults, begun, took;

    program = argv[0];
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        usage(stdout);
        return 0;
    }
    if (argc != 3 && argc != 4) {
        fprintf(stderr, "%s: two or three arguments are expected\n", program);
        usage(stderr);
        return 1;
    }
    pages = argument("MEBIBYTES", argv[1], 1u << 20) * ((1u << 20) / page_size());
    writes = argument("WRITES", argv[2], UINT32_MAX);
    if (argc == 4)
        words = argument("WORDS", argv[3], page_size() / sizeof(uint64_t) - 1);
    counts = calloc(pages, sizeof *counts);
    memory = mmap(NULL, pages * page_size(), PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (counts == NULL || memory == MAP_FAILED)
        die(program, "no memory");
    // Huge pages would be another comparison. Where there are none, this fails.
    madvise(memory, pages * page_size(), MADV_NOHUGEPAGE);
    for (size_t i = 0; i < pages; i++)
        fill(i);
    // Warm-up: pages leave in the order of their use from here on.
    for (size_t i = 0; i < writes / 4; i++)
        write_one(next_number() % pages);
    faults = major_faults();
    begun = now_ns();
    for (size_t i = 0; i < writes; i++)
        write_one(next_number() % pages);
    took = now_ns() - begun;
    faults = major_faults() - faults;
    for (size_t i = 0; i < pages; i++)
        if (*word_of(i) != word(i, counts[i]))
            die(program, "page %zu has lost its last write", i);
    printf("faults: %" PRIu64 " of %zu writes\n", faults, writes);
    if (faults < writes / 20)
        die(program, "memory was not short: use more");
    printf("%.1f ns/op\n", (double)took / (double)faults);
    return 0;
}
