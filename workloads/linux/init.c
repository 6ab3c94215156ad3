// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The first process of a Linux that `./x compare` boots beside our kernel: it
// runs the one program that `/.faultless/run` names, and reports as our kernel
// does (kernel/README.md): stdout and stderr to a channel each, and one line of
// JSON to a third. Then it ends QEMU.
//
// It must not disturb the measurement. It pins nothing and sleeps while the
// program is quiet. It acquires its right to the channels after the program has
// started, because a child would inherit it, and Linux then does more work at each
// switch between processes. The counts of faults and switches are those of the
// program and of the children it waited for, so that none of them is this
// process's own.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../c/vfork.h"
#include "channels.h"
#include "swap.h"

enum { SETTLE_SECONDS = 2 };

// More arguments or variables than this are refused.
enum { MOST_WORDS = 4096 };

// The content of `/.faultless/run`.
static struct {
    char *exec;
    char *argv[MOST_WORDS + 1];
    char *env[MOST_WORDS + 1];
    const char *huge; // where huge pages are used: never, madvise, always
    char *swap; // or NULL
    char *kvm; // or NULL: the parameters of its module
} run = {.huge = "never"};

// Linux's counters for the whole machine.
typedef struct {
    uint64_t faults;
    uint64_t flushes_received; // requested by another CPU
    uint64_t switches;
} Counts;

// Uses only static memory, so that it can report that there is none.
__attribute__((format(printf, 1, 2))) static void report(const char *format, ...)
{
    static char line[8192];
    va_list args;
    int length;

    va_start(args, format);
    length = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (length > 0)
        write_channel(CHANNEL_REPORT, line,
                      (size_t)length < sizeof line ? (size_t)length : sizeof line - 1);
}

// Reports why nothing was run, and ends the machine. `what` contains no quotes.
__attribute__((noreturn)) static void give_up(const char *what)
{
    int why = errno;

    if (open_channels()) {
        report("{\"exit\":null,\"signal\":null,\"seconds\":0,\"error\":\"init: %s: %s\"}\n",
               what, strerror(why));
        turn_off();
    }
    exit(1); // Linux panics, which ends QEMU too.
}

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void mount_all(void)
{
    if (mount("proc", "/proc", "proc", 0, NULL) != 0)
        give_up("cannot mount /proc");
    if (mount("sys", "/sys", "sysfs", 0, NULL) != 0)
        give_up("cannot mount /sys");
    if (mount("dev", "/dev", "devtmpfs", 0, NULL) != 0)
        give_up("cannot mount /dev");
    // Everything else is in memory already, also /tmp and the content of the image. The following
    // links are not in devtmpfs, but on every system.
    if (symlink("/proc/self/fd", "/dev/fd") != 0 || symlink("/proc/self/fd/0", "/dev/stdin") != 0 ||
        symlink("/proc/self/fd/1", "/dev/stdout") != 0 ||
        symlink("/proc/self/fd/2", "/dev/stderr") != 0)
        give_up("cannot make links in /dev");
    // Nor is the folder of shared memory.
    if (mkdir("/dev/shm", 01777) != 0 || mount("shm", "/dev/shm", "tmpfs", 0, NULL) != 0)
        give_up("cannot mount /dev/shm");
}

// Sets where huge pages are used, and checks that it has taken effect.
static bool set_huge_pages(const char *where)
{
    char text[128] = "", chosen[32];
    int file = open("/sys/kernel/mm/transparent_hugepage/enabled", O_RDWR);

    if (file < 0)
        return errno == ENOENT && strcmp(where, "never") == 0; // a Linux without them
    if (write(file, where, strlen(where)) < 0 || pread(file, text, sizeof text - 1, 0) < 0)
        return false;
    close(file);
    snprintf(chosen, sizeof chosen, "[%s]", where);
    return strstr(text, chosen) != NULL;
}

static void set_field(char *field, size_t *arguments, size_t *variables)
{
    if (strncmp(field, "exec=", 5) == 0) {
        run.exec = field + 5;
    } else if (strncmp(field, "argv=", 5) == 0 && *arguments < MOST_WORDS) {
        run.argv[(*arguments)++] = field + 5;
    } else if (strncmp(field, "env=", 4) == 0 && *variables < MOST_WORDS) {
        run.env[(*variables)++] = field + 4;
    } else if (strncmp(field, "swap=", 5) == 0) {
        run.swap = field + 5;
    } else if (strncmp(field, "huge=", 5) == 0) {
        run.huge = field + 5;
    } else if (strncmp(field, "kvm-linux=", 10) == 0) {
        run.kvm = field + 10;
    }
}

// The older kind of page lists costs less per fault. A Linux that has only that one
// has no such file.
static void choose_page_lists(void)
{
    int file = open("/sys/kernel/mm/lru_gen/enabled", O_WRONLY);

    if (file < 0)
        return;
    if (write(file, "0", 1) != 1)
        give_up("cannot switch lru_gen off");
    close(file);
}

// Reads the fields, each of which ends in a NUL byte; the others are for our
// kernel.
static void read_run_file(void)
{
    static char text[1 << 20];
    size_t length = 0, arguments = 0, variables = 0;
    int file = open("/.faultless/run", O_RDONLY);
    ssize_t got;

    if (file < 0)
        give_up("cannot open /.faultless/run");
    while ((got = read(file, text + length, sizeof text - 1 - length)) > 0)
        length += (size_t)got;
    if (got < 0)
        give_up("cannot read /.faultless/run");
    close(file);
    for (char *field = text; field < text + length; field += strlen(field) + 1)
        set_field(field, &arguments, &variables);
    errno = EINVAL;
    if (run.exec == NULL)
        give_up("/.faultless/run names no program");
    if (arguments == 0)
        run.argv[0] = run.exec;
}

// The number after `key` at the beginning of a line; the sum of all numbers of the
// line, if `all`.
static uint64_t numbers_of(const char *path, const char *key, bool all)
{
    static char text[1 << 18];
    size_t length = 0;
    uint64_t sum = 0;
    int file = open(path, O_RDONLY);
    ssize_t got;
    char *at;

    if (file < 0)
        return 0;
    while ((got = read(file, text + length, sizeof text - 1 - length)) > 0)
        length += (size_t)got;
    close(file);
    text[length] = '\0';
    at = strstr(text, key);
    if (at == NULL)
        return 0;
    at += strlen(key);
    do {
        char *end;
        uint64_t number = strtoull(at, &end, 10);

        if (end == at)
            break;
        sum += number;
        at = end;
    } while (all);
    return sum;
}

static Counts count(void)
{
    return (Counts){
        .faults = numbers_of("/proc/vmstat", "\npgfault ", false),
        .flushes_received = numbers_of("/proc/interrupts", "TLB:", true),
        .switches = numbers_of("/proc/stat", "\nctxt ", false),
    };
}

static void open_as(const char *path, int flags, int descriptor)
{
    int file = open(path, flags);

    if (file >= 0 && file != descriptor) {
        dup2(file, descriptor);
        close(file);
    }
}

// Runs in the child, which shares this memory until its exec.
__attribute__((noreturn)) static void become_the_program(int out, int err, volatile int *failed)
{
    open_as("/dev/null", O_RDONLY, 0);
    dup2(out, 1);
    dup2(err, 2);
    signal(SIGPIPE, SIG_DFL);
    execve(run.exec, run.argv, run.env);
    *failed = errno;
    _exit(127);
}

// Forwards the program's output until it has ended, whatever processes it leaves, or until no process has the pipes open.
static void pass_on(int out, int err, pid_t program)
{
    struct pollfd pipes[3] = {{.fd = out, .events = POLLIN},
                              {.fd = err, .events = POLLIN},
                              {.fd = (int)syscall(SYS_pidfd_open, program, 0), .events = POLLIN}};
    const Channel channels[2] = {CHANNEL_STDOUT, CHANNEL_STDERR};
    static char buffer[1 << 16];
    bool is_over = false, is_last = false;

    while (!is_last && (pipes[0].fd >= 0 || pipes[1].fd >= 0)) {
        // After the end once more: what it has written is in the pipes, which hold as much as the buffer.
        is_last = is_over;
        if (poll(pipes, 3, is_last ? 0 : -1) < 0 && errno != EINTR)
            return;
        is_over |= pipes[2].revents != 0;
        for (int i = 0; i < 2; i++) {
            ssize_t got;

            if (pipes[i].fd < 0 || pipes[i].revents == 0)
                continue;
            got = read(pipes[i].fd, buffer, sizeof buffer);
            if (got > 0)
                write_channel(channels[i], buffer, (size_t)got);
            else if (got == 0 || errno != EINTR)
                pipes[i].fd = -1;
        }
    }
}

// Waits for the program, and reaps its orphans.
static int wait_for(pid_t program, struct rusage *usage)
{
    int status;
    pid_t ended;

    do {
        ended = wait4(-1, &status, 0, usage);
    } while (ended != program && (ended > 0 || errno == EINTR));
    if (ended != program)
        give_up("lost the program");
    return status;
}

static void report_end(int status, uint64_t nanoseconds, const struct rusage *usage,
                       const Counts *before, const Counts *after)
{
    struct utsname system;
    char exit_status[16] = "null", signal_number[16] = "null";

    if (WIFEXITED(status))
        snprintf(exit_status, sizeof exit_status, "%d", WEXITSTATUS(status));
    else
        snprintf(signal_number, sizeof signal_number, "%d", WTERMSIG(status));
    uname(&system);
    report("{\"exit\":%s,\"signal\":%s,\"seconds\":%" PRIu64 ".%09" PRIu64
           ",\"release\":\"%s\",\"counters\":{\"faults\":%ld,\"pgmajfault\":%ld,"
           "\"context_switches\":%" PRIu64 ",\"nr_tlb_remote_flush_received\":%" PRIu64
           ",\"pgfault\":%" PRIu64 "},\"error\":null}\n",
           exit_status, signal_number, nanoseconds / 1000000000, nanoseconds % 1000000000,
           system.release, usage->ru_minflt + usage->ru_majflt, usage->ru_majflt,
           after->switches - before->switches,
           after->flushes_received - before->flushes_received,
           after->faults - before->faults);
}

int main(void)
{
    int out[2], err[2], status;
    volatile int failed = 0;
    struct rusage usage;
    Counts before, after;
    uint64_t begun;
    pid_t program;

    mount_all();
    choose_page_lists();
    read_run_file();
    if (!set_huge_pages(run.huge))
        give_up("cannot set where huge pages are used");
    if (run.swap != NULL || run.kvm != NULL)
        load_modules(run.swap == NULL ? 0 : swap_bytes(run.swap), run.kvm);
    if (run.swap != NULL)
        set_up_swap(run.swap);
    if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0)
        give_up("cannot make pipes");
    // Until Linux has finished its work after booting. If the clock counts
    // instructions, an idle machine's time passes immediately.
    sleep(SETTLE_SECONDS);
    before = count();
    // The parent continues when the program has been loaded: its time begins there.
    program = vfork();
    if (program == 0)
        become_the_program(out[1], err[1], &failed);
    if (program < 0)
        give_up("cannot start a process");
    begun = now_ns();
    close(out[1]);
    close(err[1]);
    errno = failed;
    if (failed != 0)
        give_up("cannot execute the program");
    if (!open_channels())
        give_up("cannot have the channels");
    pass_on(out[0], err[0], program);
    status = wait_for(program, &usage);
    begun = now_ns() - begun;
    after = count();
    report_end(status, begun, &usage, &before, &after);
    turn_off();
}
