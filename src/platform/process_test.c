/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "platform/process.h"
#include "platform/temporary_kit.h"

static char logged[512];

static void remember(void *self, enum base_log_level level, const char *room, const char *text)
{
    (void)self;
    (void)level;
    (void)room;
    snprintf(logged, sizeof(logged), "%s", text);
}

static void file_limit_is_the_hard_one(void **state)
{
    (void)state;
    struct rlimit before, after;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    struct rlimit low = {64, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    base_log_set(remember, NULL);
    base_log_set_level(LOG_LEVEL_INFO);
    process_raise_file_limit();
    base_log_set(NULL, NULL);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &after), 0);
    assert_true(after.rlim_cur == before.rlim_max);
    assert_non_null(strstr(logged, "raised from 64"));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

static char path[2 * TEMPORARY_MAX];

static void write_secret(const char *text, size_t size, mode_t mode)
{
    snprintf(path, sizeof(path), "yolk-secret-XXXXXX");
    temporary_path(path);
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, size), size);
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

/* Reads a file with this content; the status, and the secret in `secret`. */
static int read_back(const char *text, size_t size, mode_t mode, uint8_t *secret, size_t *got)
{
    write_secret(text, size, mode);
    int status = process_read_secret(path, secret, 8, got);
    unlink(path);
    return status;
}

static void secret_file(void **state)
{
    (void)state;
    uint8_t secret[8];
    size_t size;
    assert_int_equal(read_back("sesame\r\n", 8, 0600, secret, &size), YOLK_OK);
    assert_int_equal(size, 6);
    assert_memory_equal(secret, "sesame", 6);
    assert_int_equal(read_back("12345678\n", 9, 0400, secret, &size), YOLK_OK);
    assert_int_equal(size, 8);
    assert_int_equal(read_back("12345678\r\n", 10, 0600, secret, &size), YOLK_OK);
    assert_memory_equal(secret, "12345678", 8);
    const char *longer[] = {"123456789", "12345678\nx", "12345678\r\nx", "12345678x\n"};
    for (size_t i = 0; i < sizeof(longer) / sizeof(longer[0]); i++) {
        assert_int_equal(read_back(longer[i], strlen(longer[i]), 0600, secret, &size),
                         YOLK_ERR_CONFIG);
        assert_non_null(strstr(yolk_last_error(), "larger than 8 bytes"));
    }
    assert_int_equal(read_back("", 0, 0600, secret, &size), YOLK_ERR_CONFIG);
    assert_int_equal(read_back("\n\n", 2, 0600, secret, &size), YOLK_ERR_CONFIG);
    assert_non_null(strstr(yolk_last_error(), "is empty"));
    for (mode_t mode = 1; mode <= 0077; mode <<= 1) {
        assert_int_equal(read_back("sesame", 6, 0600 | mode, secret, &size), YOLK_ERR_CONFIG);
        assert_non_null(strstr(yolk_last_error(), "chmod 600"));
        assert_non_null(strstr(yolk_last_error(), path));
    }
    assert_int_equal(process_read_secret("/nowhere/secret", secret, 8, &size), YOLK_ERR_CONFIG);
    assert_non_null(strstr(yolk_last_error(), "/nowhere/secret"));
}

/* Who has a file open is seen while it lives, and not any more once it was killed. */
static void who_uses_a_file_and_lives(void **state)
{
    char name[TEMPORARY_MAX] = "yolk-process-XXXXXX", byte;
    int begun[2], fd = mkstemp(temporary_path(name));
    uint64_t never = UINT64_MAX;
    (void)state;
    assert_true(fd >= 0);
    assert_true(process_uses_file(name, never));
    assert_false(process_uses_file(name, 0)); /* no time to look */
    assert_false(process_uses_file("/nowhere/file", never));
    assert_int_equal(pipe(begun), 0);
    pid_t child = fork();
    if (child == 0) {
        if (write(begun[1], "x", 1) == 1)
            pause();
        _exit(1);
    }
    close(fd);
    assert_int_equal(read(begun[0], &byte, 1), 1);
    assert_true(process_uses_file(name, never)); /* it inherited it */
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_false(process_uses_file(name, never));
    close(begun[0]);
    close(begun[1]);
    unlink(name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(file_limit_is_the_hard_one),
        cmocka_unit_test(secret_file),
        cmocka_unit_test(who_uses_a_file_and_lives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
