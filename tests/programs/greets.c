// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Reads names from its standard input, line by line, and greets each from a thread of its own.

#include <pthread.h>
#include <stdio.h>
#include <string.h>

static void *greet(void *name)
{
    printf("hello %s\n", (const char *)name);
    return NULL;
}

int main(void)
{
    char name[256];

    while (fgets(name, sizeof name, stdin) != NULL) {
        pthread_t thread;

        name[strcspn(name, "\n")] = '\0';
        if (pthread_create(&thread, NULL, greet, name) != 0)
            return 1;
        pthread_join(thread, NULL);
    }
    return 0;
}
