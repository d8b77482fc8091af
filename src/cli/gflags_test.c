/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/gflags.h"
#include "platform/temporary_kit.h"

/* What was read, as "name=value;". Flags that begin with b are bools; none begins with z. */
static char seen[4096];

static enum gflags_kind kind(void *self, const char *name)
{
    (void)self;
    return name[0] == 'b'                     ? GFLAGS_BOOL
           : name[0] == 'z' || name[0] == 'n' ? GFLAGS_UNKNOWN
                                              : GFLAGS_VALUE;
}

static int take(void *self, const char *name, const char *value, const char *where)
{
    (void)self;
    size_t used = strlen(seen);
    assert_true(where[0] != '\0');
    snprintf(seen + used, sizeof(seen) - used, "%s=%s;", name, value);
    return YOLK_OK;
}

static int unknown(void *self, const char *name, const char *where)
{
    (void)self, (void)name;
    return base_fail(YOLK_ERR_CONFIG, 0, "unknown flag %s", where);
}

static const struct gflags_reader reader = {"mooncake_master", NULL, kind, take, unknown};

#define READ(...)                                                                                  \
    (seen[0] = '\0',                                                                               \
     gflags_read(&reader, (int)(sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *)),           \
                 (char *const *)(uintptr_t)(const char *[]){__VA_ARGS__}))

static void test_forms(void **state)
{
    (void)state;
    assert_int_equal(READ("--x=1", "-y=2", "--x", "-3", "-v", "4", "--a-b_c=5"), YOLK_OK);
    assert_string_equal(seen, "x=1;y=2;x=-3;v=4;a_b_c=5;");
    assert_int_equal(READ("--b1", "-b2", "--nob3", "-nob4", "--b5=false", "--x=", "--x=a=b"),
                     YOLK_OK);
    assert_string_equal(seen, "b1=true;b2=true;b3=false;b4=false;b5=false;x=;x=a=b;");
    /* A bool does not take the next argument; "--" ends the flags. */
    assert_int_equal(READ("--b1", "--x", "--b2", "--"), YOLK_OK);
    assert_string_equal(seen, "b1=true;x=--b2;");
}

static void test_refusals(void **state)
{
    (void)state;
    assert_int_equal(READ("--x"), YOLK_ERR_CONFIG);
    assert_non_null(strstr(yolk_last_error(), "--x needs a value"));
    assert_int_equal(READ("--zz=1"), YOLK_ERR_CONFIG);
    assert_non_null(strstr(yolk_last_error(), "--zz"));
    assert_int_equal(READ("--nox"), YOLK_ERR_CONFIG); /* x is no bool */
    assert_int_equal(READ("--nob1=true"), YOLK_ERR_CONFIG);
    assert_int_equal(READ("word"), YOLK_ERR_CONFIG);
    assert_non_null(strstr(yolk_last_error(), "\"word\""));
    assert_int_equal(READ("--", "word"), YOLK_ERR_CONFIG);
    assert_int_equal(READ("--=1"), YOLK_ERR_CONFIG);
    assert_int_equal(READ("-"), YOLK_ERR_CONFIG);
    static char longer[GFLAGS_NAME_MAX + 3];
    memset(longer, 'x', sizeof(longer) - 1);
    memcpy(longer, "--", 2);
    assert_int_equal(READ(longer, "1"), YOLK_ERR_CONFIG);
    assert_int_equal(READ("--undefok=zz,z-y", "--zz=1", "--z_y", "--x=1"), YOLK_OK);
    assert_string_equal(seen, "x=1;");
}

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void test_flag_files(void **state)
{
    (void)state;
    char folder[TEMPORARY_MAX] = "yolk-gflags-XXXXXX", one[2 * TEMPORARY_MAX],
         two[2 * TEMPORARY_MAX], text[1024], flag[3 * TEMPORARY_MAX];
    assert_non_null(mkdtemp(temporary_path(folder)));
    snprintf(one, sizeof(one), "%s/one", folder);
    snprintf(two, sizeof(two), "%s/two", folder);
    snprintf(flag, sizeof(flag), "--flagfile=%s", one);
    snprintf(text, sizeof(text),
             "# a comment\n\n  --x=1  \r\n-nob1\nother_program\n--y=2\nmooncake_*\n--flagfile=%s\n"
             "--x=3",
             two);
    write_file(one, text);
    write_file(two, "--b2\n");
    assert_int_equal(READ("--x=0", flag, "--x=9"), YOLK_OK);
    assert_string_equal(seen, "x=0;x=1;b1=false;b2=true;x=3;x=9;");
    /* A value stands behind '=' there, and a mistake is found by its line. */
    write_file(two, "--b2\n--x 1\n");
    assert_int_equal(READ(flag), YOLK_ERR_CONFIG);
    assert_non_null(strstr(yolk_last_error(), "/two:2"));
    write_file(two, "--b2\nx=1\n");
    assert_int_equal(READ(flag), YOLK_ERR_CONFIG);
    assert_non_null(strstr(yolk_last_error(), "/two:2: \"x=1\": a flag begins with -"));
    write_file(one, flag); /* itself */
    assert_int_equal(READ(flag), YOLK_ERR_CONFIG);
    assert_non_null(strstr(yolk_last_error(), "inside each other"));
    assert_int_equal(unlink(one), 0);
    assert_int_equal(READ(flag), YOLK_ERR_CONFIG);
    assert_non_null(strstr(yolk_last_error(), one));
    assert_int_equal(unlink(two), 0);
    assert_int_equal(rmdir(folder), 0);
}

static void test_environment(void **state)
{
    (void)state;
    assert_int_equal(setenv("FLAGS_x_y", "7", 1), 0);
    assert_int_equal(unsetenv("FLAGS_y"), 0);
    assert_int_equal(READ("--fromenv=x-y", "--tryfromenv=y,x_y"), YOLK_OK);
    assert_string_equal(seen, "x_y=7;x_y=7;");
    assert_int_equal(READ("--fromenv=y"), YOLK_ERR_CONFIG);
    assert_non_null(strstr(yolk_last_error(), "FLAGS_y"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_flag_files),
        cmocka_unit_test(test_environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
