/* SPDX-License-Identifier: Apache-2.0 */
/* TENT's C interface on peers: configuration, the engine and its segments. */
#include "compat/tent.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOG_ROOM "engine"
#include "base/error.h"
#include "base/log.h"
#include "compat/engine_open.h"

int compat_tent_answer(enum yolk_status status, const char *what)
{
    if (status == YOLK_OK)
        return 0;
    log_error("%s: %s", what,
              yolk_last_error()[0] != '\0' ? yolk_last_error() : yolk_strerror(status));
    return -1;
}

int compat_tent_invalid(const char *what, const char *rule)
{
    return compat_tent_answer(base_fail(YOLK_ERR_INVALID, 0, "%s", rule), what);
}

const char *tent_last_error(void)
{
    return yolk_last_error();
}

/* ---- configuration: of the next engine of this thread ---- */

static pthread_key_t settings_key;
static pthread_once_t settings_once = PTHREAD_ONCE_INIT;
static bool settings_usable;

static void settings_end(void *settings)
{
    compat_settings_free(settings);
    free(settings);
}

static void settings_begin(void)
{
    settings_usable = pthread_key_create(&settings_key, settings_end) == 0;
}

/* NULL: no memory. */
static struct compat_settings *settings_of_thread(void)
{
    pthread_once(&settings_once, settings_begin);
    struct compat_settings *settings = settings_usable ? pthread_getspecific(settings_key) : NULL;
    if (settings != NULL || !settings_usable)
        return settings;
    settings = calloc(1, sizeof(*settings));
    if (settings != NULL && pthread_setspecific(settings_key, settings) != 0) {
        free(settings);
        settings = NULL;
    }
    return settings;
}

void tent_load_config_from_file(const char *path)
{
    struct compat_settings *settings = settings_of_thread();
    char *copy = path != NULL && path[0] != '\0' ? strdup(path) : NULL;
    if (settings == NULL || copy == NULL) {
        free(copy);
        (void)compat_tent_invalid("tent_load_config_from_file", "needs a path, and memory for it");
        return;
    }
    free(settings->file);
    settings->file = copy;
}

void tent_set_config(const char *key, const char *value)
{
    struct compat_settings *settings = settings_of_thread();
    if (settings == NULL)
        (void)compat_tent_invalid("tent_set_config", "there is no memory");
    else
        (void)compat_tent_answer(compat_settings_set(settings, key, value), "tent_set_config");
}

/* ---- the engine ---- */

tent_engine_t tent_create_engine(void)
{
    struct compat_settings *settings = settings_of_thread();
    struct tent_engine *engine = calloc(1, sizeof(*engine));
    enum yolk_status status = base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for an engine");
    if (engine != NULL && settings != NULL)
        status = compat_engine_open_tent(settings, &engine->config, &engine->peer);
    if (settings != NULL)
        compat_settings_free(settings); /* the next engine has settings of its own */
    if (status == YOLK_OK)
        status = yolk_peer_open(engine->peer, "", &engine->own);
    if (status == YOLK_OK) {
        mutex_init(&engine->lock);
        return engine;
    }
    (void)compat_tent_answer(status, "tent_create_engine");
    if (engine != NULL && engine->peer != NULL)
        base_ignore(compat_engine_close(engine->peer));
    if (engine != NULL)
        base_config_free(&engine->config);
    free(engine);
    return NULL;
}

void tent_destroy_engine(tent_engine_t handle)
{
    struct tent_engine *engine = handle;
    if (engine == NULL)
        return;
    /* What may still be written to stays, and the engine with it: compat_engine_close said so. */
    if (compat_engine_close(engine->peer) != YOLK_OK)
        return;
    compat_tent_memories_free(engine);
    mutex_destroy(&engine->lock);
    base_config_free(&engine->config);
    free(engine);
}

int tent_available(tent_engine_t handle)
{
    return handle != NULL;
}

static int give_text(const char *text, size_t size, char *buf, size_t buf_len, const char *what)
{
    if (size >= buf_len) {
        if (buf_len > 0)
            buf[0] = '\0';
        return compat_tent_answer(base_fail(YOLK_ERR_BUFFER_SMALL, 0,
                                            "needs room for %zu bytes, not %zu", size + 1, buf_len),
                                  what);
    }
    memcpy(buf, text, size);
    buf[size] = '\0';
    return 0;
}

int tent_segment_name(tent_engine_t handle, char *buf, size_t buf_len)
{
    const struct tent_engine *engine = handle;
    if (engine == NULL || buf == NULL)
        return compat_tent_invalid("tent_segment_name", "needs an engine and room for the name");
    const char *name = yolk_peer_name(engine->peer);
    return give_text(name, strlen(name), buf, buf_len, "tent_segment_name");
}

int tent_rpc_server_addr_port(tent_engine_t handle, char *addr_buf, size_t buf_len, uint16_t *port)
{
    const struct tent_engine *engine = handle;
    if (engine == NULL || addr_buf == NULL || port == NULL)
        return compat_tent_invalid("tent_rpc_server_addr_port",
                                   "needs an engine and room for both");
    const char *address = yolk_peer_address(engine->peer);
    *port = yolk_peer_port(engine->peer);
    return give_text(address, (size_t)(strrchr(address, ':') - address), addr_buf, buf_len,
                     "tent_rpc_server_addr_port");
}

/* ---- transports ---- */

static const char *const TRANSPORT_NAMES[] = {NULL,  "rdma",  "mnnvl", "shm",    "nvlink",
                                              "gds", "uring", "tcp",   "ascend", "sunrise_link",
                                              "tpu", "ub",    "mpcomm"};

enum yolk_status compat_tent_transport(const struct tent_engine *engine, int number,
                                       const char **name)
{
    enum { COUNT = sizeof(TRANSPORT_NAMES) / sizeof(TRANSPORT_NAMES[0]) };
    char reason[256];
    *name = NULL;
    if (number == TRANSPORT_UNSPEC)
        return YOLK_OK;
    if (number < 0 || number >= COUNT)
        return base_fail(YOLK_ERR_INVALID, 0, "transport %d: there are 0 to %d", number, COUNT - 1);
    *name = TRANSPORT_NAMES[number];
    if (yolk_engine_has_transport(yolk_peer_engine(engine->peer), *name, reason, sizeof(reason)))
        return YOLK_OK;
    return base_fail(YOLK_ERR_INVALID, 0, "transport %d (%s) is not in use: %s", number, *name,
                     reason);
}

int tent_has_transport(tent_engine_t handle, const char *name)
{
    const struct tent_engine *engine = handle;
    char reason[256];
    if (engine == NULL || name == NULL) {
        (void)compat_tent_invalid("tent_has_transport", "needs an engine and a name");
        return 0;
    }
    if (yolk_engine_has_transport(yolk_peer_engine(engine->peer), name, reason, sizeof(reason)))
        return 1;
    base_ignore(base_fail(YOLK_ERR_UNSUPPORTED, 0, "transport \"%s\": %s", name, reason));
    return 0;
}

/* ---- segments ---- */

uint64_t compat_tent_segment(const struct tent_engine *engine, tent_segment_id_t handle)
{
    return handle == TENT_LOCAL_SEGMENT_ID ? engine->own : handle;
}

int tent_open_segment(tent_engine_t handle, tent_segment_id_t *segment, const char *segment_name)
{
    struct tent_engine *engine = handle;
    uint64_t opened;
    if (engine == NULL || segment == NULL || segment_name == NULL)
        return compat_tent_invalid("tent_open_segment",
                                   "needs an engine, a name and room for a handle");
    enum yolk_status status = yolk_peer_open(engine->peer, segment_name, &opened);
    if (status == YOLK_OK && opened == engine->own) {
        status = yolk_peer_close(engine->peer, opened); /* held once, for as long as the engine */
        opened = TENT_LOCAL_SEGMENT_ID;
    }
    if (status == YOLK_OK)
        *segment = opened;
    return compat_tent_answer(status, "tent_open_segment");
}

int tent_close_segment(tent_engine_t handle, tent_segment_id_t segment)
{
    struct tent_engine *engine = handle;
    if (engine == NULL)
        return compat_tent_invalid("tent_close_segment", "needs an engine");
    if (segment == TENT_LOCAL_SEGMENT_ID || segment == engine->own)
        return 0;
    return compat_tent_answer(yolk_peer_close(engine->peer, segment), "tent_close_segment");
}

int tent_get_segment_info(tent_engine_t handle, tent_segment_id_t segment,
                          tent_segment_info_t *info)
{
    struct tent_engine *engine = handle;
    struct yolk_peer_buffer *buffers;
    size_t count;
    if (engine == NULL || info == NULL)
        return compat_tent_invalid("tent_get_segment_info",
                                   "needs an engine and room for the answer");
    *info = (tent_segment_info_t){.type = TYPE_MEMORY};
    enum yolk_status status =
        yolk_peer_buffers(engine->peer, compat_tent_segment(engine, segment), &buffers, &count);
    if (status != YOLK_OK)
        return compat_tent_answer(status, "tent_get_segment_info");
    /* No memory is at such a place. */
    if (count == 1 && strcmp(buffers[0].location, "file") == 0)
        info->type = TYPE_FILE;
    if (count > 0)
        info->buffers = calloc(count, sizeof(*info->buffers));
    if (count > 0 && info->buffers == NULL)
        status = base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory to list %zu buffers", count);
    for (size_t i = 0; i < count && status == YOLK_OK; i++) {
        info->buffers[i].base = buffers[i].address;
        info->buffers[i].length = buffers[i].size;
        snprintf(info->buffers[i].location, sizeof(info->buffers[i].location), "%s",
                 buffers[i].location);
    }
    info->num_buffers = status == YOLK_OK ? (int)count : 0;
    free(buffers);
    return compat_tent_answer(status, "tent_get_segment_info");
}

void tent_free_segment_info(tent_segment_info_t *info)
{
    if (info == NULL)
        return;
    free(info->buffers);
    info->buffers = NULL;
    info->num_buffers = 0;
}

int tent_probe_peer(tent_engine_t handle, tent_segment_id_t segment, uint64_t timeout_ms)
{
    struct tent_engine *engine = handle;
    if (engine == NULL)
        return compat_tent_invalid("tent_probe_peer", "needs an engine");
    return compat_tent_answer(
        yolk_peer_probe(engine->peer, compat_tent_segment(engine, segment), timeout_ms),
        "tent_probe_peer");
}

char *tent_topology(tent_engine_t handle)
{
    const struct tent_engine *engine = handle;
    char *text = NULL;
    if (engine == NULL) {
        (void)compat_tent_invalid("tent_topology", "needs an engine");
        return NULL;
    }
    return compat_tent_answer(compat_engine_topology(&engine->config, NULL, false, &text),
                              "tent_topology") == 0
               ? text
               : NULL;
}
