/* SPDX-License-Identifier: Apache-2.0 */
/* The ring of a trace, and its lines in a file. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "transport/trace/internal.h"

static const char *const CALL_NAMES[TRACE_CALLS] = {
    [TRACE_PROBE] = "probe",
    [TRACE_INIT] = "init",
    [TRACE_STOP] = "stop",
    [TRACE_FINI] = "fini",
    [TRACE_ADD_BUFFER] = "add_buffer",
    [TRACE_REMOVE_BUFFER] = "remove_buffer",
    [TRACE_MEMORY_ALLOC] = "memory_alloc",
    [TRACE_MEMORY_FREE] = "memory_free",
    [TRACE_SERVE] = "serve",
    [TRACE_SET_SEGMENT_ID] = "set_segment_id",
    [TRACE_FENCE_SESSION] = "fence_session",
    [TRACE_UNSERVE] = "unserve",
    [TRACE_OPEN_TARGET] = "open_target",
    [TRACE_CLOSE_TARGET] = "close_target",
    [TRACE_TARGET_MAP] = "target_map",
    [TRACE_CHANNEL_OPEN] = "channel_open",
    [TRACE_CHANNEL_CLOSE] = "channel_close",
    [TRACE_SUBMIT] = "submit",
    [TRACE_COMPLETION] = "completion",
    [TRACE_CANCEL] = "cancel",
};

const char *trace_call_name(enum trace_call call)
{
    return (unsigned)call < TRACE_CALLS ? CALL_NAMES[call] : "?";
}

enum yolk_status trace_log_init(struct trace_log *log, uint32_t room, FILE *file)
{
    *log = (struct trace_log){.room = room, .file = file};
    if (room == 0)
        return base_fail(YOLK_ERR_INVALID, 0, "a trace needs room for at least one record");
    log->records = base_calloc(room, sizeof(*log->records));
    if (log->records == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a trace of %u records", room);
    pthread_mutex_init(&log->lock, NULL);
    return YOLK_OK;
}

void trace_log_free(struct trace_log *log)
{
    if (log->records == NULL)
        return;
    pthread_mutex_destroy(&log->lock);
    free(log->records);
    log->records = NULL;
}

static const char *submit_name(enum yolk_submit submit)
{
    static const char *const names[] = {"", "done", "queued", "again", "failed"};
    return (unsigned)submit < sizeof(names) / sizeof(names[0]) ? names[submit] : "?";
}

/* Text of a peer: whatever would end the string or the line is left out. */
static void put_text(FILE *file, const char *text)
{
    for (const char *c = text; *c != '\0'; c++)
        if ((unsigned char)*c >= ' ' && *c != '"' && *c != '\\')
            (void)fputc(*c, file);
}

static void put_line(struct trace_log *log, const char *name, const struct trace_record *r)
{
    FILE *file = log->file;
    (void)fprintf(file, "{\"n\":%llu,\"ns\":%llu,\"transport\":\"%s\",\"call\":\"%s\"",
                  (unsigned long long)r->number, (unsigned long long)r->at_ns, name,
                  trace_call_name(r->call));
    if (r->call == TRACE_SUBMIT)
        (void)fprintf(file, ",\"opcode\":\"%s\",\"offset\":%llu,\"answer\":\"%s\"",
                      r->opcode == YOLK_WRITE ? "write" : "read", (unsigned long long)r->offset,
                      submit_name(r->submit));
    if (r->places > 0)
        (void)fprintf(file, ",\"places\":%u", r->places);
    if (r->call == TRACE_SUBMIT || r->call == TRACE_COMPLETION || r->call == TRACE_CANCEL)
        (void)fprintf(file, ",\"cookie\":%llu,\"transferred\":%llu", (unsigned long long)r->cookie,
                      (unsigned long long)r->transferred);
    if (r->size != 0)
        (void)fprintf(file, ",\"size\":%llu", (unsigned long long)r->size);
    if (r->segment != 0)
        (void)fprintf(file, ",\"segment\":%llu", (unsigned long long)r->segment);
    if (r->session != 0)
        (void)fprintf(file, ",\"session\":%llu", (unsigned long long)r->session);
    (void)fprintf(file, ",\"status\":%d", (int)r->status);
    if (r->text[0] != '\0') {
        (void)fputs(",\"text\":\"", file);
        put_text(file, r->text);
        (void)fputc('"', file);
    }
    (void)fputs("}\n", file);
    if (ferror(file) != 0 || fflush(file) != 0)
        log->file_failed = 1; /* said once, by whoever opened it */
}

void trace_write(struct trace_log *log, const char *name, struct trace_record *record)
{
    pthread_mutex_lock(&log->lock);
    record->number = log->count++;
    log->records[record->number % log->room] = *record;
    if (log->file != NULL && !log->file_failed)
        put_line(log, name, record);
    pthread_mutex_unlock(&log->lock);
}

uint32_t trace_log_copy(struct trace_log *log, struct trace_record *out, uint32_t max)
{
    pthread_mutex_lock(&log->lock);
    uint64_t held = log->count < log->room ? log->count : log->room;
    uint32_t count = held < max ? (uint32_t)held : max;
    for (uint32_t i = 0; i < count; i++)
        out[i] = log->records[(log->count - held + i) % log->room];
    pthread_mutex_unlock(&log->lock);
    return count;
}
