/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of HTTP services, whole and by pieces: what is whole stays as it is when more follows. */
#include <assert.h>
#include <string.h>

#include "peer/http.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BODY_MAX = 4096 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct base_buf in, out;
    int code = 0;
    base_buf_init(&in, size + 1);
    base_buf_init(&out, BODY_MAX);
    enum yolk_status status = YOLK_ERR_AGAIN;
    size_t step = size / 8 + 1;
    for (size_t at = 0; at < size && status == YOLK_ERR_AGAIN; at += step) {
        size_t more = size - at < step ? size - at : step;
        if (base_buf_append(&in, data + at, more) != YOLK_OK)
            break;
        status = http_parse_answer(&in, false, &code, &out);
    }
    if (status == YOLK_ERR_AGAIN)
        status = http_parse_answer(&in, true, &code, &out);
    if (status == YOLK_OK) {
        assert(code >= 100 && code <= 599);
        assert(out.size <= BODY_MAX && out.size <= size);
    }
    base_buf_free(&out);
    base_buf_free(&in);
    return 0;
}
