// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Memory with a descriptor, and the operations that seals forbid. A transcript, the same on Linux.

#include "children.h"
#include "transcript.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>

#define PAGE 4096L
// Only this program maps memory there.
static char *const at = (char *)0x100000000000;

// Newer than the C library's headers.
enum { NOEXEC_SEAL = 8, EXEC = 16, HUGE = 4, SEAL_FUTURE_WRITE = 16, SEAL_EXEC = 32 };

static long moved(void *result)
{
    return result == MAP_FAILED ? -1 : (char *)result - at;
}

static long map(long pages, int prot, int flags, int fd)
{
    return moved(mmap(at, pages * PAGE, prot, flags | MAP_FIXED, fd, 0));
}

static void about(int fd)
{
    struct stat status;
    char link[64] = "", path[64];

    CHECK(fstat(fd, &status) == 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    CHECK(readlink(path, link, sizeof link - 1) > 0);
    printf("mode %o links %d size %ld blocks %ld flags %x fd %d %s seals %x\n", status.st_mode,
           (int)status.st_nlink, (long)status.st_size, (long)status.st_blocks,
           fcntl(fd, F_GETFL) & ~O_LARGEFILE, fcntl(fd, F_GETFD), link, fcntl(fd, F_GET_SEALS));
}

static void making(void)
{
    char name[300];
    int fd;

    SAY(memfd_create(NULL, 0));
    SAY(memfd_create("x", 64));
    SAY(memfd_create("x", NOEXEC_SEAL | EXEC));
    memset(name, 'n', sizeof name);
    name[250] = 0;
    SAY(memfd_create(name, 0));
    name[249] = 0;
    SAY(fd = memfd_create(name, MFD_CLOEXEC));
    SAY(fcntl(fd, F_GET_SEALS));
    close(fd);
    CHECK((fd = memfd_create("a name", 0)) >= 0);
    about(fd);
    SAY(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE));
    close(fd);
    CHECK((fd = memfd_create("", MFD_CLOEXEC | MFD_ALLOW_SEALING)) >= 0);
    about(fd);
    close(fd);
    CHECK((fd = memfd_create("noexec", NOEXEC_SEAL)) >= 0);
    about(fd);
    SAY(fchmod(fd, 0777));
    SAY(fchmod(fd, 0600));
    about(fd);
    close(fd);
    CHECK((fd = memfd_create("exec", EXEC | MFD_ALLOW_SEALING)) >= 0);
    SAY(fcntl(fd, F_ADD_SEALS, SEAL_EXEC));
    about(fd);
    SAY(write(fd, "x", 1));
    close(fd);
    SAY(fcntl(open("/dev/null", O_RDWR), F_GET_SEALS));
    SAY(fcntl(open("/dev/shm", O_RDONLY), F_GET_SEALS));
    for (int i = 3; i < 10; i++)
        close(i);
}

static void using(void)
{
    int fd = memfd_create("m", 0);
    char bytes[8] = "";

    SAY(write(fd, "hello", 5));
    SAY(map(2, PROT_READ | PROT_WRITE, MAP_SHARED, fd));
    printf("%s\n", at);
    at[0] = 'H';
    SAY(pread(fd, bytes, 5, 0));
    printf("%s\n", bytes);
    SAY(ftruncate(fd, 4 * PAGE));
    at[PAGE] = 1;
    about(fd);
    SAY(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE));
    about(fd);
    printf("%d\n", at[0]);
    // Opened again through its link, it is the same memory.
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int again = open(path, O_RDONLY);
    SAY(pwrite(fd, "again", 5, 0));
    SAY(pread(again, bytes, 5, 0));
    printf("%s\n", bytes);
    SAY(pwrite(again, "x", 1, 0));
    close(again);
    close(fd);
    printf("%s\n", at);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        at[1] = 'C';
        _exit(0);
    }
    SAY(status_of(child));
    printf("%s\n", at);
    SAY(munmap(at, 2 * PAGE));
}

static int sealed(int seals)
{
    int fd = memfd_create("sealed", MFD_ALLOW_SEALING);

    CHECK(fd >= 0);
    CHECK(ftruncate(fd, 2 * PAGE) == 0);
    printf("seals %x\n", seals);
    SAY(fcntl(fd, F_ADD_SEALS, seals));
    SAY(fcntl(fd, F_GET_SEALS));
    return fd;
}

static void all_of(int fd)
{
    static char pages[3 * PAGE];

    SAY(pwrite(fd, "x", 1, 0));
    SAY(pwrite(fd, "x", 1, 2 * PAGE));
    SAY(pwrite(fd, pages, 2 * PAGE, PAGE));
    SAY(pwrite(fd, pages, 3, 2 * PAGE - 1));
    SAY(ftruncate(fd, 8 * PAGE));
    SAY(ftruncate(fd, PAGE));
    SAY(ftruncate(fd, 2 * PAGE));
    SAY(fallocate(fd, 0, 0, 16 * PAGE));
    SAY(fallocate(fd, 0, 0, PAGE));
    SAY(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE));
    SAY(map(1, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd));
    at[0] = 1;
    SAY(map(1, PROT_READ | PROT_WRITE, MAP_SHARED, fd));
    SAY(madvise(at, PAGE, MADV_REMOVE));
    SAY(munmap(at, PAGE));
    SAY(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK));
    SAY(fcntl(fd, F_ADD_SEALS, 64));
    SAY(fcntl(fd, F_GET_SEALS));
    about(fd);
    close(fd);
}

static void sealing(void)
{
    int fd;

    all_of(sealed(0));
    all_of(sealed(F_SEAL_SHRINK));
    all_of(sealed(F_SEAL_GROW));
    all_of(sealed(F_SEAL_WRITE));
    all_of(sealed(SEAL_FUTURE_WRITE));
    all_of(sealed(F_SEAL_SEAL | F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK));
    // Memory with a writable mapping can be sealed only against future writes.
    fd = sealed(0);
    SAY(map(2, PROT_READ, MAP_SHARED, fd));
    SAY(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE));
    SAY(munmap(at + PAGE, PAGE));
    SAY(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE));
    SAY(fcntl(fd, F_ADD_SEALS, SEAL_FUTURE_WRITE));
    SAY(mprotect(at, PAGE, PROT_READ | PROT_WRITE));
    at[0] = 'f';
    SAY(munmap(at, PAGE));
    SAY(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE));
    SAY(map(1, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd));
    printf("%c\n", at[0]);
    at[0] = 'p';
    SAY(mprotect(at, PAGE, PROT_READ));
    SAY(mprotect(at, PAGE, PROT_READ | PROT_WRITE));
    SAY(munmap(at, PAGE));
    close(fd);
    // A child's mapping counts, too.
    fd = sealed(0);
    SAY(map(1, PROT_READ | PROT_WRITE, MAP_SHARED, fd));
    int pipes[2];
    CHECK(pipe(pipes) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char byte;
        close(pipes[1]);
        CHECK(read(pipes[0], &byte, 1) == 0);
        _exit(0);
    }
    SAY(munmap(at, PAGE));
    SAY(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE));
    close(pipes[0]);
    close(pipes[1]);
    SAY(status_of(child));
    SAY(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE));
    close(fd);
    // A private mapping does not.
    fd = sealed(0);
    SAY(map(1, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd));
    SAY(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE));
    SAY(munmap(at, PAGE));
    close(fd);
}

// Runs a program in memory.
static void executing(int flags)
{
    static char program[1 << 20];
    char path[32], *arguments[] = {"name", "child", NULL};
    int own = open("/proc/self/exe", O_RDONLY), fd = memfd_create("program", flags);
    long size = read(own, program, sizeof program);

    CHECK(fd >= 0 && size > 0 && size < (long)sizeof program);
    CHECK(write(fd, program, size) == size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        execve(path, arguments, NULL);
        printf("%s\n", strerror(errno));
        fflush(stdout);
        _exit(1);
    }
    SAY(status_of(child));
    close(own);
    close(fd);
}

// Prints what that program sees of itself.
static int child(void)
{
    char line[256];
    FILE *maps = fopen("/proc/self/maps", "r");

    CHECK(maps && fgets(line, sizeof line, maps) && strlen(line) > 73);
    printf("%s", line + 73);
    fflush(stdout);
    return 9;
}

int main(int argc, char **argv)
{
    (void)argv;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc > 1)
        return child();
    executing(0);
    executing(MFD_CLOEXEC);
    executing(NOEXEC_SEAL);
    making();
    using();
    sealing();
    return 0;
}
