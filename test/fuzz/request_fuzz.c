/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP requests as bytes. What is decoded lies within them, and decodes to the same again behind
 * other bytes; before all of it is there it is incomplete or already wrong. */
#include "wire/http_request.h"
#include "kit.h"

enum { BODY_MAX = 4096 };

static void check_text(struct http_text text, const uint8_t *data, size_t size)
{
    const char *from = (const char *)data;
    FUZZ_MUST(text.size == 0 ||
              (text.data >= from && text.size <= size && text.data + text.size <= from + size));
}

static void check_ready(const struct http_request *request, const uint8_t *data, size_t size)
{
    uint8_t bytes[HTTP_HEAD_MAX];
    size_t written = 0;
    FUZZ_MUST(request->size <= size && request->body.size <= BODY_MAX && request->path[0] == '/');
    FUZZ_MUST(strlen(request->path) < HTTP_PATH_MAX && request->query_count <= HTTP_QUERY_MAX);
    check_text(request->body, data, size);
    for (size_t i = 0; i < request->query_count; i++) {
        check_text(request->query[i].name, data, size);
        check_text(request->query[i].value, data, size);
        if (http_unescape(request->query[i].value, bytes, sizeof(bytes), &written))
            FUZZ_MUST(written <= request->query[i].value.size);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct http_request request, again;
    struct http_refusal refusal = {0, NULL};
    enum http_state state = http_decode(data, size, BODY_MAX, &request, &refusal);
    if (state == HTTP_BAD)
        FUZZ_MUST(refusal.code >= 400 && refusal.code < 500 && refusal.text[0] != '\0');
    if (state != HTTP_READY)
        return 0;
    check_ready(&request, data, size);
    FUZZ_MUST(http_decode(data, request.size, BODY_MAX, &again, &refusal) == HTTP_READY);
    FUZZ_MUST(again.size == request.size && strcmp(again.path, request.path) == 0);
    for (size_t i = 0; i < request.size && i < 512; i++) {
        state = http_decode(data, request.size - 1 - i, BODY_MAX, &again, &refusal);
        FUZZ_MUST(state == HTTP_INCOMPLETE || state == HTTP_HEAD_READY);
    }
    return 0;
}
