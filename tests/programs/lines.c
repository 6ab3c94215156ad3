// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The lines of /proc/self/maps, except the name and the inode of the program's own file.
// A transcript, the same on Linux without address randomisation.

#include "children.h"
#include "transcript.h"

#include <fcntl.h>
#include <sys/personality.h>
#include <sys/stat.h>

#define PAGE 4096L
#define NAME "/dev/shm/faultless-lines"
// Only this program maps memory there.
static char *const at = (char *)0x100000000000;

static struct stat of_file;

// Prints the lines of a range; numbers of devices and inodes only if they are known.
static void show(unsigned long from, unsigned long to)
{
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");

    CHECK(maps);
    while (fgets(line, sizeof line, maps)) {
        unsigned long start, end, offset, inode;
        unsigned major, minor;
        char flags[8];
        int name = 0;

        line[strcspn(line, "\n")] = 0;
        CHECK(sscanf(line, "%lx-%lx %7s %lx %x:%x %lu %n", &start, &end, flags, &offset, &major,
                     &minor, &inode, &name) >= 7);
        if (end <= from || start >= to)
            continue;
        // Linux puts names in one column.
        EXPECT(line[name] == 0 || name == 73, "column %d: %s", name, line);
        int is_file = inode == of_file.st_ino && (major << 8 | minor) == of_file.st_dev;
        printf("%lx-%lx %s %lx %s '%s'\n", start, end, flags, offset,
               is_file ? "the file" : inode == 0 ? "none" : "another", line + name);
    }
    fclose(maps);
}

static void map(char *where, long pages, int prot, int flags, int fd, long offset)
{
    CHECK(mmap(where, pages * PAGE, prot, flags | MAP_FIXED, fd, offset * PAGE) == where);
}

static void files(void)
{
    int fd = open(NAME, O_RDWR | O_CREAT | O_TRUNC, 0644), again = open(NAME, O_RDWR);

    CHECK(fd >= 0 && again >= 0 && ftruncate(fd, 64 * PAGE) == 0 && fstat(fd, &of_file) == 0);
    map(at, 2, PROT_READ, MAP_SHARED, fd, 0);
    // Merges with the mapping before.
    map(at + 2 * PAGE, 2, PROT_READ, MAP_SHARED, fd, 2);
    // These do not merge: another offset, another description, private, with other rights.
    map(at + 4 * PAGE, 1, PROT_READ, MAP_SHARED, fd, 5);
    map(at + 5 * PAGE, 1, PROT_READ, MAP_SHARED, again, 6);
    map(at + 6 * PAGE, 1, PROT_READ, MAP_PRIVATE, again, 7);
    map(at + 7 * PAGE, 1, PROT_READ | PROT_WRITE, MAP_PRIVATE, again, 8);
    map(at + 8 * PAGE, 1, PROT_NONE, MAP_PRIVATE, again, 9);
    map(at + 9 * PAGE, 1, PROT_READ | PROT_EXEC, MAP_PRIVATE, again, 0x12);
    show((unsigned long)at, (unsigned long)at + 64 * PAGE);
    SAY(munmap(at + PAGE, PAGE));
    SAY(mprotect(at + 2 * PAGE, PAGE, PROT_READ | PROT_WRITE));
    SAY((char *)mremap(at + 3 * PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, at + 20 * PAGE) -
        at);
    show((unsigned long)at, (unsigned long)at + 64 * PAGE);
    SAY(mprotect(at + 2 * PAGE, PAGE, PROT_READ));
    close(fd);
    close(again);
    SAY(rename(NAME, NAME "3"));
    show((unsigned long)at, (unsigned long)at + PAGE);
    SAY(unlink(NAME "3"));
    show((unsigned long)at, (unsigned long)at + 4 * PAGE);
    SAY(munmap(at, 64 * PAGE));
    // After the name was replaced, it refers to another file.
    fd = open(NAME, O_RDWR | O_CREAT | O_TRUNC, 0644);
    CHECK(fstat(fd, &of_file) == 0 && ftruncate(fd, PAGE) == 0);
    map(at, 1, PROT_READ, MAP_SHARED, fd, 0);
    SAY(link(NAME, NAME "2"));
    SAY(unlink(NAME));
    close(open(NAME, O_RDWR | O_CREAT | O_TRUNC, 0644));
    show((unsigned long)at, (unsigned long)at + PAGE);
    SAY(unlink(NAME));
    SAY(unlink(NAME "2"));
    close(fd);
    SAY(munmap(at, PAGE));
}

static void others(void)
{
    int fd = memfd_create("lines", 0), zero = open("/dev/zero", O_RDWR);

    CHECK(ftruncate(fd, 4 * PAGE) == 0 && fstat(fd, &of_file) == 0);
    map(at, 1, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 1);
    map(at + PAGE, 1, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    map(at + 2 * PAGE, 1, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    map(at + 3 * PAGE, 1, PROT_READ, MAP_SHARED, zero, 0);
    map(at + 4 * PAGE, 2, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    show((unsigned long)at, (unsigned long)at + 8 * PAGE);
    SAY(munmap(at, 8 * PAGE));
}

static volatile char large_bss[20 * PAGE];

// The program itself, of which only its name, its size and the C library's stack are unknown.
static void program(void)
{
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    struct stat own;

    large_bss[PAGE] = 1;
    CHECK(maps && stat("/proc/self/exe", &own) == 0);
    while (fgets(line, sizeof line, maps)) {
        unsigned long start, end, offset, inode;
        char flags[8];

        CHECK(sscanf(line, "%lx-%lx %7s %lx %*s %lu", &start, &end, flags, &offset, &inode) == 5);
        if (strstr(line, "[v"))
            continue;
        if (inode == own.st_ino)
            printf("%lx-%lx %s %lx\n", start, end, flags, offset);
        else if (strstr(line, "[heap]") || strstr(line, "[stack]"))
            printf("%s %s\n", flags, strchr(line, '['));
        else
            printf("%lx %s\n", start >> 44 ? 0 : start, flags);
    }
    fclose(maps);
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!(personality(0xffffffff) & ADDR_NO_RANDOMIZE) && argc == 1 && access("/.faultless", F_OK)) {
        personality(ADDR_NO_RANDOMIZE);
        execl("/proc/self/exe", argv[0], "again", NULL);
    }
    files();
    others();
    program();
    return 0;
}
