// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Memory exhausted: the largest process dies, everything else goes on.

#include "common.h"

#include <sys/wait.h>

enum { PAGE = 4096 };

static char *map(size_t size)
{
    char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    EXPECT(memory != MAP_FAILED, "mmap");
    return memory;
}

// Takes memory until it is killed.
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

int main(void)
{
    // What the parent has stays what it is.
    enum { OWN = 4 << 20 };
    char *own = map(OWN);

    for (int at = 0; at < OWN; at += PAGE)
        own[at] = (char)(at / PAGE);
    for (int round = 0; round < 6; round++) {
        // A small process beside it works all the time.
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
    for (int at = 0; at < OWN; at += PAGE)
        EXPECT(own[at] == (char)(at / PAGE), "a page has changed");
    puts("everything else goes on");
    return 0;
}
