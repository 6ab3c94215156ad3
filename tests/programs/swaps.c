// SPDX-License-Identifier: MIT OR Apache-2.0
//
// A swap device ends and begins while pages are on it. A transcript, the same on Linux. It needs swap on a RAM disk.

#include "children.h"
#include "transcript.h"

#include <linux/capability.h>
#include <sys/swap.h>
#include <sys/uio.h>

#ifndef MADV_COLD
#define MADV_COLD 20
#define MADV_PAGEOUT 21
#endif

#ifndef MAP_DROPPABLE
#define MAP_DROPPABLE 8
#endif

#define PAGE 4096L
#define RW (PROT_READ | PROT_WRITE)

enum { PAGES = 64, CLOSED = 16 };

static const char *DISK = "/dev/ram0";
static char *memory;

// Lines of a file that contain a text.
static void show(const char *path, const char *text)
{
    char line[256];
    FILE *file = fopen(path, "r");

    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (strstr(line, text) != NULL)
            fputs(line, stdout);
    if (file != NULL)
        fclose(file);
}

static void show_swaps(void)
{
    show("/proc/swaps", "");
    show("/proc/meminfo", "SwapTotal");
    show("/proc/meminfo", "SwapFree");
}

static void fill(void)
{
    for (long i = 0; i < PAGES; i++)
        *(long *)(memory + i * PAGE) = i + 1;
}

static void check(const char *when, char *at)
{
    long right = 0;

    for (long i = 0; i < PAGES; i++)
        right += *(volatile long *)(at + i * PAGE) == i + 1;
    printf("%s: %ld of %d pages are right\n", when, right, PAGES);
}

// How many pages are not in memory; at most a few can be kept by chance.
static void count_out(const char *when)
{
    unsigned char there[PAGES];
    int out = 0;

    SAY(mincore(memory, PAGES * PAGE, there));
    for (int i = 0; i < PAGES; i++)
        out += !(there[i] & 1);
    printf("%s: %s\n", when, out == 0 ? "none is out" : out > PAGES - 4 ? "they are out" : "some are out");
}

// How many pages were discarded.
static void count_gone(const char *when)
{
    int gone = 0;

    for (long i = 0; i < PAGES; i++)
        gone += *(volatile long *)(memory + i * PAGE) == 0;
    printf("%s: %s\n", when, gone > PAGES - 4 ? "they are gone" : "some stay");
}

static void errors(void)
{
    SAY(swapon(DISK, 0));
    SAY(swapon(DISK, 0x80000));
    SAY(swapon(DISK, -1));
    SAY(swapon("/nothing", 0));
    SAY(swapon("", 0));
    SAY(swapon(NULL, 0));
    SAY(swapon((char *)1, 0));
    SAY(swapon("/dev", 0));
    SAY(swapon("/dev/null", 0));
    SAY(swapon("/dev/null/x", 0));
    SAY(swapoff("/nothing"));
    SAY(swapoff(""));
    SAY(swapoff(NULL));
    SAY(swapoff("/dev"));
    SAY(swapoff("/dev/null"));
}

static int powerless(void)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];

    SAY(syscall(SYS_capget, &header, data));
    data[0].effective &= ~(1U << CAP_SYS_ADMIN);
    SAY(syscall(SYS_capset, &header, data));
    SAY(swapon(DISK, 0));
    SAY(swapon(DISK, 0x80000));
    SAY(swapoff(DISK));
    SAY(swapoff("/nothing"));
    fflush(stdout);
    return 0;
}

static void advice(void)
{
    int self = (int)syscall(SYS_pidfd_open, getpid(), 0);
    struct iovec pages = {memory, PAGES * PAGE};

    fill();
    SAY(syscall(SYS_process_madvise, self, &pages, 1, MADV_COLD, 0));
    count_out("cold");
    check("cold", memory);
    SAY(syscall(SYS_process_madvise, self, &pages, 1, MADV_PAGEOUT, 0));
    count_out("paged out");
    SAY(syscall(SYS_process_madvise, self, &pages, 1, MADV_WILLNEED, 0));
    count_out("needed");
    check("needed", memory);
    SAY(syscall(SYS_process_madvise, self, &pages, 1, MADV_DONTNEED, 0));
    SAY(mlock(memory, PAGE));
    SAY(madvise(memory, PAGES * PAGE, MADV_COLD));
    SAY(madvise(memory, PAGES * PAGE, MADV_PAGEOUT));
    SAY(munlock(memory, PAGE));
    SAY(munmap(memory + 8 * PAGE, PAGE));
    SAY(madvise(memory, PAGES * PAGE, MADV_COLD));
    SAY(madvise(memory, PAGES * PAGE, MADV_PAGEOUT));
    memory = mmap(memory, PAGES * PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    fill();
}

// Pages of another mapping at the same place, paged out.
static void page_out(const char *what, int kind, int file, int advice)
{
    memory = mmap(memory, PAGES * PAGE, RW, kind | MAP_FIXED, file, 0);
    if (memory == MAP_FAILED)
        exit(1);
    if (kind & MAP_PRIVATE && file >= 0)
        check(what, memory);
    else
        fill();
    if (advice != 0)
        SAY(madvise(memory, PAGES * PAGE, advice));
    SAY(madvise(memory, PAGES * PAGE, MADV_PAGEOUT));
    count_out(what);
    if (advice == 0 && kind != (MAP_DROPPABLE | MAP_ANONYMOUS))
        check(what, memory);
    else
        count_gone(what);
}

// What is paged out beside private memory with content, with a device and without.
static void kinds(void)
{
    int file = memfd_create("file", 0);

    SAY(ftruncate(file, PAGES * PAGE));
    page_out("shared", MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    page_out("file", MAP_SHARED, file, 0);
    page_out("private file", MAP_PRIVATE, file, 0);
    page_out("lazily freed", MAP_PRIVATE | MAP_ANONYMOUS, -1, MADV_FREE);
    page_out("droppable", MAP_DROPPABLE | MAP_ANONYMOUS, -1, 0);
    close(file);
    memory = mmap(memory, PAGES * PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    fill();
}

static void ends(void)
{
    SAY(madvise(memory, PAGES * PAGE, MADV_PAGEOUT));
    count_out("before");
    SAY(mprotect(memory, CLOSED * PAGE, PROT_NONE));
    SAY(swapoff(DISK));
    count_out("after");
    show("/proc/self/status", "VmSwap");
    SAY(mprotect(memory, CLOSED * PAGE, RW));
    check("after", memory);
    show_swaps();
    SAY(swapoff(DISK));
    SAY(madvise(memory, PAGES * PAGE, MADV_PAGEOUT));
    count_out("without swap");
    kinds();
    SAY(swapon(DISK, SWAP_FLAG_PREFER | 100));
    show_swaps();
    SAY(madvise(memory, PAGES * PAGE, MADV_PAGEOUT));
    count_out("again");
    check("again", memory);
}

static int reads(void)
{
    check("child", memory);
    fflush(stdout);
    return 0;
}

// A child and its parent have the same pages on the device when it ends.
static void family(void)
{
    int ready[2], go[2];
    char byte = 0;

    SAY(madvise(memory, PAGES * PAGE, MADV_PAGEOUT));
    if (pipe(ready) != 0 || pipe(go) != 0)
        exit(1);
    fflush(stdout);
    if (fork() == 0) {
        if (write(ready[1], &byte, 1) != 1 || read(go[0], &byte, 1) != 1)
            _exit(1);
        _exit(reads());
    }
    if (read(ready[0], &byte, 1) != 1)
        exit(1);
    SAY(swapoff(DISK));
    if (write(go[1], &byte, 1) != 1)
        exit(1);
    int status = 0;
    wait(&status);
    printf("child: %d\n", status);
    check("parent", memory);
    SAY(swapon(DISK, SWAP_FLAG_DISCARD));
    show_swaps();
}

// The argument is the device, if it is another one.
int main(int argc, char **argv)
{
    if (argc > 1)
        DISK = argv[1];
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    memory = mmap(NULL, PAGES * PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    fill();
    show_swaps();
    errors();
    fflush(stdout);
    if (fork() == 0)
        _exit(powerless());
    wait(NULL);
    advice();
    kinds();
    ends();
    family();
    return 0;
}
