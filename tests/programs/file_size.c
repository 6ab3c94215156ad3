// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The limit on the size of files (`RLIMIT_FSIZE`). A transcript, the same on Linux.

#include "transcript.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>

static char bytes[8192], output[65536];
static volatile int signals, code;
static int file;

static void count(int number, siginfo_t *info, void *context)
{
    (void)number;
    (void)context;
    signals++;
    code = info->si_code;
    CHECK(info->si_pid == getpid());
}

static void limit(rlim_t size)
{
    struct rlimit limits;

    CHECK(getrlimit(RLIMIT_FSIZE, &limits) == 0);
    limits.rlim_cur = size;
    CHECK(setrlimit(RLIMIT_FSIZE, &limits) == 0);
}

static long size(void)
{
    struct stat status;

    CHECK(fstat(file, &status) == 0);
    return status.st_size;
}

static void say(const char *what)
{
    printf("%s: size %ld position %ld signals %d", what, size(), (long)lseek(file, 0, SEEK_CUR),
           signals);
    if (signals)
        printf(" code %d", code);
    puts("");
    signals = 0;
}

static void writes(void)
{
    struct iovec pieces[] = {{bytes, 60}, {bytes, 60}, {bytes, 60}};

    limit(100);
    SAY(write(file, bytes, 40));
    SAY(write(file, bytes, 80));
    say("up to the limit");
    SAY(write(file, bytes, 1));
    say("at the limit");
    SAY(write(file, bytes, 0));
    say("nothing");
    SAY(pwrite(file, bytes, 50, 99));
    SAY(pwrite(file, bytes, 50, 100));
    SAY(pwrite(file, bytes, 50, 5000));
    say("at positions");
    CHECK(lseek(file, 0, SEEK_SET) == 0);
    SAY(writev(file, pieces, 3));
    say("a vector");
    SAY(writev(file, pieces, 3));
    say("a vector at the limit");
    SAY(pwritev(file, pieces, 3, 30));
    SAY(pwritev(file, pieces, 3, 100));
    say("vectors at positions");
    // The limit may be below the size.
    limit(10);
    SAY(pwrite(file, bytes, 50, 5));
    SAY(pwrite(file, bytes, 50, 50));
    say("below the size");
    CHECK(fcntl(file, F_SETFL, O_APPEND) == 0);
    SAY(write(file, bytes, 1));
    say("an append");
    limit(103);
    SAY(write(file, bytes, 5));
    say("an append up to the limit");
    CHECK(fcntl(file, F_SETFL, 0) == 0);
    limit(0);
    CHECK(lseek(file, 0, SEEK_SET) == 0);
    SAY(write(file, bytes, 1));
    say("a limit of nothing");
}

static void sizes(void)
{
    limit(5000);
    SAY(ftruncate(file, 5000));
    SAY(ftruncate(file, 5001));
    say("longer");
    limit(100);
    SAY(ftruncate(file, 4000));
    SAY(ftruncate(file, 4000));
    SAY(ftruncate(file, 4001));
    say("shorter");
    SAY(fallocate(file, 0, 0, 4000));
    SAY(fallocate(file, 0, 3000, 1001));
    say("allocated");
    SAY(fallocate(file, FALLOC_FL_KEEP_SIZE, 3000, 2000));
    say("allocated beyond the end");
    SAY(fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 3000, 5000));
    say("a hole");
    SAY(fallocate(file, 0, 1L << 62, 1L << 62));
    say("too far");
    SAY(ftruncate(file, 0));
}

static void named(void)
{
    const char *path = "/tmp/file-size-test";

    file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(file >= 0);
    writes();
    limit(50);
    SAY(truncate(path, 51));
    SAY(truncate(path, 20));
    SAY(truncate(path, 50));
    SAY(truncate(path, 51));
    say("by name");
    CHECK(unlink(path) == 0);
    CHECK(close(file) == 0);
}

static void others(void)
{
    int pipes[2];
    pid_t child;

    // Neither a pipe nor a device has a size.
    CHECK(pipe(pipes) == 0);
    limit(0);
    SAY(write(pipes[1], bytes, 10));
    SAY(write(open("/dev/null", O_WRONLY), bytes, 10));
    say("others");
    limit(RLIM_INFINITY);
    CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    limit(0);
    long result = pwrite(file, bytes, 1, 0);
    limit(RLIM_INFINITY);
    printf("ignored: %ld %d\n", result, errno);
    CHECK(signal(SIGXFSZ, SIG_DFL) != SIG_ERR);
    fflush(stdout);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        limit(0);
        pwrite(file, bytes, 1, 0);
        _exit(1);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    printf("inherited: %d\n", status & 0x7f);
}

int main(void)
{
    struct sigaction action = {.sa_sigaction = count, .sa_flags = SA_SIGINFO};

    // On Linux the output goes to a file, and the limit applies to it: nothing is written before its end.
    CHECK(setvbuf(stdout, output, _IOFBF, sizeof output) == 0);
    CHECK(sigaction(SIGXFSZ, &action, NULL) == 0);
    named();
    // On Linux memory with a descriptor has the file system that this kernel's files are like.
    file = memfd_create("test", 0);
    CHECK(file >= 0);
    writes();
    sizes();
    others();
    return 0;
}
