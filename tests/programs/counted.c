// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The memory counters of a process (/proc/PID/status, statm, stat, getrusage), which are
// kept as pages come and go, agree with a walk of its pages (smaps_rollup): after each operation
// that adds or frees pages, by one thread and by several.

#include "common.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { PAGE = 4096, PAGES = 2048, THREADS = 8 };

static char text[1 << 16];

static void read_file(const char *path)
{
    int file = open(path, O_RDONLY);
    ssize_t length = read(file, text, sizeof text - 1);

    EXPECT(file >= 0 && length > 0, "%s", path);
    text[length] = '\0';
    close(file);
}

// The number behind a name at the start of a line.
static long field(const char *name)
{
    for (char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, strlen(name)) == 0 && line[strlen(name)] == ':')
            return strtol(line + strlen(name) + 1, NULL, 10);
    }
    EXPECT(false, "no %s", name);
    return 0;
}

// Kilobytes on which all files agree.
static struct {
    long rss, anonymous, file, memory, peak;
} now;

// The first look itself faults in pages: its code, and its buffers.
static bool is_first = true;

#define AGREE(condition, ...) EXPECT(is_first || (condition), __VA_ARGS__)

static void look(const char *when)
{
    long size, resident, shared, walked, anonymous;
    struct rusage usage;

    read_file("/proc/self/status");
    now.rss = field("VmRSS");
    now.anonymous = field("RssAnon");
    now.file = field("RssFile");
    now.memory = field("RssShmem");
    now.peak = field("VmHWM");
    CHECK(field("VmPTE") > 0);
    AGREE(now.rss == now.anonymous + now.file + now.memory, "%s: the sum", when);
    AGREE(now.peak >= now.rss, "%s: the peak", when);
    read_file("/proc/self/statm");
    CHECK(sscanf(text, "%ld %ld %ld", &size, &resident, &shared) == 3);
    AGREE(resident * 4 == now.rss, "%s: statm %ld, status %ld", when, resident * 4, now.rss);
    AGREE(shared * 4 == now.file + now.memory, "%s: statm %ld shared", when, shared * 4);
    CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
    // Includes the program before execve.
    AGREE(usage.ru_maxrss >= now.peak, "%s: %ld, VmHWM %ld", when, usage.ru_maxrss, now.peak);
    read_file("/proc/self/smaps_rollup");
    walked = field("Rss");
    anonymous = field("Anonymous");
    AGREE(walked == now.rss, "%s: %ld counted, %ld found", when, now.rss, walked);
    AGREE(anonymous == now.anonymous, "%s: %ld counted, %ld anonymous", when, now.anonymous, anonymous);
}

static char *map(int flags)
{
    char *memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);

    CHECK(memory != MAP_FAILED);
    return memory;
}

static void fill(char *memory, long first, long end)
{
    for (long page = first; page < end; page++)
        memory[page * PAGE] = 1;
}

static char *all;

// Populates a part, and discards some of the next.
static void *work(void *argument)
{
    long part = PAGES / THREADS, first = (long)argument * part, next = (first + part) % PAGES;

    for (int i = 0; i < 20; i++) {
        fill(all, first, first + part);
        CHECK(madvise(all + next * PAGE, part / 2 * PAGE, MADV_DONTNEED) == 0);
    }
    return NULL;
}

static void together(void)
{
    pthread_t threads[THREADS];

    all = map(MAP_PRIVATE);
    for (long i = 0; i < THREADS; i++)
        threads[i] = start(work, (void *)i);
    for (long i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    look("threads");
    CHECK(munmap(all, PAGES * PAGE) == 0);
    look("threads are over");
}

static void alone(void)
{
    char *memory = map(MAP_PRIVATE), *shared = map(MAP_SHARED);
    long before;

    look("start");
    before = now.anonymous;
    fill(memory, 0, PAGES);
    look("filled");
    CHECK(now.anonymous == before + PAGES * 4);
    CHECK(munmap(memory, PAGES / 2 * PAGE) == 0);
    look("half");
    CHECK(now.anonymous == before + PAGES / 2 * 4 && now.peak >= before + PAGES * 4);
    before = now.memory;
    fill(shared, 0, PAGES);
    look("shared");
    CHECK(now.memory == before + PAGES * 4);
    CHECK(madvise(shared, PAGE * 100, MADV_REMOVE) == 0);
    look("a hole");
    CHECK(now.memory == before + PAGES * 4 - 400);
    CHECK(munmap(shared, PAGES * PAGE) == 0);
    CHECK(munmap(memory + PAGES / 2 * PAGE, PAGES / 2 * PAGE) == 0);
    look("all gone");
}

static void children(void)
{
    char *memory = map(MAP_PRIVATE);
    struct rusage usage;
    long before;
    int status;
    pid_t child;

    fill(memory, 0, PAGES);
    child = fork();
    if (child == 0) {
        look("child");
        fill(memory, 0, PAGES / 2);
        look("child writes");
        CHECK(munmap(memory, PAGES * PAGE) == 0);
        look("child unmaps");
        // More than its parent ever has, all freed when it ends.
        for (int i = 0; i < 4; i++)
            fill(map(MAP_PRIVATE), 0, PAGES);
        look("child grows");
        _exit(0);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    look("parent");
    before = now.peak;
    CHECK(getrusage(RUSAGE_CHILDREN, &usage) == 0);
    EXPECT(usage.ru_maxrss >= before, "%ld of children, %ld", usage.ru_maxrss, before);
    fill(memory, 0, PAGES);
    look("parent writes");
}

int main(void)
{
    memset(text, 1, sizeof text);
    look("first");
    is_first = false;
    alone();
    together();
    children();
    return 0;
}
