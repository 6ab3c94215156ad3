// SPDX-License-Identifier: MIT OR Apache-2.0
//
// huge_cost: what work on memory costs where huge pages may be used.
//
// A line for each step gives its name and the nanoseconds for each page of 4 KiB
// (write, read, write_after_read, shared_write, pool_write, pool_shared_write), or of 2 MiB (the others). With a clock that
// counts instructions (./x run --icount, ./x compare with one CPU) these are
// instructions.

#define _GNU_SOURCE
#include "common.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { PAGE = 4096, HUGE = 2 << 20 };

static size_t bytes = 256ull << 20;

static void must(bool done, const char *what)
{
    if (!done)
        die("huge_cost", "%s: %s", what, strerror(errno));
}

static char *map(void)
{
    char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    must(at != MAP_FAILED, "mmap");
    return at;
}

static uint64_t begun;

static void begin(void)
{
    begun = now_ns();
}

static void say(const char *step, uint64_t ns, size_t unit)
{
    printf("%s %.0f ns/page\n", step, (double)ns / (double)(bytes / unit));
}

static void end(const char *step, size_t unit)
{
    say(step, now_ns() - begun, unit);
}

static void write_every(volatile char *at, size_t step, size_t from)
{
    for (size_t i = from; i < bytes; i += step)
        at[i] = 1;
}

static void read_every(volatile char *at, size_t step)
{
    for (size_t i = 0; i < bytes; i += step)
        (void)at[i];
}

// Memory that is written, read first, and unmapped.
static void first_touch(void)
{
    char *at = map();

    begin();
    write_every(at, PAGE, 0);
    end("write", PAGE);
    begin();
    must(munmap(at, bytes) == 0, "munmap");
    end("munmap", HUGE);
    at = map();
    begin();
    read_every(at, PAGE);
    end("read", PAGE);
    begin();
    write_every(at, PAGE, 0);
    end("write_after_read", PAGE);
    must(munmap(at, bytes) == 0, "munmap");
}

// A fork; the child writes a page in each huge page, and after its end the parent does.
static void forked(void)
{
    uint64_t *shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char *at = map();
    pid_t child;

    must(shared != MAP_FAILED, "mmap");
    write_every(at, PAGE, 0);
    begin();
    child = fork();
    must(child >= 0, "fork");
    if (child == 0) {
        begin();
        write_every(at, HUGE, PAGE);
        *shared = now_ns() - begun;
        _exit(0);
    }
    end("fork", HUGE);
    must(waitpid(child, NULL, 0) == child, "waitpid");
    say("write_in_child", *shared, HUGE);
    begin();
    write_every(at, HUGE, PAGE);
    end("write_after_child", HUGE);
    must(munmap(at, bytes) == 0, "munmap");
}

// Operations on whole huge pages, and on a page of each.
static void changed(void)
{
    char *at = map(), *to = map();

    must(munmap(to, bytes) == 0, "munmap");
    write_every(at, PAGE, 0);
    begin();
    must(mprotect(at, bytes, PROT_READ) == 0, "mprotect");
    end("mprotect", HUGE);
    must(mprotect(at, bytes, PROT_READ | PROT_WRITE) == 0, "mprotect");
    begin();
    must(mremap(at, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to, "mremap");
    end("mremap", HUGE);
    begin();
    must(madvise(to, bytes, MADV_DONTNEED) == 0, "madvise");
    end("dontneed", HUGE);
    write_every(to, PAGE, 0);
    begin();
    for (size_t i = 0; i < bytes; i += HUGE)
        must(mprotect(to + i + PAGE, PAGE, PROT_READ) == 0, "mprotect");
    end("split", HUGE);
    must(mprotect(to, bytes, PROT_READ | PROT_WRITE) == 0, "mprotect");
    begin();
    if (madvise(to, bytes, 25 /* MADV_COLLAPSE */) == 0)
        end("collapse", HUGE);
    must(munmap(to, bytes) == 0, "munmap");
}

// Shared memory: written, mapped a second time, and a page of each huge page unmapped. Only where a program may set that.
static void shared(void)
{
    int setting = open("/sys/kernel/mm/transparent_hugepage/shmem_enabled", O_WRONLY);
    int file = memfd_create("huge_cost", 0);
    char *at, *again;

    if (setting < 0 || write(setting, "always", 6) != 6 || file < 0)
        return;
    must(ftruncate(file, (off_t)bytes) == 0, "ftruncate");
    at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    again = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    must(at != MAP_FAILED && again != MAP_FAILED, "mmap");
    begin();
    write_every(at, PAGE, 0);
    end("shared_write", PAGE);
    begin();
    read_every(again, PAGE);
    end("shared_again", HUGE);
    begin();
    must(munmap(again, bytes) == 0, "munmap");
    end("shared_munmap", HUGE);
    begin();
    for (size_t i = 0; i < bytes; i += HUGE)
        must(mprotect(at + i + PAGE, PAGE, PROT_READ) == 0, "mprotect");
    end("shared_split", HUGE);
    must(munmap(at, bytes) == 0, "munmap");
    must(write(setting, "never", 5) == 5, "shmem_enabled");
    close(file);
    close(setting);
}

// The pool of huge pages, likewise.
static void pooled(void)
{
    FILE *setting = fopen("/proc/sys/vm/nr_hugepages", "w");
    char *at;

    if (setting == NULL)
        return;
    fprintf(setting, "%zu", bytes / HUGE);
    fclose(setting);
    at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
    if (at == MAP_FAILED)
        return;
    begin();
    write_every(at, PAGE, 0);
    end("pool_write", PAGE);
    begin();
    must(munmap(at, bytes) == 0, "munmap");
    end("pool_munmap", HUGE);
    at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
    must(at != MAP_FAILED, "mmap");
    begin();
    write_every(at, PAGE, 0);
    end("pool_shared_write", PAGE);
    begin();
    must(munmap(at, bytes) == 0, "munmap");
    end("pool_shared_munmap", HUGE);
}

int main(int count, char **words)
{
    if (count == 2 && strcmp(words[1], "--help") == 0) {
        puts("huge_cost [MIB]: prints what work on so much memory costs (256)\n"
             "example: ./x compare --huge always --linux 6.12 --memory 1G -- huge_cost 256");
        return 0;
    }
    if (count > 2 || (count == 2 && strtoul(words[1], NULL, 10) < 2))
        die("huge_cost", "expects the number of MiB, at least 2 (--help)");
    if (count == 2)
        bytes = strtoul(words[1], NULL, 10) << 20;
    first_touch();
    forked();
    changed();
    shared();
    pooled();
    return 0;
}
