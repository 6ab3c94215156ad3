// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Shared by the programs that repeat one operation and print its rate per second:
// options, tasks that are threads or processes, samples, lines of output. Like
// will-it-scale: same -s and -t, same lines.
//
// A program describes itself by a Testcase and calls measure(). Every task
// repeats the operation in batches and reads the clock between them, so that
// nothing is shared while it measures. A sample ends with the first batch that
// ends a second (-m) after its start. The task then sends its rate through one pipe to
// the first thread, which prints a line when it has received all rates. Processes
// need only pipes and fork.

#ifndef WORKLOADS_OPERATION_H
#define WORKLOADS_OPERATION_H

#include "common.h"

#include <getopt.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/wait.h>

// A batch lasts about this long: short compared with a sample, long compared with
// a read of the clock.
#define BATCH_NS 2000000ull

enum { OPERATION_HELP = 256 };

typedef struct {
    const char *title;
    // The program's own options: letters for getopt, their text, and the function that handles
    // one; it exits through bad_usage() if the value is wrong.
    const char *letters;
    const char *usage;
    void (*option)(int letter, const char *value);
    // Checks the options together and prepares the state of all tasks. May be NULL.
    void (*begin)(void);
    // Prepares one task, in its own thread or process; `repeat` gets
    // the result. May be NULL.
    void *(*prepare)(size_t task);
    // Repeats the operation `times` times.
    void (*repeat)(void *prepared, uint64_t times);
} Testcase;

static struct {
    const char *program;
    const Testcase *testcase;
    size_t tasks;
    size_t samples;
    uint64_t sample_ns;
    bool processes;
    bool small_pages;
    int start; // ends when the tasks are to begin
    int rates; // where tasks send their rates
} common = {.tasks = 1, .samples = 5, .sample_ns = NANOS_PER_SECOND};

// A task's message: less than PIPE_BUF, so that it arrives in one piece.
typedef struct {
    uint64_t sample;
    double rate;
} Rate;

// One line of output, complete when all tasks have sent their rates.
typedef struct {
    size_t tasks;
    double min, max, total;
} Sample;

static void operation_usage(FILE *to)
{
    fprintf(to,
            "Usage: %s [options]\n\n"
            "\t-s iterations\tNumber of samples (seconds) to measure, after one to warm up (5)\n"
            "\t-m ms\t\tLength of a sample in milliseconds instead of a second (1000)\n"
            "\t-t tasks\tNumber of threads to run (1)\n"
            "\t-P\t\tTasks are processes, not threads\n"
            "%s"
            "\t-N\t\tNo huge pages for this process, where the system has them\n"
            "\t--help\t\tPrint this\n"
            "Example: %s -t 4 -s 10\n",
            common.program, common.testcase->usage, common.program);
}

__attribute__((noreturn)) static void bad_usage(void)
{
    operation_usage(stderr);
    exit(1);
}

// Parses the value of an option: a number from `low`, with K, M, G allowed if `suffix`.
static inline size_t number_option(int letter, const char *text, bool suffix,
                                   size_t low, size_t high)
{
    uint64_t n;

    if (!parse_number(text, suffix, low, high, &n)) {
        fprintf(stderr, "%s: -%c: not a number from %zu to %zu: %s\n",
                common.program, letter, low, high, text);
        bad_usage();
    }
    return n;
}

static void operation_options(int argc, char **argv)
{
    static const struct option long_options[] = {
        {"help", no_argument, NULL, OPERATION_HELP},
        {NULL, 0, NULL, 0},
    };
    char letters[64];
    int c;

    snprintf(letters, sizeof letters, "s:m:t:PN%s", common.testcase->letters);
    while ((c = getopt_long(argc, argv, letters, long_options, NULL)) != -1) {
        switch (c) {
        case 's': common.samples = number_option(c, optarg, false, 1, 1 << 20); break;
        case 'm': common.sample_ns = 1000000ull * number_option(c, optarg, false, 1, 1 << 20); break;
        case 't': common.tasks = number_option(c, optarg, false, 1, MAX_THREADS); break;
        case 'P': common.processes = true; break;
        case 'N': common.small_pages = true; break;
        case OPERATION_HELP: operation_usage(stdout); exit(0);
        case '?': bad_usage();
        default: common.testcase->option(c, optarg); break;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "%s: unexpected argument: %s\n", common.program, argv[optind]);
        bad_usage();
    }
}

// Repeats the operation for one sample, and returns its rate per second.
static double operation_sample(void *prepared, uint64_t *batch)
{
    uint64_t begun = now_ns(), since = begun, now = begun, times = 0;

    do {
        common.testcase->repeat(prepared, *batch);
        times += *batch;
        now = now_ns();
        if (now - since < BATCH_NS / 2)
            *batch *= 2;
        since = now;
    } while (now - begun < common.sample_ns);
    return (double)times * (double)NANOS_PER_SECOND / (double)(now - begun);
}

// Runs one task, from the common start to its last sample; the first is warm-up.
static void operation_task(size_t task)
{
    void *prepared = NULL;
    uint64_t batch = 1;
    char nothing;

    if (common.testcase->prepare != NULL)
        prepared = common.testcase->prepare(task);
    while (read(common.start, &nothing, 1) < 0 && errno == EINTR)
        ;
    for (size_t i = 0; i <= common.samples; i++) {
        Rate rate = {.sample = i, .rate = operation_sample(prepared, &batch)};

        if (write(common.rates, &rate, sizeof rate) != sizeof rate)
            die(common.program, "cannot send a rate: %s", strerror(errno));
    }
}

static void *operation_thread(void *task)
{
    operation_task((size_t)task);
    return NULL;
}

static void start_task(size_t task, int starter)
{
    pthread_t thread;
    int err;
    pid_t child;

    if (!common.processes) {
        err = pthread_create(&thread, NULL, operation_thread, (void *)task);
        if (err != 0)
            die(common.program, "cannot start thread %zu: %s", task, strerror(err));
        pthread_detach(thread);
        return;
    }
    child = fork();
    if (child < 0)
        die(common.program, "cannot start process %zu: %s", task, strerror(errno));
    if (child == 0) {
        // The start pipe ends only after all copies of its write end are closed.
        close(starter);
        operation_task(task);
        _exit(0);
    }
}

// Prints one sample and returns the sum, after every task has sent its rate.
static double print_sample(int rates, Sample *samples, uint64_t wanted)
{
    Sample *sample = &samples[wanted];

    while (sample->tasks < common.tasks) {
        Rate rate;
        Sample *its;
        ssize_t got = read(rates, &rate, sizeof rate);

        if (got < 0 && errno == EINTR)
            continue;
        if (got != sizeof rate || rate.sample > common.samples)
            die(common.program, "a task ended before its time");
        its = &samples[rate.sample];
        its->min = its->tasks == 0 || rate.rate < its->min ? rate.rate : its->min;
        its->max = rate.rate > its->max ? rate.rate : its->max;
        its->total += rate.rate;
        its->tasks++;
    }
    printf("min:%.0f max:%.0f total:%.0f\n", sample->min, sample->max, sample->total);
    fflush(stdout);
    return sample->total;
}

// Waits for the tasks' processes; threads end with this process.
static void end_tasks(void)
{
    int status;

    while (common.processes) {
        pid_t child = wait(&status);

        if (child < 0 && errno == EINTR)
            continue;
        if (child < 0)
            return;
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
            die(common.program, "a task failed");
    }
}

// The whole program: the last line is the rate of all tasks together.
static int measure(const Testcase *testcase, int argc, char **argv)
{
    int start[2], rates[2];
    Sample *samples;
    double total = 0;

    common.program = argv[0];
    common.testcase = testcase;
    operation_options(argc, argv);
    // A kernel that does not know this has no huge pages to disable either.
    if (common.small_pages)
        prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    if (testcase->begin != NULL)
        testcase->begin();
    samples = calloc(common.samples + 1, sizeof *samples);
    if (samples == NULL || pipe(start) != 0 || pipe(rates) != 0)
        die(common.program, "cannot begin: %s", strerror(errno));
    common.start = start[0];
    common.rates = rates[1];
    printf("testcase:%s\n", testcase->title);
    printf("warmup\n");
    // Before the forks, or children would print it again.
    fflush(stdout);
    for (size_t i = 0; i < common.tasks; i++)
        start_task(i, start[1]);
    close(start[1]);
    // So that reading ends if all processes die.
    if (common.processes)
        close(rates[1]);

    print_sample(rates[0], samples, 0);
    printf("measurement\n");
    for (size_t i = 1; i <= common.samples; i++)
        total += print_sample(rates[0], samples, i);
    total /= (double)common.samples;
    printf("%.1f ns/op\n", (double)NANOS_PER_SECOND / total);
    printf("average:%.*f\n", total < 100000 ? 2 : 0, total);
    end_tasks();
    return 0;
}

#endif
