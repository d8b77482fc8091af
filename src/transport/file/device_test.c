/* SPDX-License-Identifier: Apache-2.0 */
/* Over file systems made for the purpose, on loop devices of both sector sizes. Needs root. */
#include <errno.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "platform/temporary_kit.h"
#include "transport/file/kit.h"

extern char **environ;

struct device {
    char image[TEMPORARY_MAX], folder[TEMPORARY_MAX + 8], loop[64];
};

/* The exit status of a command; 127: there is none of that name. Its output is in out. */
static int command(char *const argv[], char *out, size_t out_size)
{
    int ends[2];
    pid_t child;
    posix_spawn_file_actions_t actions;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
    int rc = posix_spawnp(&child, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    size_t used = 0;
    for (ssize_t n = 1; rc == 0 && n > 0 && used + 1 < out_size; used += n > 0 ? (size_t)n : 0)
        n = read(ends[0], out + used, out_size - 1 - used);
    out[used] = '\0';
    close(ends[0]);
    int status = 0;
    if (rc != 0 || waitpid(child, &status, 0) != child)
        return 127;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static void device_close(struct device *d)
{
    char out[256];
    (void)umount(d->folder);
    if (d->loop[0] != '\0') {
        char *detach[] = {"losetup", "-d", d->loop, NULL};
        (void)command(detach, out, sizeof(out));
    }
    (void)rmdir(d->folder);
    (void)unlink(d->image);
}

static void device_skip(struct device *d, const char *why, const char *more)
{
    device_close(d);
    print_message("SKIP: %s%s\n", why, more);
    skip();
}

static void make_image(struct device *d)
{
    snprintf(d->image, sizeof(d->image), "yolk-device-XXXXXX");
    temporary_path(d->image);
    int fd = mkstemp(d->image);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 400 << 20), 0); /* xfs takes no less than 300 MB */
    close(fd);
    (void)snprintf(d->folder, sizeof(d->folder), "%s.d", d->image);
    assert_int_equal(mkdir(d->folder, 0700), 0);
}

static void device_open(struct device *d, char *type, char *sector)
{
    char out[256], make[32];
    memset(d, 0, sizeof(*d));
    if (geteuid() != 0)
        device_skip(d, "loop devices need root", "");
    make_image(d);
    char *attach[] = {"losetup", "-b", sector, "-f", "--show", d->image, NULL};
    if (command(attach, out, sizeof(out)) != 0)
        device_skip(d, "no loop device: ", out);
    (void)snprintf(d->loop, sizeof(d->loop), "%.*s", (int)strcspn(out, "\n"), out);
    (void)snprintf(make, sizeof(make), "mkfs.%s", type);
    char *format[] = {make, "-q", d->loop, NULL};
    int rc = command(format, out, sizeof(out));
    if (rc != 0)
        device_skip(
            d, rc == 127 ? "there is no " : "it cannot be formatted: ", rc == 127 ? make : out);
    if (mount(d->loop, d->folder, type, 0, NULL) != 0)
        device_skip(d, "it cannot be mounted: ", strerror(errno));
}

static void matrix_on(char *type, char *sector)
{
    const struct yolk_transport_ops *const each[] = {transport_uring_ops(), transport_posix_ops()};
    struct device d;
    device_open(&d, type, sector);
    for (size_t i = 0; i < 2; i++) {
        const struct yolk_transport_options options = {.struct_size = sizeof(options)};
        struct yolk_probe probe = {.reason = ""};
        if (each[i]->probe(&options, &probe) != YOLK_OK) {
            print_message("%s is left out: %s\n", each[i]->name, probe.reason);
            continue;
        }
        struct kit k = {
            .ops = {each[i]}, .ops_count = 1, .folder = d.folder, .size = 4 * MIB, .pad_writes = 1};
        struct file_alignment alignment;
        kit_open(&k);
        assert_int_equal(file_alignment(k.file, &alignment), YOLK_OK);
        /* The device's say, whatever block size the file system names. */
        assert_true(alignment.offset >= strtoul(sector, NULL, 10));
        assert_true(file_direct(k.file));
        kit_address_matrix(&k);
        assert_true(file_direct(k.file));
        kit_close(&k);
    }
    device_close(&d);
}

static void c72_ext4_on_sectors_of_512(void **state)
{
    (void)state;
    matrix_on("ext4", "512");
}

static void c72_ext4_on_sectors_of_4096(void **state)
{
    (void)state;
    matrix_on("ext4", "4096");
}

static void c72_xfs_on_sectors_of_512(void **state)
{
    (void)state;
    matrix_on("xfs", "512");
}

static void c72_xfs_on_sectors_of_4096(void **state)
{
    (void)state;
    matrix_on("xfs", "4096");
}

static void c69_ramfs_knows_no_direct_io(void **state)
{
    (void)state;
    char folder[TEMPORARY_MAX] = "yolk-ramfs-XXXXXX";
    assert_non_null(mkdtemp(temporary_path(folder)));
    if (mount("none", folder, "ramfs", 0, NULL) != 0) {
        print_message("SKIP: ramfs cannot be mounted: %s\n", strerror(errno));
        (void)rmdir(folder);
        skip();
    }
    struct kit k = {
        .ops = {transport_posix_ops()}, .ops_count = 1, .folder = folder, .size = 4 * MIB};
    kit_direct_is_refused_once(&k);
    assert_int_equal(umount(folder), 0);
    assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(c72_ext4_on_sectors_of_512),
        cmocka_unit_test(c72_ext4_on_sectors_of_4096),
        cmocka_unit_test(c72_xfs_on_sectors_of_512),
        cmocka_unit_test(c72_xfs_on_sectors_of_4096),
        cmocka_unit_test(c69_ramfs_knows_no_direct_io),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
