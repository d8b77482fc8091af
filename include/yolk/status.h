/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Status codes. 0 is success, every failure is negative; a function that may also answer a count
 * or a size returns a non-negative one in the same integer. The range of a code says what it is
 * about, and so what a caller can do: see yolk_status_scope().
 */
#ifndef YOLK_STATUS_H
#define YOLK_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define YOLK_API      __attribute__((visibility("default")))
#define YOLK_MUST_USE __attribute__((warn_unused_result))
#else
#define YOLK_API
#define YOLK_MUST_USE
#endif

enum yolk_status {
    YOLK_OK = 0,

    /* The request itself: only this request is affected. */
    YOLK_ERR_INVALID = -1,         /* an argument is wrong */
    YOLK_ERR_NOT_FOUND = -2,       /* no such key, segment, session or batch */
    YOLK_ERR_EXISTS = -3,          /* the key is already there or being written */
    YOLK_ERR_NO_SPACE = -4,        /* no room that could be made free in time */
    YOLK_ERR_AGAIN = -5,           /* not now; ask again */
    YOLK_ERR_TIMEOUT = -6,         /* the deadline passed */
    YOLK_ERR_CANCELED = -7,        /* the caller canceled it */
    YOLK_ERR_HAS_LEASE = -8,       /* the object is leased to a reader */
    YOLK_ERR_LEASE_EXPIRED = -9,   /* the read guard ran out before the bytes arrived */
    YOLK_ERR_NOT_READY = -10,      /* the object is still being written */
    YOLK_ERR_TOO_LARGE = -11,      /* over a limit that holds for every request */
    YOLK_ERR_BUFFER_SMALL = -12,   /* the caller's memory is too small */
    YOLK_ERR_NOT_REGISTERED = -13, /* the memory was not registered */
    YOLK_ERR_BUSY = -14,           /* the memory or object is in use */
    YOLK_ERR_STALE = -15,          /* an identity of an earlier life */
    YOLK_ERR_UNSUPPORTED = -16,    /* this build, transport or peer cannot do it */
    YOLK_ERR_ACCESS = -17,         /* the provider refused the range or ticket */
    YOLK_ERR_CORRUPT = -18,        /* bytes do not match their checksum */
    YOLK_ERR_STUCK = -19,          /* result unknown and the memory never went quiet */
    YOLK_ERR_NO_MEMORY = -20,      /* allocation failed */
    YOLK_ERR_LIMIT = -21,          /* too many at once */
    YOLK_ERR_EOF = -22,            /* the data ended early */
    YOLK_ERR_OVERLAP = -23,        /* the range overlaps one that is registered */
    YOLK_ERR_QUOTA = -24,          /* the tenant's quota is used up */
    YOLK_ERR_NO_TENANT = -25,      /* the master does not know the tenant, or has no tenants */
    YOLK_ERR_PIN_LIMIT = -26,      /* hard pins have their share of every segment already */

    /* One connection: another one may work. */
    YOLK_ERR_LINK = -100,     /* the connection broke */
    YOLK_ERR_REFUSED = -101,  /* nobody listens there, or the peer said no */
    YOLK_ERR_PROTOCOL = -102, /* the peer broke the protocol */
    YOLK_ERR_IO = -103,       /* reading or writing failed */

    /* The peer: every connection to it is affected. */
    YOLK_ERR_PEER_DEAD = -200, /* the peer process is gone */
    YOLK_ERR_AUTH = -201,      /* the shared secrets differ */
    YOLK_ERR_VERSION = -202,   /* no common protocol version */
    YOLK_ERR_NO_ROUTE = -203,  /* no transport reaches the peer */

    /* This process. */
    YOLK_ERR_SYSTEM = -300, /* the operating system refused; see yolk_last_error() */
    YOLK_ERR_FORKED = -301, /* used in a child of the process that opened it */
    YOLK_ERR_CLOSED = -302, /* used after close */
    YOLK_ERR_CONFIG = -303  /* a setting is wrong */
};

enum yolk_scope {
    YOLK_SCOPE_NONE = 0, /* YOLK_OK and counts */
    YOLK_SCOPE_REQUEST = 1,
    YOLK_SCOPE_LINK = 2,
    YOLK_SCOPE_PEER = 3,
    YOLK_SCOPE_PROCESS = 4
};

/* A short English text, never NULL; "unknown status" for a number that is none. */
YOLK_API const char *yolk_strerror(int status);

/* The name of the constant, for example "YOLK_ERR_NO_SPACE"; never NULL. */
YOLK_API const char *yolk_status_name(int status);

YOLK_API enum yolk_scope yolk_status_scope(int status);

/*
 * Details of the last failure in this thread, "" if there was none. Valid until the next failing
 * call of this thread.
 */
YOLK_API const char *yolk_last_error(void);

#ifdef __cplusplus
}
#endif

#endif
