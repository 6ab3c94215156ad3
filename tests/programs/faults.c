// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Which faults are counted, and for which thread or process: the results of getrusage and /proc/PID/stat for single
// accesses, where they are the same on every Linux. See docs/counters.md.

#include "common.h"
#include "children.h"

#include <fcntl.h>
#include <setjmp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/uio.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

enum { PAGE = 4096, PAGES = 64 };

// Minor and major faults of the calling thread.
struct count {
    long minor, major;
};

static struct count now(void)
{
    struct rusage used;
    CHECK(getrusage(RUSAGE_THREAD, &used) == 0);
    return (struct count){used.ru_minflt, used.ru_majflt};
}

static sigjmp_buf back;

static void on_signal(int number)
{
    siglongjmp(back, number);
}

enum kind { READ, WRITE };

// Returns the signal of an access, or 0.
static int access_to(volatile char *at, enum kind kind)
{
    int number = sigsetjmp(back, 0);
    if (number != 0)
        return number;
    if (kind == READ)
        (void)*at;
    else
        *at = 1;
    return 0;
}

// The faults of an access, after all other memory that it needs has been faulted in: code, stack, and the
// memory of a signal's delivery.
static int faults_of(volatile char *at, enum kind kind, int signal)
{
    struct count before, after;
    before = now();
    access_to((char *)8, WRITE);
    before = now();
    int got = access_to(at, kind);
    after = now();
    EXPECT(got == signal, "signal %d instead of %d", got, signal);
    CHECK(before.major == after.major);
    return (int)(after.minor - before.minor);
}

static char *map(int prot, int flags)
{
    char *at = mmap(NULL, PAGES * PAGE, prot, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    CHECK(at != MAP_FAILED);
    return at;
}

#define FAULTS(expected, at, kind, signal)                                                 \
    do {                                                                                   \
        int counted = faults_of((at), (kind), (signal));                                   \
        EXPECT(counted == (expected), "%d faults instead of %d", counted, (expected));     \
    } while (0)

static void of_private_memory(void)
{
    char *at = map(PROT_READ | PROT_WRITE, 0);
    for (int page = 0; page < PAGES / 2; page++)
        FAULTS(1, at + page * PAGE, WRITE, 0);
    FAULTS(0, at, WRITE, 0);
    FAULTS(0, at, READ, 0);
    char *read = at + PAGES / 2 * PAGE;
    FAULTS(1, read, READ, 0);
    FAULTS(0, read, READ, 0);
    FAULTS(1, read, WRITE, 0);
    CHECK(madvise(at, PAGE, MADV_DONTNEED) == 0);
    FAULTS(1, at, WRITE, 0);
    // Rights that are removed and restored cost no fault: the page is exclusive.
    CHECK(mprotect(at, PAGE, PROT_READ) == 0 && mprotect(at, PAGE, PROT_READ | PROT_WRITE) == 0);
    FAULTS(0, at, WRITE, 0);
    CHECK(mprotect(at, PAGE, PROT_NONE) == 0 && mprotect(at, PAGE, PROT_READ | PROT_WRITE) == 0);
    FAULTS(0, at, WRITE, 0);
    CHECK(munmap(at, PAGES * PAGE) == 0);
}

// An access that ends in a signal counts no fault.
static void of_what_is_refused(void)
{
    char *at = map(PROT_READ, 0);
    FAULTS(0, at, WRITE, SIGSEGV);
    FAULTS(1, at, READ, 0);
    FAULTS(0, at, WRITE, SIGSEGV);
    CHECK(mprotect(at, PAGE, PROT_NONE) == 0);
    FAULTS(0, at, READ, SIGSEGV);
    CHECK(munmap(at, PAGES * PAGE) == 0);
    FAULTS(0, at, READ, SIGSEGV);
    FAULTS(0, (char *)(1ul << 50), READ, SIGSEGV);
    int file = memfd_create("faults", 0);
    CHECK(file >= 0 && ftruncate(file, PAGE) == 0);
    char *shared = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(shared != MAP_FAILED);
    FAULTS(0, shared + PAGE, READ, SIGBUS);
    FAULTS(1, shared, WRITE, 0);
    CHECK(munmap(shared, 2 * PAGE) == 0 && close(file) == 0);
}

// Faults of the kernel on the program's behalf count as the program's.
static void of_the_kernel(void)
{
    char *at = map(PROT_READ | PROT_WRITE, 0);
    int zero = open("/dev/zero", O_RDONLY);
    CHECK(zero >= 0);
    struct count before = now();
    before = now();
    CHECK(read(zero, at, 8 * PAGE) == 8 * PAGE);
    struct count after = now();
    CHECK(after.minor - before.minor == 8);
    before = now();
    CHECK(mlock(at, 16 * PAGE) == 0);
    after = now();
    CHECK(after.minor - before.minor == 8);
    before = now();
    CHECK(madvise(at + 16 * PAGE, 4 * PAGE, MADV_POPULATE_WRITE) == 0);
    after = now();
    CHECK(after.minor - before.minor == 4);
    // Bad addresses are errors, not faults.
    before = now();
    char *volatile nowhere = (char *)8;
    CHECK(read(zero, nowhere, 8) == -1 && errno == EFAULT);
    after = now();
    CHECK(after.minor - before.minor == 0);
    CHECK(munmap(at, PAGES * PAGE) == 0 && close(zero) == 0);
}

static void of_what_was_forked(void)
{
    char *at = map(PROT_READ | PROT_WRITE, 0);
    memset(at, 1, 8 * PAGE);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        FAULTS(0, at, READ, 0);
        FAULTS(1, at, WRITE, 0);
        FAULTS(0, at, WRITE, 0);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    FAULTS(1, at, WRITE, 0);
    FAULTS(1, at + PAGE, WRITE, 0);
    FAULTS(0, at + PAGE, WRITE, 0);
    CHECK(munmap(at, PAGES * PAGE) == 0);
}

// Reads fields 10 to 13.
static void stat(long fields[4])
{
    char text[1024];
    int file = open("/proc/self/stat", O_RDONLY);
    ssize_t length = read(file, text, sizeof text - 1);
    CHECK(file >= 0 && length > 0 && close(file) == 0);
    text[length] = 0;
    char *behind = strrchr(text, ')');
    CHECK(behind != NULL);
    CHECK(sscanf(behind + 1, " %*c %*d %*d %*d %*d %*d %*u %ld %ld %ld %ld", &fields[0],
                 &fields[1], &fields[2], &fields[3]) == 4);
}

static void of_processes(void)
{
    long before[4], after[4];
    struct rusage self, children, of_child;
    stat(before);
    stat(before);
    char *at = map(PROT_READ | PROT_WRITE, 0);
    for (int page = 0; page < 32; page++)
        at[page * PAGE] = 1;
    stat(after);
    CHECK(after[0] - before[0] == 32);
    CHECK(after[1] == before[1] && after[2] == before[2] && after[3] == before[3]);
    CHECK(getrusage(RUSAGE_SELF, &self) == 0);
    CHECK(self.ru_minflt == after[0] && self.ru_majflt == after[2]);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        for (int page = 32; page < PAGES; page++)
            at[page * PAGE] = 1;
        _exit(0);
    }
    int status;
    CHECK(wait4(child, &status, 0, &of_child) == child && status == 0);
    CHECK(of_child.ru_minflt >= 32 && of_child.ru_majflt == 0);
    CHECK(getrusage(RUSAGE_CHILDREN, &children) == 0);
    stat(after);
    CHECK(after[1] == children.ru_minflt && after[3] == children.ru_majflt);
    CHECK(after[1] - before[1] == of_child.ru_minflt);
    CHECK(munmap(at, PAGES * PAGE) == 0);
}

// Two threads: each counts its own faults, and the process both.
static void *touches(void *argument)
{
    char *at = argument;
    struct count before = now();
    before = now();
    for (int page = 0; page < PAGES; page++)
        at[page * PAGE] = 1;
    struct count after = now();
    CHECK(after.minor - before.minor == PAGES);
    return NULL;
}

static void of_threads(void)
{
    char *at = map(PROT_READ | PROT_WRITE, 0);
    struct rusage first, second;
    struct count before = now();
    CHECK(getrusage(RUSAGE_SELF, &first) == 0);
    pthread_t thread = start(touches, at);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(getrusage(RUSAGE_SELF, &second) == 0);
    struct count after = now();
    long own = after.minor - before.minor;
    CHECK(second.ru_minflt - first.ru_minflt >= PAGES + own - 4);
    CHECK(own < PAGES);
    CHECK(munmap(at, PAGES * PAGE) == 0);
}

static long vmstat(const char *name)
{
    static char text[1 << 16];
    int file = open("/proc/vmstat", O_RDONLY);
    size_t length = 0;
    CHECK(file >= 0);
    for (ssize_t got; (got = read(file, text + length, sizeof text - 1 - length)) > 0;)
        length += (size_t)got;
    CHECK(close(file) == 0);
    text[length] = 0;
    char line[64];
    snprintf(line, sizeof line, "\n%s ", name);
    char *found = strstr(text, line);
    if (found == NULL && strncmp(text, line + 1, strlen(line + 1)) == 0)
        found = text - 1;
    EXPECT(found != NULL, "no %s", name);
    return atol(found + strlen(line));
}

// The whole system's faults: at least those of this process.
static void of_everybody(void)
{
    long faults = vmstat("pgfault"), major = vmstat("pgmajfault");
    char *at = map(PROT_READ | PROT_WRITE, 0);
    touches(at);
    CHECK(vmstat("pgfault") - faults >= PAGES);
    CHECK(vmstat("pgmajfault") >= major);
    CHECK(munmap(at, PAGES * PAGE) == 0);
}

int main(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_NODEFER};
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0 && sigaction(SIGBUS, &action, NULL) == 0);
    prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    of_private_memory();
    of_what_is_refused();
    of_the_kernel();
    of_what_was_forked();
    of_processes();
    of_threads();
    of_everybody();
    puts("faults: all as on Linux");
    return 0;
}
