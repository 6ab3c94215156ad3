// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The limit on CPU time (`RLIMIT_CPU`). A transcript, the same on Linux. No output depends on how fast a
// machine is.

#include "children.h"
#include "transcript.h"

#include <sys/resource.h>
#include <sys/syscall.h>

enum { ENDS = 200 };

static volatile struct {
    int signals, code;
    long soft, hard;
} *shared;

static struct rlimit limits(void)
{
    struct rlimit now;

    CHECK(getrlimit(RLIMIT_CPU, &now) == 0);
    return now;
}

static void on_limit(int number, siginfo_t *info, void *context)
{
    (void)number, (void)context;
    shared->signals++;
    shared->code = info->si_code;
    shared->soft = (long)limits().rlim_cur;
    shared->hard = (long)limits().rlim_max;
}

static void catch(void)
{
    struct sigaction action = {.sa_sigaction = on_limit, .sa_flags = SA_SIGINFO};

    CHECK(sigaction(SIGXCPU, &action, NULL) == 0);
}

static void limit(rlim_t soft, rlim_t hard)
{
    struct rlimit new = {soft, hard};

    CHECK(setrlimit(RLIMIT_CPU, &new) == 0);
}

static void spin(void)
{
    for (;;)
        (void)shared->signals;
}

static void *also_spin(void *argument)
{
    spin();
    return argument;
}

// The signal that ends a child with what `begin` sets, and what it got until then.
static void child(const char *name, void (*begin)(void))
{
    pid_t child;

    memset((void *)shared, 0, sizeof *shared);
    fflush(stdout);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        begin();
        spin();
    }
    printf("%s: ended by %d", name, status_of(child) & 0x7f);
    printf(", signals %d", shared->signals);
    if (shared->signals)
        printf(" code %#x soft %ld hard %ld", shared->code, shared->soft, shared->hard);
    puts("");
}

static void caught(void)
{
    catch();
    limit(1, 3);
}

static void fatal(void)
{
    limit(1, 2);
}

static void hard_at_once(void)
{
    catch();
    limit(1, 1);
}

static void no_time(void)
{
    catch();
    limit(0, 1);
}

static void inherited(void)
{
    pid_t child;

    limit(1, 2);
    child = fork();
    CHECK(child >= 0);
    if (child == 0)
        spin();
    int status = status_of(child);
    shared->signals = status & 0x7f;
    raise(SIGUSR1);
}

static void of_all_threads(void)
{
    catch();
    limit(1, 2);
    start(also_spin, NULL);
}

// No timer of the process's own is at a number of `timer_create`, however it is made.
static void not_deleted(void)
{
    limit(1, 2);
    for (int number = -1; number >= -8; number--)
        CHECK(syscall(SYS_timer_delete, number) == -1 && errno == EINVAL);
}

// A limit that is lifted again.
static void lifted(void)
{
    struct timespec used;

    limit(1, RLIM_INFINITY);
    limit(RLIM_INFINITY, RLIM_INFINITY);
    do
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    while (used.tv_sec < 1 || used.tv_nsec < 100000000);
    raise(SIGUSR2);
}

// A limit that is set while its process ends.
static void beside_an_end(void)
{
    struct rlimit new = {1000, 2000};

    fflush(stdout);
    for (int i = 0; i < ENDS; i++) {
        pid_t child = fork();

        CHECK(child >= 0);
        if (child == 0)
            _exit(0);
        while (waitpid(child, NULL, WNOHANG) == 0)
            (void)prlimit(child, RLIMIT_CPU, &new, NULL);
    }
    puts("beside an end");
}

int main(void)
{
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    child("each second", caught);
    child("fatal", fatal);
    child("hard at once", hard_at_once);
    child("no time", no_time);
    child("inherited", inherited);
    child("of all threads", of_all_threads);
    child("not deleted", not_deleted);
    child("lifted", lifted);
    beside_an_end();
    return 0;
}
