// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Timers that send signals. Runs on Linux too, and prints the same there.

#include "children.h"

#include <poll.h>
#include <sys/time.h>

static atomic_int alarms, told;
static volatile int last_code, last_value;
static _Atomic pid_t last_thread;

static void on_alarm(int signal)
{
    (void)signal;
    alarms++;
}

static void on_told(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)context;
    last_code = info->si_code;
    last_value = info->si_value.sival_int;
    last_thread = (pid_t)syscall(SYS_gettid);
    told++;
}

static void set(int ms, int interval_ms, struct itimerval *old)
{
    struct itimerval new = {
        .it_value = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000},
        .it_interval = {.tv_sec = interval_ms / 1000, .tv_usec = interval_ms % 1000 * 1000},
    };

    CHECK(setitimer(ITIMER_REAL, &new, old) == 0);
}

static void intervals(void)
{
    struct itimerval now;

    CHECK(getitimer(ITIMER_REAL, &now) == 0);
    CHECK(now.it_value.tv_sec == 0 && now.it_value.tv_usec == 0);
    set(10, 5, NULL);
    WAIT_FOR(alarms >= 5, "five alarms");
    CHECK(getitimer(ITIMER_REAL, &now) == 0);
    CHECK(now.it_interval.tv_sec == 0 && now.it_interval.tv_usec == 5000);
    set(0, 0, &now);
    CHECK(now.it_interval.tv_usec == 5000 && now.it_value.tv_usec > 0);
    int before = alarms;
    sleep_ms(30);
    CHECK(alarms == before);
    now.it_value.tv_usec = 1000000;
    CHECK(setitimer(ITIMER_REAL, &now, NULL) == -1 && errno == EINVAL);
    CHECK(setitimer(9, &now, NULL) == -1 && errno == EINVAL);
    CHECK(getitimer(ITIMER_REAL, NULL) == -1 && errno == EFAULT);
}

static void once(void)
{
    int before = alarms;

    // Seconds are rounded, and a busy host may cost one or two.
    CHECK(alarm(100) == 0);
    unsigned left = alarm(50);
    CHECK(left > 90 && left <= 100);
    left = alarm(0);
    CHECK(left > 40 && left <= 50);
    CHECK(alarm(0) == 0);
    // A repeated signal, in case the first one comes before the call that it is to interrupt.
    set(20, 1000, NULL);
    struct timespec time = {.tv_sec = 600}, rest;
    CHECK(nanosleep(&time, &rest) == -1 && errno == EINTR);
    CHECK(rest.tv_sec >= 500 && rest.tv_sec < 600);
    CHECK(alarms > before);
    set(20, 1000, NULL);
    before = alarms;
    CHECK(pause() == -1 && errno == EINTR && alarms > before);
    set(0, 0, NULL);
    // Without an interval there is one signal.
    before = alarms;
    set(1, 0, NULL);
    WAIT_FOR(alarms != before, "the only alarm");
    sleep_ms(30);
    CHECK(alarms == before + 1);
}

// A child inherits no timer, and its own timers end with it.
static void processes(void)
{
    set(60000, 0, NULL);
    pid_t child = fork();
    if (child == 0) {
        struct itimerval now;

        getitimer(ITIMER_REAL, &now);
        if (now.it_value.tv_sec != 0 || now.it_value.tv_usec != 0)
            _exit(1);
        signal(SIGALRM, SIG_DFL);
        set(10, 0, NULL);
        for (;;)
            pause();
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM);
    CHECK(alarm(0) > 50);
}

// A wait that is stopped again and again still ends: it continues with the rest
// of its time. The stops come more often than the wait lasts, so a restart would be noticed.
enum { MS = 300 };

static int sleeps(void)
{
    struct timespec time = {.tv_nsec = MS * 1000000}, rest = time;

    return nanosleep(&time, &rest);
}

static int sleeps_on_a_clock(void)
{
    struct timespec time = {.tv_nsec = MS * 1000000};

    return clock_nanosleep(CLOCK_REALTIME, 0, &time, NULL);
}

static int polls(void)
{
    return poll(NULL, 0, MS);
}

static int waits_on_a_word(void)
{
    struct timespec time = {.tv_nsec = MS * 1000000};
    int word = 7;

    return syscall(SYS_futex, &word, 0, 7, &time) == -1 && errno == ETIMEDOUT ? 0 : 1;
}

static void stopped_waits(void)
{
    static int (*const waits[])(void) = {sleeps, sleeps_on_a_clock, polls, waits_on_a_word};

    for (unsigned i = 0; i < 4; i++) {
        pid_t child = fork();
        if (child == 0)
            _exit(waits[i]());
        int status = -1, stops = 0;
        while (waitpid(child, &status, WNOHANG) == 0) {
            EXPECT(stops++ < 1000, "wait %u never ends", i);
            CHECK(kill(child, SIGSTOP) == 0);
            sleep_ms(2);
            CHECK(kill(child, SIGCONT) == 0);
            sleep_ms(10);
        }
        EXPECT(status == 0, "wait %u: %x", i, status);
    }
    CHECK(syscall(SYS_restart_syscall) == -1 && errno == EINTR);
}

// Timers of CPU time advance only while the program computes.
static volatile sig_atomic_t virtual_ticks, profile_ticks, thread_ticks;

static void on_cpu_time(int signal)
{
    if (signal == SIGVTALRM)
        virtual_ticks++;
    else if (signal == SIGPROF)
        profile_ticks++;
    else
        thread_ticks++;
}

static void of_cpu_time(void)
{
    static const struct itimerval time = {{0, 20000}, {0, 20000}};
    static const int signals[] = {SIGVTALRM, SIGPROF, SIGUSR2};
    struct itimerval now;
    struct timespec used, later;
    int timer;

    for (int i = 0; i < 3; i++)
        signal(signals[i], on_cpu_time);
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR2};
    struct itimerspec once = {.it_value = {.tv_nsec = 30000000}};
    CHECK(syscall(SYS_timer_create, CLOCK_THREAD_CPUTIME_ID, &event, &timer) == 0);
    CHECK(syscall(SYS_timer_settime, timer, 0, &once, NULL) == 0);
    CHECK(setitimer(ITIMER_VIRTUAL, &time, NULL) == 0);
    CHECK(setitimer(ITIMER_PROF, &time, NULL) == 0);
    sleep_ms(100);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    long ms = used.tv_sec * 1000 + used.tv_nsec / 1000000;
    CHECK(virtual_ticks <= 1 + ms / 20 && profile_ticks <= 1 + ms / 20);
    CHECK(getitimer(ITIMER_PROF, &now) == 0 && now.it_interval.tv_usec == 20000);
    do {
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &later);
    } while (later.tv_sec - used.tv_sec < 20 &&
             (virtual_ticks < 3 || profile_ticks < 3 || thread_ticks < 1));
    EXPECT(later.tv_sec - used.tv_sec < 20, "%d, %d", virtual_ticks, profile_ticks);
    CHECK(thread_ticks == 1);
    CHECK(setitimer(ITIMER_VIRTUAL, &(struct itimerval){0}, &now) == 0);
    CHECK(now.it_interval.tv_usec == 20000);
    CHECK(setitimer(ITIMER_PROF, &(struct itimerval){0}, NULL) == 0);
    CHECK(getitimer(ITIMER_VIRTUAL, &now) == 0);
    CHECK(now.it_value.tv_sec == 0 && now.it_value.tv_usec == 0);
    CHECK(syscall(SYS_timer_delete, timer) == 0);
}

static void *sleeper(void *id)
{
    atomic_store((_Atomic pid_t *)id, (pid_t)syscall(SYS_gettid));
    for (;;)
        sleep_ms(1);
    return NULL;
}

static void of_threads(void)
{
    static _Atomic pid_t thread;
    struct {
        union sigval value;
        int signal, notify, thread;
        char rest[64];
    } event = {.value = {.sival_int = 77}, .signal = SIGUSR1, .notify = SIGEV_SIGNAL};
    struct itimerspec times = {.it_value = {.tv_nsec = 2000000},
                               .it_interval = {.tv_nsec = 2000000}};
    int timer, other;

    CHECK(syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &timer) == 0);
    CHECK(syscall(SYS_timer_settime, timer, 0, &times, NULL) == 0);
    WAIT_FOR(told >= 3, "told three times");
    CHECK(last_code == SI_TIMER && last_value == 77);
    start(sleeper, &thread);
    WAIT_FOR(thread != 0, "the thread");
    event.notify = 4; // SIGEV_THREAD_ID
    event.thread = thread;
    event.value.sival_int = 78;
    CHECK(syscall(SYS_timer_create, CLOCK_REALTIME, &event, &other) == 0 && other != timer);
    CHECK(syscall(SYS_timer_delete, timer) == 0);
    CHECK(syscall(SYS_timer_settime, timer, 0, &times, NULL) == -1 && errno == EINVAL);
    CHECK(syscall(SYS_timer_settime, other, 0, &times, NULL) == 0);
    WAIT_FOR(last_value == 78 && last_thread == thread, "the thread is told");
    struct itimerspec now;
    CHECK(syscall(SYS_timer_gettime, other, &now) == 0 && now.it_interval.tv_nsec == 2000000);
    CHECK(syscall(SYS_timer_delete, other) == 0);
    CHECK(syscall(SYS_timer_getoverrun, other) == -1 && errno == EINVAL);
    event.notify = 99;
    CHECK(syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &timer) == -1 && errno == EINVAL);
    event.notify = SIGEV_SIGNAL;
    event.signal = 65;
    CHECK(syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &timer) == -1 && errno == EINVAL);
    CHECK(syscall(SYS_timer_create, 1000, &event, &timer) == -1 && errno == EINVAL);
    CHECK(syscall(SYS_timer_create, CLOCK_MONOTONIC, (void *)8, &timer) == -1 && errno == EFAULT);
}

int main(void)
{
    struct sigaction action = {.sa_handler = on_alarm};

    sigaction(SIGALRM, &action, NULL);
    action.sa_sigaction = on_told;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    sigaction(SIGUSR1, &action, NULL);
    intervals();
    once();
    processes();
    of_threads();
    stopped_waits();
    of_cpu_time();
    puts("timers: all as on Linux");
    return 0;
}
