// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Small pages that become huge in the background (khugepaged), and its settings. Linux 6.12 prints the same
// (khugepaged.linux-6.12).

#include "common.h"
#include "usage.h"

#include <fcntl.h>
#include <sys/wait.h>

enum { PAGE_BYTES = 4096, HUGE = 2 << 20, PAGES = HUGE / PAGE_BYTES, TRIES = 200 };

#define ROOT "/sys/kernel/mm/transparent_hugepage/"

static int set(const char *name, const char *value)
{
    char path[128];

    snprintf(path, sizeof path, ROOT "%s", name);
    int file = open(path, O_WRONLY);
    int is_set = write(file, value, strlen(value)) == (ssize_t)strlen(value);

    close(file);
    return is_set;
}

static long number(const char *name)
{
    char path[128];
    long value = -1;

    snprintf(path, sizeof path, ROOT "khugepaged/%s", name);
    FILE *file = fopen(path, "r");
    if (file != NULL) {
        if (fscanf(file, "%ld", &value) != 1)
            value = -1;
        fclose(file);
    }
    return value;
}

static void settings(void)
{
    static const char *const names[] = {"alloc_sleep_millisecs", "defrag",       "max_ptes_none",       "max_ptes_shared",
                                        "max_ptes_swap",         "pages_to_scan", "scan_sleep_millisecs"};
    static const char *const values[] = {"0", "1", "511", "512", "4294967295", "4294967296", "-1", "7\n", "x", ""};

    for (size_t name = 0; name < sizeof names / sizeof *names; name++) {
        char path[64];
        long before = number(names[name]);

        printf("%s %ld:", names[name], before);
        for (size_t value = 0; value < sizeof values / sizeof *values - 1; value++) {
            snprintf(path, sizeof path, "khugepaged/%s", names[name]);
            int is_set = set(path, values[value]);

            printf(" %d", is_set ? (int)number(names[name]) : -1000);
        }
        printf("\n");
        char text[32];
        snprintf(text, sizeof text, "%ld", before);
        set(path, text);
    }
}

// Writes the pages from `from` on that are a multiple of `step`.
static void fill(volatile char *at, int from, int step)
{
    for (int page = from; page < PAGES; page += step)
        at[page * PAGE_BYTES] = (char)(page + 1);
}

static int is_full(volatile char *at, int step)
{
    for (int page = 0; page < PAGES; page++)
        if (at[page * PAGE_BYTES] != (page % step == 0 ? (char)(page + 1) : 0))
            return 0;
    return 1;
}

static long huge(volatile char *at)
{
    return field_of((char *)at, "AnonHugePages:");
}

// Waits until there is a huge page, or all spaces were looked at twice.
static void wait_for(volatile char *at)
{
    long until = number("full_scans") + 3;

    for (int try = 0; try < TRIES && huge(at) == 0 && number("full_scans") < until; try++)
        usleep(20000);
}

static void collapsed(const char *what, int step, const char *max_none)
{
    volatile char *at = map_aligned(HUGE);

    set("enabled", "never");
    fill(at, 0, step);
    printf("%s: %ld kB", what, huge(at));
    set("khugepaged/max_ptes_none", max_none);
    set("enabled", "madvise");
    long before = number("pages_collapsed");
    madvise((char *)at, HUGE, MADV_HUGEPAGE);
    wait_for(at);
    printf(", then %ld kB, %d", huge(at), number("pages_collapsed") > before);
    printf(", content %d\n", is_full(at, step));
    munmap((char *)at, HUGE);
}

static void shared(void)
{
    volatile char *at = map_aligned(HUGE);

    set("enabled", "never");
    fill(at, 0, 1);
    set("khugepaged/max_ptes_none", "511");
    set("khugepaged/max_ptes_shared", "256");
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        // The parent waits, and shares every second page.
        for (int page = 1; page < PAGES; page += 2)
            at[page * PAGE_BYTES] = 99;
        set("enabled", "madvise");
        madvise((char *)at, HUGE, MADV_HUGEPAGE);
        wait_for(at);
        printf("half shared: %ld kB, %d %d\n", huge(at), at[0], at[PAGE_BYTES]);
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    printf("its parent: %ld kB, content %d\n", huge(at), is_full(at, 1));
    munmap((char *)at, HUGE);
}

int main(void)
{
    settings();
    printf("read only: %d %d\n", set("khugepaged/full_scans", "1"), set("khugepaged/pages_collapsed", "1"));
    set("khugepaged/scan_sleep_millisecs", "10");
    set("khugepaged/alloc_sleep_millisecs", "10");
    set("khugepaged/pages_to_scan", "100000");
    collapsed("full", 1, "511");
    collapsed("every second page", 2, "511");
    collapsed("every second page", 2, "255");
    collapsed("every second page", 2, "256");
    shared();
    set("khugepaged/scan_sleep_millisecs", "10000");
    set("khugepaged/alloc_sleep_millisecs", "60000");
    set("khugepaged/pages_to_scan", "4096");
    set("enabled", "never");
    return 0;
}
