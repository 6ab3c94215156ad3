// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Memory is exhausted: the largest process is killed, all others continue.

#include "common.h"

#include <fcntl.h>
#include <sys/wait.h>

enum { PAGE = 4096 };

static char *map(size_t size)
{
    char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    EXPECT(memory != MAP_FAILED, "mmap");
    return memory;
}

// Allocates memory until the process is killed.
static void *eat(void *unused)
{
    (void)unused;
    for (;;) {
        char *memory = map(1 << 20);

        for (int at = 0; at < 1 << 20; at += PAGE)
            memory[at] = 1;
    }
    return NULL;
}

// The largest process waits to read from a pipe, while another reader of the pipe waits for the
// memory that the largest one frees when it dies.
static void while_it_waits(void)
{
    enum { LARGE = 36 << 20, WANTED = 28 << 20 };
    int ends[2], status;

    EXPECT(pipe(ends) == 0, "pipe");
    pid_t writer = fork();
    if (writer == 0) {
        static char bytes[65536];

        for (;;)
            EXPECT(write(ends[1], bytes, sizeof bytes) > 0, "write");
    }
    pid_t large = fork();
    if (large == 0) {
        char *memory = map(LARGE);

        for (int at = 0; at < LARGE; at += PAGE)
            memory[at] = 1;
        for (;;)
            EXPECT(read(ends[0], memory, 1) == 1, "read");
    }
    // The large process has its memory once it reads single bytes from the pipe. The time suffices:
    // if it has less by then, the other process still needs more than there is.
    sleep_ms(300);
    pid_t reader = fork();
    if (reader == 0) {
        char *memory = map(WANTED + 65536);

        for (ssize_t done = 0, some; done < WANTED; done += some) {
            some = read(ends[0], memory + done, 65536);
            EXPECT(some > 0, "read");
        }
        _exit(7);
    }
    EXPECT(waitpid(large, &status, 0) == large, "waitpid");
    EXPECT(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "large: %x", status);
    EXPECT(waitpid(reader, &status, 0) == reader, "waitpid");
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 7, "reader: %x", status);
    EXPECT(kill(writer, SIGKILL) == 0, "kill");
    EXPECT(waitpid(writer, &status, 0) == writer, "waitpid");
}

// Processes that have most of the memory, in pages and in files, are killed. Processes that need it at the
// same time get it in the end, and no other process is killed.
static void beside_those_that_end(void)
{
    enum { MANY = 4, PAGES = 5 << 20, IN_FILE = 4 << 20, WANTED = 11 << 20 };
    int zeros = open("/dev/zero", O_RDONLY);
    int ends[2], go[2], status;
    char byte;

    EXPECT(zeros >= 0 && pipe(ends) == 0 && pipe(go) == 0, "open");
    for (int round = 0; round < 8; round++) {
        pid_t large[MANY], wants[MANY];

        for (int i = 0; i < MANY; i++)
            if ((large[i] = fork()) == 0) {
                int file = memfd_create("large", 0);
                EXPECT(file >= 0 && ftruncate(file, IN_FILE) == 0, "memfd");
                char *memory = map(PAGES);
                char *shared = mmap(NULL, IN_FILE, PROT_WRITE, MAP_SHARED, file, 0);

                EXPECT(shared != MAP_FAILED, "mmap");
                memset(memory, 1, PAGES);
                memset(shared, 1, IN_FILE);
                EXPECT(write(ends[1], "", 1) == 1, "write");
                for (;;)
                    pause();
            }
        for (int i = 0; i < MANY; i++)
            EXPECT(read(ends[0], &byte, 1) == 1, "read");
        for (int i = 0; i < MANY; i++)
            if ((wants[i] = fork()) == 0) {
                char *memory = map(WANTED);

                EXPECT(read(go[0], &byte, 1) == 1, "read");
                // Through the kernel, which allocates faster than the others exit.
                for (ssize_t done = 0, some; done < WANTED; done += some) {
                    some = read(zeros, memory + done, WANTED - done);
                    EXPECT(some > 0, "read");
                }
                _exit(7);
            }
        sleep_ms(20);
        for (int i = 0; i < MANY; i++)
            EXPECT(kill(large[i], SIGKILL) == 0, "kill");
        EXPECT(write(go[1], "1234", MANY) == MANY, "write");
        for (int i = 0; i < MANY; i++) {
            EXPECT(waitpid(large[i], &status, 0) == large[i], "waitpid");
            EXPECT(waitpid(wants[i], &status, 0) == wants[i], "waitpid");
            EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 7, "wants: %x", status);
        }
    }
    EXPECT(close(ends[0]) == 0 && close(ends[1]) == 0 && close(zeros) == 0, "close");
    EXPECT(close(go[0]) == 0 && close(go[1]) == 0, "close");
}

int main(void)
{
    // The parent's memory must keep its content.
    enum { OWN = 4 << 20 };
    char *own = map(OWN);

    for (int at = 0; at < OWN; at += PAGE)
        own[at] = (char)(at / PAGE);
    for (int round = 0; round < 6; round++) {
        // A small process keeps working beside it.
        pid_t small = fork();
        if (small == 0) {
            for (int i = 0; i < 300; i++) {
                char *memory = map(16 * PAGE);

                memset(memory, i, 16 * PAGE);
                EXPECT(munmap(memory, 16 * PAGE) == 0, "munmap");
                sched_yield();
            }
            _exit(7);
        }
        pid_t large = fork();
        if (large == 0) {
            if (round % 2)
                for (int i = 0; i < 3; i++)
                    start(eat, NULL);
            eat(NULL);
        }
        int status;
        EXPECT(waitpid(large, &status, 0) == large, "waitpid");
        EXPECT(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "large: %x", status);
        EXPECT(waitpid(small, &status, 0) == small, "waitpid");
        EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 7, "small: %x", status);
    }
    while_it_waits();
    beside_those_that_end();
    for (int at = 0; at < OWN; at += PAGE)
        EXPECT(own[at] == (char)(at / PAGE), "a page has changed");
    puts("everything else goes on");
    return 0;
}
