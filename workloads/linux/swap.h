// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Swap of a Linux that `./x compare --swap` boots: loads the modules that came
// in the initramfs, writes the header of a swap area, and switches it on.
//
// Debian's kernels have zram and brd as modules only, and no tool for either is
// in the initramfs.

#ifndef LINUX_SWAP_H
#define LINUX_SWAP_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/swap.h>
#include <sys/syscall.h>
#include <unistd.h>

// Each file is a module. Their names sort in the order in which they have to be loaded.
#define MODULES "/.faultless/modules"

// MODULE_INIT_COMPRESSED_FILE: the kernel decompresses the file.
enum { COMPRESSED = 4 };

enum { SWAP_PAGE = 4096, SWAP_HEADER = 1024 };

__attribute__((noreturn)) static void give_up(const char *what);

static void write_setting(const char *path, const char *value)
{
    int file = open(path, O_WRONLY);

    if (file < 0 || write(file, value, strlen(value)) < 0)
        give_up(path);
    close(file);
}

static void load_module(const char *name, const char *parameters)
{
    char path[512];
    const char *end = strrchr(name, '.');
    int flags = end != NULL && strcmp(end, ".ko") != 0 ? COMPRESSED : 0;
    int file;

    snprintf(path, sizeof path, MODULES "/%s", name);
    file = open(path, O_RDONLY);
    if (file < 0 || syscall(SYS_finit_module, file, parameters, flags) != 0)
        give_up(path);
    close(file);
}

// `kvm`: the parameters of that module, or NULL.
static void load_modules(uint64_t bytes, const char *kvm)
{
    struct dirent **names;
    int count = scandir(MODULES, &names, NULL, alphasort);

    if (count < 0)
        give_up("cannot list the modules");
    for (int i = 0; i < count; i++) {
        char parameters[256] = "";

        if (names[i]->d_name[0] == '.')
            continue;
        // A RAM disk has its size from the beginning; zram gets it later.
        if (strstr(names[i]->d_name, "brd") != NULL)
            snprintf(parameters, sizeof parameters, "rd_nr=1 rd_size=%ju",
                     (uintmax_t)(bytes / 1024));
        if (kvm != NULL && strstr(names[i]->d_name, "-kvm.") != NULL)
            snprintf(parameters, sizeof parameters, "%s", kvm);
        load_module(names[i]->d_name, parameters);
    }
}

// The header that mkswap writes: at 1024 the version and the last page, at the end of the page a signature.
static void make_swap(const char *device, uint64_t bytes)
{
    static char page[SWAP_PAGE];
    uint32_t fields[2] = {1, (uint32_t)(bytes / SWAP_PAGE - 1)};
    int file = open(device, O_WRONLY);

    memcpy(page + SWAP_HEADER, fields, sizeof fields);
    memcpy(page + SWAP_PAGE - 10, "SWAPSPACE2", 10);
    if (file < 0 || write(file, page, sizeof page) != sizeof page || fsync(file) != 0)
        give_up(device);
    close(file);
}

// Waits until a disk is there: its driver looks for it in the background.
static void wait_for_disk(const char *device)
{
    for (int i = 0; i < 1000 && access(device, F_OK) != 0; i++)
        usleep(10000);
}

static uint64_t swap_bytes(const char *swap)
{
    const char *colon = strchr(swap, ':');

    return colon == NULL ? 0 : strtoull(colon + 1, NULL, 10);
}

// `swap` is KIND:BYTES, in which KIND is `zram`, `ram` or `disk`. A disk has its header.
static void set_up_swap(const char *swap)
{
    const char *colon = strchr(swap, ':');
    bool zram = strncmp(swap, "zram:", 5) == 0, ram = strncmp(swap, "ram:", 4) == 0;
    uint64_t bytes = swap_bytes(swap);
    const char *device = zram ? "/dev/zram0" : ram ? "/dev/ram0" : "/dev/vda";

    errno = EINVAL;
    if (bytes < 2 * SWAP_PAGE || (!zram && !ram && strncmp(swap, "disk:", 5) != 0))
        give_up("swap");
    if (zram) {
        write_setting("/sys/block/zram0/comp_algorithm", "lz4");
        write_setting("/sys/block/zram0/disksize", colon + 1);
    }
    if (zram || ram)
        make_swap(device, bytes);
    else
        wait_for_disk(device);
    if (swapon(device, 0) != 0)
        give_up("swapon");
    // A fault reads the page that it needs, and none beside it.
    write_setting("/proc/sys/vm/page-cluster", "0");
}

#endif
