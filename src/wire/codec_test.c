/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "wire/sample_message.h"

static int quiet(int status)
{
    return status;
}

/* Appends another map entry behind the last: the body starts with a fixmap or map16. */
static void add_entry(struct base_buf *body, const uint8_t *entry, size_t size)
{
    assert_true(body->size > 0 && (body->data[0] & 0xf0) == 0x80 && body->data[0] < 0x8f);
    body->data[0]++;
    assert_int_equal(base_buf_append(body, entry, size), YOLK_OK);
}

static void table_is_sound(void **state)
{
    (void)state;
    for (size_t k = 0; k < wire_kind_count(); k++) {
        const struct wire_kind_info *info = wire_kind_at(k);
        assert_ptr_equal(info, wire_kind_info(info->kind));
        assert_true(info->struct_size <= sizeof(union wire_any));
        assert_true(info->field_count <= 32);
        assert_true(info->body_max <= MAX_FRAME_BODY);
        for (size_t i = 0; i < info->field_count; i++) {
            for (size_t j = 0; j < i; j++) {
                assert_int_not_equal(info->fields[i].tag, info->fields[j].tag);
                assert_int_not_equal(info->fields[i].offset, info->fields[j].offset);
            }
        }
    }
    assert_null(wire_kind_info(6));
    assert_null(wire_kind_info(9999));
    assert_null(wire_kind_at(wire_kind_count()));
    assert_string_equal(wire_kind_name(WIRE_PUT_START), "PUT_START");
}

static void round_trip(void **state)
{
    (void)state;
    struct base_buf buf;
    base_buf_init(&buf, 1 << 20);
    for (size_t k = 0; k < wire_kind_count(); k++) {
        const struct wire_kind_info *info = wire_kind_at(k);
        for (unsigned variant = 0; variant < 9; variant++) {
            struct sample_message sample;
            union wire_any back;
            sample_fill(info, variant, &sample);
            base_buf_clear(&buf);
            assert_int_equal(wire_frame_encode(info->kind, 77 + k, &sample.msg, &buf), YOLK_OK);
            struct wire_header header;
            assert_int_equal(wire_header_decode(buf.data, &header), YOLK_OK);
            assert_int_equal(header.kind, info->kind);
            assert_int_equal(header.request_id, 77 + k);
            assert_int_equal(header.body_size, buf.size - WIRE_HEADER_SIZE);
            assert_int_equal(
                wire_decode(header.kind, buf.data + WIRE_HEADER_SIZE, header.body_size, &back),
                YOLK_OK);
            assert_true(sample_equal(info, sample.msg.bytes, back.bytes));
        }
        /* and the empty message */
        union wire_any none, back;
        memset(&none, 0, sizeof(none));
        memset(&back, 0xff, sizeof(back));
        base_buf_clear(&buf);
        assert_int_equal(wire_encode(info->kind, &none, &buf), YOLK_OK);
        assert_int_equal(buf.size, 1);
        assert_int_equal(wire_decode(info->kind, buf.data, buf.size, &back), YOLK_OK);
        assert_true(sample_equal(info, none.bytes, back.bytes));
    }
    base_buf_free(&buf);
}

/* A buffer that has its size once is never grown, moved or replaced again. */
static void steady_state_allocates_nothing(void **state)
{
    (void)state;
    struct base_buf buf;
    base_buf_init(&buf, 1 << 20);
    assert_int_equal(base_buf_reserve(&buf, 16384), YOLK_OK);
    const uint8_t *data = buf.data;
    size_t capacity = buf.capacity;
    for (size_t k = 0; k < wire_kind_count(); k++) {
        const struct wire_kind_info *info = wire_kind_at(k);
        struct sample_message sample;
        sample_fill(info, 4, &sample);
        base_buf_clear(&buf);
        assert_int_equal(wire_frame_encode(info->kind, 1, &sample.msg, &buf), YOLK_OK);
        assert_ptr_equal(buf.data, data);
        assert_int_equal(buf.capacity, capacity);
    }
    base_buf_free(&buf);
}

static void number_limits(void **state)
{
    (void)state;
    static const uint64_t values[] = {1,     127,   128,        255,        256,
                                      65535, 65536, UINT32_MAX, 1ull << 32, UINT64_MAX};
    static const int32_t results[] = {INT32_MIN, -32769, -32768, -129, -128,
                                      -33,       -32,    -1,     127,  INT32_MAX};
    struct base_buf buf;
    base_buf_init(&buf, 4096);
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        struct wire_facts_ack ack = {.segment = values[i]}, back;
        struct wire_status_reply reply = {.status = results[i]}, reply_back;
        base_buf_clear(&buf);
        assert_int_equal(wire_encode(WIRE_FACTS_ACK, &ack, &buf), YOLK_OK);
        assert_int_equal(wire_decode(WIRE_FACTS_ACK, buf.data, buf.size, &back), YOLK_OK);
        assert_true(back.segment == values[i]);
        base_buf_clear(&buf);
        assert_int_equal(wire_encode(WIRE_ERROR, &reply, &buf), YOLK_OK);
        assert_int_equal(wire_decode(WIRE_ERROR, buf.data, buf.size, &reply_back), YOLK_OK);
        assert_int_equal(reply_back.status, results[i]);
    }
    /* signed 64-bit encodings of what fits, and of what does not */
    static const uint8_t small[] = {0x81, 1, 0xd3, 0, 0, 0, 0, 0, 0, 0, 9};
    static const uint8_t wide[] = {0x81, 1, 0xcf, 0, 0, 0, 1, 0, 0, 0, 0};
    static const uint8_t low[] = {0x81, 1, 0xd3, 0xff, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff};
    struct wire_status_reply reply;
    assert_int_equal(wire_decode(WIRE_ERROR, small, sizeof(small), &reply), YOLK_OK);
    assert_int_equal(reply.status, 9);
    assert_int_equal(wire_decode(WIRE_ERROR, wide, sizeof(wide), &reply), YOLK_ERR_PROTOCOL);
    assert_int_equal(wire_decode(WIRE_ERROR, low, sizeof(low), &reply), YOLK_ERR_PROTOCOL);
    base_buf_free(&buf);
}

static void unknown_fields_are_skipped(void **state)
{
    (void)state;
    /* size, tag, value */
    static const uint8_t entries[][24] = {
        {2, 50, 0xc0},                          /* nil */
        {2, 50, 0xc3},                          /* true */
        {6, 50, 0xca, 1, 2, 3, 4},              /* float */
        {10, 50, 0xcb, 1, 2, 3, 4, 5, 6, 7, 8}, /* double */
        {5, 50, 0xc4, 2, 9, 9},                 /* bin */
        {3, 50, 0xa1, 'x'},                     /* str */
        {6, 50, 0x93, 1, 0x91, 0x90, 0xe0},     /* nested arrays */
        {8, 50, 0x82, 1, 0x81, 2, 3, 4, 5},     /* {1: {2: 3}, 4: 5} */
        {4, 50, 0xd4, 1, 2},                    /* fixext */
        {6, 50, 0xc7, 2, 1, 7, 8},              /* ext 8 */
        {4, 0xcd, 0x12, 0x34, 5},               /* a tag above 255 */
        {10, 0xcf, 1, 0, 0, 0, 0, 0, 0, 1, 5},  /* a 64-bit tag */
    };
    for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
        struct base_buf buf;
        base_buf_init(&buf, 4096);
        struct wire_fence fence = {.segment = 5, .fenced_session = 6}, back;
        assert_int_equal(wire_encode(WIRE_FENCE, &fence, &buf), YOLK_OK);
        add_entry(&buf, entries[i] + 1, entries[i][0]);
        int status = wire_decode(WIRE_FENCE, buf.data, buf.size, &back);
        if (status != YOLK_OK)
            print_message("entry %zu: %s\n", i, yolk_last_error());
        assert_int_equal(status, YOLK_OK);
        assert_int_equal(back.segment, 5);
        assert_int_equal(back.fenced_session, 6);
        base_buf_free(&buf);
    }
}

static void truncation_everywhere(void **state)
{
    (void)state;
    struct base_buf buf;
    base_buf_init(&buf, 1 << 20);
    for (size_t k = 0; k < wire_kind_count(); k++) {
        const struct wire_kind_info *info = wire_kind_at(k);
        struct sample_message sample;
        sample_fill(info, 3, &sample);
        base_buf_clear(&buf);
        assert_int_equal(wire_encode(info->kind, &sample.msg, &buf), YOLK_OK);
        for (size_t n = 0; n < buf.size; n++) {
            /* A copy of exactly n bytes, so that a sanitizer sees any read behind them. */
            uint8_t *cut = malloc(n ? n : 1);
            union wire_any back;
            memcpy(cut, buf.data, n);
            assert_int_equal(wire_decode(info->kind, cut, n, &back), YOLK_ERR_PROTOCOL);
            free(cut);
        }
        assert_int_equal(base_buf_append(&buf, "", 1), YOLK_OK);
        union wire_any back;
        assert_int_equal(wire_decode(info->kind, buf.data, buf.size, &back), YOLK_ERR_PROTOCOL);
    }
    base_buf_free(&buf);
}

static void any_bytes_are_safe(void **state)
{
    (void)state;
    uint64_t x = 88172645463325252ull;
    for (unsigned round = 0; round < 200000; round++) {
        uint8_t bytes[48];
        for (size_t i = 0; i < sizeof(bytes); i++) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            bytes[i] = (uint8_t)(x >> 24);
        }
        bytes[0] = (uint8_t)(0x80 | (bytes[0] & 0x0f));
        bytes[1] &= 0x0f;
        const struct wire_kind_info *info = wire_kind_at(round % wire_kind_count());
        union wire_any back;
        int status = quiet(wire_decode(info->kind, bytes, 1 + x % sizeof(bytes), &back));
        assert_true(status == YOLK_OK || status == YOLK_ERR_PROTOCOL);
        struct wire_keys keys;
        status = quiet(wire_keys_open(wire_view_of(bytes + 1, x % 40), 8, &keys));
        struct wire_view key;
        while (status == YOLK_OK && wire_keys_next(&keys, &key))
            assert_true(key.data + key.size <= bytes + sizeof(bytes));
    }
}

static void wrong_shapes(void **state)
{
    (void)state;
    union wire_any back;
    static const uint8_t cases[][16] = {
        /* size, body; for FACTS (1, 2 numbers; 3 bin of 25; 4 bin) */
        {1, 0x90},                                   /* an array, not a map */
        {1, 0xc1},                                   /* the byte that is never used */
        {3, 0x81, 1, 0xff},                          /* negative for unsigned */
        {4, 0x81, 1, 0xa1, 'x'},                     /* text for a number */
        {4, 0x81, 3, 0xa1, 'x'},                     /* text for bytes */
        {5, 0x82, 1, 5, 1, 6},                       /* a tag twice */
        {5, 0x81, 3, 0xc4, 1, 0},                    /* not a whole record */
        {4, 0x81, 0xa1, 'x', 5},                     /* a tag that is text */
        {3, 0x81, 0xff, 5},                          /* a negative tag */
        {5, 0xdf, 0xff, 0xff, 0xff, 0xff},           /* 4 G fields */
        {5, 0xde, 0xff, 0xff, 1, 1},                 /* 64 K fields */
        {7, 0x81, 3, 0xc6, 0xff, 0xff, 0xff, 0xff},  /* 4 GiB of bytes */
        {7, 0x81, 50, 0xdd, 0xff, 0xff, 0xff, 0xff}, /* 4 G items in an unknown field */
        {7, 0x81, 50, 0xdf, 0xff, 0xff, 0xff, 0xff},
        {7, 0x81, 50, 0xdb, 0xff, 0xff, 0xff, 0xff},
        {7, 0x81, 50, 0xc9, 0xff, 0xff, 0xff, 0xff},
        {12, 0x81, 50, 0xdd, 0, 0, 0, 2, 0xdd, 0xff, 0xff, 0xff, 0xff},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_int_equal(wire_decode(WIRE_FACTS, cases[i] + 1, cases[i][0], &back),
                         YOLK_ERR_PROTOCOL);
    static const uint8_t nonce31[] = {0x81, 1, 0xc4, 3, 1, 2, 3};
    assert_int_equal(wire_decode(WIRE_AUTH, nonce31, sizeof(nonce31), &back), YOLK_ERR_PROTOCOL);
    assert_int_equal(wire_decode(7, nonce31, sizeof(nonce31), &back), YOLK_ERR_UNSUPPORTED);
}

static void headers(void **state)
{
    (void)state;
    uint8_t bytes[WIRE_HEADER_SIZE];
    struct wire_header h = {WIRE_PUT_START, UINT32_MAX, 9}, back;
    wire_header_encode(&h, bytes);
    assert_int_equal(wire_header_decode(bytes, &back), YOLK_ERR_TOO_LARGE); /* a claim of 4 GiB */
    h.body_size = wire_kind_body_max(WIRE_PUT_START);
    wire_header_encode(&h, bytes);
    assert_int_equal(wire_header_decode(bytes, &back), YOLK_OK);
    h.body_size++;
    wire_header_encode(&h, bytes);
    assert_int_equal(wire_header_decode(bytes, &back), YOLK_ERR_TOO_LARGE);
    h = (struct wire_header){5000, 1000, 1}; /* a kind of the future can be skipped */
    wire_header_encode(&h, bytes);
    assert_int_equal(wire_header_decode(bytes, &back), YOLK_OK);
    h.body_size = 1 << 20;
    wire_header_encode(&h, bytes);
    assert_int_equal(wire_header_decode(bytes, &back), YOLK_ERR_TOO_LARGE);
    memcpy(bytes, "GET / HTTP/1.1\r\n", sizeof(bytes));
    assert_int_equal(wire_header_decode(bytes, &back), YOLK_ERR_PROTOCOL);
}

static void encode_respects_limits(void **state)
{
    (void)state;
    size_t size = 9u << 20;
    uint8_t *big = calloc(1, size);
    struct base_buf buf;
    base_buf_init(&buf, 64u << 20);
    assert_int_equal(base_buf_append(&buf, "abc", 3), YOLK_OK);
    struct wire_keys_request request = {.keys = wire_view_of(big, size)};
    assert_int_equal(wire_frame_encode(WIRE_EXIST, 1, &request, &buf), YOLK_ERR_TOO_LARGE);
    assert_int_equal(buf.size, 3);
    request.keys.size = wire_kind_body_max(WIRE_EXIST); /* with the head it is too large */
    assert_int_equal(wire_frame_encode(WIRE_EXIST, 1, &request, &buf), YOLK_ERR_TOO_LARGE);
    assert_int_equal(buf.size, 3);
    base_buf_free(&buf);
    base_buf_init(&buf, 100);
    request.keys.size = 200;
    assert_int_equal(wire_frame_encode(WIRE_EXIST, 1, &request, &buf), YOLK_ERR_LIMIT);
    assert_int_equal(buf.size, 0);
    assert_int_equal(wire_encode(6, &request, &buf), YOLK_ERR_UNSUPPORTED);
    base_buf_free(&buf);
    free(big);
}

static void keys(void **state)
{
    (void)state;
    struct base_buf buf;
    base_buf_init(&buf, 1 << 20);
    struct wire_view in[3] = {wire_view_text("alpha"), wire_view_text(""), wire_view_text("c")};
    assert_int_equal(wire_keys_build(&buf, in, 3), YOLK_OK);
    assert_int_equal(buf.size, 4 + 12 + 6);
    struct wire_keys keys;
    struct wire_view key;
    assert_int_equal(wire_keys_open(wire_view_buf(&buf), 3, &keys), YOLK_OK);
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < 3; i++) {
            assert_true(wire_keys_next(&keys, &key));
            assert_int_equal(key.size, in[i].size);
            assert_memory_equal(key.data, in[i].data, key.size);
        }
        assert_false(wire_keys_next(&keys, &key));
        wire_keys_rewind(&keys);
    }
    assert_int_equal(wire_keys_open(wire_view_buf(&buf), 2, &keys), YOLK_ERR_LIMIT);
    for (size_t n = 1; n < buf.size; n++)
        assert_int_equal(wire_keys_open(wire_view_of(buf.data, n), 3, &keys), YOLK_ERR_PROTOCOL);
    wire_set_u32(buf.data + 4, UINT32_MAX); /* a length that would wrap */
    assert_int_equal(wire_keys_open(wire_view_buf(&buf), 3, &keys), YOLK_ERR_PROTOCOL);
    wire_set_u32(buf.data, UINT32_MAX); /* a count that would wrap */
    assert_int_equal(wire_keys_open(wire_view_buf(&buf), UINT32_MAX, &keys), YOLK_ERR_PROTOCOL);
    assert_int_equal(wire_keys_open(wire_view_of(NULL, 0), 3, &keys), YOLK_OK);
    assert_int_equal(keys.count, 0);
    base_buf_free(&buf);
}

static void records(void **state)
{
    (void)state;
    struct base_buf buf;
    base_buf_init(&buf, 4096);
    assert_int_equal(base_buf_append(&buf, "x", 1), YOLK_OK); /* nothing is aligned */
    struct wire_view v;
    for (uint64_t i = 1; i <= 2; i++) {
        struct wire_held held = {i, i << 40, i + 2, i + 3};
        assert_int_equal(wire_held_append(&buf, &held), YOLK_OK);
    }
    v = wire_view_of(buf.data + 1, buf.size - 1);
    assert_int_equal(wire_held_count(v), 2);
    assert_true(wire_held_at(v, 1).offset == 2ull << 40 && wire_held_at(v, 1).op == 5);
    buf.size = 1;
    struct wire_result result = {YOLK_ERR_NOT_FOUND, 3, 1ull << 33, 7};
    assert_int_equal(wire_result_append(&buf, &result), YOLK_OK);
    v = wire_view_of(buf.data + 1, buf.size - 1);
    assert_int_equal(wire_result_count(v), 1);
    assert_int_equal(wire_result_at(v, 0).status, YOLK_ERR_NOT_FOUND);
    assert_true(wire_result_at(v, 0).size == 1ull << 33 && wire_result_at(v, 0).first == 7 &&
                wire_result_at(v, 0).replica_count == 3);
    buf.size = 1;
    struct wire_fact fact = {WIRE_FACT_FREED, 1, 2, 3};
    assert_int_equal(wire_fact_append(&buf, &fact), YOLK_OK);
    v = wire_view_of(buf.data + 1, buf.size - 1);
    assert_int_equal(wire_fact_count(v), 1);
    assert_true(wire_fact_at(v, 0).kind == WIRE_FACT_FREED && wire_fact_at(v, 0).session == 3 &&
                wire_fact_at(v, 0).offset == 1 && wire_fact_at(v, 0).size == 2);
    buf.size = 1;
    struct wire_replica replica = {4, 5, WIRE_MEDIUM_LOCAL_DISK, 77};
    struct wire_offer offer = {6, 7, 78};
    uint8_t ticket[WIRE_TICKET_SIZE] = "ticket";
    assert_int_equal(wire_replica_append(&buf, &replica), YOLK_OK);
    struct wire_replica replica_back = wire_replica_at(wire_view_of(buf.data + 1, buf.size - 1), 0);
    assert_memory_equal(&replica_back, &replica, sizeof(replica));
    buf.size = 1;
    assert_int_equal(wire_offer_append(&buf, &offer), YOLK_OK);
    v = wire_view_of(buf.data + 1, buf.size - 1);
    assert_true(wire_offer_at(v, 0).size == 7 && wire_offer_at(v, 0).checksum == 78);
    buf.size = 1;
    assert_int_equal(wire_ticket_append(&buf, ticket), YOLK_OK);
    assert_int_equal(wire_ticket_append(&buf, ticket), YOLK_OK);
    v = wire_view_of(buf.data + 1, buf.size - 1);
    assert_memory_equal(wire_ticket_at(v, 1), ticket, sizeof(ticket));
    assert_int_equal(wire_ticket_count(v), 2);
    buf.size = 1;
    struct wire_task task = {WIRE_TASK_PROMOTE, 1, 2, 3, 4, 5};
    assert_int_equal(wire_task_append(&buf, &task), YOLK_OK);
    assert_int_equal(wire_task_append(&buf, &task), YOLK_OK);
    v = wire_view_of(buf.data + 1, buf.size - 1);
    assert_int_equal(wire_task_count(v), 2);
    struct wire_task task_back = wire_task_at(v, 1);
    assert_true(task_back.kind == WIRE_TASK_PROMOTE && task_back.id == 1 && task_back.offset == 2 &&
                task_back.size == 3 && task_back.disk_offset == 4 && task_back.checksum == 5);
    buf.size = 1;
    struct wire_task_done done = {1, YOLK_ERR_CORRUPT, 2, 3, 4};
    assert_int_equal(wire_task_done_append(&buf, &done), YOLK_OK);
    v = wire_view_of(buf.data + 1, buf.size - 1);
    assert_int_equal(wire_task_done_count(v), 1);
    struct wire_task_done done_back = wire_task_done_at(v, 0);
    assert_true(done_back.id == 1 && done_back.status == YOLK_ERR_CORRUPT &&
                done_back.disk_offset == 2 && done_back.disk_size == 3 && done_back.checksum == 4);
    base_buf_clear(&buf);
    assert_int_equal(wire_u64s_append(&buf, 1ull << 50), YOLK_OK);
    assert_int_equal(wire_i32s_append(&buf, -5), YOLK_OK);
    assert_int_equal(wire_u32s_append(&buf, 6), YOLK_OK);
    v = wire_view_buf(&buf);
    assert_true(wire_u64s_at(v, 0) == 1ull << 50);
    assert_int_equal(wire_i32s_at(v, 2), -5);
    assert_int_equal(wire_u32s_at(v, 3), 6);
    base_buf_free(&buf);
}

static const struct wire_gds descriptor = {
    .owner_client_id = "owner of 16 byte",
    .storage_id = "file of 16 bytes",
    .storage_generation = 3,
    .value_offset = 1ull << 40,
    .value_size = 5000,
    .allocated_size = 8192,
};

static void descriptors(void **state)
{
    (void)state;
    struct base_buf buf;
    base_buf_init(&buf, 1 << 20);
    assert_int_equal(wire_gds_append(&buf, &descriptor), YOLK_OK);
    assert_int_equal(buf.data[0], 0x96); /* an array of six */
    assert_int_equal(wire_gds_append(&buf, NULL), YOLK_OK);
    assert_int_equal(wire_gds_append(&buf, &descriptor), YOLK_OK);
    struct wire_put_start msg = {.gds = wire_view_buf(&buf)}, back;
    struct base_buf body;
    base_buf_init(&body, 1 << 20);
    assert_int_equal(wire_encode(WIRE_PUT_START, &msg, &body), YOLK_OK);
    assert_int_equal(wire_decode(WIRE_PUT_START, body.data, body.size, &back), YOLK_OK);
    struct wire_gdss list;
    struct wire_gds gds;
    bool given;
    assert_int_equal(wire_gdss_open(back.gds, 3, &list), YOLK_OK);
    assert_int_equal(list.count, 3);
    for (int i = 0; i < 3; i++) {
        assert_true(wire_gdss_next(&list, &gds, &given));
        assert_int_equal(given, i != 1);
        assert_int_equal(wire_gds_equal(&gds, &descriptor), i != 1);
    }
    assert_false(wire_gdss_next(&list, &gds, &given));
    assert_int_equal(wire_gdss_open(back.gds, 2, &list), YOLK_ERR_LIMIT);
    assert_int_equal(wire_gdss_open(wire_view_of(NULL, 0), 0, &list), YOLK_OK);
    assert_int_equal(list.count, 0);
    /* The largest one takes the room that is said. */
    struct wire_gds wide = descriptor;
    wide.storage_generation = wide.value_offset = wide.value_size = wide.allocated_size =
        UINT64_MAX;
    base_buf_clear(&buf);
    assert_int_equal(wire_gds_append(&buf, &wide), YOLK_OK);
    assert_int_equal(buf.size, WIRE_GDS_SIZE_MAX);
    base_buf_free(&buf);
    base_buf_init(&buf, WIRE_GDS_SIZE_MAX - 1);
    assert_int_equal(wire_gds_append(&buf, &wide), YOLK_ERR_LIMIT);
    assert_int_equal(buf.size, 0);
    base_buf_free(&buf);
    base_buf_free(&body);
}

/* PUT_START's body with one packed item as its list of descriptors. */
static int decode_item(const uint8_t *item, size_t size)
{
    uint8_t body[256] = {0x81, 18, 0x91};
    struct wire_put_start back;
    assert_true(size <= sizeof(body) - 3);
    memcpy(body + 3, item, size);
    int status = wire_decode(WIRE_PUT_START, body, 3 + size, &back);
    struct wire_gdss list;
    assert_int_equal(wire_gdss_open(wire_view_of(item, size), 1, &list) == YOLK_OK,
                     status == YOLK_OK);
    return status;
}

static void descriptors_have_exactly_six_fields(void **state)
{
    (void)state;
    struct base_buf buf;
    base_buf_init(&buf, 4096);
    assert_int_equal(wire_gds_append(&buf, &descriptor), YOLK_OK);
    assert_int_equal(decode_item(buf.data, buf.size), YOLK_OK);
    assert_int_equal(decode_item((const uint8_t *)"\xc0", 1), YOLK_OK);
    for (size_t n = 1; n < buf.size; n++) /* cut short anywhere */
        assert_int_equal(decode_item(buf.data, n), YOLK_ERR_PROTOCOL);
    /* where each field begins, in the item */
    const size_t at[] = {1, 19, 37, 38, 47, 50, buf.size};
    uint8_t item[256];
    for (int field = 0; field < 6; field++) {
        static const uint8_t wrong[][8] = {
            {1, 0xc0},             /* nil */
            {1, 0xff},             /* negative */
            {2, 0xa1, 'x'},        /* text */
            {3, 0xc4, 1, 9},       /* one byte */
            {5, 0xca, 0, 0, 0, 0}, /* float */
            {1, 0x90},             /* array */
            {1, 0x80},             /* map */
            {3, 0xd4, 1, 2},       /* ext */
        };
        for (size_t w = 0; w < sizeof(wrong) / sizeof(wrong[0]); w++) {
            memcpy(item, buf.data, at[field]);
            memcpy(item + at[field], wrong[w] + 1, wrong[w][0]);
            size_t rest = buf.size - at[field + 1];
            memcpy(item + at[field] + wrong[w][0], buf.data + at[field + 1], rest);
            assert_int_equal(decode_item(item, at[field] + wrong[w][0] + rest), YOLK_ERR_PROTOCOL);
        }
        /* five fields: this one is missing */
        memcpy(item, buf.data, at[field]);
        item[0] = 0x95;
        memcpy(item + at[field], buf.data + at[field + 1], buf.size - at[field + 1]);
        size_t size = at[field] + buf.size - at[field + 1];
        assert_int_equal(decode_item(item, size), YOLK_ERR_PROTOCOL);
        item[0] = 0x96; /* and so are six that are five */
        assert_int_equal(decode_item(item, size), YOLK_ERR_PROTOCOL);
    }
    /* seven */
    memcpy(item, buf.data, buf.size);
    item[0] = 0x97;
    item[buf.size] = 7;
    assert_int_equal(decode_item(item, buf.size + 1), YOLK_ERR_PROTOCOL);
    /* ids of 15 and 17 bytes; a map of six; an array of six in a wide head is one */
    memcpy(item, buf.data, buf.size);
    item[2] = 15;
    memmove(item + 18, item + 19, buf.size - 19);
    assert_int_equal(decode_item(item, buf.size - 1), YOLK_ERR_PROTOCOL);
    memcpy(item, buf.data, buf.size);
    item[0] = 0x86;
    assert_int_equal(decode_item(item, buf.size), YOLK_ERR_PROTOCOL);
    item[0] = 0xdc, item[1] = 0, item[2] = 6;
    memcpy(item + 3, buf.data + 1, buf.size - 1);
    assert_int_equal(decode_item(item, buf.size + 2), YOLK_OK);
    /* The list is an array, no binary, and has what its head says. */
    struct wire_put_start back;
    static const uint8_t bin[] = {0x81, 18, 0xc4, 1, 0xc0}, two[] = {0x81, 18, 0x92, 0xc0};
    static const uint8_t huge[] = {0x81, 18, 0xdd, 0xff, 0xff, 0xff, 0xff, 0xc0};
    assert_int_equal(wire_decode(WIRE_PUT_START, bin, sizeof(bin), &back), YOLK_ERR_PROTOCOL);
    assert_int_equal(wire_decode(WIRE_PUT_START, two, sizeof(two), &back), YOLK_ERR_PROTOCOL);
    assert_int_equal(wire_decode(WIRE_PUT_START, huge, sizeof(huge), &back), YOLK_ERR_PROTOCOL);
    /* Nor is anything else written. */
    struct wire_put_start msg = {.gds = wire_view_of("x", 1)};
    base_buf_clear(&buf);
    assert_int_equal(wire_encode(WIRE_PUT_START, &msg, &buf), YOLK_ERR_PROTOCOL);
    assert_int_equal(buf.size, 0);
    base_buf_free(&buf);
}

static void text_is_made_printable(void **state)
{
    (void)state;
    char out[6];
    wire_view_copy_text(wire_view_text("a\nb\x1b[31m"), out, sizeof(out));
    assert_string_equal(out, "a?b?[");
    wire_view_copy_text(wire_view_of(NULL, 0), out, sizeof(out));
    assert_string_equal(out, "");
}

/* Every message of the golden file, byte for byte: what was released can still be read, and is
 * still written so. YOLK_GOLDEN_WRITE=1 writes the file anew. */
static void golden_frames(void **state)
{
    (void)state;
    const char *path = YOLK_SOURCE_DIR "/test/golden/frames.hex";
    bool writing = getenv("YOLK_GOLDEN_WRITE") != NULL;
    FILE *f = fopen(path, writing ? "w" : "r");
    assert_non_null(f);
    struct base_buf buf;
    base_buf_init(&buf, 1 << 20);
    static char line[16384], hex[16384];
    for (size_t k = 0; k < wire_kind_count(); k++) {
        const struct wire_kind_info *info = wire_kind_at(k);
        struct sample_message sample;
        sample_fill(info, (unsigned)k, &sample);
        base_buf_clear(&buf);
        assert_int_equal(wire_frame_encode(info->kind, k, &sample.msg, &buf), YOLK_OK);
        int at = snprintf(hex, sizeof(hex), "%s ", info->name);
        for (size_t i = 0; i < buf.size; i++)
            at += snprintf(hex + at, sizeof(hex) - (size_t)at, "%02x", buf.data[i]);
        if (writing) {
            fprintf(f, "%s\n", hex);
            continue;
        }
        assert_non_null(fgets(line, sizeof(line), f));
        line[strcspn(line, "\n")] = '\0';
        assert_string_equal(line, hex);
    }
    fclose(f);
    base_buf_free(&buf);
}

/* Messages of a peer that was built before fields were added: read as before, the new fields empty.
 */
static uint32_t read_frames_of(const char *path, bool options)
{
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    static char line[16384];
    static uint8_t bytes[8192];
    uint32_t read = 0;
    while (fgets(line, sizeof(line), f) != NULL) {
        const char *hex = strchr(line, ' ') + 1;
        size_t size = strcspn(hex, "\n") / 2;
        for (size_t i = 0; i < size; i++)
            bytes[i] = (uint8_t)strtoul((char[3]){hex[2 * i], hex[2 * i + 1], 0}, NULL, 16);
        struct wire_header header;
        union wire_any msg;
        assert_int_equal(wire_header_decode(bytes, &header), YOLK_OK);
        assert_int_equal(wire_decode(header.kind, bytes + WIRE_HEADER_SIZE, header.body_size, &msg),
                         YOLK_OK);
        if (header.kind == WIRE_PUT_START)
            assert_true((msg.put_start.groups.size > 0) == options &&
                        (msg.put_start.soft_pin != 0) == options && msg.put_start.gds.size == 0 &&
                        msg.put_start.keys.size > 0);
        if (header.kind == WIRE_SESSION_OPEN)
            assert_true((msg.session_open.tenant.size > 0) == options &&
                        msg.session_open.name.size > 0);
        if (header.kind == WIRE_SEGMENT_MOUNT)
            assert_true(msg.segment_mount.storage_generation == 0 && msg.segment_mount.size > 0);
        read++;
    }
    fclose(f);
    return read;
}

static void frames_of_before_are_read(void **state)
{
    (void)state;
    assert_int_equal(read_frames_of(YOLK_SOURCE_DIR "/test/golden/frames-1.hex", false), 49);
    assert_int_equal(read_frames_of(YOLK_SOURCE_DIR "/test/golden/frames-2.hex", true), 55);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_of_before_are_read),
        cmocka_unit_test(table_is_sound),
        cmocka_unit_test(round_trip),
        cmocka_unit_test(steady_state_allocates_nothing),
        cmocka_unit_test(number_limits),
        cmocka_unit_test(unknown_fields_are_skipped),
        cmocka_unit_test(truncation_everywhere),
        cmocka_unit_test(any_bytes_are_safe),
        cmocka_unit_test(wrong_shapes),
        cmocka_unit_test(headers),
        cmocka_unit_test(encode_respects_limits),
        cmocka_unit_test(keys),
        cmocka_unit_test(records),
        cmocka_unit_test(descriptors),
        cmocka_unit_test(descriptors_have_exactly_six_fields),
        cmocka_unit_test(text_is_made_printable),
        cmocka_unit_test(golden_frames),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
