// SPDX-License-Identifier: MIT OR Apache-2.0
//
// hostile run SEED ROUNDS MILLISECONDS [CHILDREN]: processes and threads that make random
// system calls with hostile arguments, in rounds of some length. Only for a kernel
// under test: on any other this program refuses to run.
//
// Three generations. The supervisor, the first process, lives through the run. It makes a leader for
// each round, kills all processes at the round's end, and checks that they are gone
// and that their memory was freed. The leader replaces children that die
// of their own calls. The children are hostile (hostile_calls.h). Any other process that runs this program,
// such as a child that executes it, is hostile too.

#include "hostile_calls.h"
#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { THREADS = 2, MOST_CHILDREN = 8, PATIENCE_MS = 30000 };

// -1 in the supervisor only: hostile code may be entered anywhere, and must not find it.
static volatile pid_t everybody;

static long now_ms(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

// Runs a hostile process: never returns.
static void be_hostile(word random)
{
    struct itimerval tick = {{0, 7000}, {0, 7000}};
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};

    setsid();
    for (int fd = 0; fd < 64; fd++)
        close(fd);
    mkdir("/tmp", 0777);
    mkdir("/tmp/h", 0777);
    chdir("/tmp/h");
    make_arena();
    for (int signal = 10; signal < 30; signal++)
        if (signal != SIGCONT && signal != SIGSTOP)
            sigaction(signal, &action, NULL);
    setitimer(ITIMER_REAL, &tick, NULL);
    for (int thread = 0; thread < THREADS; thread++) {
        word top = (word)stacks[thread] + sizeof stacks[0];

        call(SYS_clone, (word[6]){0x50f00, top}, 1);
    }
    for (;;)
        one_call(&random);
}

// Keeps some hostile children alive. Each lives only for a while, because all its
// threads may sleep.
static void lead(word random, int children)
{
    pid_t child[MOST_CHILDREN] = {0};
    long until[MOST_CHILDREN] = {0};

    everybody = 0;
    leader = getpid();
    setpgid(0, 0);
    for (;;) {
        for (int i = 0; i < children; i++) {
            int status = 0;

            if (child[i] > 0 && now_ms() > until[i])
                kill(child[i], SIGKILL);
            if (child[i] > 0 && waitpid(child[i], &status, WNOHANG) == 0)
                continue;
            // A child that has asked to be traced stays stopped until its time is up.
            if (child[i] > 0 && WIFSTOPPED(status))
                continue;
            next(&random);
            child[i] = fork();
            if (child[i] == 0)
                be_hostile(random ^ (word)i);
            until[i] = now_ms() + 100 + (long)(next(&random) % 300);
        }
        // Reaps children of dead children, and siblings made with CLONE_PARENT.
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
        sleep_ms(5);
    }
}

// The number of processes.
static int population(void)
{
    DIR *proc = opendir("/proc");
    struct dirent *entry;
    int count = 0;

    EXPECT(proc != NULL, "/proc");
    while ((entry = readdir(proc)) != NULL)
        count += entry->d_name[0] >= '1' && entry->d_name[0] <= '9';
    closedir(proc);
    return count;
}

// Prints the status of each process that does not die.
static void print_survivors(void)
{
    char name[280], text[2000];
    DIR *proc = opendir("/proc");
    struct dirent *entry;

    while (proc != NULL && (entry = readdir(proc)) != NULL) {
        if (entry->d_name[0] < '1' || entry->d_name[0] > '9')
            continue;
        snprintf(name, sizeof name, "/proc/%s/status", entry->d_name);
        int fd = open(name, O_RDONLY);
        long size = fd < 0 ? 0 : read(fd, text, sizeof text - 1);

        fprintf(stderr, "%.*s\n", size < 0 ? 0 : (int)size, text);
        close(fd);
    }
}

static void kill_everybody(void)
{
    long begun = now_ms();

    while (kill(everybody, SIGKILL), population() > 1) {
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
        if (now_ms() - begun > PATIENCE_MS) {
            print_survivors();
            EXPECT(false, "a process does not die");
        }
        sleep_ms(2);
    }
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
}

static bool is_device(int folder, const char *name)
{
    struct stat status;

    return fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISCHR(status.st_mode);
}

// Removes the content of a directory, given by a descriptor, which it closes. In /dev it keeps devices: they exist
// nowhere else, and may have been moved to any place.
static void remove_all(int folder, int depth, bool is_dev)
{
    DIR *open_folder = fdopendir(folder);
    struct dirent *entry;

    if (open_folder == NULL || depth > 60)
        return;
    while ((entry = readdir(open_folder)) != NULL) {
        const char *name = entry->d_name;

        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
            strcmp(name, "proc") == 0 || (is_dev && is_device(folder, name)))
            continue;
        if (unlinkat(folder, name, 0) == 0)
            continue;
        if (unlinkat(folder, name, AT_REMOVEDIR) != 0) {
            remove_all(openat(folder, name, O_RDONLY | O_DIRECTORY), depth + 1,
                       depth == 0 && strcmp(name, "dev") == 0);
            unlinkat(folder, name, AT_REMOVEDIR);
        }
    }
    closedir(open_folder);
}

// This program, kept in memory, because any process may write to its file.
static char *image;
static long image_size;

static void keep_image(void)
{
    int file = open("/proc/self/exe", O_RDONLY);

    image_size = lseek(file, 0, SEEK_END);
    image = malloc((size_t)image_size);
    EXPECT(image != NULL, "no memory");
    EXPECT(pread(file, image, (size_t)image_size, 0) == image_size, "the program");
    close(file);
}

// Restores the file tree: this program, and nothing else.
static void restore_files(void)
{
    int copy;

    remove_all(open("/", O_RDONLY | O_DIRECTORY), 0, false);
    mkdir("/tmp", 0777);
    mkdir("/bin", 0755);
    mkdir("/dev/shm", 0777);
    copy = open("/bin/test", O_WRONLY | O_CREAT | O_TRUNC, 0755);
    EXPECT(copy >= 0, "/bin/test cannot be made again");
    EXPECT(write(copy, image, (size_t)image_size) == image_size,
           "/bin/test does not fit");
    close(copy);
}

static long field(const char *text, const char *name)
{
    const char *at = strstr(text, name);

    EXPECT(at != NULL, "%s is not there", name);
    return atol(at + strlen(name));
}

// Memory in use, as the kernel counts it: KiB of frames that are neither free nor its own stock,
// and bytes of its heap.
struct use {
    long frames, heap;
};

static struct use used_now(int meminfo, int vmstat)
{
    static char text[4000];
    long size;

    lseek(meminfo, 0, SEEK_SET);
    lseek(vmstat, 0, SEEK_SET);
    size = read(meminfo, text, sizeof text / 2);
    EXPECT(size > 0, "meminfo");
    size += read(vmstat, text + size, sizeof text / 2 - 1);
    text[size] = 0;
    return (struct use){field(text, "MemTotal:") - field(text, "MemFree:") -
                            field(text, "\nSlab:") - field(text, "KernelStack:"),
                        field(text, "heap_bytes ")};
}

// Makes the kernel's lists of processes, stacks and timers grow to their final length.
static void warm_up(long memory_kb)
{
    enum { TIMERS = 512 };
    static timer_t timers[TIMERS];
    struct sigevent event = {.sigev_notify = SIGEV_NONE};
    long count = memory_kb / 256;

    for (int i = 0; i < TIMERS; i++)
        EXPECT(timer_create(CLOCK_MONOTONIC, &event, &timers[i]) == 0, "timer");
    for (int i = 0; i < TIMERS; i++)
        timer_delete(timers[i]);
    for (long i = 0; i < (count < 260 ? count : 260); i++) {
        pid_t child = fork();

        EXPECT(child >= 0, "fork");
        everybody = child == 0 ? 0 : -1;
        if (child == 0)
            for (;;)
                pause();
    }
    kill_everybody();
}

static void supervise(word seed, int rounds, int milliseconds, int children)
{
    int meminfo = open("/proc/meminfo", O_RDONLY);
    int vmstat = open("/proc/vmstat", O_RDONLY);
    static char text[100];
    struct use first = {0, 0}, second = {0, 0};

    EXPECT(vmstat >= 0 && meminfo >= 0, "files");
    keep_image();
    everybody = -1;
    EXPECT(read(meminfo, text, sizeof text - 1) > 0, "meminfo");
    warm_up(field(text, "MemTotal:"));
    for (int round = 0; round < rounds; round++) {
        word random = (seed * 1000 + (word)round) * 0x9e3779b97f4a7c15 | 1;
        long until = now_ms() + milliseconds;
        struct use used;

        // A process that executes this program again does not know the leader, and may kill it.
        for (pid_t child = 0; now_ms() < until; sleep_ms(20)) {
            while (waitpid(-1, NULL, WNOHANG) > 0)
                child = 0;
            if (child > 0)
                continue;
            child = fork();
            if (child == 0)
                lead(next(&random) | 1, children);
        }
        kill_everybody();
        restore_files();
        used = used_now(meminfo, vmstat);
        printf("round %d: %ld KiB of frames, %ld bytes of heap in use\n", round,
               used.frames, used.heap);
        // The minimum of the second half must not exceed the maximum of the first. Some frames wait for
        // other CPUs, and lists may grow once more.
        if (round < rounds / 2) {
            first.frames = used.frames > first.frames ? used.frames : first.frames;
            first.heap = used.heap > first.heap ? used.heap : first.heap;
        } else {
            if (round == rounds / 2)
                second = used;
            second.frames = used.frames < second.frames ? used.frames : second.frames;
            second.heap = used.heap < second.heap ? used.heap : second.heap;
        }
        fflush(stdout);
    }
    EXPECT(second.frames <= first.frames + 256, "frames are lost: %ld KiB, then %ld KiB",
           first.frames, second.frames);
    EXPECT(second.heap <= first.heap + 32768, "the heap grows: %ld bytes, then %ld",
           first.heap, second.heap);
    puts("hostile: survived");
}

static bool is_under_test(void)
{
    char version[100] = "";
    int file = open("/proc/version", O_RDONLY);
    bool is = read(file, version, sizeof version - 1) > 0 &&
        strstr(version, "(faultless)") != NULL;

    close(file);
    return is;
}

int main(int argc, char **argv)
{
    EXPECT(is_under_test(), "not for this system");
    supervisor = leader = 100;
    if (argc < 5 || strcmp(argv[1], "run") != 0 || getpid() != supervisor)
        be_hostile(ticks() | 1);
    supervise(strtoul(argv[2], NULL, 10), atoi(argv[3]), atoi(argv[4]),
              argc > 5 ? atoi(argv[5]) : 3);
    return 0;
}
