/* SPDX-License-Identifier: Apache-2.0 */
#include "platform/temporary_kit.h"
#include "platform/text_file.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/error.h"

enum { ROOM = 100 };

static char folder[TEMPORARY_MAX] = "yolk-text-XXXXXX", path[2 * TEMPORARY_MAX];

static int read_it(struct base_buf *text)
{
    base_buf_init(text, ROOM);
    return text_file_read("the thing", path, text);
}

static void refused(const char *why)
{
    struct base_buf text;
    assert_int_equal(read_it(&text), YOLK_ERR_CONFIG);
    base_buf_free(&text);
    if (strstr(yolk_last_error(), "the thing") == NULL || strstr(yolk_last_error(), path) == NULL ||
        strstr(yolk_last_error(), why) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", why, yolk_last_error());
}

static void write_it(size_t size)
{
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    for (size_t i = 0; i < size; i++)
        assert_int_not_equal(fputc('a' + (int)(i % 26), file), EOF);
    assert_int_equal(fclose(file), 0);
}

static void *write_in_thread(void *arg)
{
    (void)arg;
    write_it(40);
    return NULL;
}

static void files_are_read_whole_or_refused(void **state)
{
    (void)state;
    struct base_buf text;
    refused("No such file");
    write_it(ROOM);
    assert_int_equal(read_it(&text), YOLK_OK);
    assert_int_equal(text.size, ROOM);
    assert_memory_equal(text.data, "abcdefghijklmnopqrstuvwxyzab", 28);
    base_buf_free(&text);
    write_it(ROOM + 1);
    refused("has more than 100 bytes");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    refused("neither a file nor a pipe");
    assert_int_equal(rmdir(path), 0);
}

static void a_pipe_is_read_and_none_is_waited_for_without_end(void **state)
{
    (void)state;
    struct base_buf text;
    pthread_t thread;
    assert_int_equal(mkfifo(path, 0600), 0);
    refused("nobody writes");
    assert_int_equal(pthread_create(&thread, NULL, write_in_thread, NULL), 0);
    int status = read_it(&text);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(status, YOLK_OK);
    assert_int_equal(text.size, 40);
    base_buf_free(&text);
    assert_int_equal(unlink(path), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_are_read_whole_or_refused),
        cmocka_unit_test(a_pipe_is_read_and_none_is_waited_for_without_end),
    };
    if (mkdtemp(temporary_path(folder)) == NULL)
        abort();
    snprintf(path, sizeof(path), "%s/file", folder);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)rmdir(folder);
    return failed;
}
