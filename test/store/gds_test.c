/* SPDX-License-Identifier: Apache-2.0 */
/* A store with a GDS file, through the public calls; its master is embedded, so a new one each
 * time, and the file is reached through host memory, which is what every machine can do. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include <yolk/store.h>

enum { SIZE = 300001, MEMORY = 4 << 20, FILE_BYTES = 16 << 20, ALLOCATED = 303104 };

struct fixture {
    char folder[64];
    char path[80];
    char file[96];
    struct yolk_store_options options;
    struct yolk_store *store;
    uint8_t *value;
};

static void fill(uint8_t *to, uint32_t k)
{
    uint32_t x = k * 2654435761u + 12345;
    for (size_t i = 0; i < SIZE; i++) {
        x = x * 1664525u + 1013904223u;
        to[i] = (uint8_t)(x >> 24);
    }
}

static void open_store(struct fixture *f)
{
    enum yolk_status status = yolk_store_open(&f->options, &f->store);
    if (status != YOLK_OK)
        fail_msg("open: %s: %s", yolk_strerror(status), yolk_last_error());
}

static uint64_t figure(struct fixture *f, const char *name)
{
    char *text = NULL;
    assert_int_equal(yolk_store_stat(f->store, &text), YOLK_OK);
    char line[128];
    snprintf(line, sizeof(line), "%s ", name);
    const char *at = strstr(text, line);
    if (at == NULL)
        fail_msg("no figure %s in\n%s", name, text);
    uint64_t value = strtoull(at + strlen(line), NULL, 10);
    free(text);
    return value;
}

/* Nothing is reserved and nothing awaits its end. */
static void close_store(struct fixture *f)
{
    uint64_t differences = 99;
    assert_int_equal(yolk_store_recount(f->store, &differences), YOLK_OK);
    assert_int_equal(differences, 0);
    if (f->options.gds_enabled) {
        assert_int_equal(figure(f, "client_gds_reserved"), 0);
        assert_int_equal(figure(f, "client_gds_leases"), 0);
    }
    enum yolk_status status = yolk_store_close(f->store);
    if (status != YOLK_OK)
        fail_msg("close: %s: %s", yolk_strerror(status), yolk_last_error());
}

static void begin(struct fixture *f)
{
    memset(f, 0, sizeof(*f));
    snprintf(f->folder, sizeof(f->folder), "/var/tmp/yolk-gds-XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    snprintf(f->path, sizeof(f->path), "%s/values", f->folder);
    snprintf(f->file, sizeof(f->file), "%s.slot0", f->path);
    f->value = malloc(SIZE);
    assert_non_null(f->value);
    yolk_store_options_init(&f->options);
    f->options.master = "embedded";
    f->options.segment_size_bytes = MEMORY;
    f->options.lease_ttl_ms = 1;
    f->options.put_wait_ms = 20000;
    f->options.name = "here";
    f->options.gds_enabled = 1;
    f->options.gds_path = f->path;
    f->options.gds_capacity_bytes = FILE_BYTES;
    f->options.gds_allow_fallback = 1;
    f->options.gds_no_cufile = 1;
}

static void finish(struct fixture *f)
{
    close_store(f);
    free(f->value);
    assert_int_equal(unlink(f->file), 0);
    assert_int_equal(rmdir(f->folder), 0);
}

static int64_t put_as(struct fixture *f, uint32_t k, uint32_t content, int upsert)
{
    struct yolk_slice slices[] = {{f->value, 1001}, {f->value + 1001, SIZE - 1001}};
    struct yolk_kv kv = {.key = &k, .key_size = sizeof(k), .slices = slices, .slice_count = 2};
    fill(f->value, content);
    enum yolk_status status =
        upsert ? yolk_store_upsert(f->store, &kv, 1, NULL) : yolk_store_put(f->store, &kv, 1);
    assert_int_equal(status, kv.result < 0 ? kv.result : YOLK_OK);
    return kv.result;
}

static int64_t put(struct fixture *f, uint32_t k)
{
    return put_as(f, k, k, 0);
}

/* The medium it was read from, or why not. The bytes are right, and none is written behind them. */
static int64_t get_as(struct fixture *f, uint32_t k, uint32_t content)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), room = (SIZE + page - 1) / page * page;
    uint8_t *memory =
        mmap(NULL, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    assert_int_equal(mprotect(memory + room, page, PROT_NONE), 0);
    uint8_t *to = memory + room - SIZE; /* ends where a write would be a fault */
    struct yolk_slice slices[] = {{to, 1001}, {to + 1001, SIZE - 1001}};
    struct yolk_kv kv = {
        .key = &k, .key_size = sizeof(k), .slices = slices, .slice_count = 2, .medium = 77};
    enum yolk_status status = yolk_store_get(f->store, &kv, 1);
    assert_int_equal(status, kv.result < 0 ? kv.result : YOLK_OK);
    if (kv.result >= 0) {
        assert_int_equal(kv.result, SIZE);
        fill(f->value, content);
        assert_memory_equal(to, f->value, SIZE);
    }
    assert_int_equal(munmap(memory, room + page), 0);
    return kv.result < 0 ? kv.result : kv.medium;
}

static int64_t get(struct fixture *f, uint32_t k)
{
    return get_as(f, k, k);
}

static size_t locate(struct fixture *f, uint32_t k, struct yolk_replica replicas[2])
{
    size_t count = 99;
    enum yolk_status status = yolk_store_locate(f->store, &k, sizeof(k), replicas, 2, &count);
    return status == YOLK_ERR_NOT_FOUND ? 0 : (assert_int_equal(status, YOLK_OK), count);
}

static int64_t clear(struct fixture *f, uint32_t k, const char *segment)
{
    struct yolk_kv kv = {.key = &k, .key_size = sizeof(k)};
    enum yolk_status status;
    do { /* the lease of a get before lasts a moment */
        status = yolk_store_clear_replicas(f->store, &kv, 1, segment);
    } while (status == YOLK_ERR_HAS_LEASE);
    assert_int_equal(status, kv.result);
    return kv.result;
}

static int64_t drop(struct fixture *f, uint32_t k)
{
    struct yolk_kv kv = {.key = &k, .key_size = sizeof(k)};
    enum yolk_status status = yolk_store_remove(f->store, &kv, 1, 1);
    assert_int_equal(status, kv.result);
    return kv.result;
}

static void one_in_memory_and_one_in_the_file(void **state)
{
    (void)state;
    struct fixture f;
    struct yolk_replica replicas[2];
    begin(&f);
    open_store(&f);
    assert_int_equal(put(&f, 1), SIZE);
    assert_int_equal(locate(&f, 1, replicas), 2);
    assert_int_equal(replicas[0].medium, YOLK_MEDIUM_MEMORY);
    assert_int_equal(replicas[1].medium, YOLK_MEDIUM_GDS);
    const struct yolk_gds_descriptor gds = replicas[1].gds;
    static const uint8_t none[16];
    assert_memory_not_equal(gds.owner_client_id, none, 16);
    assert_memory_not_equal(gds.storage_id, none, 16);
    assert_true(gds.storage_generation > 0);
    assert_int_equal(gds.value_offset, replicas[1].offset);
    assert_int_equal(gds.value_size, SIZE);
    assert_int_equal(gds.allocated_size, ALLOCATED);
    assert_int_equal(get(&f, 1), YOLK_MEDIUM_MEMORY);

    assert_int_equal(clear(&f, 1, "elsewhere"), YOLK_ERR_NOT_FOUND);
    assert_int_equal(clear(&f, 1, "here"), YOLK_OK);
    assert_int_equal(locate(&f, 1, replicas), 1);
    assert_int_equal(replicas[0].medium, YOLK_MEDIUM_GDS);
    assert_memory_equal(&replicas[0].gds, &gds, sizeof(gds));
    assert_int_equal(get(&f, 1), YOLK_MEDIUM_GDS);
    assert_int_equal(figure(&f, "client_gds_hits_total"), 1);
    assert_int_equal(figure(&f, "client_gds_hits_bytes_total"), SIZE);
    assert_int_equal(figure(&f, "client_gds_puts_total"), 1);

    /* Another buffer than a get's, and the call that does not say where. */
    struct yolk_buffer buffer;
    uint32_t k = 1;
    assert_int_equal(yolk_store_get_buffer(f.store, &k, sizeof(k), &buffer), YOLK_OK);
    assert_int_equal(buffer.size, SIZE);
    fill(f.value, 1);
    assert_memory_equal(buffer.data, f.value, SIZE);
    yolk_store_release_buffer(f.store, &buffer);

    /* A value of no bytes has no place there. */
    struct yolk_kv empty = {.key = "empty", .key_size = 5};
    assert_int_equal(yolk_store_put(f.store, &empty, 1), YOLK_OK);
    assert_int_equal(figure(&f, "client_gds_objects"), 1);
    finish(&f);
}

/* Memory has room for few, the file for all: none is lost, and those without memory are read. */
static void more_than_memory_holds(void **state)
{
    (void)state;
    enum { VALUES = 40 };
    struct fixture f;
    int in_file = 0;
    begin(&f);
    open_store(&f);
    for (uint32_t k = 0; k < VALUES; k++)
        assert_int_equal(put(&f, k), SIZE);
    for (uint32_t k = 0; k < VALUES; k++) {
        int64_t medium = get(&f, k);
        assert_true(medium == YOLK_MEDIUM_MEMORY || medium == YOLK_MEDIUM_GDS);
        in_file += medium == YOLK_MEDIUM_GDS;
    }
    assert_true(in_file >= VALUES - MEMORY / SIZE);
    finish(&f);
}

static void without_memory_of_any_node(void **state)
{
    (void)state;
    struct fixture f;
    struct yolk_replica replicas[2];
    begin(&f);
    f.options.segment_size_bytes = 0;
    open_store(&f);
    assert_int_equal(put(&f, 1), SIZE);
    assert_int_equal(locate(&f, 1, replicas), 1);
    assert_int_equal(replicas[0].medium, YOLK_MEDIUM_GDS);
    assert_int_equal(get(&f, 1), YOLK_MEDIUM_GDS);
    assert_int_equal(put(&f, 1), SIZE); /* there is one: nothing changes */
    assert_int_equal(figure(&f, "client_gds_objects"), 1);
    finish(&f);
}

/* The tenant's quota of memory is smaller than one value, or holds two: no put that was answered
 * loses its value, which lies in the file; the file costs no quota. */
static void c18_over_the_quota_it_lies_in_the_file(void **state)
{
    (void)state;
    static const char *const tenants[] = {"t=128KiB", "t=700KiB"};
    for (int i = 0; i < 2; i++) {
        enum { VALUES = 12 };
        struct fixture f;
        struct yolk_replica replicas[2];
        begin(&f);
        f.options.tenant_id = "t";
        f.options.tenants = tenants[i];
        open_store(&f);
        for (uint32_t k = 0; k < VALUES; k++) {
            assert_int_equal(put(&f, k), SIZE);
            size_t count = locate(&f, k, replicas);
            assert_true(i == 0 ? count == 1 : count >= 1);
            assert_int_equal(replicas[count - 1].medium, YOLK_MEDIUM_GDS);
        }
        for (uint32_t k = 0; k < VALUES; k++)
            assert_true(get(&f, k) >= 0);
        finish(&f);
    }
}

/* A file system that cuFile does not know, and one without disk at all. */
static void c53_where_cufile_cannot_be_used(void **state)
{
    (void)state;
    struct fixture f;
    char *text = NULL;
    begin(&f);
    assert_int_equal(rmdir(f.folder), 0);
    snprintf(f.folder, sizeof(f.folder), "/dev/shm/yolk-gds-XXXXXX");
    assert_non_null(mkdtemp(f.folder));
    snprintf(f.path, sizeof(f.path), "%s/values", f.folder);
    snprintf(f.file, sizeof(f.file), "%s.slot0", f.path);
    f.options.gds_no_cufile = 0;
    open_store(&f);
    assert_int_equal(put(&f, 1), SIZE);
    assert_int_equal(clear(&f, 1, "here"), YOLK_OK);
    assert_int_equal(get(&f, 1), YOLK_MEDIUM_GDS);
    assert_int_equal(yolk_store_stat(f.store, &text), YOLK_OK);
    assert_non_null(strstr(text, "client_gds_mode{mode=\"host\"} 1\n"));
    free(text);
    finish(&f);
}

/* Of an upsert the old extent is freed, of a removed key too. */
static void what_is_replaced_or_removed_is_freed(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f);
    open_store(&f);
    for (uint32_t round = 0; round < 3; round++) {
        assert_int_equal(put_as(&f, 1, 10 + round, 1), SIZE);
        assert_int_equal(get_as(&f, 1, 10 + round), YOLK_MEDIUM_MEMORY);
        assert_int_equal(clear(&f, 1, "here"), YOLK_OK);
        assert_int_equal(get_as(&f, 1, 10 + round), YOLK_MEDIUM_GDS);
    }
    assert_int_equal(drop(&f, 1), YOLK_OK);
    assert_int_equal(get(&f, 1), YOLK_ERR_NOT_FOUND);
    while (figure(&f, "client_gds_used_bytes") > 0)
        sched_yield();
    assert_int_equal(figure(&f, "client_gds_objects"), 0);
    finish(&f);
}

/* The file holds 53 such values; the rest takes the place of the first. */
static void a_full_file_makes_room(void **state)
{
    (void)state;
    enum { VALUES = 120 };
    struct fixture f;
    int found = 0;
    begin(&f);
    f.options.segment_size_bytes = 0;
    open_store(&f);
    for (uint32_t k = 0; k < VALUES; k++)
        assert_int_equal(put(&f, k), SIZE);
    for (uint32_t k = 0; k < VALUES; k++) {
        int64_t medium = get(&f, k);
        found += medium == YOLK_MEDIUM_GDS;
        assert_true(medium == YOLK_MEDIUM_GDS || medium == YOLK_ERR_NOT_FOUND);
    }
    assert_true(found >= FILE_BYTES / ALLOCATED / 2);
    assert_true(figure(&f, "client_gds_used_bytes") <= FILE_BYTES);
    finish(&f);
}

/* What never fits: refused, or in memory alone where that is allowed. */
static void larger_than_the_file(void **state)
{
    (void)state;
    struct fixture f;
    struct yolk_replica replicas[2];
    begin(&f);
    f.options.gds_capacity_bytes = 64 << 10;
    open_store(&f);
    assert_int_equal(put(&f, 1), YOLK_ERR_TOO_LARGE);
    assert_int_equal(locate(&f, 1, replicas), 0);
    close_store(&f);
    f.options.gds_optional = 1;
    open_store(&f);
    assert_int_equal(put(&f, 1), SIZE);
    assert_int_equal(locate(&f, 1, replicas), 1);
    assert_int_equal(replicas[0].medium, YOLK_MEDIUM_MEMORY);
    finish(&f);
}

static void a_restart_keeps_identity_and_values(void **state)
{
    (void)state;
    enum { VALUES = 8 };
    struct fixture f;
    struct yolk_replica before[2], after[2];
    begin(&f);
    open_store(&f);
    for (uint32_t k = 0; k < VALUES; k++)
        assert_int_equal(put(&f, k), SIZE);
    assert_int_equal(locate(&f, 7, before), 2);
    close_store(&f);
    open_store(&f); /* another master too: it knows what it is offered */
    assert_int_equal(figure(&f, "client_gds_objects"), VALUES);
    for (uint32_t k = 0; k < VALUES; k++)
        assert_int_equal(get(&f, k), YOLK_MEDIUM_GDS);
    assert_int_equal(locate(&f, 7, after), 1);
    assert_memory_equal(after[0].gds.storage_id, before[1].gds.storage_id, 16);
    assert_int_equal(after[0].gds.storage_generation, before[1].gds.storage_generation);
    assert_int_equal(after[0].gds.value_offset, before[1].gds.value_offset);
    close_store(&f);
    f.options.gds_start_empty = 1;
    open_store(&f);
    assert_int_equal(get(&f, 0), YOLK_ERR_NOT_FOUND);
    assert_int_equal(put(&f, 7), SIZE);
    assert_int_equal(locate(&f, 7, after), 2);
    assert_true(after[1].gds.storage_generation > before[1].gds.storage_generation);
    finish(&f);
}

static void refuse(struct fixture *f, const char *what, const char *why)
{
    enum yolk_status status = yolk_store_open(&f->options, &f->store);
    if (status != YOLK_ERR_CONFIG && status != YOLK_ERR_UNSUPPORTED)
        fail_msg("opened, or refused for another reason: %s: %s", yolk_strerror(status),
                 yolk_last_error());
    if (strstr(yolk_last_error(), what) == NULL || strstr(yolk_last_error(), why) == NULL)
        fail_msg("does not name \"%s\" and \"%s\": %s", what, why, yolk_last_error());
}

static void wrong_options_are_named(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f);
    const struct yolk_store_options right = f.options;
    f.options.gds_path = "values";
    refuse(&f, "gds_path is \"values\"", "absolute");
    f.options.gds_path = "/nowhere/at/all";
    refuse(&f, "gds_path is \"/nowhere/at/all\"", "no folder");
    f.options.gds_path = "/dev/null";
    refuse(&f, "gds_path is \"/dev/null\"", "a device");
    f.options = right;
    f.options.gds_capacity_bytes = 0;
    refuse(&f, "gds_capacity_bytes is 0", "must be");
    f.options = right;
    f.options.gds_allow_fallback = 0;
    refuse(&f, "gds_no_cufile", "gds_allow_fallback");
    f.options.gds_no_cufile = 0;
    f.options.gds_path = f.path; /* without a GPU, CUDA or cuFile here */
    refuse(&f, f.path, "no gds transport");
    assert_int_equal(access(f.file, F_OK), -1); /* nothing was made for it */
    f.options = right;
    f.options.ssd_size_bytes = 1 << 20;
    f.options.ssd_path = f.path;
    refuse(&f, "ssd_path and gds_path", f.path);
    f.options = right;
    open_store(&f);
    finish(&f);
}

/* Off: no file, no figure, one copy. */
static void off_by_default(void **state)
{
    (void)state;
    struct fixture f;
    struct yolk_replica replicas[2];
    begin(&f);
    yolk_store_options_init(&f.options);
    f.options.master = "embedded";
    f.options.segment_size_bytes = MEMORY;
    f.options.gds_path = f.path;
    f.options.gds_capacity_bytes = FILE_BYTES;
    open_store(&f);
    assert_int_equal(put(&f, 1), SIZE);
    assert_int_equal(locate(&f, 1, replicas), 1);
    char *text = NULL;
    assert_int_equal(yolk_store_stat(f.store, &text), YOLK_OK);
    assert_null(strstr(text, "client_gds"));
    free(text);
    close_store(&f);
    free(f.value);
    assert_int_equal(rmdir(f.folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_in_memory_and_one_in_the_file),
        cmocka_unit_test(more_than_memory_holds),
        cmocka_unit_test(without_memory_of_any_node),
        cmocka_unit_test(c18_over_the_quota_it_lies_in_the_file),
        cmocka_unit_test(c53_where_cufile_cannot_be_used),
        cmocka_unit_test(what_is_replaced_or_removed_is_freed),
        cmocka_unit_test(a_full_file_makes_room),
        cmocka_unit_test(larger_than_the_file),
        cmocka_unit_test(a_restart_keeps_identity_and_values),
        cmocka_unit_test(wrong_options_are_named),
        cmocka_unit_test(off_by_default),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
