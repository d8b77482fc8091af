/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the provider's socket lies: in a folder that nobody else can enter. A private one is locked
 * for as long as its process lives, so that a later start finds and removes those of processes that
 * were killed. In a folder that was given there are sockets of several processes: those that nobody
 * answers at are removed.
 */
#include "transport/shm/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/limits.h"
#include "platform/clock.h"
#include "platform/net.h"
#include "platform/random.h"

#define PREFIX "yolk-shm-"

enum {
    NAME_SIZE = sizeof PREFIX - 1 + 6, /* mkdtemp's part */
    SOCKET_NAME_SIZE = 8 + 5,          /* %08x.sock */
    SCAN_MAX = 10000,                  /* entries that are looked at */
    MAKE_TRIES = 8,
    /* bind comes before listen: a socket that refuses is left over only when it is older. */
    LEFT_OVER_AGE_S = 60,
};

static bool is_folder_name(const char *name)
{
    return strncmp(name, PREFIX, sizeof PREFIX - 1) == 0 && strlen(name) == NAME_SIZE;
}

static bool is_socket_name(const char *name)
{
    return strlen(name) == SOCKET_NAME_SIZE && strspn(name, "0123456789abcdef") == 8 &&
           strcmp(name + 8, ".sock") == 0;
}

static bool is_private(const struct stat *st)
{
    return S_ISDIR(st->st_mode) && st->st_uid == geteuid() && (st->st_mode & 077) == 0;
}

/* Calls visit for each name, of SCAN_MAX entries at most. */
static void for_each(int fd, void (*visit)(int fd, const char *name))
{
    int own = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = own < 0 ? NULL : fdopendir(own);
    if (dir == NULL) {
        net_close(own);
        return;
    }
    for (int i = 0; i < SCAN_MAX; i++) {
        const struct dirent *entry = readdir(dir);
        if (entry == NULL)
            break;
        visit(fd, entry->d_name);
    }
    closedir(dir);
}

static void remove_socket(int fd, const char *name)
{
    struct stat st;
    if (is_socket_name(name) && fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISSOCK(st.st_mode) && st.st_uid == geteuid())
        (void)unlinkat(fd, name, 0);
}

/* A private folder whose process is gone. What else somebody put into it keeps it. */
static void remove_folder(int fd, const char *name)
{
    struct stat st;
    if (!is_folder_name(name))
        return;
    int folder = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder < 0)
        return;
    if (fstat(folder, &st) == 0 && is_private(&st) && flock(folder, LOCK_EX | LOCK_NB) == 0) {
        for_each(folder, remove_socket);
        (void)unlinkat(fd, name, AT_REMOVEDIR);
    }
    (void)close(folder);
}

static void remove_dead_socket(int fd, const char *name)
{
    char path[64];
    struct net_address address;
    struct stat st;
    int peer;
    if (!is_socket_name(name) || fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISSOCK(st.st_mode) || time(NULL) - st.st_mtime < LEFT_OVER_AGE_S)
        return;
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d/%s", fd, name);
    if (net_address_unix(path, &address) != YOLK_OK)
        return;
    int status = net_connect(&address, clock_after_ms(clock_real_now_ns(), 100), &peer);
    if (status == YOLK_OK)
        net_close(peer);
    else if (status == YOLK_ERR_REFUSED)
        remove_socket(fd, name);
}

/* AGAIN: another process's cleaning got between making and locking. */
static int make_private(struct shm_folder *f, const char *base)
{
    struct stat st;
    (void)snprintf(f->dir, sizeof f->dir, "%s/" PREFIX "XXXXXX", base);
    if (mkdtemp(f->dir) == NULL)
        return base_fail(YOLK_ERR_SYSTEM, errno, "shm: no folder for the socket in %s", base);
    f->made = true;
    f->lock = open(f->dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (f->lock < 0 && errno == ENOENT)
        return YOLK_ERR_AGAIN;
    if (f->lock < 0)
        return base_fail(YOLK_ERR_SYSTEM, errno, "shm: folder %s", f->dir);
    if (flock(f->lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return YOLK_ERR_AGAIN;
    /* A file system without locks: nobody else gets one either, so the folder is left alone. */
    return fstat(f->lock, &st) == 0 && st.st_nlink > 0 ? YOLK_OK : YOLK_ERR_AGAIN;
}

static int choose_private(struct shm_folder *f)
{
    const char *base = getenv("XDG_RUNTIME_DIR");
    int status = YOLK_ERR_AGAIN;
    if (base == NULL || base[0] != '/' || strlen(base) > 60 || access(base, W_OK | X_OK) != 0)
        base = "/tmp";
    int fd = open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0)
        for_each(fd, remove_folder);
    net_close(fd);
    for (int i = 0; i < MAKE_TRIES && status == YOLK_ERR_AGAIN; i++) {
        shm_folder_remove(f);
        status = make_private(f, base);
    }
    if (status == YOLK_ERR_AGAIN)
        return base_fail(YOLK_ERR_SYSTEM, 0, "shm: the folder for the socket in %s vanished", base);
    return status;
}

static int choose_given(struct shm_folder *f, const char *dir)
{
    struct stat st;
    (void)snprintf(f->dir, sizeof f->dir, "%s", dir);
    if (mkdir(f->dir, 0700) != 0 && errno != EEXIST)
        return base_fail(YOLK_ERR_SYSTEM, errno, "shm: folder %s", f->dir);
    if (lstat(f->dir, &st) != 0)
        return base_fail(YOLK_ERR_SYSTEM, errno, "shm: folder %s", f->dir);
    if (!is_private(&st))
        return base_fail(YOLK_ERR_CONFIG, 0,
                         "shm: the socket folder %s must be ours with mode 0700", f->dir);
    int fd = open(f->dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0)
        for_each(fd, remove_dead_socket);
    net_close(fd);
    return YOLK_OK;
}

int shm_folder_make(struct shm_folder *f, const char *given)
{
    struct random random = random_real();
    int status = given[0] == '\0' ? choose_private(f) : choose_given(f, given);
    if (status != YOLK_OK)
        return status;
    int n =
        snprintf(f->path, sizeof f->path, "%s/%08x.sock", f->dir, (unsigned)random_u64(&random));
    if (n < 0 || (size_t)n >= sizeof f->path)
        return base_fail(YOLK_ERR_CONFIG, 0, "shm: the socket folder's name is too long");
    return YOLK_OK;
}

void shm_folder_remove(struct shm_folder *f)
{
    if (f->path[0] != '\0')
        (void)unlink(f->path);
    if (f->made)
        (void)rmdir(f->dir);
    net_close(f->lock); /* last: the lock says that it is in use */
    *f = (struct shm_folder){.lock = -1};
}
