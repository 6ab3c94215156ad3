// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Corner cases of processes, signals, pipes and epoll that a review found wrong. Runs
// on Linux too, and prints the same there.

#include "children.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/time.h>

static void *nothing(void *argument)
{
    return argument;
}

// All of them together would not fit if each leaked its memory.
static void memory_of_processes_with_threads(void)
{
    const size_t size = 4 << 20;

    for (int round = 0; round < 32; round++) {
        pid_t child = fork();
        if (child == 0) {
            char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            CHECK(memory != MAP_FAILED);
            for (size_t at = 0; at < size; at += 4096)
                memory[at] = 1;
            pthread_join(start(nothing, NULL), NULL);
            _exit(0);
        }
        CHECK(status_of(child) == 0);
    }
}

static void exit_signals(void)
{
    // No signal has this number.
    long child = syscall(SYS_clone, 200L, 0, 0, 0, 0);
    if (child == 0)
        _exit(3);
    CHECK(status_of(child) == 3 << 8);

    // After execve the end is reported by SIGCHLD, however the process was made.
    child = syscall(SYS_clone, 0L, 0, 0, 0, 0);
    if (child == 0) {
        execl("/proc/self/exe", "corners", "ends", NULL);
        _exit(4);
    }
    int status = -1;
    siginfo_t info;
    CHECK(waitid(P_PID, child, &info, WEXITED | WNOWAIT | __WALL) == 0);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void where_it_is_together(void)
{
    char path[64];

    CHECK(chdir("/tmp") == 0);
    long child = syscall(SYS_clone, (long)(CLONE_FS | SIGCHLD), 0, 0, 0, 0);
    if (child == 0)
        _exit(0);
    CHECK(status_of(child) == 0);
    CHECK(getcwd(path, sizeof path) != NULL && strcmp(path, "/tmp") == 0);
    CHECK(chdir("/") == 0);
}

static void on_signal(int signal)
{
    (void)signal;
}

// Installs a handler without SA_RESTART.
static void handle(int signal, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler};

    CHECK(sigaction(signal, &action, NULL) == 0);
}

static void a_child_before_its_signal(void)
{
    handle(SIGCHLD, on_signal);
    for (int round = 0; round < 20; round++) {
        pid_t child = fork();
        if (child == 0) {
            sleep_ms(10);
            _exit(7);
        }
        int status = -1;
        CHECK(waitpid(child, &status, 0) == child && status == 7 << 8);
    }
    handle(SIGCHLD, SIG_DFL);
}

// A thread that waits for a signal gets it, even if it would otherwise be ignored.
static void a_child_by_its_ignored_signal(void)
{
    sigset_t set, before;
    struct timespec limit = {60, 0};

    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    CHECK(sigprocmask(SIG_BLOCK, &set, &before) == 0);
    for (int round = 0; round < 3; round++) {
        pid_t child = fork();
        if (child == 0) {
            sleep_ms(20);
            _exit(8);
        }
        siginfo_t info;
        CHECK(sigtimedwait(&set, &info, &limit) == SIGCHLD);
        CHECK(info.si_pid == child && info.si_status == 8);
        CHECK(status_of(child) == 8 << 8);
    }
    CHECK(sigprocmask(SIG_SETMASK, &before, NULL) == 0);
}

// Number 0 is no signal: it checks whether the process exists.
static void asks_who_is_there(void)
{
    CHECK(syscall(SYS_tgkill, getpid(), getpid(), 0) == 0);
    CHECK(syscall(SYS_tkill, getpid(), 0) == 0);
    CHECK(kill(getpid(), 0) == 0);
    CHECK(syscall(SYS_tgkill, getpid(), 1, 0) == -1 && errno == ESRCH);
}

static void too_much_together(void)
{
    enum { SIZE = 100000, COUNT = 12 };
    static char text[SIZE + 1];
    char *many[COUNT + 1];

    memset(text, 'a', SIZE);
    for (int i = 0; i < COUNT; i++)
        many[i] = text;
    many[COUNT] = NULL;
    pid_t child = fork();
    if (child == 0) {
        execve("/proc/self/exe", many, many);
        _exit(errno == E2BIG ? 0 : 1);
    }
    CHECK(status_of(child) == 0);
}

static void a_parent_that_waits_for_vfork(void)
{
    int ends[2];
    CHECK(pipe(ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        if (vfork() == 0) {
            pid_t own = getpid();
            CHECK(write(ends[1], &own, sizeof own) == sizeof own);
            for (;;)
                pause();
        }
        _exit(5);
    }
    pid_t grandchild;
    CHECK(read(ends[0], &grandchild, sizeof grandchild) == sizeof grandchild);
    CHECK(kill(child, SIGKILL) == 0);
    CHECK(WTERMSIG(status_of(child)) == SIGKILL);
    CHECK(kill(grandchild, SIGKILL) == 0);
    close(ends[0]);
    close(ends[1]);
}

// SIGCONT also cancels a stop that a thread has dequeued and not yet made.
static void stops_and_goes_on(void)
{
    int ends[2];
    CHECK(pipe(ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        for (char byte = 0;; byte++)
            CHECK(write(ends[1], &byte, 1) == 1);
    }
    for (int round = 0; round < 500; round++) {
        CHECK(kill(child, SIGSTOP) == 0);
        for (volatile int pause = 0; pause < round % 50 * 40; pause++)
            ;
        CHECK(kill(child, SIGCONT) == 0);
        // More than the pipe holds, so that the child must run.
        static char bytes[4096];
        for (size_t done = 0; done < sizeof bytes;) {
            ssize_t some = read(ends[0], bytes, sizeof bytes - done);
            CHECK(some > 0);
            done += (size_t)some;
        }
    }
    CHECK(kill(child, SIGKILL) == 0);
    CHECK(WTERMSIG(status_of(child)) == SIGKILL);
    close(ends[0]);
    close(ends[1]);
}

static void a_group_of_the_dead(void)
{
    pid_t child = fork();
    if (child == 0) {
        setpgid(0, 0);
        _exit(0);
    }
    siginfo_t info;
    CHECK(waitid(P_PID, child, &info, WEXITED | WNOWAIT) == 0);
    CHECK(kill(-child, SIGTERM) == 0);
    CHECK(status_of(child) == 0);
    CHECK(kill(-child, SIGTERM) == -1 && errno == ESRCH);
}

static atomic_int ticks;

static void on_tick(int signal)
{
    (void)signal;
    ticks++;
}

static void an_interval_beyond_all_time(void)
{
    struct itimerval once = {{(time_t)1 << 60, 0}, {0, 1000}};

    handle(SIGALRM, on_tick);
    CHECK(setitimer(ITIMER_REAL, &once, NULL) == 0);
    WAIT_FOR(ticks == 1, "no tick");
    sleep_ms(50);
    CHECK(ticks == 1);
    CHECK(setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL) == 0);
}

static void a_full_pipe_grows(void)
{
    enum { SIZE = 65536, MOVED = 100 };
    static char in[SIZE], out[SIZE];
    int ends[2];

    CHECK(pipe(ends) == 0);
    for (int i = 0; i < SIZE; i++)
        in[i] = (char)(i / 100 + 1);
    CHECK(write(ends[1], in, SIZE) == SIZE);
    CHECK(read(ends[0], out, MOVED) == MOVED);
    // On Linux a partly read page has no room yet.
    CHECK(fcntl(ends[1], F_SETFL, O_NONBLOCK) == 0);
    ssize_t more = write(ends[1], in, MOVED);
    CHECK(more == MOVED || (more == -1 && errno == EAGAIN));
    CHECK(fcntl(ends[1], F_SETPIPE_SZ, 2 * SIZE) == 2 * SIZE);
    if (more == -1)
        CHECK(write(ends[1], in, MOVED) == MOVED);
    for (size_t done = 0; done < SIZE;) {
        ssize_t some = read(ends[0], out + done, SIZE - done);
        CHECK(some > 0);
        done += (size_t)some;
    }
    CHECK(memcmp(out, in + MOVED, SIZE - MOVED) == 0);
    CHECK(memcmp(out + SIZE - MOVED, in, MOVED) == 0);
    close(ends[0]);
    close(ends[1]);
}

// The kernel must skip the hole, not walk it page by page.
static void a_file_with_a_large_hole(void)
{
    const off_t far = (off_t)1 << 43;
    char name[] = "/tmp/corners.XXXXXX";
    int fd = mkstemp(name);

    CHECK(fd >= 0 && unlink(name) == 0);
    CHECK(pwrite(fd, "x", 1, far) == 1);
    CHECK(lseek(fd, 0, SEEK_DATA) == far);
    CHECK(lseek(fd, 4096, SEEK_DATA) == far);
    CHECK(lseek(fd, far, SEEK_HOLE) == far + 1);
    CHECK(lseek(fd, 0, SEEK_HOLE) == 0);
    CHECK(ftruncate(fd, far) == 0);
    CHECK(lseek(fd, 0, SEEK_DATA) == -1 && errno == ENXIO);
    close(fd);
}

static int epoll;
static atomic_bool is_over;

static void *wait_for_events(void *argument)
{
    struct epoll_event events[4];

    while (!is_over)
        epoll_wait(epoll, events, 4, 1);
    return argument;
}

static void watched_no_more(void)
{
    int ends[2];

    CHECK(pipe(ends) == 0 && write(ends[1], "x", 1) == 1);
    epoll = epoll_create1(0);
    pthread_t waiters[] = {start(wait_for_events, NULL), start(wait_for_events, NULL)};
    for (int round = 0; round < 20000; round++) {
        struct epoll_event event = {.events = EPOLLIN};
        CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event) == 0);
        CHECK(epoll_ctl(epoll, EPOLL_CTL_DEL, ends[0], NULL) == 0);
    }
    is_over = true;
    for (int i = 0; i < 2; i++)
        pthread_join(waiters[i], NULL);
    struct epoll_event event;
    CHECK(epoll_wait(epoll, &event, 1, 0) == 0);
}

int main(int count, char **arguments)
{
    (void)arguments;
    if (count > 1)
        return 0;
    memory_of_processes_with_threads();
    exit_signals();
    where_it_is_together();
    a_child_before_its_signal();
    a_child_by_its_ignored_signal();
    asks_who_is_there();
    too_much_together();
    a_parent_that_waits_for_vfork();
    stops_and_goes_on();
    a_group_of_the_dead();
    an_interval_beyond_all_time();
    a_full_pipe_grows();
    a_file_with_a_large_hole();
    watched_no_more();
    puts("corners: all as on Linux");
    return 0;
}
