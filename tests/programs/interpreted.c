// SPDX-License-Identifier: MIT OR Apache-2.0
//
// A dynamically linked program: what it is told about itself and its interpreter, the initial content of its data,
// and the results of running copies of it that name another interpreter. A transcript, the same on
// Linux.

#include "children.h"
#include "transcript.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/auxv.h>
#include <sys/stat.h>

#define COPY "/dev/shm/faultless-copy"
#define OTHER "/dev/shm/faultless-other"

static char zeroes[50000];
static int data = 5;
static const char *const relocated = "relocated";
extern char **environ;

static long length;
static char image[1 << 20];

static void read_myself(void)
{
    int fd = open("/proc/self/exe", O_RDONLY);

    CHECK(fd >= 0);
    length = read(fd, image, sizeof image);
    CHECK(length > 0 && length < (long)sizeof image);
    close(fd);
}

static Elf64_Phdr *header(unsigned type)
{
    Elf64_Ehdr *elf = (Elf64_Ehdr *)image;
    Elf64_Phdr *all = (Elf64_Phdr *)(image + elf->e_phoff);

    for (int i = 0; i < elf->e_phnum; i++)
        if (all[i].p_type == type)
            return &all[i];
    EXPECT(0, "no header of type %u", type);
    return NULL;
}

static void put(const char *path, const char *bytes, long count, int mode)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    CHECK(fd >= 0 && write(fd, bytes, count) == count && fchmod(fd, mode) == 0);
    close(fd);
}

// Runs the copy.
static void run(const char *what)
{
    char *arguments[] = {"copy", "child", NULL};

    put(COPY, image, length, 0755);
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        execve(COPY, arguments, environ);
        printf("%s: %s\n", what, strerror(errno));
        fflush(stdout);
        _exit(1);
    }
    int status = status_of(child);
    if (status != 256)
        printf("%s: %x\n", what, status);
    read_myself();
}

static void run_with(const char *interpreter)
{
    Elf64_Phdr *named = header(PT_INTERP);

    // Behind the program, where a path of any length fits.
    strcpy(image + length, interpreter);
    named->p_offset = length;
    named->p_filesz = strlen(interpreter) + 1;
    length += named->p_filesz;
    run(interpreter);
}

// Prints what the program sees of itself.
static int look(int is_copy)
{
    unsigned long base = getauxval(AT_BASE);
    Elf64_Ehdr *own = (Elf64_Ehdr *)(getauxval(AT_PHDR) - sizeof(Elf64_Ehdr));
    int sum = 0;

    for (unsigned long i = 0; i < sizeof zeroes; i++)
        sum += zeroes[i];
    zeroes[40000] = 1;
    data++;
    printf("%s: %d %d %s\n", is_copy ? "copy" : "program", sum, data, relocated);
    printf("headers %d entry %d base %d begins %d\n", memcmp(own, ELFMAG, 4) == 0,
           (unsigned long)own + own->e_entry == getauxval(AT_ENTRY), base > 0x600000000000,
           memcmp((void *)base, ELFMAG, 4) == 0);
    printf("count %d\n", own->e_phnum == getauxval(AT_PHNUM));
    fflush(stdout);
    return is_copy ? 3 : 0;
}

int main(int argc, char **argv)
{
    static char library[2 << 20];
#if defined(__aarch64__)
    const char *name = "/lib/ld-musl-aarch64.so.1";
#else
    const char *name = "/lib/ld-musl-x86_64.so.1";
#endif

    (void)argv;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc > 1)
        return look(1);
    look(0);
    read_myself();
    run("as it is");
    int fd = open(name, O_RDONLY);
    long size = read(fd, library, sizeof library);
    CHECK(size > 0 && size < (long)sizeof library);
    close(fd);
    put(OTHER, library, size, 0755);
    run_with(OTHER);
    put(OTHER, library, size, 0644);
    run_with(OTHER);
    put(OTHER, "#!/bin/sh\n", 10, 0755);
    run_with(OTHER);
    put(OTHER, "", 0, 0755);
    run_with(OTHER);
    put(OTHER, library, 100, 0755);
    run_with(OTHER);
    library[EI_CLASS] = ELFCLASS32;
    library[18] = EM_386;
    put(OTHER, library, size, 0755);
    run_with(OTHER);
    unlink(OTHER);
    run_with(OTHER);
    run_with("/dev/shm");
    run_with("/dev/null");
    run_with("/dev/null/x");
    run_with("");
    header(PT_INTERP)->p_filesz = 1;
    run("path of one byte");
    header(PT_INTERP)->p_filesz = 5000;
    run("path too long");
    header(PT_INTERP)->p_filesz = 4;
    run("path without an end");
    header(PT_INTERP)->p_offset = length - 2;
    run("path behind the end");
    SAY(unlink(COPY));
    return 0;
}
