/* SPDX-License-Identifier: Apache-2.0 */
/* Each way in which a plug-in is no good has a sentence of its own, and nothing of it stays. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <yolk/engine.h>

#include "base/log.h"
#include "engine/plugin.h"
#include "platform/temporary_kit.h"
#include "transport/loop/loop.h"

static char folder[600]; /* of the plug-ins */
static char scratch[TEMPORARY_MAX] = "yolk-plugin-XXXXXX";

static const char *path_of(const char *name)
{
    static char paths[4][700];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, 700, "%s/%s.so", folder, name);
    return path;
}

static enum yolk_status create(const char *paths, struct yolk_engine **engine)
{
    struct yolk_engine_options options;
    const struct yolk_transport_ops *loop = transport_loop_ops();
    yolk_engine_options_init(&options);
    options.transports = &loop;
    options.transport_count = 1;
    options.plugin_paths = paths;
    return yolk_engine_create(&options, engine);
}

static int is_mapped(const char *path)
{
    char line[1024];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "re");
    assert_non_null(maps);
    while (fgets(line, sizeof(line), maps) != NULL)
        found += strstr(line, path) != NULL;
    fclose(maps);
    return found > 0;
}

static void refused(const char *path, enum yolk_status expected, const char *sentence)
{
    struct yolk_engine *engine = NULL;
    char text[1200];
    assert_int_equal(create(path, &engine), expected);
    assert_null(engine);
    snprintf(text, sizeof(text), "%s", yolk_last_error());
    if (strstr(text, sentence) == NULL || strncmp(text, "transport plug-in: ", 19) != 0)
        fail_msg("\"%s\" does not say \"%s\"", text, sentence);
    if (path[0] == '/' && strstr(path, ".so") != NULL) { /* and which file it was */
        assert_non_null(strstr(text, path));
        assert_false(is_mapped(path));
    }
}

static void what_is_built_wrong(void **state)
{
    (void)state;
    refused(path_of("no_symbol"), YOLK_ERR_CONFIG, "does not export yolk_transport_plugin()");
    refused(path_of("no_table"), YOLK_ERR_CONFIG, "yolk_transport_plugin() returned no table");
    refused(path_of("small"), YOLK_ERR_CONFIG, "table is too small");
    refused(path_of("short"), YOLK_ERR_CONFIG,
            "lacks required hooks: add_buffer remove_buffer open_target close_target "
            "channel_open submit poll channel_close");
    refused(path_of("no_hooks"), YOLK_ERR_CONFIG, "variant lacks required hooks: probe poll");
    refused(path_of("other_abi"), YOLK_ERR_VERSION, "interface 77, not 1");
    refused(path_of("bad_name"), YOLK_ERR_CONFIG, "\"No.Name\": must be 1 to 15 of a-z, 0-9 and _");
    refused(path_of("called_io_uring"), YOLK_ERR_CONFIG, "is another name of uring");
    refused(path_of("no_caps"), YOLK_ERR_CONFIG, "variant neither reads nor writes (caps 0x4)");
    refused(path_of("needs_more"), YOLK_ERR_SYSTEM, "cannot be loaded: ");
    refused(path_of("needs_more"), YOLK_ERR_SYSTEM, "undefined symbol: not_to_be_found");
}

static void names_that_are_taken(void **state)
{
    (void)state;
    struct yolk_engine *engine = NULL;
    char both[1500];
    assert_int_equal(create(path_of("called_loop"), &engine), YOLK_ERR_CONFIG);
    assert_string_equal(yolk_last_error(),
                        "there are two transports called loop, one of them a plug-in");
    assert_false(is_mapped(path_of("called_loop")));
    snprintf(both, sizeof(both), "%s:%s", path_of("never"), path_of("twin"));
    assert_int_equal(create(both, &engine), YOLK_ERR_CONFIG);
    assert_non_null(strstr(yolk_last_error(), "twin.so: its transport is called variant"));
    assert_false(is_mapped(path_of("never")));
    snprintf(both, sizeof(both), "%s\n%s", path_of("template"), path_of("template"));
    assert_int_equal(create(both, &engine), YOLK_ERR_CONFIG);
    assert_non_null(strstr(yolk_last_error(), "called template, as that of another plug-in"));
    assert_false(is_mapped(path_of("template")));
}

/* A file of these bytes and rights. */
static const char *file_of(const char *name, const void *bytes, size_t size, mode_t mode)
{
    static char path[200];
    snprintf(path, sizeof(path), "%s/%s", scratch, name);
    unlink(path);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(path, mode), 0);
    return path;
}

static size_t read_plugin(uint8_t **out)
{
    FILE *file = fopen(path_of("template"), "re");
    assert_non_null(file);
    *out = malloc(16 << 20);
    assert_non_null(*out);
    size_t size = fread(*out, 1, 16 << 20, file);
    assert_true(size > 1000 && size < 16 << 20);
    fclose(file);
    return size;
}

static void what_is_no_plugin(void **state)
{
    (void)state;
    uint8_t *bytes;
    size_t size = read_plugin(&bytes);
    refused("yolk_x.so", YOLK_ERR_CONFIG, "\"yolk_x.so\": the path must be absolute");
    refused("./a/b.so", YOLK_ERR_CONFIG, "the path must be absolute");
    refused("/nowhere/at/all.so", YOLK_ERR_CONFIG, "cannot be opened: No such file or directory");
    refused("/tmp", YOLK_ERR_CONFIG, "is no ordinary file");
    refused("/dev/null", YOLK_ERR_CONFIG, "is no ordinary file");
    refused(file_of("text.so", "#!/bin/sh\nexit 0\n", 17, 0755), YOLK_ERR_CONFIG,
            "is no shared library");
    refused(file_of("empty.so", "", 0, 0644), YOLK_ERR_CONFIG, "is no shared library");
    for (size_t cut = 64; cut < 9000; cut += 64)
        refused(file_of("cut.so", bytes, cut, 0644), YOLK_ERR_CONFIG, "is cut off: ");
    bytes[18] = 183; /* e_machine */
    bytes[19] = 0;
    refused(file_of("arm.so", bytes, size, 0644), YOLK_ERR_CONFIG,
            "is built for AArch64, this process is of ");
    bytes[18] = 0x34;
    bytes[19] = 0x12;
    refused(file_of("odd.so", bytes, size, 0644), YOLK_ERR_CONFIG, "built for machine 4660, this");
    free(bytes);
    refused("/proc/self/exe/x", YOLK_ERR_CONFIG, "cannot be opened: Not a directory");
}

/* Code that others could change does not run in this process. */
static void what_others_may_write(void **state)
{
    (void)state;
    uint8_t *bytes;
    size_t size = read_plugin(&bytes);
    struct yolk_engine *engine = NULL;
    refused(file_of("open.so", bytes, size, 0666), YOLK_ERR_ACCESS,
            "everybody may write to this file (mode 0666)");
    assert_int_equal(chmod(scratch, 0777), 0);
    refused(file_of("tight.so", bytes, size, 0644), YOLK_ERR_ACCESS,
            "everybody may put another file in its place");
    assert_int_equal(chmod(scratch, 01777), 0); /* as /tmp: only the owner may */
    assert_int_equal(create(file_of("tight.so", bytes, size, 0644), &engine), YOLK_OK);
    assert_int_equal(yolk_engine_destroy(engine), YOLK_OK);
    assert_int_equal(chmod(scratch, 0700), 0);
    free(bytes);
}

/* Through the plug-in's transport alone, by name. */
static enum yolk_status read_through(struct yolk_engine *engine, const char *hint, char name[16])
{
    static uint8_t memory[4096], local[4096];
    struct yolk_served *served;
    uint64_t segment, batch;
    enum yolk_status verdict;
    struct yolk_task_status task;
    struct yolk_serve_options serve = {
        .struct_size = sizeof(serve), .memory = memory, .size = sizeof(memory), .segment = 9};
    memset(memory, 0x5a, sizeof(memory));
    memset(local, 0, sizeof(local));
    assert_int_equal(yolk_engine_serve(engine, &serve, &served), YOLK_OK);
    const struct yolk_segment_descriptor descriptor = {9, 1, sizeof(memory),
                                                       yolk_served_endpoints(served)};
    assert_int_equal(yolk_engine_segment_open(engine, &descriptor, 1, &segment), YOLK_OK);
    assert_int_equal(yolk_engine_register(engine, local, sizeof(local)), YOLK_OK);
    assert_int_equal(yolk_engine_batch_create(engine, 1, &batch), YOLK_OK);
    const struct yolk_request request = {.opcode = YOLK_READ,
                                         .local = local,
                                         .segment = segment,
                                         .size = sizeof(local),
                                         .hint = hint};
    assert_int_equal(yolk_engine_batch_submit(engine, batch, &request, 1, &verdict, NULL), YOLK_OK);
    assert_int_equal(yolk_engine_batch_wait(engine, batch, 0), YOLK_OK);
    assert_int_equal(yolk_engine_batch_poll(engine, batch, 0, &task), YOLK_OK);
    snprintf(name, 16, "%s", task.transport);
    if (task.status == YOLK_OK)
        assert_memory_equal(local, memory, sizeof(local));
    assert_int_equal(yolk_engine_batch_free(engine, batch), YOLK_OK);
    assert_int_equal(yolk_engine_segment_close(engine, segment), YOLK_OK);
    assert_int_equal(yolk_engine_unregister(engine, local, sizeof(local)), YOLK_OK);
    yolk_engine_unserve(engine, served);
    return task.status;
}

static void works_until_the_engines_end(void **state)
{
    (void)state;
    struct yolk_engine *engine, *second;
    char name[16], both[1500];
    snprintf(both, sizeof(both), "%s:%s", path_of("template"), path_of("unix"));
    assert_int_equal(create(both, &engine), YOLK_OK);
    assert_int_equal(create(path_of("template"), &second), YOLK_OK);
    assert_true(yolk_engine_has_transport(engine, "template", NULL, 0));
    assert_int_equal(read_through(engine, NULL, name), YOLK_OK);
    assert_string_equal(name, "loop"); /* plug-ins come after what is built in */
    assert_int_equal(read_through(engine, "template", name), YOLK_OK);
    assert_string_equal(name, "template");
    assert_int_equal(read_through(engine, "unix", name), YOLK_OK);
    assert_string_equal(name, "unix");
    assert_int_equal(yolk_engine_destroy(engine), YOLK_OK);
    assert_false(is_mapped(path_of("unix")));
    assert_true(is_mapped(path_of("template"))); /* the other engine uses it */
    assert_int_equal(read_through(second, "template", name), YOLK_OK);
    assert_int_equal(yolk_engine_destroy(second), YOLK_OK);
    assert_false(is_mapped(path_of("template")));
}

/* Its name stands in a policy, is a label of figures, and can be left out like any other. */
static void named_like_the_others(void **state)
{
    (void)state;
    struct yolk_engine_options options;
    const struct yolk_transport_ops *loop = transport_loop_ops();
    struct yolk_engine *engine;
    char name[16], *text = NULL;
    yolk_engine_options_init(&options);
    options.transports = &loop;
    options.transport_count = 1;
    options.plugin_paths = path_of("template");
    options.policy_json =
        "[{\"segment_type\": \"memory\", \"transports\": [\"template\", \"loop\"]}]";
    assert_int_equal(yolk_engine_create(&options, &engine), YOLK_OK);
    assert_int_equal(read_through(engine, NULL, name), YOLK_OK);
    assert_string_equal(name, "template");
    assert_int_equal(yolk_engine_metrics(engine, &text), YOLK_OK);
    assert_non_null(strstr(text, "tent_read_bytes_total{transport=\"template\"} 4096"));
    free(text);
    assert_int_equal(yolk_engine_destroy(engine), YOLK_OK);
    options.transports_off = "template";
    options.policy_json = NULL;
    assert_int_equal(yolk_engine_create(&options, &engine), YOLK_OK);
    assert_false(yolk_engine_has_transport(engine, "template", NULL, 0));
    assert_int_equal(yolk_engine_destroy(engine), YOLK_OK);
}

static char logged[200];

static void take_line(void *self, enum base_log_level level, const char *room, const char *text)
{
    (void)self;
    snprintf(logged, sizeof(logged), "%d %s %s", (int)level, room, text);
}

/* One that cannot work here is left out with the reason it gave itself. */
static void says_why_it_cannot_work(void **state)
{
    (void)state;
    struct yolk_engine *engine;
    char reason[300];
    base_log_set(take_line, NULL);
    assert_int_equal(create(path_of("never"), &engine), YOLK_OK);
    base_log_set(NULL, NULL);
    assert_false(yolk_engine_has_transport(engine, "variant", reason, sizeof(reason)));
    assert_string_equal(reason, "not supported: there is no device x7: No such file or directory");
    assert_string_equal(logged, "1 variant asked by Yolk " YOLK_VERSION);
    assert_int_equal(yolk_engine_destroy(engine), YOLK_OK);
    assert_false(is_mapped(path_of("never")));
    assert_int_equal(create(path_of("no_limits"), &engine), YOLK_OK);
    assert_false(yolk_engine_has_transport(engine, "variant", reason, sizeof(reason)));
    assert_string_equal(reason, "its limits are none: 0 ios in one channel (must be 1 or more), an "
                                "alignment of 0 (must be a power of two)");
    assert_int_equal(yolk_engine_destroy(engine), YOLK_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_built_wrong),         cmocka_unit_test(names_that_are_taken),
        cmocka_unit_test(what_is_no_plugin),           cmocka_unit_test(what_others_may_write),
        cmocka_unit_test(works_until_the_engines_end), cmocka_unit_test(named_like_the_others),
        cmocka_unit_test(says_why_it_cannot_work),
    };
    /* The plug-ins lie beside this program. */
    ssize_t size = readlink("/proc/self/exe", folder, sizeof(folder) - 16);
    if (size <= 0 || mkdtemp(temporary_path(scratch)) == NULL)
        return 1;
    folder[size] = '\0';
    snprintf(strrchr(folder, '/'), 16, "/plugins");
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    const char *const files[] = {"text.so", "empty.so", "cut.so",  "arm.so",
                                 "odd.so",  "open.so",  "tight.so"};
    char path[200];
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", scratch, files[i]);
        unlink(path);
    }
    rmdir(scratch);
    return failed;
}
