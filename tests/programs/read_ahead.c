// SPDX-License-Identifier: MIT OR Apache-2.0
//
// How many faults a walk through swapped pages waits in, with read-ahead off and on (`vm.page-cluster`).

#include "common.h"

#include <fcntl.h>
#include <sys/resource.h>

#define PAGE 4096L
#define SETTING "/proc/sys/vm/page-cluster"

enum { PAGES = 800 };

static void set(const char *cluster)
{
    char now[4] = "";
    int file = open(SETTING, O_WRONLY | O_TRUNC);

    CHECK(file >= 0 && write(file, cluster, 2) == 2);
    close(file);
    file = open(SETTING, O_RDONLY);
    CHECK(file >= 0 && read(file, now, sizeof now) == 2 && memcmp(now, cluster, 2) == 0);
    close(file);
}

static long waits(void)
{
    struct rusage usage;

    CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
    return usage.ru_majflt;
}

int main(void)
{
    static const char *const clusters[] = {"0\n", "3\n"};
    char *memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int file = open(SETTING, O_WRONLY);

    CHECK(memory != MAP_FAILED);
    CHECK(write(file, "32\n", 3) == -1 && errno == EINVAL);
    CHECK(write(file, "x\n", 2) == -1 && errno == EINVAL);
    for (int k = 0; k < 2; k++) {
        set(clusters[k]);
        for (long i = 0; i < PAGES; i++)
            memory[i * PAGE] = (char)(i + k);
        CHECK(madvise(memory, PAGES * PAGE, MADV_PAGEOUT) == 0);
        long before = waits();
        for (long i = 0; i < PAGES; i++)
            CHECK(memory[i * PAGE] == (char)(i + k));
        printf("cluster %c: %ld\n", clusters[k][0], waits() - before);
    }
    return 0;
}
