// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The serial ports of a PCI card, written to past their driver, which would take
// interrupts while the program runs. The card has I/O ports, which this architecture reaches through memory: the host bridge maps
// all of them at a physical address that the device tree names.

#ifndef LINUX_CHANNELS_AARCH64_H
#define LINUX_CHANNELS_AARCH64_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/reboot.h>
#include <unistd.h>

#define PCI_DEVICES "/sys/bus/pci/devices"
#define DEVICE_TREE "/proc/device-tree"

// QEMU's `pci-serial-4x`: four ports with eight registers each.
enum { CARD = 0x00041b36, PORT_SIZE = 8 };

// Registers of a port, and the bit of its status which says that it takes a byte.
enum { DATA = 0, STATUS = 5, READY = 0x20 };

// In the configuration space of a PCI device.
enum { CONFIG_ADDRESS = 0x10, CONFIG_BYTES = 64 };

// The ports of the card.
static volatile uint8_t *card;

// Reads a file in a folder; the number of bytes.
static size_t read_in(const char *folder, const char *name, const char *file, void *bytes,
                      size_t most)
{
    char path[512];
    ssize_t got;
    int from;

    snprintf(path, sizeof path, "%s/%s/%s", folder, name, file);
    from = open(path, O_RDONLY);
    if (from < 0)
        return 0;
    got = read(from, bytes, most);
    close(from);
    return got < 0 ? 0 : (size_t)got;
}

// The I/O address of the card, after switching it on; 0 if there is no card.
static uint64_t find_card(void)
{
    DIR *devices = opendir(PCI_DEVICES);
    uint64_t address = 0;
    struct dirent *entry;

    while (devices != NULL && address == 0 && (entry = readdir(devices)) != NULL) {
        uint32_t config[CONFIG_BYTES / 4];
        char path[512];
        int file;

        if (read_in(PCI_DEVICES, entry->d_name, "config", config, sizeof config) !=
                sizeof config || config[0] != CARD)
            continue;
        snprintf(path, sizeof path, PCI_DEVICES "/%s/enable", entry->d_name);
        file = open(path, O_WRONLY);
        // Busy: its driver has switched it on.
        if (file >= 0 && (write(file, "1", 1) == 1 || errno == EBUSY))
            address = config[CONFIG_ADDRESS / 4] & ~3u;
        close(file);
    }
    if (devices != NULL)
        closedir(devices);
    return address;
}

static uint64_t cells(const uint32_t *first, int count)
{
    uint64_t value = 0;

    while (count-- > 0)
        value = value << 32 | __builtin_bswap32(*first++);
    return value;
}

// The physical address of a PCI I/O address; 0 if the device tree names none.
static uint64_t physical(uint64_t io)
{
    // Each range: PCI address (3 cells, the first with the kind), physical address (2), size (2).
    enum { CELLS = 7, IO_SPACE = 1 };
    uint32_t ranges[16 * CELLS];
    DIR *tree = opendir(DEVICE_TREE);
    uint64_t found = 0;
    struct dirent *entry;

    while (tree != NULL && found == 0 && (entry = readdir(tree)) != NULL) {
        size_t length;

        if (strncmp(entry->d_name, "pcie@", 5) != 0)
            continue;
        length = read_in(DEVICE_TREE, entry->d_name, "ranges", ranges, sizeof ranges) / 4;
        for (size_t i = 0; i + CELLS <= length; i += CELLS) {
            uint64_t start = cells(ranges + i + 1, 2), size = cells(ranges + i + 5, 2);

            if ((cells(ranges + i, 1) >> 24 & 3) == IO_SPACE && io >= start && io - start < size)
                found = cells(ranges + i + 3, 2) + (io - start);
        }
    }
    if (tree != NULL)
        closedir(tree);
    return found;
}

static bool open_channels(void)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), io = find_card(), at;
    char *window;
    int memory;

    errno = ENODEV;
    if (io == 0 || (at = physical(io)) == 0)
        return false;
    memory = open("/dev/mem", O_RDWR | O_SYNC | O_CLOEXEC);
    if (memory < 0)
        return false;
    window = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, memory, (off_t)(at & -page));
    close(memory);
    if (window == MAP_FAILED)
        return false;
    card = (volatile uint8_t *)window + at % page;
    return true;
}

static void write_channel(Channel channel, const char *bytes, size_t length)
{
    volatile uint8_t *port = card + channel * PORT_SIZE;

    while (length-- > 0) {
        while ((port[STATUS] & READY) == 0)
            continue;
        port[DATA] = (uint8_t)*bytes++;
    }
}

__attribute__((noreturn)) static void turn_off(void)
{
    reboot(RB_POWER_OFF);
    for (;;)
        pause();
}

#endif
