/* SPDX-License-Identifier: Apache-2.0 */
/* The bare loops beside which sockets are measured: a process that answers each question of 16
 * bytes with what it asks for, and the client's side of it. Both sides wait either by sleeping at
 * once or by polling for a while first. */
#ifndef CLI_BENCH_ECHO_H
#define CLI_BENCH_ECHO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <yolk/status.h>

enum { BENCH_ECHO_MAX = 64 }; /* connections that move together */

struct bench_echo {
    int fd;  /* TCP over loopback */
    int pid; /* 0: another one's process answers it too */
    uint16_t port;
    uint64_t spin_ns; /* of this side */
    size_t pool_bytes;
};

/* The answers come from pool_bytes of memory, gone through in order. */
YOLK_MUST_USE enum yolk_status bench_echo_open(struct bench_echo *echo, size_t pool_bytes,
                                               uint64_t spin_ns, uint64_t server_spin_ns);
/* Another connection to the same process, which has a thread for each. To be closed before the
 * first one. */
YOLK_MUST_USE enum yolk_status bench_echo_again(const struct bench_echo *first,
                                                struct bench_echo *echo);
void bench_echo_close(struct bench_echo *echo);

/* `count` questions are sent at once; question + padding bytes each; then the answers are read into
 * `to`, one behind the other. */
struct bench_ask {
    uint32_t count;
    uint32_t question; /* bytes, at least 16 */
    uint32_t answer;
    uint8_t *to;
};
YOLK_MUST_USE enum yolk_status bench_echo_ask(struct bench_echo *echo, const struct bench_ask *ask);

/* Blocks moved between the memory of both, as the engine is asked to: those of one call are divided
 * among the connections, which have them under way together. */
struct bench_move {
    bool write;
    uint32_t count, size;
    const uint64_t *places; /* in the other one's memory, wrapped to its size */
    uint8_t *memory;        /* count blocks of this one's */
};
YOLK_MUST_USE enum yolk_status bench_echo_move(struct bench_echo *echoes, uint32_t echo_count,
                                               const struct bench_move *move);

#endif
