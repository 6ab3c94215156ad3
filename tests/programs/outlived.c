// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The first process ends while another one lives, after some time in which both lived.

#include "common.h"

#include <signal.h>

int main(void)
{
    pid_t child = fork();

    EXPECT(child >= 0, "fork");
    if (child == 0)
        for (;;)
            pause();
    sleep_ms(200);
    EXPECT(kill(child, 0) == 0, "the child has ended");
    puts("one is left");
    return 0;
}
