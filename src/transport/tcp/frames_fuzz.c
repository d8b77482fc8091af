/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <string.h>

#include "transport/tcp/frames.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tcp_frame frame;
    size_t used;
    if (tcp_frame_decode(data, size, &frame, &used) != YOLK_OK || used == 0)
        return 0;
    uint8_t again[TCP_FRAME_MAX];
    assert(used <= size && frame.length <= TCP_LENGTH_MAX);
    assert(tcp_frame_encode(&frame, again) == used);
    /* The reserved word of a reply is the only thing not kept. */
    assert(frame.kind == TCP_REPLY || memcmp(again, data, used) == 0);
    return 0;
}
