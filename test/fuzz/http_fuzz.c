/* SPDX-License-Identifier: Apache-2.0 */
/* What may come to the admin port. Whoever sends a whole request gets one answer, by the status of
 * its first line; the port outlives all of it. */
#include <errno.h>
#include <sys/socket.h>

#include "admin/http.h"
#include "kit.h"
#include "platform/clock.h"

static struct {
    struct loop *loop;
    struct server *server;
    struct admin_http *http;
} world;

static void start(void)
{
    struct server_options options = {.seed = 1};
    struct admin_http_options admin = {.guarded = false};
    master_config_default(&options.config);
    FUZZ_MUST(net_address_parse("127.0.0.1:0", 0, &options.address) == YOLK_OK);
    FUZZ_MUST(net_address_parse("127.0.0.1:0", 0, &admin.address) == YOLK_OK);
    FUZZ_MUST(loop_create(NULL, &world.loop) == YOLK_OK);
    FUZZ_MUST(server_create(world.loop, &options, &world.server) == YOLK_OK);
    FUZZ_MUST(admin_http_create(world.loop, world.server, &admin, &world.http) == YOLK_OK);
}

static void check(const char *answer, size_t size)
{
    static const char *const starts[] = {"200 OK", "400 ", "403 ", "404 ", "405 ",
                                         "411 ",   "413 ", "431 ", "501 "};
    static const char proceed[] = "HTTP/1.1 100 Continue\r\n\r\n";
    FUZZ_MUST(size > 12 && memcmp(answer, "HTTP/1.1 ", 9) == 0);
    if (strncmp(answer, proceed, sizeof(proceed) - 1) == 0)
        answer += sizeof(proceed) - 1;
    bool known = false;
    for (size_t i = 0; i < sizeof(starts) / sizeof(*starts); i++)
        known = known || strncmp(answer + 9, starts[i], strlen(starts[i])) == 0;
    FUZZ_MUST(known && strstr(answer, "\r\n\r\n") != NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char answer[1 << 17];
    if (world.loop == NULL)
        start();
    if (size > 16384)
        return 0;
    int fd;
    uint64_t deadline_ns = clock_after_ms(clock_real_now_ns(), 5000);
    FUZZ_MUST(net_connect(admin_http_address(world.http), deadline_ns, &fd) == YOLK_OK);
    FUZZ_MUST(size == 0 || net_send_all(fd, data, size, deadline_ns) == YOLK_OK);
    shutdown(fd, SHUT_WR);
    size_t got = 0;
    ssize_t n;
    do {
        FUZZ_MUST(loop_turn(world.loop) == YOLK_OK);
        while ((n = recv(fd, answer + got, sizeof(answer) - 1 - got, MSG_DONTWAIT)) > 0)
            got += (size_t)n;
    } while (n != 0 && (n >= 0 || errno == EAGAIN));
    answer[got] = '\0';
    struct http_request request;
    struct http_refusal refusal;
    enum http_state state = http_decode(data, size, 65536, &request, &refusal);
    /* A removal of everything is answered later, and who sends no more does not wait for it. */
    bool later = state == HTTP_READY && request.method == HTTP_POST;
    if ((state == HTTP_READY || state == HTTP_BAD) && (got > 0 || !later))
        check(answer, got);
    net_close(fd);
    return 0;
}
