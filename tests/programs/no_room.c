// SPDX-License-Identifier: MIT OR Apache-2.0
//
// `swapoff` without memory for the pages fails, and nothing is lost. The argument is the device.

#include "common.h"

#include <sys/swap.h>

#define PAGE 4096L
#define RW (PROT_READ | PROT_WRITE)

static long free_kilobytes(void)
{
    char line[256];
    long found = -1;
    FILE *file = fopen("/proc/meminfo", "r");

    CHECK(file != NULL);
    while (fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "MemFree: %ld", &found) == 1)
            break;
    fclose(file);
    return found;
}

static long *map(long pages)
{
    void *at = mmap(NULL, pages * PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CHECK(at != MAP_FAILED);
    return at;
}

static bool is_listed(const char *device)
{
    char line[256] = "";
    bool found = false;
    FILE *file = fopen("/proc/swaps", "r");

    CHECK(file != NULL);
    while (fgets(line, sizeof line, file) != NULL)
        found |= strncmp(line, device, strlen(device)) == 0;
    fclose(file);
    return found;
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    long pages = free_kilobytes() / 4 * 5 / 8, words = PAGE / sizeof(long);
    long *first = map(pages), *second = map(pages), filled = 0;

    for (long i = 0; i < pages; i++)
        first[i * words] = i + 1;
    CHECK(madvise(first, pages * PAGE, MADV_PAGEOUT) == 0);
    while (filled < pages && free_kilobytes() > 4096) {
        for (long end = filled + 64; filled < end && filled < pages; filled++)
            second[filled * words] = -filled;
    }
    errno = 0;
    CHECK(swapoff(argv[1]) == -1 && errno == ENOMEM);
    CHECK(is_listed(argv[1]));
    for (long i = 0; i < filled; i++)
        CHECK(second[i * words] == -i);
    CHECK(munmap(second, pages * PAGE) == 0);
    CHECK(swapoff(argv[1]) == 0);
    CHECK(!is_listed(argv[1]));
    for (long i = 0; i < pages; i++)
        CHECK(first[i * words] == i + 1);
    return 0;
}
