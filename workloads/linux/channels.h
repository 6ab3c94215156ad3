// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The channels through which the first process writes what our kernel would
// write, and the end of the machine.

#ifndef LINUX_CHANNELS_H
#define LINUX_CHANNELS_H

#include <stdbool.h>
#include <stddef.h>

// In the order of the serial ports of the AArch64 machine.
typedef enum { CHANNEL_STDOUT, CHANNEL_STDERR, CHANNEL_REPORT } Channel;

// Acquires the right to use them; false and errno if there is none.
static bool open_channels(void);

static void write_channel(Channel channel, const char *bytes, size_t length);

// Ends the emulator.
__attribute__((noreturn)) static void turn_off(void);

#if defined(__x86_64__)
#include "channels_x86_64.h"
#elif defined(__aarch64__)
#include "channels_aarch64.h"
#else
#error "no channels are known for this architecture"
#endif

#endif
