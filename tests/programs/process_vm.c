// SPDX-License-Identifier: MIT OR Apache-2.0
//
// process_vm_readv and process_vm_writev: between a process and its child, and on itself, with
// pieces of different sizes, holes, protections, memory that is shared since a fork. A
// transcript, the same on Linux.

#include "children.h"
#include "transcript.h"

#include <sys/uio.h>

#define PAGE 4096L
// Only this program maps memory there.
static char *const at = (char *)0x100000000000;
static char *const other = (char *)0x180000000000;

enum { RW = PROT_READ | PROT_WRITE };

static void map(char *where, long pages, int protection)
{
    char *got = mmap(where, pages * PAGE, protection,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);

    EXPECT(got == where, "mmap");
}

static void say(const char *what, long result)
{
    if (result < 0)
        printf("%s: errno %d\n", what, errno);
    else
        printf("%s: %ld\n", what, result);
}

static long call(int number, long pid, void *here, long here_count, void *there, long there_count,
                 long flags)
{
    return syscall(number, pid, here, here_count, there, there_count, flags);
}

static long get(long pid, void *to, long length, void *from)
{
    struct iovec here = {to, length}, there = {from, length};

    return call(SYS_process_vm_readv, pid, &here, 1, &there, 1, 0);
}

static long put(long pid, void *from, long length, void *to)
{
    struct iovec here = {from, length}, there = {to, length};

    return call(SYS_process_vm_writev, pid, &here, 1, &there, 1, 0);
}

static void fill(char *where, long length, int seed)
{
    for (long i = 0; i < length; i++)
        where[i] = (char)(i * 7 + i / PAGE + seed);
}

static bool is_filled(const char *where, long length, int seed)
{
    for (long i = 0; i < length; i++)
        if (where[i] != (char)(i * 7 + i / PAGE + seed))
            return false;
    return true;
}

// A child that waits for an order to check its memory, and returns the result as its status.
struct child {
    pid_t pid;
    int tell, hear;
};

static struct child begin(int (*looks)(void))
{
    int down[2], up[2];
    char byte = 0;
    struct child child;

    CHECK(pipe(down) == 0 && pipe(up) == 0);
    fflush(stdout);
    child.pid = fork();
    CHECK(child.pid >= 0);
    if (child.pid == 0) {
        close(down[1]);
        close(up[0]);
        CHECK(write(up[1], &byte, 1) == 1);
        if (read(down[0], &byte, 1) != 1)
            _exit(99);
        _exit(looks());
    }
    close(down[0]);
    close(up[1]);
    CHECK(read(up[0], &byte, 1) == 1);
    child.tell = down[1];
    child.hear = up[0];
    return child;
}

static int end(struct child child)
{
    int status;
    char byte = 0;

    CHECK(write(child.tell, &byte, 1) == 1);
    CHECK(waitpid(child.pid, &status, 0) == child.pid);
    close(child.tell);
    close(child.hear);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 200;
}

static int sees_what_was_put(void)
{
    return is_filled(at + 100, 3 * PAGE, 5) && at[3 * PAGE + 100] == (char)((3 * PAGE + 100) * 7 + 3 + 1);
}

// A write to a child that shares its pages with us reaches only the child.
static void across_a_fork(void)
{
    struct child child;

    map(at, 4, RW);
    map(other, 4, RW);
    fill(at, 4 * PAGE, 1);
    child = begin(sees_what_was_put);
    fill(other, 3 * PAGE, 5);
    say("put", put(child.pid, other, 3 * PAGE, at + 100));
    printf("ours is as it was: %d\n", is_filled(at, 4 * PAGE, 1));
    memset(other, 0, 4 * PAGE);
    say("get", get(child.pid, other, 3 * PAGE, at + 100));
    printf("what was put: %d\n", is_filled(other, 3 * PAGE, 5));
    // Our own write does not reach the child.
    fill(at, 4 * PAGE, 9);
    say("get again", get(child.pid, other, 3 * PAGE, at + 100));
    printf("what was put: %d\n", is_filled(other, 3 * PAGE, 5));
    printf("the child sees it: %d\n", end(child));
    errno = 0;
    say("of a child that has ended", get(child.pid, other, 1, at));
}

static void pieces(void)
{
    struct iovec here[4], there[5];
    long pid = getpid();

    map(at, 8, RW);
    map(other, 8, RW);
    fill(at, 8 * PAGE, 2);
    for (int i = 0; i < 4; i++)
        here[i] = (struct iovec){other + i * (PAGE + 500), 0};
    here[0].iov_len = 10;
    here[1].iov_len = 0;
    here[2].iov_len = 2 * PAGE;
    here[3].iov_len = 700;
    for (int i = 0; i < 5; i++)
        there[i] = (struct iovec){at + i * (PAGE + 300), 1000 + i * 900};
    there[1].iov_len = 0;
    say("here is shorter", call(SYS_process_vm_readv, pid, here, 4, there, 5, 0));
    long sum = 0;
    for (long i = 0; i < 8 * PAGE; i++)
        sum = sum * 31 + (unsigned char)other[i];
    printf("sum %lx\n", sum);
    here[2].iov_len = 5 * PAGE;
    say("there is shorter", call(SYS_process_vm_writev, pid, here, 4, there, 5, 0));
    sum = 0;
    for (long i = 0; i < 8 * PAGE; i++)
        sum = sum * 31 + (unsigned char)at[i];
    printf("sum %lx\n", sum);
    // Overlaps itself by a whole page.
    say("one page", get(pid, at + PAGE, PAGE, at));
    printf("equal: %d\n", memcmp(at, at + PAGE, PAGE) == 0);
}

static void holes(void)
{
    long pid = getpid();

    map(at, 8, RW);
    map(other, 8, RW);
    fill(at, 8 * PAGE, 3);
    CHECK(munmap(at + 2 * PAGE, PAGE) == 0);
    CHECK(munmap(other + 5 * PAGE, PAGE) == 0);
    say("up to a hole there", get(pid, other, 4 * PAGE, at + 10));
    printf("filled: %d\n", is_filled(at, 2 * PAGE, 3));
    say("a hole there", get(pid, other, 1, at + 2 * PAGE));
    say("up to a hole here", get(pid, other + 4 * PAGE + 100, 2 * PAGE, at + 3 * PAGE + 50));
    say("a hole here", get(pid, other + 5 * PAGE, 1, at));
    say("put up to a hole there", put(pid, other, 4 * PAGE, at + 1));
    say("put from a hole here", put(pid, other + 5 * PAGE, 10, at));
    // Pages that were never touched.
    map(at, 8, RW);
    say("untouched", get(pid, other, 4 * PAGE, at));
    printf("zeroes: %d\n", other[0] == 0 && memcmp(other, other + 1, 4 * PAGE - 1) == 0);
    say("put to untouched", put(pid, other, 100, at + 5 * PAGE));
    unsigned char there[8];
    CHECK(mincore(at, 8 * PAGE, there) == 0);
    for (int i = 0; i < 8; i++)
        putchar('0' + (there[i] & 1));
    puts("");
}

static void protections(void)
{
    static const int all[] = {PROT_NONE, PROT_READ, PROT_WRITE, PROT_EXEC, PROT_READ | PROT_EXEC,
                              PROT_WRITE | PROT_EXEC, RW};
    long pid = getpid();

    map(other, 1, RW);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        map(at, 1, RW);
        at[5] = 'x';
        CHECK(mprotect(at, PAGE, all[i]) == 0);
        printf("%d ", all[i]);
        say("get", get(pid, other, 10, at));
        printf("%d ", all[i]);
        say("put", put(pid, other, 10, at));
    }
    // A stack that an access would grow.
    char *low = at - 64 * PAGE;
    char *got = mmap(low, PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_GROWSDOWN, -1, 0);
    CHECK(got == low);
    say("below a stack", put(pid, other, 10, low - PAGE));
    *(low - PAGE) = 1;
    say("where it grew", put(pid, other, 10, low - PAGE));
}

static void errors(void)
{
    long pid = getpid();
    struct iovec one = {other, 8}, none = {other, 0}, long_one = {other, -1};
    struct iovec far = {(void *)0x800000000000, 8}, wraps = {(void *)-4096, 8};
    struct iovec bad_here = {(void *)0x8000000000000000, 8};

    map(at, 1, RW);
    map(other, 1, RW);
    say("flags", call(SYS_process_vm_readv, pid, &one, 1, &one, 1, 1));
    say("flags first", call(SYS_process_vm_readv, -1, NULL, 5, NULL, 5, 1));
    say("too many here", call(SYS_process_vm_readv, pid, &one, 1025, &one, 1, 0));
    say("too many there", call(SYS_process_vm_readv, pid, &one, 1, &one, 1025, 0));
    say("nothing here, too many there", call(SYS_process_vm_readv, pid, &one, 0, &one, 1025, 0));
    say("nothing here", call(SYS_process_vm_readv, -1, &none, 1, NULL, 1, 0));
    say("nothing there", call(SYS_process_vm_readv, -1, &one, 1, &none, 1, 0));
    say("no pieces there", call(SYS_process_vm_readv, -1, &one, 1, NULL, 0, 0));
    say("no vector here", call(SYS_process_vm_readv, pid, NULL, 1, &one, 1, 0));
    say("no vector there", call(SYS_process_vm_readv, pid, &one, 1, NULL, 1, 0));
    say("negative here", call(SYS_process_vm_readv, pid, &long_one, 1, &one, 1, 0));
    say("negative there", call(SYS_process_vm_readv, pid, &one, 1, &long_one, 1, 0));
    say("far there", call(SYS_process_vm_readv, pid, &one, 1, &far, 1, 0));
    say("at the end there", call(SYS_process_vm_readv, pid, &one, 1, &wraps, 1, 0));
    say("far here", call(SYS_process_vm_readv, pid, &bad_here, 1, &one, 1, 0));
    say("nobody", call(SYS_process_vm_readv, 4194304, &one, 1, &one, 1, 0));
    say("process 0", call(SYS_process_vm_readv, 0, &one, 1, &one, 1, 0));
    say("process -1", call(SYS_process_vm_readv, -1, &one, 1, &one, 1, 0));
    say("by a thread's number", call(SYS_process_vm_readv, gettid(), &one, 1, &one, 1, 0));
}

int main(void)
{
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    across_a_fork();
    pieces();
    holes();
    protections();
    errors();
    return 0;
}
