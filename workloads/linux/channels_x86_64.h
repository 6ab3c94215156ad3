// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Debug ports: one `out` writes a byte.

#ifndef LINUX_CHANNELS_X86_64_H
#define LINUX_CHANNELS_X86_64_H

#include <sys/io.h>
#include <unistd.h>

enum { FIRST_PORT = 0xe9, EXIT_PORT = 0xf4 };

static bool open_channels(void)
{
    return iopl(3) == 0;
}

static void write_channel(Channel channel, const char *bytes, size_t length)
{
    while (length-- > 0)
        outb((unsigned char)*bytes++, (unsigned short)(FIRST_PORT + channel));
}

__attribute__((noreturn)) static void turn_off(void)
{
    outl(0, EXIT_PORT);
    for (;;)
        pause();
}

#endif
