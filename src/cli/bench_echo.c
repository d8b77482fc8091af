/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/bench_echo.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/error.h"
#include "platform/clock.h"
#include "platform/net.h"

enum { HEAD = 16, QUESTION_MAX = 1 << 16, TIMEOUT_S = 60 };

static uint64_t soon(void)
{
    return clock_real_now_ns() + TIMEOUT_S * CLOCK_NS_PER_S;
}

/* The child: until the other end closes. */
static int answer_all(int fd, uint64_t spin_ns, size_t pool_bytes)
{
    static uint8_t rest[QUESTION_MAX];
    uint8_t *pool = mmap(NULL, pool_bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (pool == MAP_FAILED)
        return 1;
    memset(pool, 2, pool_bytes);
    for (size_t at = 0;;) {
        uint8_t head[HEAD];
        int status = net_recv_all_spin(fd, head, HEAD, CLOCK_NEVER, spin_ns);
        uint32_t question = base_load_u32(head), answer = base_load_u32(head + 4);
        if (status == YOLK_OK && question > HEAD)
            status = net_recv_all(fd, rest, question - HEAD, soon());
        if (at + answer > pool_bytes)
            at = 0;
        if (status == YOLK_OK)
            status = net_send_all(fd, pool + at, answer, soon());
        at += answer;
        if (status != YOLK_OK)
            return status == YOLK_ERR_EOF ? 0 : 1;
    }
}

static void no_delay(int fd)
{
    int one = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

static int child(int listener, uint64_t spin_ns, size_t pool_bytes)
{
    int fd = -1;
    if (net_accept(listener, soon(), &fd, NULL) != YOLK_OK)
        return 1;
    no_delay(fd);
    return answer_all(fd, spin_ns, pool_bytes);
}

enum yolk_status bench_echo_open(struct bench_echo *echo, size_t pool_bytes, uint64_t spin_ns,
                                 uint64_t server_spin_ns)
{
    struct net_address address, bound;
    int listener = -1;
    *echo = (struct bench_echo){.fd = -1, .spin_ns = spin_ns, .pool_bytes = pool_bytes};
    int status = net_address_parse("127.0.0.1:0", 0, &address);
    if (status == YOLK_OK)
        status = net_listen(&address, 1, &listener, &bound);
    if (status != YOLK_OK)
        return (enum yolk_status)status;
    (void)fflush(NULL);
    echo->pid = fork();
    if (echo->pid == 0)
        _exit(child(listener, server_spin_ns, pool_bytes));
    status = echo->pid < 0 ? base_fail(YOLK_ERR_SYSTEM, 0, "no process for the bare loop")
                           : net_connect(&bound, soon(), &echo->fd);
    net_close(listener);
    if (status == YOLK_OK)
        no_delay(echo->fd);
    return (enum yolk_status)status;
}

void bench_echo_close(struct bench_echo *echo)
{
    if (echo->pid <= 0)
        return;
    net_shutdown(echo->fd); /* other children may hold the descriptor too */
    net_close(echo->fd);
    (void)waitpid(echo->pid, NULL, 0);
    echo->pid = 0;
}

enum yolk_status bench_echo_ask(struct bench_echo *echo, const struct bench_ask *ask)
{
    static uint8_t questions[QUESTION_MAX];
    if ((uint64_t)ask->count * ask->question > sizeof(questions) || ask->question < HEAD ||
        ask->answer > echo->pool_bytes)
        return base_fail(YOLK_ERR_LIMIT, 0, "a question is too long");
    for (uint32_t i = 0; i < ask->count; i++) {
        base_store_u32(questions + (size_t)i * ask->question, ask->question);
        base_store_u32(questions + (size_t)i * ask->question + 4, ask->answer);
    }
    int status = net_send_all(echo->fd, questions, (size_t)ask->count * ask->question, soon());
    for (uint32_t i = 0; i < ask->count && status == YOLK_OK; i++)
        status = net_recv_all_spin(echo->fd, ask->to + (size_t)i * ask->answer, ask->answer, soon(),
                                   echo->spin_ns);
    return (enum yolk_status)status;
}
