// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Ranges of descriptors that are closed, in tables that processes share; files of `/proc` that may be written.
// A transcript, the same on Linux.

#include "children.h"
#include "transcript.h"

#include <fcntl.h>

enum { UNSHARE = 2, CLOEXEC = 4, FIRST = 10, COUNT = 4, JOINS = 100 };

static long close_them(unsigned flags)
{
    return syscall(436 /* close_range */, FIRST, FIRST + COUNT - 2, flags);
}

static void say_open(const char *what)
{
    printf("%s:", what);
    for (int i = 0; i < COUNT; i++)
        printf(" %d", fcntl(FIRST + i, F_GETFD));
    puts("");
}

static void open_them(void)
{
    for (int i = 0; i < COUNT; i++)
        CHECK(dup2(1, FIRST + i) == FIRST + i);
}

// A child that shares this process's table closes a range with these flags.
static void in_a_child(unsigned flags)
{
    long child;

    open_them();
    printf("flags %u\n", flags);
    fflush(stdout);
    child = syscall(SYS_clone, 0x400 /* CLONE_FILES */ | SIGCHLD, 0, 0, 0, 0);
    CHECK(child >= 0);
    if (child == 0) {
        SAY(close_them(flags));
        say_open("the child's");
        // A descriptor that is opened now is only the child's, if the table is.
        CHECK(fcntl(1, F_DUPFD, FIRST + COUNT) == FIRST + COUNT);
        fflush(stdout);
        _exit(0);
    }
    CHECK(status_of((pid_t)child) == 0);
    say_open("the parent's");
    printf("new: %d\n", close(FIRST + COUNT));
}

static void ranges(void)
{
    in_a_child(0);
    in_a_child(CLOEXEC);
    in_a_child(UNSHARE);
    in_a_child(UNSHARE | CLOEXEC);
    open_them();
    SAY(close_them(UNSHARE));
    say_open("alone");
    SAY(close_them(8));
    SAY(syscall(436, 5, 4, UNSHARE));
}

static int end(void *argument)
{
    return argument != NULL;
}

// The table of a process is its own after a joined thread, too, although that thread may still be exiting.
static void after_a_join(void)
{
    static _Alignas(16) char stack[1 << 14];
    static atomic_int lives;
    int kept = 0;

    fflush(stdout);
    for (int i = 0; i < JOINS; i++) {
        long child;

        open_them();
        child = syscall(SYS_clone, 0x400 | SIGCHLD, 0, 0, 0, 0);
        CHECK(child >= 0);
        if (child == 0) {
            atomic_store(&lives, 1);
            CHECK(clone(end, stack + sizeof stack,
                        CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |
                            CLONE_CHILD_CLEARTID,
                        NULL, NULL, NULL, &lives) > 0);
            while (atomic_load(&lives))
                ;
            CHECK(close_them(UNSHARE) == 0);
            _exit(0);
        }
        CHECK(status_of((pid_t)child) == 0);
        kept += fcntl(FIRST, F_GETFD) == 0;
    }
    printf("kept after a join: %d of %d\n", kept, JOINS);
}

// Record locks belong to a table: a copy of it has none, and closing there releases none.
static void locks(void)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int file = memfd_create("test", 0);
    long child;

    CHECK(file >= 0 && dup2(file, FIRST) == FIRST);
    SAY(fcntl(file, F_SETLK, &lock));
    fflush(stdout);
    child = syscall(SYS_clone, 0x400 | SIGCHLD, 0, 0, 0, 0);
    CHECK(child >= 0);
    if (child == 0) {
        SAY(close_them(UNSHARE));
        SAY(fcntl(file, F_SETLK, &lock));
        fflush(stdout);
        _exit(0);
    }
    CHECK(status_of((pid_t)child) == 0);
    CHECK(close(FIRST) == 0);
}

static void rights(void)
{
    SAY(access("/proc/self/mem", W_OK));
    SAY(access("/proc/self/mem", R_OK | W_OK));
    SAY(access("/proc/self/clear_refs", W_OK));
    SAY(access("/proc/self/mem", X_OK));
    SAY(access("/proc/self/clear_refs", X_OK | W_OK));
}

int main(void)
{
    ranges();
    after_a_join();
    locks();
    rights();
    return 0;
}
