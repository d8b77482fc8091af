/* SPDX-License-Identifier: Apache-2.0 */
/* The first messages of every connection: version, features, who is there, and proof of the shared
 * secret. Pure: bytes in, bytes out. HELLO -> HELLO_REPLY (with the server's proof) [-> AUTH ->
 * AUTH_REPLY]. */
#ifndef WIRE_HELLO_H
#define WIRE_HELLO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/msg.h"

#define WIRE_VERSION        1u
#define WIRE_VERSION_MIN    1u
#define WIRE_SECRET_MAX     256u
#define WIRE_HELLO_TEXT_MAX 160u

enum wire_role { WIRE_ROLE_CLIENT = 1, WIRE_ROLE_NODE = 2, WIRE_ROLE_ADMIN = 3 };
enum wire_purpose { WIRE_PURPOSE_CONTROL = 1, WIRE_PURPOSE_DATA = 2, WIRE_PURPOSE_PEER = 3 };

/* What one side says. The server ignores role, purpose and session: it takes the client's. */
struct wire_hello_options {
    const void *secret; /* NULL or empty: no authentication. Copied. */
    size_t secret_size;
    uint32_t version_min, version_max; /* both 0: WIRE_VERSION_MIN, WIRE_VERSION */
    uint64_t features;                 /* what this side can do */
    uint8_t instance[WIRE_ID_SIZE];
    uint32_t role;
    uint32_t purpose;
    uint64_t session;
    const uint8_t *nonce; /* NULL: from libsodium; else WIRE_NONCE_SIZE bytes (tests, simulator) */
    uint32_t purposes;    /* server: bit (1 << purpose) of those served; 0: all */
};

enum wire_hello_state {
    WIRE_HELLO_RUNNING,
    WIRE_HELLO_DONE,
    WIRE_HELLO_FAILED, /* send what is in the output, then close */
};

struct wire_hello_machine {
    enum wire_hello_state state;
    int status;                     /* why it failed */
    char text[WIRE_HELLO_TEXT_MAX]; /* the same for people */
    bool server;
    bool authenticated; /* both sides proved the secret */
    uint8_t step;
    /* agreed, valid when DONE */
    uint32_t version;
    uint64_t features; /* of both */
    uint32_t role;     /* the client's */
    uint32_t purpose;
    uint64_t session;
    uint8_t peer_instance[WIRE_ID_SIZE];
    /* own */
    uint32_t version_min, version_max;
    uint32_t offer_min, offer_max;
    uint64_t own_features, client_features;
    uint32_t purposes;
    uint8_t instance[WIRE_ID_SIZE];
    uint8_t client_nonce[WIRE_NONCE_SIZE];
    uint8_t server_nonce[WIRE_NONCE_SIZE];
    size_t secret_size;
    uint8_t secret[WIRE_SECRET_MAX];
};

/* LIMIT: the secret is too long. */
YOLK_MUST_USE int wire_hello_init(struct wire_hello_machine *m, bool server,
                                  const struct wire_hello_options *options);
/* Client: appends the HELLO. Server: nothing. */
YOLK_MUST_USE int wire_hello_start(struct wire_hello_machine *m, struct base_buf *out);
/* Before the hello is done only its own small kinds may come: call this on a header before you make
 * room for the body. */
YOLK_MUST_USE int wire_hello_check_header(const struct wire_header *header);
/* One frame of the peer. Appends what to send. OK while RUNNING or DONE; otherwise the reason of
 * the failure, and the output may still hold a last frame that tells the peer. */
YOLK_MUST_USE int wire_hello_input(struct wire_hello_machine *m, const struct wire_header *header,
                                   const uint8_t *body, struct base_buf *out);
/* Wipes the secret. */
void wire_hello_wipe(struct wire_hello_machine *m);

/* The same over blocking calls, for both sides: send everything, receive exactly. Returns OK when
 * DONE; the machine tells what was agreed, or why not. */
struct wire_hello_io {
    void *self;
    int (*send)(void *self, const void *data, size_t size);
    int (*recv)(void *self, void *data, size_t size);
};
YOLK_MUST_USE int wire_hello_run(struct wire_hello_machine *m, const struct wire_hello_io *io);

#endif
