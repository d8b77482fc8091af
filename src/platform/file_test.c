/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <sys/stat.h>
#include <unistd.h>

#include "platform/file.h"
#include "platform/temporary_kit.h"
#include "yolk/status.h"

/* What both systems promise. */
static void contract(const struct file_system *fs, const char *path)
{
    struct file *f, *g;
    char buf[64];
    size_t got;
    uint64_t size;
    assert_int_equal(file_open(fs, path, FILE_READ, &f), YOLK_ERR_NOT_FOUND);
    assert_null(f);
    assert_int_equal(file_open(fs, path, FILE_READ | FILE_WRITE | FILE_CREATE | FILE_EXCLUSIVE, &f),
                     YOLK_OK);
    assert_int_equal(file_open(fs, path, FILE_WRITE | FILE_CREATE | FILE_EXCLUSIVE, &g),
                     YOLK_ERR_EXISTS);
    assert_int_equal(file_pwrite(f, "hello", 5, 10), YOLK_OK);
    assert_int_equal(file_size(f, &size), YOLK_OK);
    assert_int_equal(size, 15);
    assert_int_equal(file_pread(f, buf, sizeof(buf), 0, &got), YOLK_OK);
    assert_int_equal(got, 15);
    assert_memory_equal(buf, "\0\0\0\0\0\0\0\0\0\0hello", 15);
    assert_int_equal(file_pread(f, buf, 3, 11, &got), YOLK_OK);
    assert_int_equal(got, 3);
    assert_memory_equal(buf, "ell", 3);
    assert_int_equal(file_pread(f, buf, 3, 15, &got), YOLK_OK);
    assert_int_equal(got, 0);
    assert_int_equal(file_fallocate(f, 0, 4096), YOLK_OK);
    assert_int_equal(file_size(f, &size), YOLK_OK);
    assert_int_equal(size, 4096);
    assert_int_equal(file_fallocate(f, 0, 100), YOLK_OK); /* never shrinks */
    assert_int_equal(file_size(f, &size), YOLK_OK);
    assert_int_equal(size, 4096);
    assert_int_equal(file_fdatasync(f), YOLK_OK);
    file_close(f);
    assert_int_equal(file_open(fs, path, FILE_READ, &f), YOLK_OK);
    assert_int_not_equal(file_pwrite(f, "x", 1, 0), YOLK_OK);
    assert_int_equal(file_pread(f, buf, 5, 10, &got), YOLK_OK);
    assert_memory_equal(buf, "hello", 5);
    assert_int_equal(file_open(fs, path, FILE_WRITE | FILE_TRUNCATE, &g), YOLK_OK);
    assert_int_equal(file_size(f, &size), YOLK_OK);
    assert_int_equal(size, 0);
    file_close(g);
    assert_int_equal(file_unlink(fs, path), YOLK_OK);
    assert_int_equal(file_unlink(fs, path), YOLK_ERR_NOT_FOUND);
    assert_int_equal(file_size(f, &size), YOLK_OK); /* open handles live on */
    file_close(f);
    file_close(NULL);
}

static void locks_and_places(const struct file_system *fs, const char *path, const char *other)
{
    struct file *f, *g;
    struct file_alignment alignment;
    uint64_t number;
    char text[4];
    size_t got;
    const unsigned flags = FILE_READ | FILE_WRITE | FILE_CREATE;
    assert_int_equal(file_open(fs, path, flags, &f), YOLK_OK);
    assert_int_equal(file_open(fs, path, flags, &g), YOLK_OK);
    assert_int_equal(file_lock(f), YOLK_OK);
    assert_int_equal(file_lock(f), YOLK_OK);
    assert_int_equal(file_lock(g), YOLK_ERR_BUSY);
    file_close(f);
    struct file *reader, *other_reader; /* share it, and wait for no writer */
    assert_int_equal(file_open(fs, path, FILE_READ, &reader), YOLK_OK);
    assert_int_equal(file_open(fs, path, FILE_READ, &other_reader), YOLK_OK);
    assert_int_equal(file_lock(reader), YOLK_OK);
    assert_int_equal(file_lock(other_reader), YOLK_OK);
    assert_int_equal(file_lock(other_reader), YOLK_OK);
    assert_int_equal(file_lock(g), YOLK_ERR_BUSY);
    file_close(reader);
    assert_int_equal(file_lock(g), YOLK_ERR_BUSY);
    file_close(other_reader);
    assert_int_equal(file_lock(g), YOLK_OK);
    assert_int_equal(file_open(fs, path, FILE_READ, &reader), YOLK_OK);
    assert_int_equal(file_lock(reader), YOLK_ERR_BUSY);
    file_close(reader);
    assert_int_equal(file_alignment(g, &alignment), YOLK_OK);
    assert_true(alignment.memory > 0 && (alignment.memory & (alignment.memory - 1)) == 0);
    assert_true(alignment.offset >= 512 && (alignment.offset & (alignment.offset - 1)) == 0);
    assert_int_equal(file_space(g, &number), YOLK_OK);
    assert_true(number > 0);
    assert_int_equal(file_pwrite(g, "abc", 3, 0), YOLK_OK);
    assert_int_equal(file_resize(g, 2), YOLK_OK);
    assert_int_equal(file_resize(g, 9000), YOLK_OK);
    assert_int_equal(file_size(g, &number), YOLK_OK);
    assert_int_equal(number, 9000);
    assert_int_equal(file_pread(g, text, 3, 0, &got), YOLK_OK);
    assert_memory_equal(text, "ab", 3);
    assert_int_equal(file_rename(fs, other, path), YOLK_ERR_NOT_FOUND);
    assert_int_equal(file_rename(fs, path, other), YOLK_OK);
    assert_int_equal(file_open(fs, path, FILE_READ, &f), YOLK_ERR_NOT_FOUND);
    assert_int_equal(file_completed(g, FILE_OPERATION_READ, 5, -5), -5);
    file_close(g);
    assert_int_equal(file_unlink(fs, other), YOLK_OK);
}

/* What is no file is refused, and a pipe that nobody writes to is not waited for. */
static void only_files(void **state)
{
    (void)state;
    struct file_system fs = file_system_real();
    char folder[TEMPORARY_MAX] = "yolk-file-XXXXXX", lone[2 * TEMPORARY_MAX];
    struct file *f;
    assert_non_null(mkdtemp(temporary_path(folder)));
    snprintf(lone, sizeof(lone), "%s/pipe", folder);
    assert_int_equal(mkfifo(lone, 0600), 0);
    const char *const others[] = {folder, lone, "/dev/zero"};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        assert_int_equal(file_open(&fs, others[i], FILE_READ, &f), YOLK_ERR_UNSUPPORTED);
        assert_non_null(strstr(yolk_last_error(), others[i]));
        assert_null(f);
    }
    assert_int_equal(unlink(lone), 0);
    assert_int_equal(rmdir(folder), 0);
}

/* What would be made would take the link's place, not that of what it names. */
static void a_link_to_nothing_is_not_nothing(void **state)
{
    const struct file_system fs = file_system_real();
    char folder[TEMPORARY_MAX] = "yolk-link-XXXXXX";
    char link[TEMPORARY_MAX + 8], target[TEMPORARY_MAX + 8];
    struct file *file;
    (void)state;
    assert_non_null(mkdtemp(temporary_path(folder)));
    snprintf(link, sizeof(link), "%s/link", folder);
    snprintf(target, sizeof(target), "%s/target", folder);
    assert_int_equal(symlink(target, link), 0);
    assert_int_equal(file_open(&fs, link, FILE_READ | FILE_WRITE, &file), YOLK_ERR_INVALID);
    assert_non_null(strstr(yolk_last_error(), link));
    assert_non_null(
        strstr(yolk_last_error(), "is a symbolic link, and what it names is not there"));
    assert_int_equal(file_open(&fs, target, FILE_READ, &file), YOLK_ERR_NOT_FOUND);
    assert_int_equal(file_open(&fs, link, FILE_READ | FILE_WRITE | FILE_CREATE, &file), YOLK_OK);
    file_close(file);
    assert_int_equal(unlink(target), 0);
    assert_int_equal(unlink(link), 0);
    assert_int_equal(rmdir(folder), 0);
}

/* Direct I/O that cannot be is told once, and all goes on. */
static void direct_refused_once(void **state)
{
    (void)state;
    char path[TEMPORARY_MAX];
    struct file *f;
    size_t got;
    char text[5];
    struct file_system fs = file_system_real();
    snprintf(path, sizeof(path), "yolk-file-direct-%d", (int)getpid());
    temporary_path(path);
    uint64_t before = file_direct_refusals();
    assert_int_equal(file_open(&fs, path, FILE_READ | FILE_WRITE | FILE_CREATE | FILE_DIRECT, &f),
                     YOLK_OK);
    if (file_direct(f)) {
        assert_int_equal(fcntl(file_descriptor(f), F_GETFL) & O_DIRECT, O_DIRECT);
        assert_int_equal(file_direct_refusals(), before);
    }
    /* What no direct file takes: the file system's EINVAL is the refusal. */
    assert_int_equal(file_pwrite(f, "hello", 5, 1), YOLK_OK);
    assert_int_equal(file_pread(f, text, 5, 1, &got), YOLK_OK);
    assert_int_equal(got, 5);
    assert_memory_equal(text, "hello", 5);
    assert_false(file_direct(f));
    assert_int_equal(fcntl(file_descriptor(f), F_GETFL) & O_DIRECT, 0);
    assert_int_equal(file_direct_refusals(), before + 1);
    file_direct_refuse(f, EINVAL);
    assert_int_equal(file_direct_refusals(), before + 1);
    file_close(f);
    assert_int_equal(file_unlink(&fs, path), YOLK_OK);
}

static void real_files(void **state)
{
    (void)state;
    char path[TEMPORARY_MAX];
    struct file_system fs = file_system_real();
    snprintf(path, sizeof(path), "yolk-file-test-%d", (int)getpid());
    temporary_path(path);
    contract(&fs, path);
    char other[2 * TEMPORARY_MAX];
    snprintf(other, sizeof(other), "%s-other", path);
    locks_and_places(&fs, path, other);
}

static void simulated_files(void **state)
{
    (void)state;
    struct file_sim *sim;
    assert_int_equal(file_sim_create(1, &sim), YOLK_OK);
    struct file_system fs = file_sim_system(sim);
    contract(&fs, "some/file");
    locks_and_places(&fs, "f", "g");
    /* Who died in a crash holds no lock. */
    struct file *f, *g;
    assert_int_equal(file_open(&fs, "f", FILE_WRITE | FILE_CREATE, &f), YOLK_OK);
    assert_int_equal(file_lock(f), YOLK_OK);
    assert_int_equal(file_sim_crash(sim), YOLK_OK);
    assert_int_equal(file_open(&fs, "f", FILE_WRITE, &g), YOLK_OK);
    assert_int_equal(file_lock(g), YOLK_OK);
    file_close(f);
    assert_int_equal(file_open(&fs, "f", FILE_WRITE, &f), YOLK_OK);
    assert_int_equal(file_lock(f), YOLK_ERR_BUSY);
    file_sim_refuse_allocation(sim);
    assert_int_equal(file_fallocate(g, 0, 10), YOLK_ERR_UNSUPPORTED);
    file_sim_set_space(sim, 77);
    uint64_t space;
    assert_int_equal(file_space(g, &space), YOLK_OK);
    assert_int_equal(space, 77);
    file_close(f);
    file_close(g);
    file_sim_destroy(sim);
}

/* Writes A to 8 blocks, syncs, then B over them and C behind; crashes. */
static void one_crash(uint64_t seed, unsigned *kept, unsigned *lost, unsigned *torn,
                      unsigned *behind, char *image)
{
    enum { BLOCK = 2048, BLOCKS = 8 };
    static char block[BLOCK], all[BLOCK * BLOCKS * 2];
    struct file_sim *sim;
    struct file *f;
    size_t got;
    assert_int_equal(file_sim_create(seed, &sim), YOLK_OK);
    struct file_system fs = file_sim_system(sim);
    assert_int_equal(file_open(&fs, "f", FILE_READ | FILE_WRITE | FILE_CREATE, &f), YOLK_OK);
    for (int pass = 0; pass < 2; pass++) {
        memset(block, 'A' + pass, BLOCK);
        for (uint64_t i = 0; i < BLOCKS + (unsigned)pass; i++)
            assert_int_equal(file_pwrite(f, block, BLOCK, i * BLOCK), YOLK_OK);
        if (pass == 0)
            assert_int_equal(file_fdatasync(f), YOLK_OK);
    }
    assert_int_equal(file_sim_crash(sim), YOLK_OK);
    assert_int_equal(file_pwrite(f, block, 1, 0), YOLK_ERR_CLOSED);
    assert_int_equal(file_fdatasync(f), YOLK_ERR_CLOSED);
    file_close(f);
    assert_int_equal(file_open(&fs, "f", FILE_READ, &f), YOLK_OK);
    assert_int_equal(file_pread(f, all, sizeof(all), 0, &got), YOLK_OK);
    assert_true(got >= BLOCK * BLOCKS); /* what was synced is there */
    for (size_t i = 0; i < BLOCKS; i++) {
        unsigned new = 0;
        for (size_t b = 0; b < BLOCK; b++) {
            assert_true(all[i * BLOCK + b] == 'A' || all[i * BLOCK + b] == 'B');
            new += all[i * BLOCK + b] == 'B';
        }
        assert_int_equal(new % 512, 0);
        *(new == BLOCK ? kept : new == 0 ? lost : torn) += 1;
    }
    *behind += got > BLOCK * BLOCKS;
    memcpy(image, all, BLOCK * BLOCKS);
    file_close(f);
    file_sim_destroy(sim);
}

static void crashes_lose_tear_and_repeat(void **state)
{
    (void)state;
    static char a[16384], b[16384];
    unsigned kept = 0, lost = 0, torn = 0, behind = 0;
    for (uint64_t seed = 0; seed < 50; seed++) {
        one_crash(seed, &kept, &lost, &torn, &behind, a);
        unsigned ignored[4] = {0};
        one_crash(seed, &ignored[0], &ignored[1], &ignored[2], &ignored[3], b);
        assert_memory_equal(a, b, sizeof(a)); /* a seed is a whole story */
    }
    assert_true(kept > 50 && lost > 50 && torn > 10);
    assert_true(behind > 5 && behind < 45);
}

/* Two unsynced writes to one place: either may be the last. */
static void crashes_reorder(void **state)
{
    (void)state;
    unsigned first = 0, second = 0;
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct file_sim *sim;
        struct file *f;
        char c;
        size_t got;
        assert_int_equal(file_sim_create(seed, &sim), YOLK_OK);
        struct file_system fs = file_sim_system(sim);
        assert_int_equal(file_open(&fs, "f", FILE_READ | FILE_WRITE | FILE_CREATE, &f), YOLK_OK);
        for (uint64_t i = 0; i < 3; i++) /* marks that show both were kept */
            assert_int_equal(file_pwrite(f, &"123"[i], 1, 0), YOLK_OK);
        assert_int_equal(file_pread(f, &c, 1, 0, &got), YOLK_OK);
        assert_int_equal(c, '3');
        assert_int_equal(file_sim_crash(sim), YOLK_OK);
        file_close(f);
        assert_int_equal(file_open(&fs, "f", FILE_READ, &f), YOLK_OK);
        assert_int_equal(file_pread(f, &c, 1, 0, &got), YOLK_OK);
        first += got == 1 && c == '1';
        second += got == 1 && c == '3';
        file_close(f);
        file_sim_destroy(sim);
    }
    assert_true(first > 10 && second > 10);
}

static void injected_faults(void **state)
{
    (void)state;
    struct file_sim *sim;
    struct file *f;
    assert_int_equal(file_sim_create(9, &sim), YOLK_OK);
    struct file_system fs = file_sim_system(sim);
    assert_int_equal(file_open(&fs, "f", FILE_READ | FILE_WRITE | FILE_CREATE, &f), YOLK_OK);
    file_sim_inject(sim, FILE_SIM_FAIL_WRITE, 1);
    assert_int_equal(file_pwrite(f, "ab", 2, 0), YOLK_OK);
    assert_int_equal(file_pwrite(f, "cd", 2, 0), YOLK_ERR_IO);
    assert_int_equal(file_pwrite(f, "ef", 2, 0), YOLK_OK);
    file_sim_inject(sim, FILE_SIM_FAIL_SYNC, 0);
    assert_int_equal(file_fdatasync(f), YOLK_ERR_IO);
    assert_int_equal(file_fdatasync(f), YOLK_OK);
    file_sim_inject(sim, FILE_SIM_NO_SPACE, 0);
    assert_int_equal(file_fallocate(f, 0, 100), YOLK_ERR_NO_SPACE);
    assert_int_equal(file_fallocate(f, UINT64_MAX - 5, 100), YOLK_ERR_NO_SPACE);
    file_close(f);
    file_sim_destroy(sim);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(real_files),          cmocka_unit_test(simulated_files),
        cmocka_unit_test(only_files),          cmocka_unit_test(a_link_to_nothing_is_not_nothing),
        cmocka_unit_test(direct_refused_once), cmocka_unit_test(crashes_lose_tear_and_repeat),
        cmocka_unit_test(crashes_reorder),     cmocka_unit_test(injected_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
