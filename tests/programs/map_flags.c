// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The flags of mmap: the mappings they make, the flags that smaps shows for those, and their placement
// when all but three windows is mapped. A transcript, the same on Linux 6.12.

#include "children.h"
#include "touch.h"
#include "transcript.h"

#include <fcntl.h>

#define DROPPABLE 0x08
#define LOW 0x40
#define ABOVE4G 0x80
#define SYNC 0x80000
#define UNINITIALIZED 0x4000000
#define VALIDATE 0x03

#define ANON MAP_ANONYMOUS
#define PRIVATE (MAP_PRIVATE | MAP_ANONYMOUS)
#define SHARED (MAP_SHARED | MAP_ANONYMOUS)
#define RW (PROT_READ | PROT_WRITE)
#define HUGE 512L

// Only this program maps memory there.
static char *const at = (char *)0x100000000000;
static char *const to = (char *)0x100040005000;

// A static buffer, because an allocation would map memory.
static char text[1 << 17];

static void read_text(const char *name)
{
    int file = open(name, O_RDONLY);
    size_t length = 0;
    ssize_t more;

    EXPECT(file >= 0, "%s", name);
    while ((more = read(file, text + length, sizeof text - 1 - length)) > 0)
        length += more;
    CHECK(more == 0 && length < sizeof text - 1);
    text[length] = 0;
    CHECK(close(file) == 0);
}

// Prints the mapping at an address: its length, and its flags, except whether Linux has accounted for it.
static void say_flags(const char *where)
{
    unsigned long start, end;
    bool is_in = false;

    read_text("/proc/self/smaps");
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        if (strchr("0123456789abcdef", line[0]) != NULL) {
            CHECK(sscanf(line, "%lx-%lx", &start, &end) == 2);
            is_in = start <= (uintptr_t)where && (uintptr_t)where < end;
            if (is_in)
                printf("  %lu pages", (end - start) / PAGE);
        } else if (is_in && strncmp(line, "VmFlags:", 8) == 0) {
            char *accounted = strstr(line, " ac ");

            if (accounted != NULL)
                memmove(accounted, accounted + 3, strlen(accounted + 3) + 1);
            printf("%s\n", line + 8);
            return;
        }
    }
    puts("  nothing");
}

static void make(const char *what, int flags, int file)
{
    void *got = mmap(at, 2 * PAGE, RW, flags, file, 0);

    printf("%s: %s\n", what, got == MAP_FAILED ? strerror(errno) : "mapped");
    if (got == MAP_FAILED)
        return;
    CHECK(got == at);
    say_flags(at);
    say_present(at, 2);
    CHECK(munmap(at, 2 * PAGE) == 0);
}
#define MAKE(flags, file) make(#flags, flags, file)

static void kinds_of_mapping(int file)
{
    MAKE(PRIVATE, -1);
    MAKE(PRIVATE | MAP_STACK, -1);
    MAKE(SHARED | MAP_STACK, -1);
    MAKE(PRIVATE | SYNC, -1);
    MAKE(SHARED | SYNC, -1);
    MAKE(PRIVATE | UNINITIALIZED, -1);
    MAKE(PRIVATE | MAP_DENYWRITE | MAP_EXECUTABLE, -1);
    MAKE(PRIVATE | MAP_NONBLOCK, -1);
    MAKE(PRIVATE | MAP_POPULATE | MAP_STACK, -1);
    MAKE(PRIVATE | LOW | MAP_FIXED, -1);
    MAKE(MAP_SHARED | MAP_STACK, file);
    MAKE(MAP_PRIVATE | MAP_STACK, file);
    MAKE(MAP_SHARED | SYNC, file);
    MAKE(MAP_PRIVATE | SYNC, file);
    MAKE(VALIDATE | SYNC, file);
    MAKE(VALIDATE | UNINITIALIZED, file);
    MAKE(VALIDATE | MAP_STACK | ABOVE4G, file);
    MAKE(VALIDATE | MAP_FIXED_NOREPLACE, file);
    MAKE(VALIDATE | DROPPABLE, file);
    MAKE(MAP_SHARED | MAP_HUGETLB, file);
    MAKE(MAP_PRIVATE | MAP_HUGETLB, file);
    MAKE(ANON | DROPPABLE, -1);
    MAKE(ANON | DROPPABLE | MAP_NORESERVE, -1);
    MAKE(ANON | DROPPABLE | MAP_STACK | SYNC, -1);
    MAKE(ANON | DROPPABLE | MAP_POPULATE, -1);
    MAKE(ANON | DROPPABLE | MAP_PRIVATE, -1);
    MAKE(ANON | DROPPABLE | MAP_SHARED, -1);
    MAKE(ANON | DROPPABLE | MAP_LOCKED, -1);
    MAKE(ANON | DROPPABLE | MAP_HUGETLB, -1);
    MAKE(ANON | DROPPABLE | MAP_GROWSDOWN, -1);
    MAKE(DROPPABLE, file);
}

static void droppable(void)
{
    static const int advice[] = {0,  1,  2,  0,  3,  9,  10, 11, 12, 13, 14, 15, 16, 17,
                                 18, 19, 20, 22, 23, 25, 4,  8,  24};

    CHECK(mmap(at, 4 * PAGE, RW, ANON | DROPPABLE | MAP_FIXED, -1, 0) == at);
    for (size_t i = 0; i < sizeof advice / sizeof *advice; i++) {
        for (int page = 0; page < 4; page++)
            at[page * PAGE] = 1;
        printf("advice %d: ", advice[i]);
        puts(madvise(at, 2 * PAGE, advice[i]) == 0 ? "taken" : strerror(errno));
        say_flags(at);
        say_present(at, 4);
    }
    CHECK(mmap(at, 4 * PAGE, RW, ANON | DROPPABLE | MAP_FIXED, -1, 0) == at);
    SAY(mlock(at, 2 * PAGE));
    say_flags(at);
    say_present(at, 4);
    SAY(syscall(SYS_mlock2, at, 4 * PAGE, 1));
    say_flags(at);
    SAY(munlock(at, PAGE));
    SAY(mlockall(MCL_CURRENT));
    say_flags(at);
    SAY(madvise(at, 4 * PAGE, MADV_DONTNEED));
    SAY(munlockall());
    for (int flags = MCL_FUTURE; flags <= (MCL_FUTURE | MCL_ONFAULT); flags += MCL_ONFAULT) {
        SAY(mlockall(flags));
        CHECK(mmap(at, 4 * PAGE, RW, ANON | DROPPABLE | MAP_FIXED, -1, 0) == at);
        say_flags(at);
        say_present(at, 4);
        SAY(munlockall());
    }
    memset(at, 7, 4 * PAGE);
    SAY(mprotect(at + PAGE, PAGE, PROT_READ));
    say_flags(at + PAGE);
    SAY(mprotect(at + PAGE, PAGE, RW));
    say_flags(at + PAGE);
    SAY(mremap(at + PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
    say_flags(to);
    say_byte(to);
    SAY(mremap(to, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, at + PAGE) == at + PAGE);
    say_flags(at);
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        say_flags(at);
        say_present(at, 4);
        say_byte(at);
        fflush(stdout);
        _exit(0);
    }
    CHECK(status_of(child) == 0);
    say_byte(at);
    CHECK(munmap(at, 4 * PAGE) == 0);
}

static void neighbours(void)
{
    static const int flags[] = {0, MAP_STACK, MAP_STACK, SYNC, SYNC | MAP_STACK, UNINITIALIZED, LOW, 0};
    const long pages = sizeof flags / sizeof *flags;

    for (long page = 0; page < pages; page++)
        CHECK(mmap(at + page * PAGE, PAGE, RW, PRIVATE | MAP_FIXED | flags[page], -1, 0) != MAP_FAILED);
    for (long page = 0; page < pages; page++)
        say_flags(at + page * PAGE);
    SAY(madvise(at, 4 * PAGE, MADV_NOHUGEPAGE));
    say_flags(at);
    SAY(madvise(at, pages * PAGE, MADV_HUGEPAGE));
    say_flags(at);
    CHECK(munmap(at, pages * PAGE) == 0);
}

// The high window begins and ends off the boundaries of huge pages; the low one is empty, too.
static char *const high = (char *)0x1000000000 + 5 * PAGE;
static char *const high_end = (char *)0x1000000000 + (8 * HUGE + 3) * PAGE;
static char *const low = (char *)0x40000000;
static char *const low_end = (char *)0x80000000;
// Above where addresses are usually chosen.
static char *const top = (char *)0x7ffff8105000;
static char *const top_end = (char *)0x7ffff8d03000;

static void cover(char *from, char *end)
{
    if (from < end)
        CHECK(mmap(from, end - from, PROT_NONE, PRIVATE | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0) ==
              from);
}

// Maps all free memory outside the windows, except for the gap below the stack.
static void cover_all(void)
{
    static struct {
        char *start, *end;
    } used[64], one;
    size_t count = 0;
    char *last = (char *)0x10000;
    volatile char deep[1 << 16];

    // Grows the stack now, so that it does not grow later.
    for (size_t i = 0; i < sizeof deep; i += PAGE)
        deep[i] = 1;
    read_text("/proc/self/maps");
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        CHECK(sscanf(line, "%lx-%lx", (unsigned long *)&one.start, (unsigned long *)&one.end) == 2);
        if (one.start <= (char *)deep && (char *)deep < one.end)
            one.start -= 256 * PAGE;
        CHECK(count < 60);
        used[count++] = one;
    }
    used[count].start = high, used[count++].end = high_end;
    used[count].start = low, used[count++].end = low_end;
    used[count].start = top, used[count++].end = top_end;
    for (size_t i = 0; i < count; i++)
        for (size_t j = i + 1; j < count; j++)
            if (used[j].start < used[i].start)
                one = used[i], used[i] = used[j], used[j] = one;
    for (size_t i = 0; i < count && used[i].start < (char *)0x7ffffffff000; i++) {
        cover(last, used[i].start);
        last = used[i].end;
    }
    cover(last, (char *)0x7ffffffff000);
}

static char *go(const char *what, char *hint, long pages, int flags, int file)
{
    char *got = mmap(hint, pages * PAGE, PROT_NONE, flags | MAP_NORESERVE, file, 0);

    printf("%s, %ld pages: ", what, pages);
    if (got == MAP_FAILED)
        puts(strerror(errno));
    else if (got >= high && got < high_end)
        printf("high, page %ld\n", (long)(got - high) / PAGE);
    else if (got >= top && got < top_end)
        printf("top, page %ld\n", (long)(got - top) / PAGE);
    else
        printf("%p\n", (void *)got);
    return got;
}

static void look(const char *what, char *hint, long pages, int flags, int file)
{
    char *got = go(what, hint, pages, flags, file);

    if (got != MAP_FAILED)
        CHECK(munmap(got, pages * PAGE) == 0);
}
#define LOOK(hint, pages, flags, file) look(#hint ", " #flags, (char *)(hint), pages, flags, file)
#define KEEP(hint, pages, flags, file) go(#hint ", " #flags, (char *)(hint), pages, flags, file)

static void sizes(int file)
{
    static const long pages[] = {1, HUGE - 1, HUGE, HUGE + 1, 2 * HUGE, 7 * HUGE, 8 * HUGE - 2, 8 * HUGE};

    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) {
        LOOK(0, pages[i], PRIVATE, -1);
        LOOK(0, pages[i], SHARED, -1);
        LOOK(0, pages[i], MAP_PRIVATE, file);
        LOOK(0, pages[i], MAP_SHARED, file);
        LOOK(0, pages[i], ANON | DROPPABLE, -1);
        LOOK(0, pages[i], PRIVATE | ABOVE4G, -1);
        LOOK(0, pages[i], PRIVATE | LOW, -1);
        LOOK(0, pages[i], SHARED | LOW, -1);
        LOOK(0, pages[i], PRIVATE | LOW | ABOVE4G, -1);
        LOOK(0, pages[i], MAP_SHARED | LOW, file);
        LOOK(high + 3 * PAGE, pages[i], PRIVATE, -1);
        LOOK(0x90000000, pages[i], PRIVATE, -1);
    }
}

static void hints(void)
{
    LOOK(low, 1, PRIVATE, -1);
    LOOK(low + 1, 1, PRIVATE | ABOVE4G, -1);
    LOOK(low + 0x5800, HUGE, PRIVATE | LOW, -1);
    LOOK(low_end - PAGE, 1, PRIVATE | LOW, -1);
    LOOK(low_end - PAGE, 2, PRIVATE | LOW, -1);
    LOOK(low_end - PAGE, 2, PRIVATE, -1);
    LOOK(high, 1, PRIVATE | LOW, -1);
    LOOK(high, 1, PRIVATE, -1);
    LOOK(high, HUGE, PRIVATE, -1);
    LOOK(0x1000, 1, PRIVATE | LOW, -1);
    LOOK(0x1000, HUGE, PRIVATE, -1);
    LOOK(0xfff, HUGE, PRIVATE, -1);
    LOOK(0, 1L << 18, PRIVATE | LOW, -1);
    LOOK(0, (1L << 18) - HUGE, PRIVATE | LOW, -1);
    LOOK(0, (1L << 18) + 1, PRIVATE | LOW, -1);
    LOOK(0, (1L << 19) + 1, PRIVATE | LOW, -1);
    LOOK(0, 1L << 18, PRIVATE, -1);
    LOOK(0, 1L << 18, PRIVATE | ABOVE4G, -1);
    LOOK(0, 1L << 35, PRIVATE | LOW, -1);
}

// Existing mappings, and mappings that keep a gap below.
static void obstacles(void)
{
    char *first = low + PAGE, *stack = low + 600 * PAGE;

    CHECK(mmap(first, PAGE, PROT_NONE, PRIVATE | MAP_FIXED, -1, 0) == first);
    LOOK(0, 1, PRIVATE | LOW, -1);
    LOOK(0, 2, PRIVATE | LOW, -1);
    LOOK(0, HUGE, PRIVATE | LOW, -1);
    LOOK(first, 1, PRIVATE | LOW, -1);
    CHECK(mmap(stack, PAGE, PROT_NONE, PRIVATE | MAP_FIXED | MAP_GROWSDOWN, -1, 0) == stack);
    LOOK(0, 342, PRIVATE | LOW, -1);
    LOOK(0, 343, PRIVATE | LOW, -1);
    LOOK(0, 598, PRIVATE | LOW, -1);
    LOOK(0, 599, PRIVATE | LOW, -1);
    LOOK(low + 2 * PAGE, 342, PRIVATE | LOW, -1);
    LOOK(low + 2 * PAGE, 343, PRIVATE | LOW, -1);
    CHECK(munmap(stack, PAGE) == 0);
    CHECK(munmap(first, PAGE) == 0);
    // Below a mapping that grows down there is no room for another huge page.
    stack = high + (2 * HUGE + 300) * PAGE;
    CHECK(mmap(stack, high_end - stack, PROT_NONE, PRIVATE | MAP_FIXED | MAP_GROWSDOWN, -1, 0) == stack);
    LOOK(0, HUGE, PRIVATE, -1);
    LOOK(0, 2 * HUGE, PRIVATE, -1);
    LOOK(0, 2 * HUGE, PRIVATE | ABOVE4G, -1);
    LOOK(0, 2 * HUGE, SHARED, -1);
    LOOK(0, 3 * HUGE, PRIVATE | ABOVE4G, -1);
    CHECK(munmap(stack, high_end - stack) == 0);
    // The same at the top, where the search is for the lowest hole.
    stack = top + (3 * HUGE + 300) * PAGE;
    CHECK(mmap(high, high_end - high, PROT_NONE, PRIVATE | MAP_NORESERVE | MAP_FIXED, -1, 0) == high);
    CHECK(mmap(stack, PAGE, PROT_NONE, PRIVATE | MAP_FIXED | MAP_GROWSDOWN, -1, 0) == stack);
    LOOK(0, HUGE, PRIVATE | ABOVE4G, -1);
    LOOK(0, 2 * HUGE, PRIVATE | ABOVE4G, -1);
    LOOK(0, 3 * HUGE, PRIVATE | ABOVE4G, -1);
    LOOK(0, 3 * HUGE + 44, PRIVATE | ABOVE4G, -1);
    LOOK(0, 3 * HUGE + 45, PRIVATE | ABOVE4G, -1);
    CHECK(munmap(stack, PAGE) == 0);
    CHECK(munmap(high, high_end - high) == 0);
}

// Maps until nothing is free any more.
static void until_full(void)
{
    for (int i = 0; i < 9; i++)
        KEEP(0, HUGE, PRIVATE | ABOVE4G, -1);
    for (int i = 0; i < 3; i++)
        KEEP(0, HUGE - 9, SHARED | ABOVE4G, -1);
    CHECK(munmap(high, high_end - high) == 0);
    KEEP(0, HUGE, PRIVATE, -1);
    KEEP(0, HUGE, SHARED, -1);
    KEEP(0, HUGE, PRIVATE, -1);
    KEEP(0, 3, PRIVATE, -1);
    KEEP(0, HUGE, ANON | DROPPABLE, -1);
    CHECK(munmap(high, high_end - high) == 0);
}

static void moved(const char *what, int flags, int file)
{
    char *from = mmap(low, 2 * HUGE * PAGE, PROT_NONE, flags | MAP_FIXED | MAP_NORESERVE, file, 0);
    char *got;

    CHECK(from == low && munmap(from + HUGE * PAGE, PAGE) == 0);
    cover(from + HUGE * PAGE, from + (HUGE + 1) * PAGE);
    got = mremap(from, HUGE * PAGE, 2 * HUGE * PAGE, MREMAP_MAYMOVE);
    CHECK(got >= high && got < high_end);
    printf("%s grows: page %ld\n", what, (long)(got - high) / PAGE);
    CHECK(munmap(got, 2 * HUGE * PAGE) == 0);
    CHECK(munmap(low, 2 * HUGE * PAGE) == 0);
}

int main(void)
{
    int file = memfd_create("file", 0);

    CHECK(file >= 0 && ftruncate(file, 4 << 20) == 0);
    catch_traps();
    kinds_of_mapping(file);
    droppable();
    neighbours();
    cover_all();
    sizes(file);
    hints();
    obstacles();
    until_full();
    moved("private memory", PRIVATE, -1);
    moved("shared memory", SHARED, -1);
    moved("a file", MAP_PRIVATE, file);
    moved("a shared file", MAP_SHARED, file);
    return 0;
}
