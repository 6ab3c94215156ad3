// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Files may use at most half of memory: writing fails, touching a hole raises SIGBUS, and freed memory
// is available immediately. Not comparable with the host's Linux, because its /dev/shm is larger.

#include "common.h"

#include <fcntl.h>
#include <setjmp.h>
#include <sys/statfs.h>

#define PAGE 4096L
#define FULL "/dev/shm/full"
#define OTHER "/dev/shm/other"
enum { PIECE = 64 << 10 };

static char piece[PIECE];
static sigjmp_buf back;
static volatile int code;

static void handle(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    (void)context;
    code = info->si_code;
    siglongjmp(back, 1);
}

static long room(void)
{
    struct statfs status;

    CHECK(statfs("/dev/shm", &status) == 0);
    return (long)status.f_bavail;
}

static int create(const char *name)
{
    int fd = open(name, O_RDWR | O_CREAT | O_EXCL, 0600);

    CHECK(fd >= 0);
    return fd;
}

// Writes until there is no room, and returns the number of pages.
static long fill(int fd)
{
    long done = 0;

    for (;;) {
        ssize_t more = write(fd, piece, PIECE);
        if (more < 0) {
            CHECK(errno == ENOSPC && done % PAGE == 0);
            return done / PAGE;
        }
        done += more;
    }
}

int main(void)
{
    struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO};
    int fd = create(FULL), other = create(OTHER), memory = memfd_create("memory", 0);
    long before = room();
    volatile char byte = 0;

    CHECK(sigaction(SIGBUS, &action, NULL) == 0);
    CHECK(before > 1000 && ftruncate(other, PIECE) == 0);
    volatile char *holes = mmap(NULL, PIECE, PROT_READ | PROT_WRITE, MAP_SHARED, other, 0);
    CHECK(holes != MAP_FAILED);
    holes[0] = 1;
    for (int round = 0; round < 6; round++) {
        CHECK(fill(fd) == before - 1 && room() == 0);
        // Existing pages can be written.
        CHECK(pwrite(fd, "x", 1, 0) == 1 && holes[0] == 1);
        CHECK(pwrite(other, "x", 1, PAGE) == -1 && errno == ENOSPC);
        CHECK(fallocate(other, 0, 0, PIECE) == -1 && errno == ENOSPC);
        // A read allocates no page, but a read through a mapping does.
        CHECK(pread(other, piece, PAGE, PAGE) == PAGE && piece[0] == 0);
        for (int writes = 0; writes < 2; writes++) {
            code = 0;
            if (sigsetjmp(back, 1) == 0) {
                if (writes)
                    holes[2 * PAGE] = 1;
                else
                    byte += holes[2 * PAGE];
            }
            CHECK(code == BUS_ADRERR);
        }
        // memfd memory does not belong to this file system.
        CHECK(pwrite(memory, piece, PIECE, 0) == PIECE);
        CHECK(room() == 0);
        // Pages that only a mapping kept are available as soon as it is gone.
        char *all = mmap(NULL, before * PAGE, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
        CHECK(all != MAP_FAILED && unlink(FULL) == 0 && close(fd) == 0);
        CHECK(room() == 0 && all[0] == 'x');
        CHECK(munmap(all, before * PAGE) == 0);
        fd = create(FULL);
    }
    CHECK(fallocate(fd, 0, 0, (before + 10) * PAGE) == -1 && errno == ENOSPC);
    CHECK(lseek(fd, 0, SEEK_END) == 0 && fill(fd) == before - 1);
    CHECK(byte == 0);
    puts("full: all as it should be");
    return 0;
}
