// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Threads that end by pthread_exit and by cancellation: glibc then loads a library that the program does not
// link with, in the middle of the run.

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static void say(void *what)
{
    printf("%s\n", (const char *)what);
}

static void *ends(void *result)
{
    pthread_cleanup_push(say, "cleaned up at the end");
    pthread_exit(result);
    pthread_cleanup_pop(0);
}

static void *waits(void *nothing)
{
    pthread_cleanup_push(say, "cleaned up when cancelled");
    for (;;)
        pause();
    pthread_cleanup_pop(0);
    return nothing;
}

int main(void)
{
    pthread_t thread;
    void *result;
    int number = 7;

    if (pthread_create(&thread, NULL, ends, &number) != 0 || pthread_join(thread, &result) != 0)
        return 1;
    printf("%d\n", *(int *)result);
    if (pthread_create(&thread, NULL, waits, NULL) != 0 || pthread_cancel(thread) != 0 ||
        pthread_join(thread, &result) != 0)
        return 2;
    printf("%s\n", result == PTHREAD_CANCELED ? "cancelled" : "not cancelled");
    return 0;
}
