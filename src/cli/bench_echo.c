/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/bench_echo.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/error.h"
#include "platform/clock.h"
#include "platform/net.h"
#include "platform/thread.h"

/* Of a question: its size, that of its answer, and where in the memory there: a place plus one, 0:
 * behind the last. What is behind the head goes there. */
enum { HEAD = 16, QUESTION_MAX = 1 << 16, TIMEOUT_S = 60, WINDOW = 1024 };

static uint64_t soon(void)
{
    return clock_real_now_ns() + TIMEOUT_S * CLOCK_NS_PER_S;
}

/* What one connection of the child needs. */
struct answerer {
    struct thread thread;
    int fd;
    uint64_t spin_ns;
    uint8_t *pool;
    size_t pool_bytes;
};

static int answer_one(const struct answerer *a, size_t *at)
{
    uint8_t head[HEAD];
    int status = net_recv_all_spin(a->fd, head, HEAD, CLOCK_NEVER, a->spin_ns);
    uint32_t question = base_load_u32(head), answer = base_load_u32(head + 4);
    uint64_t place = base_load_u64(head + 8);
    uint32_t rest = question > HEAD ? question - HEAD : 0, most = rest > answer ? rest : answer;
    if (status == YOLK_OK && most > a->pool_bytes)
        status = base_fail(YOLK_ERR_LIMIT, 0, "a question is too long");
    if (status != YOLK_OK)
        return status;
    if (place > 0)
        *at = (place - 1) % (a->pool_bytes - most + 1);
    else if (*at + most > a->pool_bytes)
        *at = 0;
    if (rest > 0)
        status = net_recv_all_spin(a->fd, a->pool + *at, rest, soon(), a->spin_ns);
    if (status == YOLK_OK)
        status = net_send_all(a->fd, a->pool + *at, answer, soon());
    *at += answer;
    return status;
}

/* Until the other end closes. */
static void answer_all(void *arg)
{
    struct answerer *a = arg;
    for (size_t at = 0; answer_one(a, &at) == YOLK_OK;)
        ;
    net_close(a->fd);
}

static void no_delay(int fd)
{
    int one = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

/* Ends with the first connection. */
struct accepter {
    int listener;
    struct answerer first;
};

static void accept_more(void *arg)
{
    const struct accepter *more = arg;
    for (;;) {
        int fd = -1;
        if (net_accept(more->listener, CLOCK_NEVER, &fd, NULL) != YOLK_OK)
            return;
        no_delay(fd);
        struct answerer *a = malloc(sizeof(*a)); /* the process ends: nothing is given back */
        if (a == NULL)
            return;
        *a = more->first;
        a->fd = fd;
        if (thread_start(&a->thread, "bench-answer", answer_all, a) != YOLK_OK)
            return;
    }
}

static int child(int listener, uint64_t spin_ns, size_t pool_bytes)
{
    static struct accepter more;
    struct thread thread = {.running = false};
    more = (struct accepter){listener, {.spin_ns = spin_ns, .pool_bytes = pool_bytes}};
    more.first.pool = mmap(NULL, pool_bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (more.first.pool == MAP_FAILED)
        return 1;
    memset(more.first.pool, 2, pool_bytes);
    if (net_accept(listener, soon(), &more.first.fd, NULL) != YOLK_OK)
        return 1;
    no_delay(more.first.fd);
    if (thread_start(&thread, "bench-accept", accept_more, &more) != YOLK_OK)
        return 1;
    answer_all(&more.first);
    return 0;
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
    echo->port = net_address_port(&bound);
    if (status == YOLK_OK)
        no_delay(echo->fd);
    return (enum yolk_status)status;
}

enum yolk_status bench_echo_again(const struct bench_echo *first, struct bench_echo *echo)
{
    struct net_address address;
    char text[32];
    *echo = *first;
    echo->fd = -1;
    echo->pid = 0;
    snprintf(text, sizeof(text), "127.0.0.1:%u", first->port);
    int status = net_address_parse(text, 0, &address);
    if (status == YOLK_OK)
        status = net_connect(&address, soon(), &echo->fd);
    if (status == YOLK_OK)
        no_delay(echo->fd);
    return (enum yolk_status)status;
}

void bench_echo_close(struct bench_echo *echo)
{
    if (echo->fd >= 0 && (echo->pid > 0 || echo->port != 0))
        net_shutdown(echo->fd); /* other children may hold the descriptor too */
    if (echo->port != 0)
        net_close(echo->fd);
    if (echo->pid > 0)
        (void)waitpid(echo->pid, NULL, 0);
    *echo = (struct bench_echo){.fd = -1};
}

enum yolk_status bench_echo_ask(struct bench_echo *echo, const struct bench_ask *ask)
{
    static uint8_t questions[QUESTION_MAX]; /* what is not set stays 0 */
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

static void move_head(const struct bench_move *move, uint32_t i, uint8_t head[HEAD])
{
    base_store_u32(head, move->write ? HEAD + move->size : HEAD);
    base_store_u32(head + 4, move->write ? HEAD : move->size);
    base_store_u64(head + 8, move->places[i] + 1);
}

/* The questions of one connection for blocks [from, to). */
static int move_ask(struct bench_echo *echo, const struct bench_move *move, uint32_t from,
                    uint32_t to)
{
    uint8_t heads[WINDOW * HEAD];
    if (!move->write) {
        for (uint32_t i = from; i < to; i++)
            move_head(move, i, heads + (size_t)(i - from) * HEAD);
        return net_send_all(echo->fd, heads, (size_t)(to - from) * HEAD, soon());
    }
    int status = YOLK_OK;
    for (uint32_t i = from; i < to && status == YOLK_OK; i++) {
        move_head(move, i, heads);
        struct iovec iov[2] = {{heads, HEAD}, {move->memory + (size_t)i * move->size, move->size}};
        ssize_t n = writev(echo->fd, iov, 2);
        size_t sent = n > 0 ? (size_t)n : 0;
        if (sent < HEAD)
            status = net_send_all(echo->fd, heads + sent, HEAD - sent, soon());
        sent = sent > HEAD ? sent - HEAD : 0;
        if (status == YOLK_OK)
            status = net_send_all(echo->fd, (const uint8_t *)iov[1].iov_base + sent,
                                  move->size - sent, soon());
    }
    return status;
}

static int move_answers(struct bench_echo *echo, const struct bench_move *move, uint32_t from,
                        uint32_t to)
{
    uint8_t acknowledged[HEAD];
    int status = YOLK_OK;
    for (uint32_t i = from; i < to && status == YOLK_OK; i++)
        status = net_recv_all_spin(
            echo->fd, move->write ? acknowledged : move->memory + (size_t)i * move->size,
            move->write ? HEAD : move->size, soon(), echo->spin_ns);
    return status;
}

enum yolk_status bench_echo_move(struct bench_echo *echoes, uint32_t echo_count,
                                 const struct bench_move *move)
{
    int status = YOLK_OK;
    for (uint32_t at = 0; at < move->count && status == YOLK_OK;) {
        uint32_t ends[BENCH_ECHO_MAX], begin = at;
        for (uint32_t c = 0; c < echo_count && status == YOLK_OK; c++) {
            uint32_t each = (move->count - at) / (echo_count - c);
            ends[c] = at + (each < WINDOW ? each : WINDOW);
            status = move_ask(&echoes[c], move, at, ends[c]);
            at = ends[c];
        }
        for (uint32_t c = 0; c < echo_count && status == YOLK_OK; begin = ends[c++])
            status = move_answers(&echoes[c], move, begin, ends[c]);
    }
    return (enum yolk_status)status;
}
