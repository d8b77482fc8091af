/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a message of any kind: what decodes must encode again and decode to the same. */
#include <stdlib.h>

#include "wire/hello.h"
#include "wire/sample_message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_again(const struct wire_kind_info *info, const union wire_any *msg)
{
    struct base_buf buf;
    union wire_any back;
    base_buf_init(&buf, MAX_FRAME_BODY);
    int status = wire_encode(info->kind, msg, &buf);
    if (status == YOLK_OK) {
        status = wire_decode(info->kind, buf.data, buf.size, &back);
        if (status != YOLK_OK || !sample_equal(info, msg->bytes, back.bytes))
            abort();
    }
    base_buf_free(&buf);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    const struct wire_kind_info *info = wire_kind_at(data[0] % wire_kind_count());
    union wire_any msg;
    if (wire_decode(info->kind, data + 1, size - 1, &msg) == YOLK_OK)
        check_again(info, &msg);
    struct wire_keys keys;
    struct wire_view key;
    uint64_t sum = 0;
    if (wire_keys_open(wire_view_of(data + 1, size - 1), 1000, &keys) == YOLK_OK) {
        while (wire_keys_next(&keys, &key))
            sum += key.size;
        if (sum > size)
            abort();
    }
    /* and as one side of a hello */
    struct wire_hello_machine m;
    struct wire_hello_options options = {.secret = "s", .secret_size = 1};
    struct wire_header header = {(uint16_t)(1 + data[0] % 5), (uint32_t)(size - 1), 0};
    struct base_buf out;
    base_buf_init(&out, 65536);
    if (wire_hello_init(&m, data[0] & 0x80, &options) != YOLK_OK ||
        wire_hello_start(&m, &out) != YOLK_OK)
        abort();
    if (wire_hello_input(&m, &header, data + 1, &out) == YOLK_OK && m.authenticated)
        abort(); /* nobody guesses a proof */
    base_buf_free(&out);
    return 0;
}
