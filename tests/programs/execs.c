// SPDX-License-Identifier: MIT OR Apache-2.0
//
// execve, from one thread and from several, and vfork. Runs on
// Linux too, and prints the same there.

#include "children.h"

#include <fcntl.h>

// Never mapped.
static char *volatile nowhere = (char *)8;

static const char *self = "/proc/self/exe";
static char *environment[] = {"COLOUR=green", "EMPTY=", NULL};

static int run(char *const arguments[])
{
    pid_t child = vfork();
    if (child == 0) {
        execve(self, arguments, environment);
        _exit(99);
    }
    int status = status_of(child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void another_program(void)
{
    CHECK(run((char *[]){"test", "arguments", "", "with space", NULL}) == 0);
    CHECK(run((char *[]){"test", "exit", "42", NULL}) == 42);
    CHECK(execve("/does/not/exist", NULL, NULL) == -1 && errno == ENOENT);
    CHECK(execve("", NULL, NULL) == -1 && errno == ENOENT);
    CHECK(execve(nowhere, NULL, NULL) == -1 && errno == EFAULT);
    CHECK(execve(self, (char **)nowhere, NULL) == -1 && errno == EFAULT);
    char *long_argument = malloc(140000);
    memset(long_argument, 'x', 139999);
    long_argument[139999] = 0;
    char *too_long[] = {"test", long_argument, NULL};
    CHECK(execve(self, too_long, NULL) == -1 && errno == E2BIG);
    static char *many[40];
    long_argument[100000] = 0;
    for (int i = 0; i < 30; i++)
        many[i] = long_argument;
    CHECK(execve(self, many, NULL) == -1 && errno == E2BIG);
    many[10] = NULL;
    many[1] = "long";
    many[0] = "test";
    CHECK(run(many) == 0);
    free(long_argument);
}

static void on_signal(int signal)
{
    (void)signal;
}

// Ignored signals stay ignored, handlers are reset; the mask and pending signals stay.
static void what_a_program_inherits(void)
{
    signal(SIGUSR1, SIG_IGN);
    signal(SIGUSR2, on_signal);
    sigset_t set, old;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, &old);
    CHECK(run((char *[]){"test", "inherits", NULL}) == 0);
    sigprocmask(SIG_SETMASK, &old, NULL);
    signal(SIGUSR1, SIG_DFL);
    signal(SIGUSR2, SIG_DFL);
}

static void *run_another(void *argument)
{
    execve(self, argument, environment);
    _exit(98);
}

// The thread that calls execve becomes the first one; the others end.
static void threads_and_another_program(void)
{
    for (int first = 0; first < 2; first++) {
        pid_t child = fork();
        if (child == 0) {
            char number[16];
            snprintf(number, sizeof number, "%d", getpid());
            char *arguments[] = {"test", "alone", number, NULL};
            pthread_t thread;
            for (int i = 0; i < 3; i++) {
                pthread_create(&thread, NULL, spin_for_ever, NULL);
                pthread_create(&thread, NULL, sleep_for_ever, NULL);
            }
            if (!first)
                run_another(arguments);
            pthread_create(&thread, NULL, run_another, arguments);
            for (;;)
                pause();
        }
        int status = status_of(child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

// A process that shares state with its parent gets its own when it runs another program.
static int run_shared(void *program)
{
    execve(self, program, environment);
    _exit(98);
}

static int run_sharing(int flags, char *const arguments[])
{
    static char stack[65536] __attribute__((aligned(16)));
    pid_t child = clone(run_shared, stack + sizeof stack, flags | SIGCHLD, (void *)arguments);
    CHECK(child > 0);
    int status = status_of(child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void what_was_shared_before(void)
{
    char number[16];
    int kept = dup(2), closes = fcntl(2, F_DUPFD_CLOEXEC, 0);
    snprintf(number, sizeof number, "%d", kept);
    CHECK(run_sharing(CLONE_FILES, (char *[]){"test", "closes", number, NULL}) == 0);
    CHECK(fcntl(kept, F_GETFD) == 0 && fcntl(closes, F_GETFD) == FD_CLOEXEC);
    close(kept);
    close(closes);
    signal(SIGUSR2, on_signal);
    struct sigaction action;
    CHECK(run_sharing(CLONE_VM | CLONE_SIGHAND, (char *[]){"test", "ignores", NULL}) == 0);
    CHECK(sigaction(SIGUSR2, NULL, &action) == 0 && action.sa_handler == on_signal);
    CHECK(sigaction(SIGUSR1, NULL, &action) == 0 && action.sa_handler == SIG_DFL);
    signal(SIGUSR2, SIG_DFL);
}

static struct {
    char *next;
    long to_word;
    char *pending;
} robust;
static struct {
    char *next;
    volatile uint32_t word;
} lock;
static _Atomic uint32_t lives;

static int run_with_a_lock(void *program)
{
    robust.next = (char *)&lock;
    robust.to_word = (char *)&lock.word - (char *)&lock;
    lock.next = (char *)&robust;
    lock.word = (uint32_t)syscall(SYS_gettid);
    lives = 1;
    syscall(SYS_set_robust_list, &robust, sizeof robust);
    syscall(SYS_set_tid_address, &lives);
    execve(self, program, environment);
    _exit(98);
}

// Robust locks in memory that outlives the process, and the word that is cleared at a thread's end.
static void memory_that_others_keep(void)
{
    static char stack[65536] __attribute__((aligned(16)));
    char *arguments[] = {"test", "exit", "3", NULL};
    pid_t child = clone(run_with_a_lock, stack + sizeof stack, CLONE_VM | SIGCHLD, arguments);
    CHECK(child > 0);
    int status = status_of(child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 3);
    CHECK(lock.word == 0x40000000 /* FUTEX_OWNER_DIED */ && lives == 0);
}

// Runs a link with a relative path: /proc shows the file itself.
static void its_own_path(void)
{
    char real[4096], folder[] = "/tmp/execsXXXXXX";
    ssize_t length = readlink(self, real, sizeof real - 1);
    CHECK(length > 0 && real[0] == '/');
    real[length] = 0;
    CHECK(mkdtemp(folder) != NULL && chdir(folder) == 0 && symlink(real, "link") == 0);
    pid_t child = vfork();
    if (child == 0) {
        execve("./link", (char *[]){"test", "is", real, NULL}, environment);
        _exit(99);
    }
    int status = status_of(child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(unlink("link") == 0 && chdir("/") == 0 && rmdir(folder) == 0);
}

// The child of vfork uses its parent's memory, and the parent waits.
static void borrowed_memory(void)
{
    static volatile int shared;
    shared = 1;
    pid_t child = vfork();
    if (child == 0) {
        shared = 2;
        struct timespec moment = {.tv_nsec = 20000000};
        nanosleep(&moment, NULL);
        shared++;
        _exit(0);
    }
    CHECK(shared == 3);
    CHECK(status_of(child) == 0);
}

// The programs that execve is told to run.
static int as_told(int count, char **arguments)
{
    if (strcmp(arguments[1], "arguments") == 0)
        return count == 4 && arguments[2][0] == 0 && strcmp(arguments[3], "with space") == 0 &&
                       strcmp(getenv("COLOUR"), "green") == 0 && getenv("EMPTY")[0] == 0 &&
                       getenv("PATH") == NULL
                   ? 0
                   : 1;
    if (strcmp(arguments[1], "exit") == 0)
        return atoi(arguments[2]);
    if (strcmp(arguments[1], "long") == 0)
        return count == 10 && strlen(arguments[9]) == 100000 ? 0 : 1;
    if (strcmp(arguments[1], "inherits") == 0) {
        struct sigaction action;
        sigaction(SIGUSR1, NULL, &action);
        if (action.sa_handler != SIG_IGN)
            return 1;
        sigaction(SIGUSR2, NULL, &action);
        if (action.sa_handler != SIG_DFL)
            return 2;
        sigset_t set;
        sigprocmask(SIG_BLOCK, NULL, &set);
        return sigismember(&set, SIGTERM) ? 0 : 3;
    }
    if (strcmp(arguments[1], "is") == 0) {
        char real[4096] = "";
        return readlink(self, real, sizeof real - 1) > 0 && strcmp(real, arguments[2]) == 0 ? 0 : 1;
    }
    if (strcmp(arguments[1], "closes") == 0)
        return close(atoi(arguments[2]));
    if (strcmp(arguments[1], "ignores") == 0)
        return signal(SIGUSR1, SIG_IGN) == SIG_DFL && signal(SIGUSR2, SIG_IGN) == SIG_DFL ? 0 : 1;
    if (strcmp(arguments[1], "alone") == 0)
        return getpid() == atoi(arguments[2]) && syscall(SYS_gettid) == getpid() ? 0 : 1;
    return 97;
}

int main(int count, char **arguments)
{
    if (count > 1)
        return as_told(count, arguments);
    another_program();
    what_a_program_inherits();
    what_was_shared_before();
    memory_that_others_keep();
    borrowed_memory();
    its_own_path();
    threads_and_another_program();
    puts("execs: all as on Linux");
    return 0;
}
