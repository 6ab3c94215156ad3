// SPDX-License-Identifier: MIT OR Apache-2.0
//
// /proc/PID/{maps,smaps} of a process with many mappings: reads of any size and at any offset return
// what one large read returns, however many descriptors are open. A transcript, the
// same on Linux.

#include "children.h"
#include "transcript.h"

#include <fcntl.h>
#include <sys/prctl.h>

enum { MAPPINGS = 200, MOST = 4 << 20, PAGE = 4096, OPENED = 64 };

static char whole[MOST], pieces[MOST];
static char name[64];

static int opened(pid_t process, const char *what)
{
    int file;

    snprintf(name, sizeof name, "/proc/%d/%s", process, what);
    file = open(name, O_RDONLY);
    EXPECT(file >= 0, "%s", name);
    return file;
}

// Reads everything from the present offset on, in reads of one size.
static long read_all(int file, char *to, long piece)
{
    long done = 0, more;

    while ((more = read(file, to + done, piece)) > 0)
        done += more;
    EXPECT(more == 0 && done < MOST, "a read");
    return done;
}

static long heap_bytes(void)
{
    static char text[8000];
    int file = open("/proc/vmstat", O_RDONLY);
    long size = 0, more;
    char *at;

    CHECK(file >= 0);
    while ((more = read(file, text + size, sizeof text - 1 - size)) > 0)
        size += more;
    close(file);
    text[size] = 0;
    at = strstr(text, "heap_bytes ");
    // Only a kernel that reports its heap can be checked.
    return at == NULL ? 0 : atol(at + strlen("heap_bytes "));
}

static void compare(pid_t process, const char *what)
{
    static const long sizes[] = {13, 97, 4095, 4096, 65536, MOST};
    int file = opened(process, what), many[OPENED];
    long size = read_all(file, whole, MOST), heap;
    unsigned random = 1;

    CHECK(size > MAPPINGS * 30);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        long again;

        CHECK(lseek(file, 0, SEEK_SET) == 0);
        memset(pieces, 0, size);
        again = read_all(file, pieces, sizes[i]);
        EXPECT(again == size && memcmp(whole, pieces, size) == 0,
               "%s in pieces of %ld: %ld bytes for %ld", what, sizes[i], again, size);
    }
    for (int i = 0; i < 20; i++) {
        long at, length, got;

        random = random * 1103515245 + 12345;
        at = random / 16 % size;
        length = 1 + i * 31;
        got = pread(file, pieces, length, at);
        // A call may return fewer bytes, but no other ones.
        EXPECT(got > 0 && got <= length && memcmp(whole + at, pieces, got) == 0,
               "%s at %ld", what, at);
    }
    CHECK(pread(file, pieces, 10, size) == 0);
    CHECK(pread(file, pieces, 10, size + 12345) == 0);
    close(file);
    // Each is read up to somewhere in the middle, which must keep little of the kernel's heap.
    heap = heap_bytes();
    for (int i = 0; i < OPENED; i++) {
        many[i] = opened(process, what);
        CHECK(read(many[i], pieces, 100 + i) == 100 + i);
    }
    heap = heap_bytes() - heap;
    EXPECT(heap < OPENED * 8192l, "%d times %s: %ld bytes of heap", OPENED, what, heap);
    for (int i = 0; i < OPENED; i++) {
        if (i % 16 == 0) {
            long rest = read_all(many[i], pieces, 65536);

            EXPECT(rest == size - 100 - i &&
                       memcmp(pieces, whole + 100 + i, rest) == 0,
                   "the rest of %s", what);
        }
        close(many[i]);
    }
    printf("%s: all the same\n", what);
}

// Makes a process with many mappings, which waits for orders to execute a program, and to be killed.
static pid_t make_child(int *tell)
{
    int ready[2], orders[2];
    pid_t child;
    char byte;

    CHECK(pipe(ready) == 0 && pipe(orders) == 0);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (long i = 0; i < MAPPINGS; i++) {
            char *at = mmap((char *)0x100000000000 + i * 2 * PAGE, PAGE,
                            PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);

            CHECK(at != MAP_FAILED);
            if (i % 3 == 0)
                *at = 1;
        }
        CHECK(write(ready[1], "x", 1) == 1);
        CHECK(read(orders[0], &byte, 1) == 1);
        // For a pipe through which the new program reports its start.
        CHECK(dup2(ready[1], 100) == 100 && dup2(orders[0], 101) == 101);
        execl("/proc/self/exe", "listings", "again", NULL);
        _exit(1);
    }
    close(ready[1]);
    CHECK(read(ready[0], &byte, 1) == 1);
    tell[0] = orders[1];
    tell[1] = ready[0];
    return child;
}

int main(int argc, char **argv)
{
    int tell[2], maps, sizes, rest;
    pid_t child;
    char byte;

    (void)argv;
    if (argc > 1) {
        CHECK(write(100, "y", 1) == 1);
        sleep_for_ever(NULL);
    }
    child = make_child(tell);
    compare(child, "maps");
    compare(child, "smaps");
    maps = opened(child, "maps");
    sizes = opened(child, "smaps");
    rest = opened(child, "maps");
    CHECK(read(rest, pieces, 10) == 10);
    SAY(read(maps, (char *)1, 100));
    SAY(read(maps, pieces, 0));
    SAY(pread(maps, pieces, 100, -1));
    SAY(lseek(maps, 0, SEEK_SET));
    CHECK(write(tell[0], "x", 1) == 1 && read(tell[1], &byte, 1) == 1);
    // The descriptor refers to the memory that the process had before.
    SAY(read(maps, pieces, 100));
    SAY(read(sizes, pieces, 100));
    // Only the rest of the line that was being read.
    SAY(read(rest, pieces, 10));
    SAY(read(rest, pieces, 200) < 200);
    SAY(read(rest, pieces, 100));
    close(maps);
    maps = opened(child, "maps");
    SAY(read(maps, pieces, 20));
    kill(child, SIGKILL);
    CHECK(waitid(P_PID, child, &(siginfo_t){0}, WEXITED | WNOWAIT) == 0);
    SAY(read(maps, pieces, 20));
    SAY(read(sizes, pieces, 20));
    CHECK(status_of(child) == SIGKILL);
    SAY(read(maps, pieces, 20));
    SAY(read(sizes, pieces, 20));
    return 0;
}
