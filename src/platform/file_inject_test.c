/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "platform/file_inject.h"
#include "platform/temporary_kit.h"

struct kit {
    struct file_sim *sim;
    struct file_system inner;
    struct file_inject *inject;
    struct file_system fs;
    struct file *file;
    uint64_t paused_ns;
};

static void note_pause(void *self, uint64_t ns)
{
    ((struct kit *)self)->paused_ns += ns;
}

static void kit_open(struct kit *k, const char *rules)
{
    memset(k, 0, sizeof(*k));
    assert_int_equal(file_sim_create(1, &k->sim), YOLK_OK);
    k->inner = file_sim_system(k->sim);
    assert_int_equal(file_inject_create(&k->inner, rules, &k->inject), YOLK_OK);
    file_inject_set_pause(k->inject, note_pause, k);
    k->fs = file_inject_system(k->inject);
    assert_int_equal(
        file_open(&k->fs, "f", FILE_READ | FILE_WRITE | FILE_CREATE | FILE_DIRECT, &k->file),
        YOLK_OK);
}

static void kit_close(struct kit *k)
{
    file_close(k->file);
    file_inject_destroy(k->inject);
    file_sim_destroy(k->sim);
}

static void wrong_rules_are_named(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "write",         "write:1",      "scribble:1=eio", "write:x=eio",    "write:1-=eio",
        "write:1+0=eio", "write:1=what", "write:1=0",      "write:1+0s=eio", "write:1=eio,read"};
    struct file_system real = file_system_real();
    struct file_inject *inject;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(file_inject_create(&real, wrong[i], &inject), YOLK_ERR_CONFIG);
        assert_null(inject);
    }
    assert_non_null(strstr(yolk_last_error(), "\"read\""));
}

static void the_counted_ones_fail(void **state)
{
    (void)state;
    struct kit k;
    char text[2];
    size_t got;
    kit_open(&k, "write:1=enospc,write:3+2=eio,sync:1+=eio,allocate:0=eopnotsupp,read:0=eio");
    static const int expected[] = {YOLK_OK,     YOLK_ERR_NO_SPACE, YOLK_OK,
                                   YOLK_ERR_IO, YOLK_ERR_IO,       YOLK_OK};
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++)
        assert_int_equal(file_pwrite(k.file, "ab", 2, 0), expected[i]);
    assert_int_equal(file_fdatasync(k.file), YOLK_OK);
    assert_int_equal(file_fdatasync(k.file), YOLK_ERR_IO);
    assert_int_equal(file_fdatasync(k.file), YOLK_ERR_IO);
    assert_int_equal(file_fallocate(k.file, 0, 100), YOLK_ERR_UNSUPPORTED);
    assert_int_equal(file_fallocate(k.file, 0, 100), YOLK_OK);
    assert_int_equal(file_pread(k.file, text, 2, 0, &got), YOLK_ERR_IO);
    assert_int_equal(got, 0);
    assert_int_equal(file_pread(k.file, text, 2, 0, &got), YOLK_OK);
    assert_memory_equal(text, "ab", 2);
    assert_int_equal(file_inject_hits(k.inject), 7);
    kit_close(&k);
}

static void direct_is_refused(void **state)
{
    (void)state;
    struct kit k;
    char text[2];
    size_t got;
    kit_open(&k, "open:0=nodirect");
    assert_false(file_direct(k.file));
    kit_close(&k);
    kit_open(&k, "read:0+=einval");
    assert_true(file_direct(k.file));
    assert_int_equal(file_pread(k.file, text, 2, 0, &got), YOLK_OK);
    assert_false(file_direct(k.file));
    kit_close(&k);
    kit_open(&k, "read:0+=einval");
    assert_int_equal(file_completed(k.file, FILE_OPERATION_READ, 5, 5), -EINVAL);
    file_direct_refuse(k.file, EINVAL);
    assert_int_equal(file_completed(k.file, FILE_OPERATION_READ, 5, 5), 5);
    kit_close(&k);
}

static void answers_of_others_are_changed(void **state)
{
    (void)state;
    struct kit k;
    kit_open(&k, "read:0=short,read:1=eagain,read:2=eio,write:0=enospc,read:3=eintr");
    assert_int_equal(file_completed(k.file, FILE_OPERATION_READ, 100, 100), 50);
    assert_int_equal(file_completed(k.file, FILE_OPERATION_READ, 100, 100), -EAGAIN);
    assert_int_equal(file_completed(k.file, FILE_OPERATION_READ, 100, 100), -EIO);
    assert_int_equal(file_completed(k.file, FILE_OPERATION_READ, 100, 100), -EINTR);
    assert_int_equal(file_completed(k.file, FILE_OPERATION_READ, 100, 100), 100);
    assert_int_equal(file_completed(k.file, FILE_OPERATION_READ, 100, -5), -5);
    assert_int_equal(file_completed(k.file, FILE_OPERATION_WRITE, 100, 100), -ENOSPC);
    kit_close(&k);
}

static void slow_by_size(void **state)
{
    (void)state;
    struct kit k;
    char text[1000] = {0};
    kit_open(&k, "write:0+2=1000000");
    for (int i = 0; i < 3; i++)
        assert_int_equal(file_pwrite(k.file, text, sizeof(text), 0), YOLK_OK);
    assert_int_equal(k.paused_ns, 2000000);
    kit_close(&k);
}

/* The exit of a child that writes three blocks under the rules, and what it left. */
static void dies_at(const char *rules, uint64_t expected_size)
{
    char path[2 * TEMPORARY_MAX];
    snprintf(path, sizeof(path), "yolk-file-inject-%d", (int)getpid());
    temporary_path(path);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        static const char block[1024];
        struct file_system real = file_system_real();
        struct file_inject *inject;
        struct file *f;
        if (file_inject_create(&real, rules, &inject) != YOLK_OK)
            _exit(1);
        struct file_system fs = file_inject_system(inject);
        if (file_open(&fs, path, FILE_WRITE | FILE_CREATE, &f) != YOLK_OK)
            _exit(2);
        for (uint64_t i = 0; i < 3; i++)
            if (file_pwrite(f, block, sizeof(block), i * sizeof(block)) != YOLK_OK)
                _exit(3);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGKILL);
    struct file_system real = file_system_real();
    struct file *f;
    uint64_t size;
    assert_int_equal(file_open(&real, path, FILE_READ, &f), YOLK_OK);
    assert_int_equal(file_size(f, &size), YOLK_OK);
    assert_int_equal(size, expected_size);
    file_close(f);
    assert_int_equal(file_unlink(&real, path), YOLK_OK);
}

static void dies_at_the_step(void **state)
{
    (void)state;
    dies_at("write:2=kill", 2048);
    dies_at("write:1=tear", 1536);
}

static void a_failure_may_last_for_a_time(void **state)
{
    (void)state;
    struct kit k;
    char data[4096] = {0};
    unsigned failed = 0;
    kit_open(&k, "write:1+20ms=eio");
    assert_int_equal(file_pwrite(k.file, data, sizeof(data), 0), YOLK_OK);
    while (file_pwrite(k.file, data, sizeof(data), 0) == YOLK_ERR_IO)
        failed++;
    assert_true(failed > 0); /* and an end came */
    assert_int_equal(file_pwrite(k.file, data, sizeof(data), 0), YOLK_OK);
    assert_int_equal(file_inject_hits(k.inject), failed);
    kit_close(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_rules_are_named),
        cmocka_unit_test(a_failure_may_last_for_a_time),
        cmocka_unit_test(the_counted_ones_fail),
        cmocka_unit_test(direct_is_refused),
        cmocka_unit_test(answers_of_others_are_changed),
        cmocka_unit_test(slow_by_size),
        cmocka_unit_test(dies_at_the_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
