// SPDX-License-Identifier: MIT OR Apache-2.0
//
// /proc/PID/mem: access to a program's memory by address, beyond what its mappings allow. A transcript,
// the same on Linux.

#include "children.h"
#include "touch.h"
#include "transcript.h"

#include <fcntl.h>
#include <sys/stat.h>

// Only this program maps memory there.
static char *const at = (char *)0x100000000000;
static char *const to = (char *)0x100040005000;

static int own;

static int opened(const char *name, int flags)
{
    int file = open(name, flags);

    EXPECT(file >= 0, "%s", name);
    return file;
}

static void *map(char *where, long pages, int prot, int flags, int file)
{
    void *got = mmap(where, pages * PAGE, prot, flags | MAP_FIXED, file, 0);

    EXPECT(got == where, "mmap %p", (void *)where);
    return got;
}

static void peek(int file, const char *where, size_t length)
{
    unsigned char bytes[3 * PAGE] = {0};
    ssize_t got = pread(file, bytes, length, (uintptr_t)where);

    if (got < 0)
        printf("read of %zu: %s\n", length, strerror(errno));
    else
        printf("read of %zu: %zd, %d ... %d\n", length, got, bytes[0], got ? bytes[got - 1] : 0);
}

static void poke(int file, char *where, size_t length, int value)
{
    char bytes[3 * PAGE];

    memset(bytes, value, sizeof bytes);
    ssize_t got = pwrite(file, bytes, length, (uintptr_t)where);
    if (got < 0)
        printf("write of %zu: %s\n", length, strerror(errno));
    else
        printf("write of %zu: %zd\n", length, got);
}

static void own_memory(int prot, int flags)
{
    printf("prot %d flags %#x\n", prot, flags);
    map(at, 8, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1);
    memset(at, 1, PAGE);
    say_byte(at + PAGE);
    CHECK(mprotect(at, 8 * PAGE, prot) == 0);
    for (int page = 0; page < 3; page++) {
        peek(own, at + page * PAGE + 5, 10);
        poke(own, at + page * PAGE + 100, 10, 7 + page);
        peek(own, at + page * PAGE + 99, 2);
    }
    // Across the ends of pages.
    peek(own, at + 2 * PAGE - 3, PAGE + 6);
    poke(own, at + 4 * PAGE - 3, PAGE + 6, 20);
    peek(own, at + 4 * PAGE - 3, PAGE + 6);
    say_byte(at + 4 * PAGE);
    put_byte(at + 4 * PAGE, 21);
    say_byte(at + 6 * PAGE);
    CHECK(mprotect(at, 8 * PAGE, PROT_READ | PROT_WRITE) == 0);
    say_byte(at + 4 * PAGE);
    put_byte(at + 4 * PAGE, 22);
    peek(own, at + 4 * PAGE, 1);
    // Up to an unmapped page.
    CHECK(munmap(at + 5 * PAGE, PAGE) == 0);
    peek(own, at + 5 * PAGE - 3, 10);
    poke(own, at + 5 * PAGE - 3, 10, 30);
    peek(own, at + 5 * PAGE, 10);
    poke(own, at + 5 * PAGE, 10, 31);
    peek(own, at + 5 * PAGE, 0);
    say_byte(at + 5 * PAGE - 1);
    CHECK(munmap(at, 8 * PAGE) == 0);
}

static const char text[] = "what nobody may write";

static void the_program(void)
{
    char copy[sizeof text];

    // Its code and its constants, which the program may not write.
    peek(own, (char *)(uintptr_t)&the_program, 1);
    CHECK(pread(own, copy, sizeof copy, (uintptr_t)text) == (ssize_t)sizeof copy);
    puts(copy);
    CHECK(pwrite(own, "WHAT", 4, (uintptr_t)text) == 4);
    printf("%s\n", (const char *)(const volatile char *)text);
    CHECK(pread(own, copy, sizeof copy, (uintptr_t)text) == (ssize_t)sizeof copy);
    puts(copy);
    // The stack.
    volatile int local = 77;
    int seen = 0, other = 78;
    CHECK(pread(own, &seen, sizeof seen, (uintptr_t)&local) == sizeof seen);
    CHECK(pwrite(own, &other, sizeof other, (uintptr_t)&local) == sizeof other);
    printf("%d %d\n", seen, local);
}

static void files(void)
{
    int file = memfd_create("reached", 0);
    char name[64];

    CHECK(file >= 0 && ftruncate(file, 3 * PAGE) == 0);
    CHECK(pwrite(file, "abcdef", 6, 0) == 6);
    snprintf(name, sizeof name, "/proc/self/fd/%d", file);
    int unwritable = opened(name, O_RDONLY);
    static const struct {
        int prot, flags;
        bool read_only;
    } ways[] = {
        {PROT_READ, MAP_PRIVATE, false},
        {PROT_READ, MAP_PRIVATE, true},
        {PROT_NONE, MAP_PRIVATE, false},
        {PROT_READ, MAP_SHARED, false},
        {PROT_READ, MAP_SHARED, true},
        {PROT_NONE, MAP_SHARED, false},
        {PROT_READ | PROT_WRITE, MAP_SHARED, false},
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        printf("way %zu\n", i);
        map(at, 4, ways[i].prot, ways[i].flags, ways[i].read_only ? unwritable : file);
        peek(own, at, 3);
        poke(own, at + 1, 2, '0' + (int)i);
        poke(own, at + PAGE, 2, '0' + (int)i);
        peek(own, at, 3);
        peek(file, (char *)0, 3);
        peek(file, (char *)PAGE, 3);
        // Behind the end of the file.
        peek(own, at + 3 * PAGE, 3);
        poke(own, at + 3 * PAGE, 3, 'x');
        poke(own, at + 3 * PAGE - 1, 3, 'x');
    }
    CHECK(munmap(at, 4 * PAGE) == 0);
    CHECK(close(file) == 0 && close(unwritable) == 0);
}

static void positions(void)
{
    char bytes[4] = {1, 2, 3, 4};
    struct stat about;

    map(at, 2, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    SAY(lseek(own, (off_t)(uintptr_t)at, SEEK_SET) == (off_t)(uintptr_t)at);
    SAY(write(own, bytes, 4));
    SAY(lseek(own, 0, SEEK_CUR) - (off_t)(uintptr_t)at);
    SAY(lseek(own, -2, SEEK_CUR) - (off_t)(uintptr_t)at);
    SAY(read(own, bytes, 2));
    printf("%d %d\n", bytes[0], bytes[1]);
    SAY(lseek(own, 0, SEEK_END));
    SAY(lseek(own, 0, SEEK_DATA));
    SAY(pread(own, bytes, 4, 0));
    SAY(pread(own, bytes, 4, 0x7ffffffff000));
    SAY(pread(own, bytes, 4, 1L << 62));
    SAY(pread(own, bytes, 4, -1));
    SAY(pread(own, (void *)8, 4, (uintptr_t)at));
    SAY(pwrite(own, (void *)8, 4, (uintptr_t)at));
    SAY(pread(own, (void *)8, 4, 0));
    SAY(pwrite(own, (void *)8, 4, 0));
    CHECK(munmap(at, 2 * PAGE) == 0);
    SAY(lseek(own, (off_t)(uintptr_t)at, SEEK_SET) == (off_t)(uintptr_t)at);
    SAY(read(own, bytes, 2));
    static const char *const names[] = {"mem", "pagemap", "clear_refs", "smaps", "smaps_rollup"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char name[64];
        snprintf(name, sizeof name, "/proc/self/%s", names[i]);
        CHECK(stat(name, &about) == 0);
        printf("%s: %o, %ld bytes\n", names[i], about.st_mode, (long)about.st_size);
    }
}

static void children(void)
{
    int told[2], asked[2];
    char name[64], byte = 0;
    uint64_t word = 0;

    map(at, 4, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    memset(at, 3, 2 * PAGE);
    CHECK(pipe(told) == 0 && pipe(asked) == 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        CHECK(mprotect(at, 4 * PAGE, PROT_READ) == 0);
        CHECK(write(told[1], "r", 1) == 1 && read(asked[0], &byte, 1) == 1);
        say_byte(at);
        say_byte(at + 3 * PAGE);
        fflush(stdout);
        _exit(0);
    }
    CHECK(read(told[0], &byte, 1) == 1);
    snprintf(name, sizeof name, "/proc/%d/mem", child);
    int memory = opened(name, O_RDWR);
    snprintf(name, sizeof name, "/proc/%d/pagemap", child);
    int pages = opened(name, O_RDONLY);
    snprintf(name, sizeof name, "/proc/%d/clear_refs", child);
    int clear = opened(name, O_WRONLY);
    peek(memory, at, 4);
    poke(memory, at, 4, 5);
    poke(memory, at + 3 * PAGE, 4, 6);
    say_byte(at);
    say_byte(at + 3 * PAGE);
    SAY(pread(pages, &word, 8, (uintptr_t)at / PAGE * 8));
    printf("%s\n", word >> 63 ? "it is there" : "it is not there");
    SAY(write(clear, "1", 1));
    CHECK(write(asked[1], "g", 1) == 1);
    siginfo_t info;
    CHECK(waitid(P_PID, child, &info, WEXITED | WNOWAIT) == 0);
    // The process has ended and has no memory any more.
    peek(memory, at, 4);
    poke(memory, at, 4, 7);
    SAY(pread(pages, &word, 8, (uintptr_t)at / PAGE * 8));
    SAY(write(clear, "1", 1));
    CHECK(status_of(child) == 0);
    peek(memory, at, 4);
    SAY(pread(pages, &word, 8, (uintptr_t)at / PAGE * 8));
    SAY(write(clear, "1", 1));
    SAY(open(name, O_WRONLY));
    CHECK(munmap(at, 4 * PAGE) == 0);
    CHECK(close(memory) == 0 && close(pages) == 0 && close(clear) == 0);
}

// A parent and its child share a page; a write from outside still goes to a copy.
static void copies(void)
{
    map(to, 2, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    memset(to, 1, PAGE);
    CHECK(mprotect(to, 2 * PAGE, PROT_READ) == 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        int memory = opened("/proc/self/mem", O_RDWR);
        poke(memory, to, 3, 9);
        say_byte(to);
        fflush(stdout);
        _exit(0);
    }
    CHECK(status_of(child) == 0);
    say_byte(to);
    poke(own, to, 3, 8);
    say_byte(to);
    CHECK(munmap(to, 2 * PAGE) == 0);
}

int main(void)
{
    catch_traps();
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    own = opened("/proc/self/mem", O_RDWR);
    own_memory(PROT_READ | PROT_WRITE, MAP_PRIVATE);
    own_memory(PROT_READ, MAP_PRIVATE);
    own_memory(PROT_NONE, MAP_PRIVATE);
    own_memory(PROT_READ | PROT_WRITE, MAP_SHARED);
    own_memory(PROT_READ, MAP_SHARED);
    own_memory(PROT_NONE, MAP_SHARED);
    the_program();
    files();
    positions();
    children();
    copies();
    CHECK(close(own) == 0);
    puts("done");
    return 0;
}
