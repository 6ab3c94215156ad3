// SPDX-License-Identifier: MIT OR Apache-2.0
//
// File locks: on a process's ranges, on a description's, on whole files. Runs
// on Linux too, and prints the same there.

#include "common.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/wait.h>

#define CHECK(condition) EXPECT(condition, "%s", #condition)

// musl does not declare them.
enum { OFD_GETLK = 36, OFD_SETLK = 37, OFD_SETLKW = 38 };

static int fd;

static int lock(int file, int command, int kind, long start, long length)
{
    struct flock range = {.l_type = (short)kind, .l_start = start, .l_len = length};

    return fcntl(file, command, &range);
}

static int status_of(pid_t child)
{
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    return status;
}

// The lock that another process finds when it tries to lock a byte.
static int found(int kind, long at)
{
    pid_t own = getpid(), child = fork();
    if (child == 0) {
        struct flock range = {.l_type = (short)kind, .l_start = at, .l_len = 1};
        CHECK(fcntl(fd, F_GETLK, &range) == 0);
        int taken = lock(fd, F_SETLK, kind, at, 1);
        if (range.l_type == F_UNLCK)
            _exit(taken == 0 ? 0 : 99);
        CHECK(taken == -1 && errno == EAGAIN);
        CHECK((range.l_pid == own || range.l_pid == -1) && range.l_whence == SEEK_SET);
        CHECK(range.l_start <= at && (range.l_len == 0 || range.l_start + range.l_len > at));
        _exit(range.l_type == F_WRLCK ? 2 : 1);
    }
    return WEXITSTATUS(status_of(child));
}

static void ranges(void)
{
    CHECK(lock(fd, F_SETLK, F_WRLCK, 10, 10) == 0);
    CHECK(found(F_RDLCK, 9) == 0 && found(F_RDLCK, 10) == 2);
    CHECK(found(F_WRLCK, 19) == 2 && found(F_WRLCK, 20) == 0);
    // A hole, and a piece with a shared lock.
    CHECK(lock(fd, F_SETLK, F_UNLCK, 14, 2) == 0);
    CHECK(lock(fd, F_SETLK, F_RDLCK, 17, 1) == 0);
    CHECK(found(F_WRLCK, 13) == 2 && found(F_WRLCK, 14) == 0 && found(F_WRLCK, 16) == 2);
    CHECK(found(F_RDLCK, 17) == 0 && found(F_WRLCK, 17) == 1 && found(F_RDLCK, 18) == 2);
    // To the end of all files, and backwards.
    CHECK(lock(fd, F_SETLK, F_UNLCK, 0, 0) == 0 && found(F_WRLCK, 10) == 0);
    CHECK(lock(fd, F_SETLK, F_WRLCK, 100, -10) == 0);
    CHECK(found(F_RDLCK, 89) == 0 && found(F_RDLCK, 90) == 2 && found(F_RDLCK, 100) == 0);
    CHECK(lock(fd, F_SETLK, F_WRLCK, 5, -6) == -1 && errno == EINVAL);
    CHECK(lock(fd, F_SETLK, 77, 0, 1) == -1 && errno == EINVAL);
    CHECK(lock(fd, F_GETLK, F_UNLCK, 0, 1) == -1 && errno == EINVAL);
    CHECK(lock(99, F_SETLK, F_WRLCK, 0, 1) == -1 && errno == EBADF);
    CHECK(fcntl(fd, F_SETLK, (void *)8) == -1 && errno == EFAULT);
    // Closing any descriptor of the file releases all locks.
    int other = open("/proc/self/exe", O_RDONLY);
    close(other);
    CHECK(found(F_RDLCK, 95) == 2);
    other = dup(fd);
    CHECK(lock(other, OFD_SETLK, F_RDLCK, 0, 1) == 0);
    close(other);
    CHECK(found(F_RDLCK, 95) == 0 && found(F_WRLCK, 0) != 0);
    CHECK(lock(fd, OFD_SETLK, F_UNLCK, 0, 0) == 0 && found(F_WRLCK, 0) == 0);
}

// A process waits for another one; the end of that process releases all its locks.
static void waiting(void)
{
    int ends[2], back[2];
    char byte;

    CHECK(pipe(ends) == 0 && pipe(back) == 0);
    pid_t child = fork();
    if (child == 0) {
        CHECK(lock(fd, F_SETLK, F_WRLCK, 0, 1) == 0 && write(ends[1], "l", 1) == 1);
        CHECK(read(back[0], &byte, 1) == 1);
        int taken = lock(fd, F_SETLKW, F_WRLCK, 1, 1);
        CHECK(taken == 0 || errno == EDEADLK);
        _exit(taken == 0 ? 4 : 3);
    }
    CHECK(read(ends[0], &byte, 1) == 1);
    CHECK(lock(fd, F_SETLK, F_WRLCK, 0, 1) == -1 && errno == EAGAIN);
    CHECK(lock(fd, F_SETLK, F_WRLCK, 1, 1) == 0 && write(back[1], "w", 1) == 1);
    // The later request would close the cycle. The other process gets its lock.
    int taken = lock(fd, F_SETLKW, F_WRLCK, 0, 1);
    CHECK(taken == 0 || errno == EDEADLK);
    CHECK(lock(fd, F_SETLK, F_UNLCK, 0, 0) == 0);
    CHECK(status_of(child) == (taken == 0 ? 3 : 4) << 8);
}

static void on_signal(int signal)
{
    (void)signal;
}

static void descriptions(void)
{
    char path[64];
    struct flock range = {.l_type = F_RDLCK};

    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int other = open(path, O_RDWR);
    CHECK(other >= 0);
    CHECK(flock(fd, LOCK_SH) == 0 && flock(other, LOCK_SH | LOCK_NB) == 0);
    CHECK(flock(other, LOCK_EX | LOCK_NB) == -1 && errno == EWOULDBLOCK);
    CHECK(flock(other, LOCK_UN) == 0 && flock(fd, LOCK_EX) == 0);
    CHECK(flock(other, LOCK_SH | LOCK_NB) == -1 && errno == EWOULDBLOCK);
    CHECK(flock(other, 77) == -1 && errno == EINVAL);
    // A signal ends the wait.
    struct sigaction action = {.sa_handler = on_signal};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    pid_t child = fork();
    if (child == 0) {
        pid_t killer = fork();
        if (killer == 0)
            for (;;) {
                sleep_ms(20);
                kill(getppid(), SIGALRM);
            }
        CHECK(flock(other, LOCK_EX) == -1 && errno == EINTR);
        kill(killer, SIGKILL);
        status_of(killer);
        _exit(0);
    }
    CHECK(status_of(child) == 0);
    // Ranges of a description do not conflict with flock, but with each other.
    CHECK(lock(other, OFD_SETLK, F_WRLCK, 0, 0) == 0);
    CHECK(lock(fd, OFD_SETLK, F_RDLCK, 5, 1) == -1 && errno == EAGAIN);
    CHECK(lock(fd, F_SETLK, F_RDLCK, 5, 1) == -1 && errno == EAGAIN);
    CHECK(fcntl(fd, OFD_GETLK, &range) == 0);
    CHECK(range.l_type == F_WRLCK && range.l_pid == -1 && range.l_len == 0);
    range.l_pid = 1;
    CHECK(fcntl(fd, OFD_SETLK, &range) == -1 && errno == EINVAL);
    close(other);
    CHECK(lock(fd, OFD_SETLK, F_RDLCK, 5, 1) == 0);
    CHECK(lock(fd, OFD_SETLK, F_UNLCK, 0, 0) == 0 && flock(fd, LOCK_UN) == 0);
}

// An update under a lock is not lost.
static void together(void)
{
    enum { CHILDREN = 4, ROUNDS = 100 };
    pid_t children[CHILDREN];
    uint32_t value = 0;

    CHECK(pwrite(fd, &value, sizeof value, 0) == sizeof value);
    for (int i = 0; i < CHILDREN; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            for (int round = 0; round < ROUNDS; round++) {
                CHECK(lock(fd, F_SETLKW, F_WRLCK, 0, 4) == 0);
                CHECK(pread(fd, &value, sizeof value, 0) == sizeof value);
                value++;
                sched_yield();
                CHECK(pwrite(fd, &value, sizeof value, 0) == sizeof value);
                CHECK(lock(fd, F_SETLK, F_UNLCK, 0, 4) == 0);
            }
            _exit(0);
        }
    }
    for (int i = 0; i < CHILDREN; i++)
        CHECK(status_of(children[i]) == 0);
    CHECK(pread(fd, &value, sizeof value, 0) == sizeof value);
    CHECK(value == CHILDREN * ROUNDS);
}

int main(void)
{
    char name[] = "/dev/shm/locks.XXXXXX";

    fd = mkstemp(name);
    CHECK(fd >= 0);
    ranges();
    waiting();
    descriptions();
    together();
    CHECK(unlink(name) == 0);
    puts("locks: all as on Linux");
    return 0;
}
