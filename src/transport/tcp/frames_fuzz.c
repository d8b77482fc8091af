/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <string.h>

#include "transport/tcp/frames.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_places(const uint8_t *data, const struct tcp_frame *frame)
{
    for (uint32_t i = 0; i < frame->count; i++) {
        const uint8_t *at = data + TCP_READS_SIZE + (size_t)i * TCP_PLACE_SIZE;
        struct tcp_place place;
        uint8_t again[TCP_PLACE_SIZE];
        if (tcp_place_decode(at, &place) != YOLK_OK)
            continue;
        assert(place.length <= TCP_LENGTH_MAX);
        tcp_place_encode(&place, again);
        assert(memcmp(again, at, sizeof again) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tcp_frame frame;
    size_t used;
    if (tcp_frame_decode(data, size, &frame, &used) != YOLK_OK || used == 0)
        return 0;
    uint8_t again[TCP_FRAME_MAX];
    size_t places = frame.kind == TCP_READS ? frame.count * TCP_PLACE_SIZE : 0;
    assert(used <= size && frame.length <= TCP_LENGTH_MAX);
    assert(frame.kind != TCP_READS || (frame.count > 0 && frame.count <= TCP_READS_MAX));
    assert(tcp_frame_encode(&frame, again) + places == used);
    assert(memcmp(again, data, used - places) == 0);
    if (frame.kind == TCP_READS)
        check_places(data, &frame);
    return 0;
}
