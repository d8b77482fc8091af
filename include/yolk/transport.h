/* SPDX-License-Identifier: Apache-2.0 */
/* The contract between the engine and one transport. Copy src/transport/loop/ to begin a new one.
 *
 * A transport has two sides. The *provider* side makes memory of this process reachable (serve) and
 * checks every access with the engine's callback. The *consumer* side reaches memory that another
 * endpoint serves: open_target → channel_open → submit, poll → channel_close → close_target.
 *
 * Objects. An *endpoint* is one instance of the transport (one an engine). A *target* is one served
 * segment as seen from here, under one session. A *channel* is the transport's half of one batch: a
 * sequence of ios to one target.
 *
 * Threads.    Hooks on the endpoint and on targets may be called by many threads at once. Hooks on
 * one channel are called by one thread at a time (the engine holds the batch's lock), on different
 * channels by many at once. No hook calls into the engine, but for access->check on the provider
 * side. No hook holds a lock of the whole endpoint while it moves data. Blocking.   Only probe,
 * init, open_target (both bounded by connect_timeout_ms), channel_open and target_map (a moment),
 * unserve, stop (bounded by stop_timeout_ms) and fini may block. submit may copy up to
 * limits.slice_bytes_max in the caller's thread but never waits for a peer. Ownership.  The engine
 * owns a struct yolk_io. submit borrows it when it answers QUEUED, until poll reports its
 * completion; with DONE, AGAIN and FAILED nothing was borrowed. Completion. Exactly once for each
 * QUEUED io, also after cancel and after the peer's death. The engine bears late, reordered and
 * doubled ones, but a transport must not rely on that. Quiet.      A completion (and DONE, FAILED)
 * promises that neither the local memory is touched any more nor, for a write, the target's. If a
 * transport cannot know the latter (the link broke with bytes under way) it completes the write as
 * YOLK_ERR_STUCK: never tried again, the caller must have the session fenced before the extent is
 * used again. Visibility. When a write is completed YOLK_OK, any later read of any endpoint sees
 * its bytes. Links.      A target outlives its links. After a link or peer status the engine opens
 * a new channel for what comes next; that may connect anew. Order.      None between ios. Errors.
 * Any status but YOLK_OK, YOLK_ERR_AGAIN and YOLK_ERR_CANCELED may end an io (CANCELED only after
 * cancel). Request scope
 * (-1…): this io is wrong, another transport would say so too, unless it is UNSUPPORTED or LIMIT.
 * Link, peer and process scope: another route may work; counted by the circuit breaker. Each
 * failing hook leaves nothing behind and sets yolk_last_error(). Stale. An access that names
 * another segment id than the one served now is YOLK_ERR_STALE, also when a restarted provider
 * listens on the old address: endpoint text carries a nonce. Fork. A child process must not use an
 * endpoint of its parent; hooks need not notice.
 */
#ifndef YOLK_TRANSPORT_H
#define YOLK_TRANSPORT_H

#include <stddef.h>
#include <stdint.h>

#include <yolk/status.h>

#ifdef __cplusplus
extern "C" {
#endif

struct pollfd;
struct yolk_plugin_host; /* plugin.h */

enum { YOLK_TRANSPORT_ABI = 1 }; /* changed by incompatible changes only; slots are appended */

enum yolk_opcode { YOLK_READ = 1, YOLK_WRITE = 2 };

/* What submit did with an io. */
enum yolk_submit {
    YOLK_SUBMIT_DONE = 1,   /* finished YOLK_OK: io->transferred is set, poll will not report it */
    YOLK_SUBMIT_QUEUED = 2, /* borrowed; poll reports it */
    YOLK_SUBMIT_AGAIN = 3,  /* no room now; nothing was taken; poll, then try again */
    YOLK_SUBMIT_FAILED = 4, /* finished: io->status says why, poll will not report it */
};

/* Capabilities. */
#define YOLK_CAP_READ         (UINT64_C(1) << 0)
#define YOLK_CAP_WRITE        (UINT64_C(1) << 1)
#define YOLK_CAP_SERVE        (UINT64_C(1) << 2) /* has a provider side */
#define YOLK_CAP_SAME_PROCESS (UINT64_C(1) << 3) /* reaches only this process */
#define YOLK_CAP_SAME_MACHINE (UINT64_C(1) << 4) /* reaches only this machine */
#define YOLK_CAP_MAP          (UINT64_C(1) << 5) /* target_map works */
#define YOLK_CAP_ALLOC        (UINT64_C(1) << 6) /* memory_alloc works */
#define YOLK_CAP_SERVE_ALLOC  (UINT64_C(1) << 7) /* serves only memory of its memory_alloc */
#define YOLK_CAP_PEER_DEATH   (UINT64_C(1) << 8) /* notices a dead peer without a deadline */
#define YOLK_CAP_FAULTY       (UINT64_C(1) << 9) /* a wrapper that breaks the contract on purpose */
/* Between which kinds of memory: the local one, and the segment's; whatever the direction. A table
 * that sets none of these moves host memory, to and from memory and files. */
#define YOLK_CAP_DRAM_TO_DRAM (UINT64_C(1) << 10)
#define YOLK_CAP_DRAM_TO_GPU  (UINT64_C(1) << 11)
#define YOLK_CAP_GPU_TO_DRAM  (UINT64_C(1) << 12)
#define YOLK_CAP_GPU_TO_GPU   (UINT64_C(1) << 13)
#define YOLK_CAP_DRAM_TO_FILE (UINT64_C(1) << 14)
#define YOLK_CAP_GPU_TO_FILE  (UINT64_C(1) << 15)
#define YOLK_CAPS_MEMORY      (UINT64_C(63) << 10)
#define YOLK_CAP_MAP_GPU      (UINT64_C(1) << 16) /* target_map_gpu works */
#define YOLK_CAP_PIECES       (UINT64_C(1) << 17) /* takes ios whose local side lies in pieces */
#define YOLK_CAP_PLACES       (UINT64_C(1) << 18) /* takes ios of which both sides lie in places */
#define YOLK_CAP_GPU_PLACES   (UINT64_C(1) << 19) /* the same where the local side is a GPU's */

/* The master's permission to write one extent; of a file, what the owner wants named. Zero where no
 * tickets are asked for. */
struct yolk_ticket {
    uint64_t offset; /* extent in the segment that it is for; ios lie inside */
    uint64_t size;
    uint64_t op;
    uint8_t mac[16];
};

/* One access as the provider side sees it. */
struct yolk_access_request {
    uint64_t segment; /* id named by the consumer */
    uint64_t session; /* from the connection's hello or open_target */
    uint64_t offset;
    uint64_t size;
    const struct yolk_ticket *ticket; /* writes, and reads of files; may be NULL */
    enum yolk_opcode opcode;
    int whole_map; /* 1: asks for a lasting mapping of all the segment; opcode WRITE: a writable
                    * one. offset, size and ticket are not looked at. */
};

/* How the provider side asks whether an access is allowed. check is pure, never blocks long, may be
 * called by many threads. YOLK_OK, _STALE (segment id), _INVALID (range), _ACCESS (ticket, fenced
 * session). A provider must count the access as under way *before* it asks, so that fence_session,
 * called after the callback began to refuse the session, sees each one that was allowed.
 *
 * Where begin is set, of files and of addresses, it is called in place of check, and end after each
 * access that begin allowed, with the same request, once it is quiet: the owner keeps the extent as
 * it is in between. */
struct yolk_access {
    void *self;
    enum yolk_status (*check)(void *self, const struct yolk_access_request *request);
    enum yolk_status (*begin)(void *self, const struct yolk_access_request *request);
    void (*end)(void *self, const struct yolk_access_request *request);
};

struct yolk_transport_options {
    size_t struct_size;
    uint64_t (*now_ns)(void *self); /* the clock all deadline_ns refer to (CLOCK_BOOTTIME) */
    void *clock_self;
    const char *host;       /* address other machines reach this process at; NULL: 127.0.0.1 */
    const char *listen;     /* address to listen on; NULL: same as host */
    uint16_t port;          /* 0: any free one */
    const char *socket_dir; /* folder for Unix sockets; NULL: a private one is made */
    const uint8_t *secret;  /* shared secret of the hello; NULL: none */
    size_t secret_size;
    uint8_t instance[16];        /* nonce of this engine, filled in by yolk_engine_create */
    uint32_t connections_max;    /* consumer connections to one target; 0: the default (8) */
    uint32_t workers_max;        /* provider threads; 0: the default (16) */
    uint64_t connect_timeout_ms; /* 0: the default (3000) */
    uint64_t stop_timeout_ms;    /* 0: the default (5000) */
    const void *wrapped;         /* wrappers only (fault.h): what to wrap and how */
    uint32_t queue_depth;        /* ios under way in one channel of uring and posix; 0: 64 */
    int huge_pages; /* memory_alloc: of 2 MiB pages, or a line in the log says why not */
    const struct yolk_plugin_host *yolk; /* what plug-ins may call; filled in by
                                          * yolk_engine_create */
    const char *cuda_library;   /* CUDA's driver; NULL: as the system finds it (libcuda.so.1) */
    const char *cufile_library; /* the same of cuFile (libcufile.so.0) */
    int gds_enable;             /* 1: files are reached by cuFile, where it works (gds); 0: not */
    uint32_t gds_batch_depth;   /* slices that cuFile has at a time; 0: 32; at most 128, and at most
                                 * what it takes */
    uint64_t gds_slice_bytes;   /* pieces that cuFile is given; 0: 16 MiB; a multiple of 4 KiB */
};

struct yolk_limits {
    uint64_t slice_bytes_max; /* largest io; the engine cuts requests */
    uint32_t depth_max;       /* ios QUEUED in one channel; beyond it submit answers AGAIN */
    uint32_t alignment;       /* of local address, offset and size; 1: none */
};

/* What a transport tells of a file for the figures. */
struct yolk_file_figures {
    char path[256];
    char mode[16];          /* how its bytes go, in a word: "direct", "compatibility" */
    char reason[256];       /* why it is that, and by what it was told */
    int direct;             /* whole blocks take no buffer */
    uint64_t reads, writes; /* requests that ended well */
    uint64_t bytes_read, bytes_written;
    uint64_t bytes_compatible;   /* of them, all through a buffer for want of a direct way */
    uint64_t bytes_bounced;      /* of them, through a buffer because they were not aligned */
    uint64_t bytes_unregistered; /* of them, of GPU memory that could not be registered */
};

struct yolk_probe {
    uint64_t latency_ns;      /* of a small io, as a guess */
    uint64_t bandwidth_bytes; /* per second and channel, as a guess */
    char reason[256];         /* why it is not usable here, else "" */
    int off;                  /* 1: because it is turned off, which is worth no warning */
};

/* Memory the transport made, so that it can serve it well (shm: a sealed memfd). */
struct yolk_memory {
    void *pointer;
    uint64_t size; /* rounded up to whole pages */
    void *internal;
};

/* A part of a file as a segment. Several accesses may be under way at once; those that overlap have
 * no order. A write changes no byte but its own, whatever the blocks it shares with others. */
struct yolk_file {
    int descriptor;            /* its O_DIRECT flag may be taken back while it is served */
    uint64_t offset;           /* of the segment's first byte in the file */
    uint32_t memory_alignment; /* of direct I/O; powers of two */
    uint32_t offset_alignment; /* of offsets and sizes */
    int writable;              /* 0: every write is ACCESS */
    int pad_writes; /* what lies between the end of a write and the next 4 KiB need not be kept */
    void *internal; /* the library's own handle */
};

/* Memory of this process to be served. Borrowed until unserve returned. */
struct yolk_serve {
    void *memory;
    uint64_t size;
    uint64_t segment;                     /* first id; see set_segment_id */
    const struct yolk_memory *allocation; /* what this transport's memory_alloc gave, else NULL */
    struct yolk_access access;
    const struct yolk_file
        *file; /* to be served instead of memory, which is NULL then; else NULL */
    /* memory and file both NULL: an offset is an address of this process. */
};

struct yolk_piece {
    void *pointer;
    uint64_t size;
};

/* Bytes here and in the segment. */
struct yolk_place {
    void *local;
    uint64_t offset;
    uint64_t size;
};

enum { YOLK_PLACES_MAX = 512 }; /* of one io */

/* One io of a channel. */
struct yolk_io {
    /* The engine's; constant while borrowed. */
    enum yolk_opcode opcode;
    void *local;
    uint64_t offset; /* in the segment */
    uint64_t size; /* 0 to limits.slice_bytes_max; 0 is checked like any other but moves nothing */
    void *key;     /* this transport's key of the registration local lies in */
    struct yolk_ticket ticket;
    uint64_t deadline_ns; /* UINT64_MAX: none. A hint: the engine cancels when it is over */
    uint64_t cookie;      /* names the io in its completion */
    /* The transport's, while borrowed. */
    void *scratch[4];
    /* The transport's answer for DONE and FAILED (completions carry their own). */
    enum yolk_status status;
    uint64_t transferred; /* bytes from the start that are certainly in place */
    /* The transport's, for figures: bytes that it took over a buffer of its own, because they were
     * not aligned. 0 when it comes. */
    uint64_t bounced;
    /* The engine's: 0: local is memory of the processor; else 1 + the number of the GPU whose
     * memory it is, which the processor must not touch. Not 0 only for a transport that says it
     * moves a GPU's memory (YOLK_CAP_GPU_TO_...). */
    uint32_t gpu;
    /* The engine's. Not 0 only for a transport that says YOLK_CAP_PIECES, and with gpu not 0: local
     * is NULL, and the bytes lie in the pieces, one behind the other, from `skip` bytes of them on.
     */
    uint32_t piece_count;
    const struct yolk_piece *pieces;
    uint64_t skip;
    /* The engine's. Not 0 only for a transport that says YOLK_CAP_PLACES, or YOLK_CAP_GPU_PLACES
     * where gpu is not 0, and with piece_count 0: the bytes are those of the places, one behind the
     * other, `size` in all from `skip` bytes of them on; the last place may be longer. local and
     * offset are where the first of them lie, and that is in places[0]. To its provider each place
     * is an access of its own. Of an io that is refused for one of its places the engine makes one
     * for each. */
    uint32_t place_count;
    const struct yolk_place *places;
};

struct yolk_completion {
    uint64_t cookie;
    uint64_t transferred; /* YOLK_OK: how many; fewer than size is short and will be continued */
    enum yolk_status status;
};

/* The table of a transport. Static and constant. Required slots are marked; the engine replaces
 * each other one that is NULL or lies beyond `size` by a stub that answers UNSUPPORTED. */
struct yolk_transport_ops {
    uint32_t size;    /* sizeof this struct as the transport was built */
    uint32_t abi;     /* YOLK_TRANSPORT_ABI */
    const char *name; /* [a-z0-9_]+; the key of its endpoint text */
    uint64_t caps;

    /* -- The endpoint -- */

    /* Required. Is it usable here? Cheap, leaves nothing behind. Fills *out; on failure a reason.
     */
    enum yolk_status (*probe)(const struct yolk_transport_options *options, struct yolk_probe *out);
    /* Required. Makes an endpoint. Borrows options until return, so copies what it needs. */
    enum yolk_status (*init)(const struct yolk_transport_options *options, void **endpoint);
    /* Required. Refuses new work, fails what is queued (poll still reports it), joins the
     * transport's threads. TIMEOUT if peers would not let go within stop_timeout_ms; may be called
     * again. */
    enum yolk_status (*stop)(void *endpoint);
    /* Required. Frees all. Only after stop answered OK and each channel, target, buffer, memory and
     * served segment was given back. Leaves no descriptor, mapping or thread. */
    void (*fini)(void *endpoint);
    /* Required. Constant after init. */
    void (*limits)(void *endpoint, struct yolk_limits *out);

    /* -- Local memory -- */

    /* Required. Prepares [pointer, pointer + size) for ios; *key may be NULL. Refuses, with the
     * reason in yolk_last_error(), what the transport cannot use. Touches no page. Memory of a GPU
     * is given only to those that say that they move such (YOLK_CAP_GPU_TO_...). */
    enum yolk_status (*add_buffer)(void *endpoint, void *pointer, uint64_t size, void **key);
    /* Required. Called only when no io on the buffer is borrowed. */
    void (*remove_buffer)(void *endpoint, void *key);
    /* Optional. Memory this transport can serve; page aligned, zeroed. NO_MEMORY, SYSTEM, LIMIT. */
    enum yolk_status (*memory_alloc)(void *endpoint, uint64_t size, struct yolk_memory *out);
    /* Optional. After unserve and remove_buffer. */
    void (*memory_free)(void *endpoint, struct yolk_memory *memory);

    /* -- The provider side (optional as a whole) -- */

    /* Begins to serve. Writes the text after "name=" that a consumer needs into text (NUL
     * terminated, no
     * ';', at most text_size), and *served. UNSUPPORTED: this memory cannot be served by it. */
    enum yolk_status (*serve)(void *endpoint, const struct yolk_serve *serve, void **served,
                              char *text, size_t text_size);
    /* The segment goes on under another id (it was mounted anew). access->check already refuses the
     * old id; a transport whose consumers hold mappings ends them here: their next io is STALE. */
    void (*set_segment_id)(void *endpoint, void *served, uint64_t segment);
    /* Nothing of this session may write any more. access->check already refuses it; the transport
     * ends its connections and mappings. YOLK_OK once no write of the session can reach the memory,
     * else AGAIN (ask again; idempotent). Does not block. */
    enum yolk_status (*fence_session)(void *endpoint, void *served, uint64_t session);
    /* Ends serving. When it returns no access touches the memory through this transport; mappings
     * that another process keeps show memory that is no longer given a meaning. */
    void (*unserve)(void *endpoint, void *served);

    /* -- The consumer side -- */

    /* Required. text: what serve wrote. Connects now or at the first channel. NO_ROUTE with the
     * reason when the target is out of this transport's reach (other process, other machine), STALE
     * when it is another life of the provider, AUTH, VERSION, REFUSED, TIMEOUT, PEER_DEAD. */
    enum yolk_status (*open_target)(void *endpoint, const char *text, uint64_t segment,
                                    uint64_t size, uint64_t session, void **target);
    /* Required. All channels are closed. */
    void (*close_target)(void *endpoint, void *target);
    /* Optional. The whole segment, readable in this process until close_target. May wait like
     * channel_open, then AGAIN. */
    enum yolk_status (*target_map)(void *endpoint, void *target, const void **base, uint64_t *size);
    /* Required. Cheap: called once for each batch and target. AGAIN: still connecting, after a wait
     * that no deadline notices; LIMIT: no more connections now (after both the engine tries again
     * later); link and peer statuses. */
    enum yolk_status (*channel_open)(void *endpoint, void *target, void **channel);
    /* Required. Takes one io. See enum yolk_submit. */
    enum yolk_submit (*submit)(void *channel, struct yolk_io *io);
    /* Required. Makes progress, reports up to max completions, returns their number. Never blocks.
     */
    uint32_t (*poll)(void *channel, struct yolk_completion *completions, uint32_t max);
    /* Optional. Ends the io with this cookie as soon as its memory can be made quiet: it is
     * reported by poll as CANCELED, or as what it became. Harms no other io. Unknown cookies are
     * ignored. A transport without it lets ios run to their end. */
    void (*cancel)(void *channel, uint64_t cookie);
    /* Required. Only when each QUEUED io was reported, else YOLK_ERR_BUSY and nothing happens. */
    enum yolk_status (*channel_close)(void *channel);
    /* Optional. What poll(2) should wait for before poll may find something new: fills up to max
     * entries, returns their number. 0, or no hook: poll again soon. */
    uint32_t (*wait_fds)(void *channel, struct pollfd *fds, uint32_t max);
    /* Optional. Comes after a run of submits of which one was QUEUED or DONE; the transport may
     * have gathered what it has to send, or kept hold of something that all of them needed. */
    void (*flush)(void *channel);
    /* Optional. Would this range move between the two memories, or the memory and the device,
     * without being copied through a buffer or a cache in between? UNSUPPORTED, the reason in
     * yolk_last_error(), if not. A transport without it never does that. Moves nothing. */
    enum yolk_status (*check_direct)(void *endpoint, void *target, const void *local,
                                     uint64_t offset, uint64_t size);
    /* Optional. As target_map, at an address that GPUs of this process may load from, the same for
     * all of them; the processor perhaps not. */
    enum yolk_status (*target_map_gpu)(void *endpoint, void *target, const void **base,
                                       uint64_t *size);
    /* Optional. How many files of this process it reaches; the first `room` are told. Any thread.
     */
    size_t (*files)(void *endpoint, struct yolk_file_figures *out, size_t room);
    /* Optional. Whether it reaches this range of the target, for whoever asks for a description of
     * routes: may wait like channel_open. Not OK: the reason in yolk_last_error(). A transport
     * without it reaches all that it opened. */
    enum yolk_status (*check_reach)(void *endpoint, void *target, uint64_t offset, uint64_t size);
};

#ifdef __cplusplus
}
#endif
#endif
