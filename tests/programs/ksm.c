// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What programs read about the merging of equal pages. A transcript, the same on Linux; the numbers are a host's
// own.

#include "transcript.h"

#include <ctype.h>
#include <fcntl.h>
#include <sys/stat.h>

static void say(const char *name)
{
    char path[64], text[32] = "";
    struct stat status;
    long length;
    int fd;

    snprintf(path, sizeof path, "/sys/kernel/mm/ksm/%s", name);
    fd = open(path, O_RDONLY);
    if (fd < 0) {
        printf("%s: %s\n", name, strerror(errno));
        return;
    }
    CHECK(fstat(fd, &status) == 0);
    length = read(fd, text, sizeof text);
    CHECK(length > 1 && close(fd) == 0);
    for (long i = 0; i < length - 1; i++)
        CHECK(isdigit((unsigned char)text[i]));
    printf("%s: mode %o, a number%s\n", name, status.st_mode, text[length - 1] == '\n' ? "" : "?");
}

int main(void)
{
    char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CHECK(page != MAP_FAILED);
    SAY(madvise(page, 4096, MADV_MERGEABLE));
    say("run");
    say("pages_shared");
    say("pages_sharing");
    say("pages_unshared");
    say("pages_volatile");
    say("pages_to_scan");
    say("sleep_millisecs");
    say("full_scans");
    say("no_such_file");
    SAY(access("/sys/kernel/mm", R_OK));
    return 0;
}
