/* SPDX-License-Identifier: Apache-2.0 */
/* Mooncake's C interface of the transfer engine, on peers. */
#include "mooncake/transfer_engine_c.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOG_ROOM "engine"
#include "base/buf.h"
#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "compat/engine_codes.h"
#include "compat/engine_loads.h"
#include "compat/engine_open.h"
#include "compat/show_links.h"
#include "compat/shutdown.h"

_Static_assert(sizeof(struct compat_load) == sizeof(nic_load_stat_t), "");

struct engine {
    struct yolk_peer *peer;
    uint64_t own; /* the handle of this process, LOCAL_SEGMENT to callers */
};

/* Tells people, and callers the number. */
static int failed(enum yolk_status status, const char *what)
{
    if (status == YOLK_OK)
        return 0;
    log_error("%s: %s", what,
              yolk_last_error()[0] != '\0' ? yolk_last_error() : yolk_strerror(status));
    return compat_engine_code_of(status);
}

static int invalid(const char *what)
{
    return failed(base_fail(YOLK_ERR_INVALID, 0, "an argument is NULL or out of range"), what);
}

transfer_engine_t createTransferEngine(const char *metadata_conn_string,
                                       const char *local_server_name, const char *ip_or_host_name,
                                       uint64_t rpc_port, int auto_discover)
{
    (void)auto_discover;
    struct engine *engine = calloc(1, sizeof(*engine));
    const struct compat_engine_setup setup = {.metadata = metadata_conn_string,
                                              .name = local_server_name,
                                              .host = ip_or_host_name,
                                              .port = rpc_port};
    enum yolk_status status = YOLK_ERR_NO_MEMORY;
    if (engine != NULL)
        status = compat_engine_open(&setup, &engine->peer);
    if (status == YOLK_OK)
        status = yolk_peer_open(engine->peer, "", &engine->own);
    if (status == YOLK_OK)
        return engine;
    (void)failed(status, "createTransferEngine");
    if (engine != NULL)
        base_ignore(compat_engine_close(engine->peer));
    free(engine);
    return NULL;
}

void destroyTransferEngine(transfer_engine_t handle)
{
    struct engine *engine = handle;
    if (engine == NULL)
        return;
    compat_shutdown_forget(engine->peer);
    base_ignore(compat_engine_close(engine->peer)); /* said already */
    free(engine);
}

void enableGracefulShutdown(transfer_engine_t handle)
{
    struct engine *engine = handle;
    if (engine == NULL)
        (void)invalid("enableGracefulShutdown");
    else
        (void)failed(compat_shutdown_watch(engine->peer), "enableGracefulShutdown");
}

int getLocalIpAndPort(transfer_engine_t handle, char *buf_out, size_t buf_len)
{
    const struct engine *engine = handle;
    if (engine == NULL || buf_out == NULL)
        return invalid("getLocalIpAndPort");
    int size = snprintf(buf_out, buf_len, "%s", yolk_peer_address(engine->peer));
    return (size_t)size < buf_len ? 0 : invalid("getLocalIpAndPort");
}

int discoverTopology(transfer_engine_t handle)
{
    return handle != NULL ? 0 : invalid("discoverTopology");
}

transport_t installTransport(transfer_engine_t handle, const char *proto, void **args)
{
    struct engine *engine = handle;
    (void)args;
    if (engine == NULL || proto == NULL) {
        (void)invalid("installTransport");
        return NULL;
    }
    const char *name = compat_engine_transport(proto);
    char reason[256];
    if (yolk_engine_has_transport(yolk_peer_engine(engine->peer), name, reason, sizeof(reason)))
        return engine;
    log_error("installTransport: \"%s\": %s", proto, reason);
    return NULL;
}

bool hasTransport(transfer_engine_t handle, const char *proto)
{
    struct engine *engine = handle;
    char reason[256];
    if (engine == NULL || proto == NULL) {
        (void)invalid("hasTransport");
        return false;
    }
    if (yolk_engine_has_transport(yolk_peer_engine(engine->peer), proto, reason, sizeof(reason)))
        return true;
    base_ignore(base_fail(YOLK_ERR_UNSUPPORTED, 0, "transport \"%s\": %s", proto, reason));
    return false;
}

int uninstallTransport(transfer_engine_t handle, const char *proto)
{
    return handle != NULL && proto != NULL ? 0 : invalid("uninstallTransport");
}

/* ---- segments ---- */

static uint64_t peer_segment(const struct engine *engine, uint64_t segment)
{
    return segment == LOCAL_SEGMENT ? engine->own : segment;
}

segment_id_t openSegment(transfer_engine_t handle, const char *segment_name)
{
    struct engine *engine = handle;
    uint64_t segment;
    if (engine == NULL || segment_name == NULL)
        return invalid("openSegment");
    enum yolk_status status = yolk_peer_open(engine->peer, segment_name, &segment);
    if (status != YOLK_OK) {
        (void)failed(status, "openSegment");
        return -1;
    }
    if (segment != engine->own)
        return (segment_id_t)segment;                /* at most 31 bits */
    status = yolk_peer_close(engine->peer, segment); /* held once, for as long as the engine */
    return status == YOLK_OK ? LOCAL_SEGMENT : -1;
}

segment_id_t openSegmentNoCache(transfer_engine_t handle, const char *segment_name)
{
    return openSegment(handle, segment_name);
}

int closeSegment(transfer_engine_t handle, segment_id_t segment_id)
{
    struct engine *engine = handle;
    if (engine == NULL || segment_id < 0)
        return invalid("closeSegment");
    if (segment_id == LOCAL_SEGMENT)
        return 0;
    return failed(yolk_peer_close(engine->peer, (uint64_t)segment_id), "closeSegment");
}

int warmupEfaSegment(transfer_engine_t handle, const char *segment_name)
{
    segment_id_t segment = openSegment(handle, segment_name);
    if (segment < 0)
        return segment;
    return closeSegment(handle, segment);
}

int removeLocalSegment(transfer_engine_t handle, const char *segment_name)
{
    return handle != NULL && segment_name != NULL ? 0 : invalid("removeLocalSegment");
}

int syncSegmentCache(transfer_engine_t handle)
{
    return handle != NULL ? 0 : invalid("syncSegmentCache");
}

/* ---- memory ---- */

int registerLocalMemory(transfer_engine_t handle, void *addr, size_t length, const char *location,
                        int remote_accessible)
{
    struct engine *engine = handle;
    if (engine == NULL)
        return invalid("registerLocalMemory");
    return failed(yolk_peer_register(engine->peer, addr, length, location != NULL ? location : "*",
                                     remote_accessible ? YOLK_REMOTE_WRITE : YOLK_LOCAL),
                  "registerLocalMemory");
}

int unregisterLocalMemory(transfer_engine_t handle, void *addr)
{
    struct engine *engine = handle;
    if (engine == NULL)
        return invalid("unregisterLocalMemory");
    return failed(yolk_peer_unregister(engine->peer, addr, 0), "unregisterLocalMemory");
}

int registerLocalMemoryBatch(transfer_engine_t handle, buffer_entry_t *buffer_list,
                             size_t buffer_len, const char *location)
{
    int code = 0;
    size_t done = 0;
    if (handle == NULL || (buffer_list == NULL && buffer_len > 0))
        return invalid("registerLocalMemoryBatch");
    while (done < buffer_len && code == 0) {
        code = registerLocalMemory(handle, buffer_list[done].addr, buffer_list[done].length,
                                   location, 1);
        done += code == 0;
    }
    while (code != 0 && done > 0)
        (void)unregisterLocalMemory(handle, buffer_list[--done].addr);
    return code;
}

int unregisterLocalMemoryBatch(transfer_engine_t handle, void **addr_list, size_t addr_len)
{
    int code = 0;
    if (handle == NULL || (addr_list == NULL && addr_len > 0))
        return invalid("unregisterLocalMemoryBatch");
    for (size_t i = 0; i < addr_len; i++) {
        int one = unregisterLocalMemory(handle, addr_list[i]);
        code = code != 0 ? code : one;
    }
    return code;
}

/* ---- transfers ---- */

batch_id_t allocateBatchID(transfer_engine_t handle, size_t batch_size)
{
    struct engine *engine = handle;
    uint64_t batch;
    if (engine == NULL || batch_size == 0 || batch_size > UINT32_MAX) {
        (void)invalid("allocateBatchID");
        return INVALID_BATCH;
    }
    enum yolk_status status =
        yolk_engine_batch_create(yolk_peer_engine(engine->peer), (uint32_t)batch_size, &batch);
    if (status == YOLK_OK)
        return batch;
    (void)failed(status, "allocateBatchID");
    return INVALID_BATCH;
}

static struct yolk_request *translate(const struct engine *engine,
                                      const struct transfer_request *entries, size_t count)
{
    struct yolk_request *requests = calloc(count, sizeof(*requests));
    for (size_t i = 0; requests != NULL && i < count; i++)
        requests[i] = (struct yolk_request){
            .opcode = entries[i].opcode == OPCODE_WRITE  ? YOLK_WRITE
                      : entries[i].opcode == OPCODE_READ ? YOLK_READ
                                                         : (enum yolk_opcode)0,
            .local = entries[i].source,
            .segment = entries[i].target_id < 0
                           ? UINT64_MAX
                           : peer_segment(engine, (uint64_t)entries[i].target_id),
            .offset = entries[i].target_offset,
            .size = entries[i].length,
        };
    return requests;
}

static int submit(transfer_engine_t handle, batch_id_t batch,
                  const struct transfer_request *entries, size_t count, const notify_msg_t *message,
                  const char *what)
{
    struct engine *engine = handle;
    if (engine == NULL || (entries == NULL && count > 0) || count > UINT32_MAX)
        return invalid(what);
    if (count == 0)
        return 0;
    struct yolk_request *requests = translate(engine, entries, count);
    enum yolk_status *verdicts = calloc(count, sizeof(*verdicts));
    enum yolk_status status = YOLK_ERR_NO_MEMORY;
    uint32_t first = UINT32_MAX;
    base_error_clear();
    if (requests != NULL && verdicts != NULL && message == NULL)
        status = yolk_peer_submit(engine->peer, batch, requests, (uint32_t)count, verdicts, &first);
    else if (requests != NULL && verdicts != NULL)
        status = yolk_peer_submit_notify(engine->peer, batch, requests, (uint32_t)count, verdicts,
                                         &first, message->name != NULL ? message->name : "",
                                         message->msg != NULL ? message->msg : "",
                                         message->msg != NULL ? strlen(message->msg) : 0);
    free(requests);
    free(verdicts);
    if (status != YOLK_OK && first != UINT32_MAX) {
        (void)failed(status, what); /* a line for people; the tasks say FAILED */
        return 0;
    }
    return failed(status, what);
}

int submitTransfer(transfer_engine_t handle, batch_id_t batch_id, struct transfer_request *entries,
                   size_t count)
{
    return submit(handle, batch_id, entries, count, NULL, "submitTransfer");
}

int submitTransferWithNotify(transfer_engine_t handle, batch_id_t batch_id,
                             struct transfer_request *entries, size_t count,
                             notify_msg_t notify_msg)
{
    return submit(handle, batch_id, entries, count, &notify_msg, "submitTransferWithNotify");
}

static int status_of(const struct yolk_task_status *task)
{
    /* Bytes may still move where it is STUCK: the caller must keep its hands off. */
    if (!task->terminal || task->status == YOLK_ERR_STUCK)
        return STATUS_PENDING;
    return task->status == YOLK_OK ? STATUS_COMPLETED : STATUS_FAILED;
}

int getTransferStatus(transfer_engine_t handle, batch_id_t batch_id, size_t task_id,
                      struct transfer_status *status)
{
    struct engine *engine = handle;
    struct yolk_task_status task;
    if (status != NULL) /* who asks until it has ended asks no more, whatever comes */
        *status = (struct transfer_status){.status = STATUS_FAILED};
    if (engine == NULL || status == NULL || task_id > UINT32_MAX)
        return invalid("getTransferStatus");
    enum yolk_status polled =
        yolk_engine_batch_poll(yolk_peer_engine(engine->peer), batch_id, (uint32_t)task_id, &task);
    if (polled != YOLK_OK)
        return failed(polled, "getTransferStatus");
    status->status = status_of(&task);
    status->transferred_bytes = task.transferred;
    return 0;
}

int freeBatchID(transfer_engine_t handle, batch_id_t batch_id)
{
    struct engine *engine = handle;
    if (engine == NULL)
        return invalid("freeBatchID");
    return failed(yolk_peer_batch_free(engine->peer, batch_id), "freeBatchID");
}

/* ---- notifications ---- */

notify_msg_t *getNotifsFromEngine(transfer_engine_t handle, int *size)
{
    struct engine *engine = handle;
    struct yolk_notification *all = NULL;
    size_t count = 0;
    if (size != NULL)
        *size = 0;
    if (engine == NULL || size == NULL) {
        (void)invalid("getNotifsFromEngine");
        return NULL;
    }
    if (failed(yolk_peer_notifications(engine->peer, &all, &count), "getNotifsFromEngine") != 0 ||
        count == 0)
        return NULL;
    notify_msg_t *out = calloc(count, sizeof(*out));
    for (size_t i = 0; out != NULL && i < count; i++)
        out[i] = (notify_msg_t){all[i].name, all[i].message};
    if (out == NULL) {
        (void)failed(base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory"), "getNotifsFromEngine");
        yolk_notifications_free(all, count);
        return NULL;
    }
    free(all); /* its texts went to out */
    *size = (int)count;
    return out;
}

int freeNotifsMsgBuf(notify_msg_t *msg, int size)
{
    for (int i = 0; msg != NULL && i < size; i++) {
        free(msg[i].name);
        free(msg[i].msg);
    }
    free(msg);
    return 0;
}

int genNotifyInEngine(transfer_engine_t handle, uint64_t target_id, notify_msg_t notify_msg)
{
    struct engine *engine = handle;
    if (engine == NULL || notify_msg.name == NULL || notify_msg.msg == NULL)
        return invalid("genNotifyInEngine");
    return failed(yolk_peer_notify(engine->peer, peer_segment(engine, target_id), notify_msg.name,
                                   notify_msg.msg, strlen(notify_msg.msg)),
                  "genNotifyInEngine");
}

int getNicLoadStats(transfer_engine_t handle, nic_load_stat_t *stats, size_t *count)
{
    struct engine *engine = handle;
    if (engine == NULL || stats == NULL || count == NULL)
        return invalid("getNicLoadStats");
    return failed(
        compat_engine_loads(yolk_peer_engine(engine->peer), (struct compat_load *)stats, count),
        "getNicLoadStats");
}

/* In the environment's words, as the Python module's get_local_topology() has it. */
static enum yolk_status links(bool json, struct base_buf *out)
{
    struct base_config config;
    char *topology = NULL, *matrix = NULL;
    enum yolk_status status =
        compat_engine_config(NULL, compat_engine_uses_tent(), environ, &config);
    if (status == YOLK_OK)
        status = compat_engine_topology(&config, NULL, false, &topology);
    if (status == YOLK_OK)
        status = compat_engine_topology(&config, NULL, true, &matrix);
    base_config_free(&config);
    if (status == YOLK_OK)
        status = compat_show_links(topology, matrix, json, out);
    free(topology);
    free(matrix);
    return status;
}

int showLinks(transfer_engine_t handle, char *buf_out, size_t buf_len, int json)
{
    struct base_buf text;
    if (handle == NULL || buf_out == NULL || buf_len == 0)
        return invalid("showLinks");
    base_buf_init(&text, BASE_JSON_SIZE_MAX);
    enum yolk_status status = links(json != 0, &text);
    if (status == YOLK_OK)
        (void)snprintf(buf_out, buf_len, "%.*s", (int)text.size, (const char *)text.data);
    if (status == YOLK_OK && text.size >= buf_len)
        status = base_fail(YOLK_ERR_BUFFER_SMALL, 0, "it takes %zu bytes", text.size + 1);
    base_buf_free(&text);
    return failed(status, "showLinks");
}
