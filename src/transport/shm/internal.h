/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the shm transport.
 *
 * A consumer connects to the provider's socket, says the hello and sends one OPEN. The reply brings
 * two descriptors: the segment (read-only unless a writable mapping was asked for and allowed) and
 * the *header page*, always read-only, whose `segment` word the consumer compares before and after
 * each copy. The connection then stays open, silent, for as long as the mapping exists: unmapping
 * comes before closing, so the provider knows that a closed connection's mapping is gone. A
 * provider that wants it gone shuts down its sending side, which the consumer sees at its next io.
 */
#ifndef TRANSPORT_SHM_INTERNAL_H
#define TRANSPORT_SHM_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "platform/memory.h"
#include "transport/gpu/gpu.h"
#include "platform/net.h"
#include "wire/hello.h"
#include "yolk/transport.h"

#define SHM_HEADER_MAGIC UINT64_C(0x31306b6c6f792f68)

struct shm_header {
    uint64_t magic;
    uint8_t instance[WIRE_ID_SIZE];
    _Atomic uint64_t segment; /* the id served now; 0: none */
};

enum { SHM_OPEN = 130, SHM_OPENED = 131, SHM_FAILED = 132, SHM_ASK = 133, SHM_ANSWER = 134 };
/* OPEN: segment u64, writable u32, 0 u32. OPENED: status i32, 0 u32, size u64 (served), map size
 * u64; with two descriptors if the status is OK. Both behind the common header. */
#define SHM_OPEN_SIZE     (WIRE_HEADER_SIZE + 16u)
#define SHM_OPENED_SIZE   (WIRE_HEADER_SIZE + 24u)
#define SHM_FAILED_TEXT   200u
#define SHM_FAILED_SIZE   (WIRE_HEADER_SIZE + SHM_FAILED_TEXT)
#define SHM_INSTANCE_TEXT (2 * WIRE_ID_SIZE + 1)
/* After that, where the served side answers questions. ASK: two u64. ANSWER: status i32, 0 u32,
 * three u64, a text, with one descriptor perhaps. One at a time. */
#define SHM_ASK_SIZE    (WIRE_HEADER_SIZE + 16u)
#define SHM_ANSWER_TEXT 1024u
#define SHM_ANSWER_SIZE (WIRE_HEADER_SIZE + 32u + SHM_ANSWER_TEXT)

/* What the two mean is agreed between whoever asks and whoever answers. */
struct shm_ask {
    uint64_t first, second;
};
struct shm_answer {
    int32_t status;
    uint64_t numbers[3];
    char text[SHM_ANSWER_TEXT]; /* of a failure: why */
};

struct shm_link;

/* How a consumer takes what a provider hands over where that is no file to be mapped. */
struct shm_mapper {
    void *self;
    /* what: the target's. fd: what came, not to be kept; -1: nothing. AGAIN: it asks the provider
     * by shm_link_ask, and is called again with the same mapping, NULL at first. Holds the link's
     * mutex. */
    int (*map)(void *self, const void *what, struct shm_link *l, int fd, void **mapping);
    void (*unmap)(void *self, void *mapping);
};

struct shm_settings {
    struct shm_mapper mapper; /* map NULL: files */
    bool tcp;                 /* the provider listens at `listen` too, from first use on */
    struct net_address listen;
    char socket_dir[90]; /* "": a private one is made */
    uint8_t secret[WIRE_SECRET_MAX];
    size_t secret_size;
    uint8_t instance[WIRE_ID_SIZE];
    uint64_t connect_timeout_ns;
    uint64_t hello_timeout_ns;
    struct gpu_side *gpu; /* the endpoint's */
    _Atomic bool stopped; /* the endpoint is: nothing new begins */
};

struct shm_open {
    uint64_t segment;
    bool writable;
};
struct shm_opened {
    int32_t status;
    uint32_t generation; /* as it was handed out; 0: it has none */
    uint64_t size, map_size;
};

void shm_open_encode(const struct shm_open *open, uint8_t out[SHM_OPEN_SIZE]);
YOLK_MUST_USE int shm_open_decode(const uint8_t in[SHM_OPEN_SIZE], struct shm_open *out);
void shm_opened_encode(const struct shm_opened *opened, uint8_t out[SHM_OPENED_SIZE]);
YOLK_MUST_USE int shm_opened_decode(const uint8_t in[SHM_OPENED_SIZE], struct shm_opened *out);
/* What is no printable ASCII is told as '?', cut where it is too long. */
void shm_ask_encode(const struct shm_ask *ask, uint8_t out[SHM_ASK_SIZE]);
YOLK_MUST_USE int shm_ask_decode(const uint8_t in[SHM_ASK_SIZE], struct shm_ask *out);
void shm_answer_encode(const struct shm_answer *answer, uint8_t out[SHM_ANSWER_SIZE]);
YOLK_MUST_USE int shm_answer_decode(const uint8_t in[SHM_ANSWER_SIZE], struct shm_answer *out);
void shm_failed_encode(const char *text, uint8_t out[SHM_FAILED_SIZE]);
YOLK_MUST_USE int shm_failed_decode(const uint8_t in[SHM_FAILED_SIZE], char text[SHM_FAILED_TEXT]);
void shm_wire_options(const struct shm_settings *settings, uint64_t session,
                      struct wire_hello_options *out);
void shm_instance_format(const uint8_t instance[WIRE_ID_SIZE], char out[SHM_INSTANCE_TEXT]);
/* Whether the process at the other end may have to do with us: our user, or root. */
YOLK_MUST_USE int shm_check_peer(int fd);
/* Whole or not at all (the messages are far smaller than a socket's buffer). */
YOLK_MUST_USE int shm_send_fds(int fd, const void *data, size_t size, const int *fds, size_t count);
/* AGAIN when nothing is there. fds that did not come are -1; LIMIT if this process had no room for
 * them. */
YOLK_MUST_USE int shm_receive_fds(int fd, void *data, size_t size, size_t *got, int fds[2]);

/* ---- provider.c ---- */
struct shm_provider;
struct shm_served;

YOLK_MUST_USE int shm_provider_create(const struct shm_settings *settings,
                                      struct shm_provider **out);
void shm_provider_stop(struct shm_provider *p);
void shm_provider_destroy(struct shm_provider *p);
/* What is served, in whatever form consumers are to take it. */
struct shm_handout {
    int fds[2];    /* for reading and for writing; borrowed until unserve; -1: none is needed */
    uint64_t size; /* served, of map_size */
    uint64_t map_size;
    uint64_t segment;
    uint32_t generation;       /* of what is handed out under that id, as its text tells; 0: none */
    struct yolk_access access; /* with begin: what it allows ends when the connection has */
    /* Answers what consumers ask; *fd: goes with it and is closed then. On the provider's thread,
     * never after unserve. NULL: nobody asks. */
    void (*answer)(void *self, const struct shm_ask *ask, struct shm_answer *out, int *fd);
    void *self;
};
YOLK_MUST_USE int shm_provider_hand_out(struct shm_provider *p, const struct shm_handout *handout,
                                        struct shm_served **out, char *text, size_t text_size);
/* Where it listens for other machines; false: nowhere. */
bool shm_provider_address(struct shm_provider *p, struct net_address *out);
YOLK_MUST_USE int shm_provider_serve(struct shm_provider *p, const struct yolk_serve *serve,
                                     struct shm_served **out, char *text, size_t text_size);
void shm_provider_set_segment(struct shm_provider *p, struct shm_served *served, uint64_t segment);
/* served NULL: all that the session has open. */
YOLK_MUST_USE int shm_provider_fence(struct shm_provider *p, struct shm_served *served,
                                     uint64_t session);
void shm_provider_unserve(struct shm_provider *p, struct shm_served *served);

/* ---- consumer.c ---- */
YOLK_MUST_USE enum yolk_status shm_target_open(const struct shm_settings *settings,
                                               const char *text, uint64_t segment, uint64_t size,
                                               uint64_t session, void **out);
void shm_target_close(void *target);
YOLK_MUST_USE enum yolk_status shm_target_map(void *target, const void **base, uint64_t *size);

/* ---- channel.c ---- */
enum { SHM_DEPTH_MAX = 1024 };
#define SHM_SLICE_MAX ((uint64_t)4 * 1024 * 1024)
YOLK_MUST_USE enum yolk_status shm_channel_open(void *target, void **out);
enum yolk_submit shm_channel_submit(void *channel, struct yolk_io *io);
uint32_t shm_channel_poll(void *channel, struct yolk_completion *completions, uint32_t max);
/* The end of a run of submits: lets go of the mapping, which a provider may want to be gone. */
void shm_channel_flush(void *channel);
YOLK_MUST_USE enum yolk_status shm_channel_close(void *channel);

#endif
