// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Mapped files: which stores are visible through which mapping, which mappings are refused, and the effects of
// reads, writes, holes and synchronisation beside them. A transcript, the same on Linux.

#include "children.h"
#include "transcript.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>

#define PAGE 4096L
// Newer than the C library's headers.
enum { POPULATE_READ = 22, POPULATE_WRITE = 23, ZERO_RANGE = 16 };

#define NAME "/dev/shm/faultless-mapped"
// Only this program maps memory there.
// Unknown to the compiler, so that it orders no access through one by the other's.
static char *volatile at = (char *)0x100000000000;
static char *volatile other = (char *)0x100100000000;

static int file(long size, char what)
{
    int fd = open(NAME, O_RDWR | O_CREAT | O_TRUNC, 0644);
    static char page[PAGE];

    CHECK(fd >= 0);
    for (long done = 0; done < size; done += PAGE) {
        memset(page, what + done / PAGE, sizeof page);
        long part = size - done < PAGE ? size - done : PAGE;
        CHECK(write(fd, page, part) == part);
    }
    return fd;
}

static long moved(void *result)
{
    return result == MAP_FAILED ? -1 : (char *)result - at;
}

static char *map_at(char *where, long length, int prot, int flags, int fd, long offset)
{
    char *got = mmap(where, length, prot, flags | MAP_FIXED, fd, offset);

    EXPECT(got == where, "mmap");
    return got;
}

static void say_present(const char *where, long pages)
{
    unsigned char there[64];

    CHECK(mincore((void *)where, pages * PAGE, there) == 0);
    printf("there: ");
    for (long page = 0; page < pages; page++)
        putchar('0' + (there[page] & 1));
    puts("");
}

static char read_at(int fd, long where)
{
    char byte = '?';

    CHECK(pread(fd, &byte, 1, where) == 1);
    return byte;
}

static long blocks(int fd)
{
    struct stat status;

    CHECK(fstat(fd, &status) == 0);
    return status.st_blocks;
}

// Which stores through one mapping are visible through others.
static void seeing(void)
{
    int fd = file(4 * PAGE + 100, 'a');

    map_at(at, 5 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    map_at(other, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, PAGE);
    printf("%c %c %c %d\n", at[0], at[4 * PAGE], other[0], at[4 * PAGE + 100]);
    at[PAGE] = 'X';
    printf("%c %c\n", other[0], read_at(fd, PAGE));
    other[0] = 'Y';
    printf("%c %c %c\n", at[PAGE], other[0], read_at(fd, PAGE));
    CHECK(pwrite(fd, "ZZ", 2, PAGE) == 2);
    CHECK(pwrite(fd, "ZZ", 2, 2 * PAGE) == 2);
    printf("%c%c %c%c %c%c\n", at[PAGE], at[2 * PAGE], other[0], other[1], other[PAGE],
           other[PAGE + 2]);
    SAY(madvise(other, PAGE, MADV_DONTNEED));
    printf("%c\n", other[0]);
    SAY(madvise(at, 5 * PAGE, MADV_DONTNEED));
    printf("%c%c\n", at[PAGE], at[0]);
    SAY(msync(at, 5 * PAGE, MS_SYNC));
    SAY(msync(at, 5 * PAGE, MS_ASYNC | MS_INVALIDATE));
    SAY(msync(at, 6 * PAGE, MS_SYNC));
    SAY(msync(at + 1, PAGE, MS_SYNC));
    SAY(msync(at, PAGE, MS_SYNC | MS_ASYNC));
    SAY(msync(at, PAGE, 8));
    SAY(msync(at, 0, MS_SYNC));
    // Behind the end of the file, in its last page.
    at[4 * PAGE + 200] = 'E';
    printf("%d\n", at[4 * PAGE + 200]);
    SAY(lseek(fd, 0, SEEK_END));
    SAY(mprotect(at, PAGE, PROT_READ));
    SAY(mprotect(at, PAGE, PROT_READ | PROT_WRITE));
    at[1] = 'w';
    printf("%c\n", read_at(fd, 1));
    SAY(moved(mremap(at, 5 * PAGE, 5 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, at + 64 * PAGE)));
    at[64 * PAGE + 2] = 'm';
    printf("%c %c\n", read_at(fd, 2), at[66 * PAGE]);
    // A second mapping of the same pages.
    SAY(moved(mremap(at + 64 * PAGE, 0, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, at)));
    printf("%c\n", at[2]);
    SAY(moved(mremap(at, 2 * PAGE, 4 * PAGE, 0)));
    printf("%c\n", at[2 * PAGE]);
    // The mapping keeps a file that can no longer be opened.
    SAY(unlink(NAME));
    SAY(close(fd));
    printf("%c%c\n", at[2], other[0]);
    at[2] = 'u';
    printf("%c\n", at[64 * PAGE + 2]);
    SAY(munmap(at, 128 * PAGE));
    SAY(munmap(other, 4 * PAGE));
}

// Which mappings are refused, and with which error.
static void refusing(void)
{
    int fd = file(2 * PAGE, 'a'), reads = open(NAME, O_RDONLY), writes = open(NAME, O_WRONLY);
    int path = open(NAME, O_PATH), directory = open("/dev/shm", O_RDONLY);
    int null = open("/dev/null", O_RDWR), zero = open("/dev/zero", O_RDWR);
    int random = open("/dev/urandom", O_RDONLY), pipes[2];

    CHECK(pipe(pipes) == 0);
    SAY(moved(mmap(at, PAGE, PROT_READ, MAP_SHARED, -1, 0)));
    SAY(moved(mmap(at, PAGE, PROT_READ, MAP_SHARED, 999, 0)));
    SAY(moved(mmap(at, 0, PROT_READ, MAP_SHARED, 999, 0)));
    SAY(moved(mmap(at, PAGE, PROT_READ, MAP_SHARED, fd, 100)));
    SAY(moved(mmap(at, PAGE, PROT_READ, MAP_SHARED, 999, 100)));
    SAY(moved(mmap(at, 0, PROT_READ, MAP_SHARED, fd, 0)));
    SAY(moved(mmap(at, PAGE, PROT_READ, 0, fd, 0)));
    SAY(moved(mmap(at, PAGE, PROT_READ, 4, fd, 0)));
    SAY(moved(mmap(at, PAGE, PROT_READ, MAP_SHARED, path, 0)));
    SAY(moved(mmap(at, PAGE, PROT_READ, MAP_PRIVATE, writes, 0)));
    SAY(moved(mmap(at, PAGE, PROT_WRITE, MAP_SHARED, writes, 0)));
    SAY(moved(mmap(at, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, reads, 0)));
    SAY(moved(mmap(at, PAGE, PROT_READ, MAP_PRIVATE, directory, 0)));
    SAY(moved(mmap(at, PAGE, PROT_READ, MAP_PRIVATE, null, 0)));
    SAY(moved(mmap(at, PAGE, PROT_READ, MAP_PRIVATE, random, 0)));
    SAY(moved(mmap(at, PAGE, PROT_READ, MAP_PRIVATE, pipes[0], 0)));
    SAY(moved(mmap(at, PAGE, PROT_READ, MAP_PRIVATE, pipes[1], 0)));
    SAY(moved(mmap(at, PAGE, PROT_READ, MAP_PRIVATE | MAP_GROWSDOWN, fd, 0)));
    SAY(moved(mmap(at, PAGE, PROT_READ, MAP_PRIVATE | MAP_HUGETLB, fd, 0)));
    SAY(moved(mmap(at, PAGE, PROT_READ, MAP_SHARED_VALIDATE | 0x2000000, fd, 0)));
    SAY(moved(mmap(at, PAGE, PROT_READ, MAP_SHARED | 0x2000000 | MAP_FIXED, fd, 0)));
    SAY(moved(mmap(at, PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED_NOREPLACE, writes, 0)));
    SAY(moved(mmap(at + 1, PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, writes, 0)));
    SAY(moved(mmap(at, 2 * PAGE, PROT_READ, MAP_SHARED, fd, 0x7ffffffffffff000)));
    SAY(moved(mmap(at, PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0x7fffffffffffe000)));
    SAY(moved(mmap(at, PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0x7ffffffffffff000)));
    SAY(moved(mmap(at, PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, reads, 0)));
    SAY(mprotect(at, PAGE, PROT_READ | PROT_WRITE));
    SAY(moved(mmap(at, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, reads, 0)));
    at[0] = 'p';
    printf("%c %c\n", at[0], read_at(fd, 0));
    SAY(moved(mmap(at, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, zero, 0)));
    at[0] = 1;
    printf("%d %d\n", at[0], at[PAGE]);
    SAY(moved(mmap(at, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, zero, 0)));
    printf("%d\n", at[0]);
    SAY(madvise(at, PAGE, MADV_REMOVE));
    SAY(munmap(at, 2 * PAGE));
    SAY(madvise(at, PAGE, MADV_REMOVE));
    SAY(unlink(NAME));
    for (int i = 3; i < 20; i++)
        close(i);
}

// Calls with a buffer in a mapping of the same file.
static void through_itself(void)
{
    int fd = file(8 * PAGE, 'a');
    struct iovec pieces[2];

    map_at(at, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    SAY(pread(fd, at + 100, 2 * PAGE, 4 * PAGE));
    printf("%c%c%c%c\n", at[99], at[100], at[PAGE + 100], at[2 * PAGE + 100]);
    SAY(pwrite(fd, at + 4 * PAGE, PAGE + 1, 6 * PAGE - 1));
    printf("%c%c%c\n", at[6 * PAGE - 1], at[7 * PAGE - 2], at[7 * PAGE - 1]);
    // Writes beyond the end, from the page by which the file grows.
    SAY(pwrite(fd, at + 7 * PAGE, PAGE, 8 * PAGE));
    SAY(munmap(at, 8 * PAGE));
    map_at(at, 9 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    SAY(pread(fd, at, PAGE, 8 * PAGE));
    printf("%c %c\n", at[0], read_at(fd, 0));
    pieces[0] = (struct iovec){at, 3 * PAGE};
    pieces[1] = (struct iovec){at + 4 * PAGE, PAGE};
    SAY(preadv(fd, pieces, 2, PAGE));
    printf("%c%c%c%c\n", at[0], at[2 * PAGE], at[3 * PAGE], at[4 * PAGE]);
    // The rest of the buffer is not mapped.
    SAY(munmap(at + 2 * PAGE, PAGE));
    SAY(pread(fd, at, 4 * PAGE, 0));
    SAY(pread(fd, at + PAGE + 50, 4 * PAGE, 10));
    SAY(pread(fd, at + 2 * PAGE, 4 * PAGE, 0));
    SAY(pwrite(fd, at + PAGE + 50, 4 * PAGE, 20 * PAGE));
    SAY(pwrite(fd, at + 2 * PAGE, 4 * PAGE, 4 * PAGE));
    SAY(lseek(fd, 0, SEEK_END));
    SAY(munmap(at, 9 * PAGE));
    SAY(unlink(NAME));
    close(fd);
}

static void holes(void)
{
    int fd = file(0, 0);

    SAY(ftruncate(fd, 64 * PAGE));
    SAY(blocks(fd));
    map_at(at, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    printf("%d\n", at[10 * PAGE]);
    at[20 * PAGE] = 1;
    at[21 * PAGE] = 2;
    at[40 * PAGE] = 3;
    SAY(lseek(fd, 12 * PAGE, SEEK_DATA));
    SAY(lseek(fd, 20 * PAGE + 5, SEEK_DATA));
    SAY(lseek(fd, 20 * PAGE + 5, SEEK_HOLE));
    SAY(lseek(fd, 22 * PAGE, SEEK_DATA));
    SAY(lseek(fd, 41 * PAGE, SEEK_DATA));
    SAY(lseek(fd, 41 * PAGE, SEEK_HOLE));
    SAY(lseek(fd, 64 * PAGE, SEEK_HOLE));
    say_present(at + 18 * PAGE, 6);
    map_at(other, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    other[20 * PAGE] = 7;
    other[21 * PAGE + 1] = other[40 * PAGE];
    SAY(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 20 * PAGE, PAGE));
    printf("%d %d %d\n", at[20 * PAGE], other[20 * PAGE], read_at(fd, 20 * PAGE));
    memset(at + 30 * PAGE, 5, 4 * PAGE);
    SAY(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 30 * PAGE + 10, 3 * PAGE - 20));
    printf("%d %d %d %d %d\n", at[30 * PAGE + 9], at[30 * PAGE + 10], at[31 * PAGE],
           at[33 * PAGE - 11], at[33 * PAGE - 10]);
    SAY(madvise(at + 21 * PAGE, 2 * PAGE, MADV_REMOVE));
    printf("%d %d\n", at[21 * PAGE], other[21 * PAGE + 1]);
    SAY(madvise(other, PAGE, MADV_REMOVE));
    SAY(madvise(at + 1, PAGE, MADV_REMOVE));
    SAY(madvise(at + 63 * PAGE, 2 * PAGE, MADV_REMOVE));
    SAY(fallocate(fd, FALLOC_FL_PUNCH_HOLE, 0, PAGE));
    SAY(fallocate(fd, ZERO_RANGE, 0, PAGE));
    SAY(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 100 * PAGE, PAGE));
    SAY(fallocate(fd, 0, -1, PAGE));
    SAY(fallocate(fd, 0, 0, 0));
    SAY(fallocate(fd, 0, 0x7ffffffffffffff0, PAGE));
    SAY(blocks(fd));
    SAY(fallocate(fd, FALLOC_FL_KEEP_SIZE, 50 * PAGE, 2 * PAGE));
    SAY(blocks(fd));
    SAY(fallocate(fd, 0, 63 * PAGE, 3 * PAGE));
    SAY(lseek(fd, 0, SEEK_END));
    SAY(blocks(fd));
    SAY(madvise(at, 64 * PAGE, MADV_WILLNEED));
    SAY(munmap(at, 64 * PAGE));
    SAY(munmap(other, 64 * PAGE));
    SAY(ftruncate(fd, 0));
    SAY(blocks(fd));
    SAY(unlink(NAME));
    close(fd);
}

// A child inherits the parent's mappings: shared ones stay shared.
static void forking(void)
{
    int fd = file(4 * PAGE, 'a');

    map_at(at, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    map_at(other, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    other[PAGE] = 'P';
    at[0] = 'S';
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        at[1] = 'C';
        other[PAGE + 1] = 'c';
        other[2 * PAGE] = 'c';
        printf("%c%c %c%c%c\n", at[0], at[1], other[PAGE], other[0], other[1]);
        fflush(stdout);
        _exit(0);
    }
    SAY(status_of(child));
    printf("%c%c %c%c %c\n", at[0], at[1], other[PAGE], other[PAGE + 1], other[2 * PAGE]);
    at[2 * PAGE] = 'l';
    printf("%c\n", other[2 * PAGE]);
    SAY(munmap(at, 4 * PAGE));
    SAY(munmap(other, 4 * PAGE));
    SAY(unlink(NAME));
    close(fd);
}

// Populated mappings, and mappings over other ones.
static void populating(void)
{
    int fd = file(16 * PAGE, 'a');

    map_at(at, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    map_at(other, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_POPULATE, fd, 0);
    at[3 * PAGE] = '3';
    other[4 * PAGE] = '4';
    printf("%c %c\n", other[3 * PAGE], at[4 * PAGE]);
    SAY(madvise(at, 16 * PAGE, POPULATE_WRITE));
    SAY(madvise(other, 16 * PAGE, POPULATE_READ));
    map_at(at + 2 * PAGE, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 8 * PAGE);
    printf("%c%c%c%c\n", at[PAGE], at[2 * PAGE], at[5 * PAGE], at[6 * PAGE]);
    at[2 * PAGE] = '!';
    printf("%c\n", at[8 * PAGE]);
    map_at(at, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    printf("%d\n", at[2 * PAGE]);
    SAY(munmap(at, 16 * PAGE));
    SAY(munmap(other, 16 * PAGE));
    SAY(unlink(NAME));
    close(fd);
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    seeing();
    refusing();
    through_itself();
    holes();
    forking();
    populating();
    return 0;
}
