// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Files and directories: a transcript of calls and their results, which must
// be the same here and on Linux.

#include "transcript.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <sys/wait.h>

static void put(const char *path, const char *text)
{
    int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0644);

    EXPECT(fd >= 0, "%s", path);
    EXPECT(write(fd, text, strlen(text)) == (ssize_t)strlen(text), "%s", path);
    close(fd);
}

static void show(const char *path)
{
    char text[64] = "";
    int fd = open(path, O_RDONLY);
    ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof text - 1);

    printf("%s: %zd '%s' %s\n", path, length, text, fd < 0 ? strerror(errno) : "");
    close(fd);
}

static void status(const char *path)
{
    struct stat s;

    if (lstat(path, &s) < 0)
        printf("%s: %s\n", path, strerror(errno));
    else
        printf("%s: mode %o links %d size %d\n", path, s.st_mode, (int)s.st_nlink,
               S_ISDIR(s.st_mode) ? 0 : (int)s.st_size);
}

static int by_name(const void *one, const void *other)
{
    return strcmp(*(char *const *)one, *(char *const *)other);
}

static void list(const char *path)
{
    DIR *directory = opendir(path);
    struct dirent *entry;
    char *names[1000];
    size_t count = 0;

    EXPECT(directory, "%s", path);
    while ((entry = readdir(directory)) && count < 1000)
        asprintf(&names[count++], "%s/%d", entry->d_name, entry->d_type);
    closedir(directory);
    qsort(names, count, sizeof *names, by_name);
    printf("%s:", path);
    for (size_t i = 0; i < count; i++)
        printf(" %s", names[i]);
    printf("\n");
}

static void opening(void)
{
    int fd;

    SAY(open("none", O_RDONLY));
    SAY(open("", O_RDONLY));
    SAY(open("none/x", O_CREAT | O_WRONLY, 0600));
    SAY(open(".", O_WRONLY));
    SAY(open("new/", O_CREAT | O_WRONLY, 0600));
    put("file", "content");
    SAY(open("file/x", O_RDONLY));
    SAY(open("file/", O_RDONLY));
    SAY(open("file", O_RDONLY | O_DIRECTORY));
    SAY(open("file", O_CREAT | O_EXCL | O_WRONLY, 0600));
    SAY(open((char *)8, O_RDONLY));
    char *path = malloc(5000);
    memset(path, 'x', 4999);
    path[4999] = 0;
    SAY(open(path, O_RDONLY));
    path[300] = 0;
    SAY(open(path, O_RDONLY));

    fd = open("append", O_CREAT | O_APPEND | O_RDWR, 0600);
    SAY(write(fd, "one", 3));
    SAY(lseek(fd, 0, SEEK_SET));
    SAY(write(fd, "two", 3));
    SAY(lseek(fd, 0, SEEK_CUR));
    show("append");
    SAY(read(open("append", O_WRONLY), path, 1));
    SAY(write(open("append", O_RDONLY), "x", 1));
    close(fd);
    SAY(open("append", O_WRONLY | O_TRUNC));
    show("append");
    SAY(open("/proc/self/maps", O_RDONLY | O_DIRECTORY));
    SAY(fcntl(open("file", O_RDWR | O_NONBLOCK | O_CLOEXEC), F_GETFL) & ~O_LARGEFILE);
    fd = open("/proc/meminfo", O_RDONLY);
    SAY(pread(fd, path, 5, 3));
    close(fd);
    fd = open("file", O_PATH);
    SAY(read(fd, &fd, 1));
    SAY(fchmod(fd, 0600));
    close(fd);
    free(path);
}

static void positions(void)
{
    char buffer[32] = "";
    struct iovec vector[3] = {{buffer, 2}, {NULL, 0}, {buffer + 4, 3}};
    int fd = open("positions", O_CREAT | O_RDWR, 0644);
    int copy;

    SAY(write(fd, "0123456789", 10));
    SAY(lseek(fd, -3, SEEK_END));
    SAY(read(fd, buffer, 32));
    SAY(lseek(fd, -30, SEEK_CUR));
    SAY(lseek(fd, 0, 77));
    SAY(pread(fd, buffer, 4, 2));
    SAY(pread(fd, buffer, 4, -1));
    SAY(pread(fd, buffer, 4, 100));
    SAY(pwrite(fd, "xy", 2, 20));
    SAY(lseek(fd, 0, SEEK_CUR));
    SAY(lseek(fd, 1, SEEK_SET));
    SAY(readv(fd, vector, 3));
    printf("'%.2s' '%.3s'\n", buffer, buffer + 4);
    SAY(readv(fd, vector, 2000));
    SAY(writev(fd, vector, -1));
    copy = dup(fd);
    SAY(lseek(copy, 0, SEEK_CUR));
    SAY(lseek(copy, 4, SEEK_SET));
    SAY(lseek(fd, 0, SEEK_CUR));
    SAY(read(fd, (void *)8, 4));
    SAY(write(fd, (void *)8, 4));
    SAY(ftruncate(fd, 5));
    SAY(lseek(fd, 0, SEEK_END));
    SAY(ftruncate(fd, 9));
    SAY(pread(fd, buffer, 32, 0));
    printf("%d %d\n", buffer[4], buffer[5]);
    SAY(ftruncate(fd, -1));
    SAY(truncate("none", 0));
    SAY(truncate(".", 0));
    SAY(ftruncate(open("positions", O_RDONLY), 0));
    SAY(lseek(fd, 1 << 20, SEEK_SET));
    SAY(write(fd, "end", 3));
    SAY(lseek(fd, 0, SEEK_DATA));
    SAY(lseek(fd, 4096, SEEK_DATA));
    SAY(lseek(fd, 0, SEEK_HOLE));
    SAY(lseek(fd, 1 << 20, SEEK_HOLE));
    SAY(lseek(fd, 2 << 20, SEEK_DATA));
    SAY(lseek(fd, LLONG_MAX, SEEK_SET));
    SAY(posix_fallocate(fd, 0, 10000));
    SAY(fallocate(fd, 0, 0, 0));
    close(copy);
    close(fd);
}

static void names(void)
{
    char path[PATH_MAX];

    SAY(mkdir("d", 0755));
    SAY(mkdir("d", 0755));
    SAY(mkdir("d/e/", 0700));
    SAY(mkdir("none/e", 0700));
    SAY(mkdir("file/e", 0700));
    put("d/f", "f");
    list("d");
    SAY(rmdir("d"));
    SAY(unlink("d"));
    SAY(rmdir("d/f"));
    SAY(rmdir("d/."));
    SAY(rmdir("d/e/.."));
    SAY(unlink("d/f/"));
    SAY(link("d/f", "d/g"));
    SAY(link("d/f", "d/g"));
    SAY(link("d", "dd"));
    SAY(link("none", "x"));
    status("d/f");
    SAY(symlink("d/f", "l"));
    SAY(symlink("d", "ld"));
    SAY(symlink("loop", "loop"));
    SAY(symlink("", "x"));
    SAY(open("loop", O_RDONLY));
    SAY(open("l", O_RDONLY | O_NOFOLLOW));
    status("l");
    status("ld/f");
    status("ld/");
    SAY(readlink("l", path, sizeof path));
    SAY(readlink("l", path, 2));
    SAY(readlink("l", path, 0));
    SAY(readlink("d", path, sizeof path));
    SAY(rename("d/f", "d/h"));
    SAY(rename("d/none", "d/h"));
    SAY(rename("d", "d/e/x"));
    SAY(rename("d/e", "file"));
    SAY(rename("file", "d/e"));
    SAY(rename("d/e", "."));
    SAY(mkdir("d2", 0755));
    SAY(rename("d/e", "d2"));
    SAY(rename("d2", "d"));
    status("d");
    SAY(syscall(SYS_renameat2, AT_FDCWD, "file", AT_FDCWD, "l", 1));
    SAY(syscall(SYS_renameat2, AT_FDCWD, "file", AT_FDCWD, "d2", 2));
    status("file");
    status("d2");
    SAY(syscall(SYS_renameat2, AT_FDCWD, "file", AT_FDCWD, "d2", 2));
    SAY(rename("d/h", "d/g"));
    list("d");
    status("d/g");
    show("l");
    list(".");
}

static void gone(void)
{
    char path[PATH_MAX];
    int fd = open("gone", O_CREAT | O_RDWR, 0644);
    struct stat s;

    SAY(unlink("gone"));
    SAY(write(fd, "still", 5));
    SAY(fstat(fd, &s));
    printf("%d links, %d bytes\n", (int)s.st_nlink, (int)s.st_size);
    close(fd);
    SAY(mkdir("away", 0755));
    SAY(chdir("away"));
    SAY(rmdir("../away"));
    SAY((long)getcwd(path, sizeof path) ? 0 : -1);
    SAY(open("x", O_CREAT | O_WRONLY, 0600));
    SAY(mkdir("x", 0700));
    list(".");
}

static void attributes(void)
{
    struct timespec times[2] = {{1000, 5}, {2000, 0}};
    struct stat s;

    umask(027);
    SAY(open("masked", O_CREAT | O_WRONLY, 0777));
    status("masked");
    SAY(umask(022));
    SAY(chmod("masked", 04711));
    status("masked");
    SAY(chmod("none", 0));
    SAY(access("masked", X_OK));
    SAY(access("file", X_OK));
    SAY(access("file", R_OK | W_OK));
    SAY(access("file", 64));
    SAY(utimensat(AT_FDCWD, "masked", times, 0));
    SAY(stat("masked", &s));
    printf("%lld.%ld %lld\n", (long long)s.st_atim.tv_sec, s.st_atim.tv_nsec,
           (long long)s.st_mtim.tv_sec);
    times[0].tv_nsec = 1000000000;
    SAY(utimensat(AT_FDCWD, "masked", times, 0));
    SAY(fstatat(AT_FDCWD, "", &s, AT_EMPTY_PATH));
    SAY(fstatat(AT_FDCWD, "", &s, 0));
    SAY(fstatat(99, "x", &s, 0));
    SAY(fstatat(0, "x", &s, 0x40000000));
}

static void descriptors(void)
{
    struct rlimit *none = NULL;
    int fd = open("file", O_RDONLY);

    (void)none;
    SAY(dup2(fd, fd) == fd);
    SAY(dup2(99, 5));
    SAY(dup2(fd, 1 << 20));
    SAY(dup3(fd, fd, 0));
    SAY(dup3(fd, 50, O_CLOEXEC));
    SAY(fcntl(50, F_GETFD));
    SAY(fcntl(50, F_SETFD, 0));
    SAY(fcntl(50, F_GETFD));
    SAY(fcntl(50, F_DUPFD, 60));
    SAY(fcntl(50, F_DUPFD_CLOEXEC, 60));
    SAY(fcntl(50, F_DUPFD, -1));
    SAY(syscall(SYS_close_range, 50, 100, 0));
    SAY(fcntl(60, F_GETFD));
    SAY(syscall(SYS_close_range, 100, 50, 0));
    SAY(close(99));
    SAY(fsync(fd));
    SAY(fcntl(fd, 12345));
    close(fd);
}

// More entries than fit into one call, removed while they are listed.
static void many(void)
{
    char name[300];
    DIR *directory;
    struct dirent *entry;
    int found = 0;

    SAY(mkdir("many", 0755));
    for (int i = 0; i < 700; i++) {
        snprintf(name, sizeof name, "many/%d", i);
        put(name, "");
    }
    directory = opendir("many");
    while ((entry = readdir(directory))) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(name, sizeof name, "many/%s", entry->d_name);
        found += unlink(name) == 0;
    }
    closedir(directory);
    printf("%d removed\n", found);
    SAY(rmdir("many"));
}

// A running program cannot be opened for writing, and a file open for writing cannot be executed.
static void running(void)
{
    static char piece[65536];
    int from = open("/proc/self/exe", O_RDONLY), to = open("program", O_CREAT | O_RDWR, 0755);
    int ends[2], end[2], status = 0;
    ssize_t size;

    while ((size = read(from, piece, sizeof piece)) > 0)
        EXPECT(write(to, piece, size) == size, "copy");
    close(from);
    SAY(execl("./program", "program", "waits", NULL));
    close(to);
    EXPECT(pipe2(ends, O_CLOEXEC) == 0 && pipe(end) == 0, "pipe");
    pid_t child = fork();
    if (child == 0) {
        dup2(end[0], 0);
        dup2(ends[1], 1);
        close(end[1]);
        execl("./program", "program", "waits", NULL);
        _exit(99);
    }
    close(ends[1]);
    // Closed by its exec, and by the program itself after its checks.
    EXPECT(read(ends[0], piece, 1) == 0, "exec");
    SAY(open("program", O_WRONLY));
    SAY(open("program", O_RDWR));
    SAY(open("program", O_RDONLY | O_TRUNC));
    SAY(truncate("program", 0));
    SAY(open("program", O_CREAT | O_WRONLY, 0700));
    SAY(close(open("program", O_RDONLY)));
    SAY(chmod("program", 0711));
    SAY(rename("program", "renamed"));
    SAY(open("renamed", O_WRONLY));
    close(end[0]);
    close(end[1]);
    SAY(waitpid(child, &status, 0) == child);
    printf("it ended with %x\n", status);
    SAY(close(open("renamed", O_RDWR | O_TRUNC)));
    put("script", "#!/proc/self/exe\n");
    SAY(chmod("script", 0755));
    to = open("script", O_WRONLY);
    SAY(execl("./script", "script", NULL));
    close(to);
}

// A child of the program runs it too; the program continues when the child ends.
static int runs(void)
{
    char byte;

    if (fork() == 0)
        _exit(open("program", O_WRONLY) == -1 && errno == ETXTBSY ? 0 : 1);
    int status = -1;
    wait(&status);
    close(1);
    return read(0, &byte, 1) == 0 ? status : 1;
}

// Changes to a folder on a file system in memory, like the kernel's, from which programs may be executed.
// Containers often forbid this in the first of these places.
static void go_to_memory(void)
{
    static const char *const places[] = {"/dev/shm", "/tmp", "/run"};

    for (unsigned i = 0; i < sizeof places / sizeof *places; i++) {
        char folder[64];
        struct statfs s;

        snprintf(folder, sizeof folder, "%s/files-XXXXXX", places[i]);
        if (statfs(places[i], &s) == 0 && s.f_type == 0x01021994 && !(s.f_flags & ST_NOEXEC) &&
            mkdtemp(folder) && chdir(folder) == 0)
            return;
    }
    EXPECT(false, "no place for files in memory that may be executed");
}

int main(int count, char **arguments)
{
    (void)arguments;
    if (count > 1)
        return runs();
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    go_to_memory();
    opening();
    positions();
    names();
    attributes();
    descriptors();
    running();
    many();
    gone();
    fflush(stdout);
    return 0;
}
