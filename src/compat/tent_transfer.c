/* SPDX-License-Identifier: Apache-2.0 */
/* TENT's C interface on peers: batches, notifications, and what is to be seen of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOG_ROOM "engine"
#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "compat/engine_loads.h"
#include "compat/tent.h"

_Static_assert(sizeof(struct compat_load) == sizeof(tent_nic_load_stat_t), "");

static struct yolk_engine *of(const struct tent_engine *engine)
{
    return yolk_peer_engine(engine->peer);
}

/* ---- batches ---- */

tent_batch_id_t tent_allocate_batch(tent_engine_t handle, size_t batch_size)
{
    struct tent_engine *engine = handle;
    uint64_t batch;
    if (engine == NULL) {
        (void)compat_tent_invalid("tent_allocate_batch", "needs an engine");
        return 0;
    }
    uint32_t capacity = batch_size < UINT32_MAX ? (uint32_t)batch_size : UINT32_MAX;
    enum yolk_status status = yolk_engine_batch_create(of(engine), capacity, &batch);
    return compat_tent_answer(status, "tent_allocate_batch") == 0 ? batch : 0;
}

int tent_free_batch(tent_engine_t handle, tent_batch_id_t batch)
{
    struct tent_engine *engine = handle;
    if (engine == NULL)
        return compat_tent_invalid("tent_free_batch", "needs an engine");
    return compat_tent_answer(yolk_peer_batch_free(engine->peer, batch), "tent_free_batch");
}

/* The engine has other numbers for them. */
static enum yolk_status check_opcode(int opcode, enum yolk_status otherwise)
{
    return opcode == OPCODE_READ || opcode == OPCODE_WRITE
               ? otherwise
               : base_fail(YOLK_ERR_INVALID, 0, "opcode %d: must be %d (read) or %d (write)",
                           opcode, OPCODE_READ, OPCODE_WRITE);
}

/* INVALID: a hint names a transport that is not in use, or a priority is none. */
static enum yolk_status translate(const struct tent_engine *engine, const tent_request_t *entry,
                                  struct yolk_request *out)
{
    const char *hint;
    enum yolk_status status = compat_tent_transport(engine, entry->transport_hint, &hint);
    if (status == YOLK_OK && (entry->priority < 0 || entry->priority > 2))
        status = base_fail(YOLK_ERR_INVALID, 0, "priority %d: must be 0, 1 or 2", entry->priority);
    *out = (struct yolk_request){
        .opcode = entry->opcode == OPCODE_WRITE  ? YOLK_WRITE
                  : entry->opcode == OPCODE_READ ? YOLK_READ
                                                 : (enum yolk_opcode)0,
        .local = entry->source,
        .segment = compat_tent_segment(engine, entry->target_id),
        .offset = entry->target_offset,
        .size = entry->length,
        .hint = hint,
        .priority = (enum yolk_priority)entry->priority,
    };
    return status;
}

struct message {
    const char *name, *text;
};

static enum yolk_status submit_all(struct tent_engine *engine, uint64_t batch,
                                   const tent_request_t *entries, size_t count,
                                   const struct message *message, uint32_t *first)
{
    struct yolk_request *requests = base_calloc(count, sizeof(*requests));
    enum yolk_status *verdicts = base_calloc(count, sizeof(*verdicts));
    enum yolk_status status = YOLK_OK;
    if (requests == NULL || verdicts == NULL)
        status = base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for %zu requests", count);
    for (size_t i = 0; i < count && status == YOLK_OK; i++)
        status = translate(engine, &entries[i], &requests[i]);
    if (status == YOLK_OK && message == NULL)
        status = yolk_peer_submit(engine->peer, batch, requests, (uint32_t)count, verdicts, first);
    else if (status == YOLK_OK)
        status =
            yolk_peer_submit_notify(engine->peer, batch, requests, (uint32_t)count, verdicts, first,
                                    message->name, message->text, strlen(message->text));
    size_t bad = 0; /* the first that was refused, if any was */
    while (status == YOLK_ERR_INVALID && bad < count && verdicts[bad] == YOLK_OK)
        bad++;
    if (status == YOLK_ERR_INVALID && bad < count)
        status = check_opcode(entries[bad].opcode, status);
    free(requests);
    free(verdicts);
    return status;
}

static int submit(tent_engine_t handle, tent_batch_id_t batch, const tent_request_t *entries,
                  size_t count, const struct message *message, const char *what)
{
    struct tent_engine *engine = handle;
    uint32_t first = UINT32_MAX;
    if (engine == NULL || entries == NULL || count > UINT32_MAX)
        return compat_tent_invalid(what, "needs an engine and requests");
    if (count == 0)
        return 0;
    base_error_clear();
    enum yolk_status status = submit_all(engine, batch, entries, count, message, &first);
    int answer = compat_tent_answer(status, what);
    return first != UINT32_MAX ? 0 : answer; /* those that are tasks say FAILED themselves */
}

int tent_submit(tent_engine_t handle, tent_batch_id_t batch, tent_request_t *entries, size_t count)
{
    return submit(handle, batch, entries, count, NULL, "tent_submit");
}

int tent_submit_notif(tent_engine_t handle, tent_batch_id_t batch, tent_request_t *entries,
                      size_t count, const char *name, const char *message)
{
    const struct message bound = {name, message};
    if (name == NULL || message == NULL)
        return compat_tent_invalid("tent_submit_notif", "needs a name and a message");
    return submit(handle, batch, entries, count, &bound, "tent_submit_notif");
}

int tent_cancel_task(tent_engine_t handle, tent_batch_id_t batch, size_t task_id)
{
    struct tent_engine *engine = handle;
    if (engine == NULL || task_id > UINT32_MAX)
        return compat_tent_invalid("tent_cancel_task", "needs an engine and a task");
    return compat_tent_answer(yolk_engine_batch_cancel(of(engine), batch, (uint32_t)task_id),
                              "tent_cancel_task");
}

/* ---- status ---- */

static int status_of(bool over, enum yolk_status status)
{
    if (!over)
        return STATUS_PENDING;
    switch (status) {
    case YOLK_OK:
        return STATUS_COMPLETED;
    case YOLK_ERR_STUCK: /* bytes may still move: the caller must keep its hands off */
        return STATUS_PENDING;
    case YOLK_ERR_INVALID:
        return STATUS_INVALID;
    case YOLK_ERR_CANCELED:
        return STATUS_CANCELED;
    case YOLK_ERR_TIMEOUT:
        return STATUS_TIMEOUT;
    default:
        return STATUS_FAILED;
    }
}

int tent_task_status(tent_engine_t handle, tent_batch_id_t batch, size_t task_id,
                     tent_status_t *status)
{
    struct tent_engine *engine = handle;
    struct yolk_task_status task;
    if (status != NULL) /* who asks until it has ended asks no more, whatever comes */
        *status = (tent_status_t){STATUS_FAILED, 0};
    if (engine == NULL || status == NULL || task_id > UINT32_MAX)
        return compat_tent_invalid("tent_task_status",
                                   "needs an engine, a task and room for its status");
    enum yolk_status polled = yolk_engine_batch_poll(of(engine), batch, (uint32_t)task_id, &task);
    if (polled != YOLK_OK)
        return compat_tent_answer(polled, "tent_task_status");
    *status = (tent_status_t){status_of(task.terminal, task.status), task.transferred};
    return 0;
}

int tent_task_status_list(tent_engine_t handle, tent_batch_id_t batch, tent_status_t *statuses,
                          size_t *count)
{
    struct tent_engine *engine = handle;
    struct yolk_batch_status all;
    if (engine == NULL || statuses == NULL || count == NULL)
        return compat_tent_invalid("tent_task_status_list",
                                   "needs an engine and room for the answer");
    enum yolk_status polled = yolk_engine_batch_poll_all(of(engine), batch, &all, NULL, 0);
    if (polled != YOLK_OK)
        return compat_tent_answer(polled, "tent_task_status_list");
    uint32_t room = *count < all.tasks ? (uint32_t)*count : all.tasks;
    struct yolk_task_status *tasks = base_calloc((size_t)room + 1, sizeof(*tasks));
    polled = tasks != NULL ? yolk_engine_batch_look(of(engine), batch, &all, tasks, room)
                           : base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for %u tasks", room);
    for (uint32_t i = 0; i < room && polled == YOLK_OK; i++)
        statuses[i] =
            (tent_status_t){status_of(tasks[i].terminal, tasks[i].status), tasks[i].transferred};
    if (polled == YOLK_OK)
        *count = all.tasks;
    free(tasks);
    return compat_tent_answer(polled, "tent_task_status_list");
}

static int give_overall(enum yolk_status asked, const struct yolk_batch_status *all,
                        tent_status_t *status, const char *what)
{
    *status = (tent_status_t){STATUS_FAILED, 0};
    if (asked != YOLK_OK)
        return compat_tent_answer(asked, what);
    *status = (tent_status_t){status_of(all->pending == 0, all->worst), all->transferred};
    return 0;
}

int tent_overall_status(tent_engine_t handle, tent_batch_id_t batch, tent_status_t *status)
{
    struct tent_engine *engine = handle;
    struct yolk_batch_status all;
    if (engine == NULL || status == NULL)
        return compat_tent_invalid("tent_overall_status",
                                   "needs an engine and room for the status");
    return give_overall(yolk_engine_batch_poll_all(of(engine), batch, &all, NULL, 0), &all, status,
                        "tent_overall_status");
}

int tent_progress_batch(tent_engine_t handle, tent_batch_id_t batch, tent_status_t *status)
{
    struct tent_engine *engine = handle;
    struct yolk_batch_status all;
    if (engine == NULL || status == NULL)
        return compat_tent_invalid("tent_progress_batch",
                                   "needs an engine and room for the status");
    enum yolk_status moved = yolk_engine_batch_progress(of(engine), batch, NULL);
    if (moved == YOLK_OK)
        moved = yolk_engine_batch_look(of(engine), batch, &all, NULL, 0);
    return give_overall(moved, &all, status, "tent_progress_batch");
}

/* ---- notifications ---- */

int tent_send_notifs(tent_engine_t handle, tent_segment_id_t segment, const char *name,
                     const char *message)
{
    struct tent_engine *engine = handle;
    if (engine == NULL || message == NULL)
        return compat_tent_invalid("tent_send_notifs", "needs an engine and a message");
    return compat_tent_answer(yolk_peer_notify(engine->peer, compat_tent_segment(engine, segment),
                                               name != NULL ? name : "", message, strlen(message)),
                              "tent_send_notifs");
}

static void give_record(const struct yolk_notification *from, tent_notifi_record_t *to)
{
    snprintf(to->name, sizeof(to->name), "%s", from->name);
    snprintf(to->msg, sizeof(to->msg), "%s", from->message);
    if (from->message_size >= sizeof(to->msg))
        log_warn("a notification \"%s\" of %zu bytes is cut: a record has room for %zu", to->name,
                 from->message_size, sizeof(to->msg) - 1);
}

int tent_recv_notifs(tent_engine_t handle, tent_notifi_info *info)
{
    struct tent_engine *engine = handle;
    struct yolk_notification *all = NULL;
    size_t count = 0;
    if (engine == NULL || info == NULL)
        return compat_tent_invalid("tent_recv_notifs", "needs an engine and room for the answer");
    *info = (tent_notifi_info){0};
    enum yolk_status status = yolk_peer_notifications(engine->peer, &all, &count);
    if (status == YOLK_OK && count > 0) {
        info->records = base_calloc(count, sizeof(*info->records));
        if (info->records == NULL)
            status = base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for %zu notifications", count);
    }
    for (size_t i = 0; status == YOLK_OK && i < count; i++)
        give_record(&all[i], &info->records[i]);
    info->num_records = status == YOLK_OK ? (int)count : 0;
    yolk_notifications_free(all, count);
    return compat_tent_answer(status, "tent_recv_notifs");
}

void tent_free_notifs(tent_notifi_info *info)
{
    if (info == NULL)
        return;
    free(info->records);
    *info = (tent_notifi_info){0};
}

/* ---- looking at it ---- */

char *tent_describe_route(tent_engine_t handle, const tent_request_t *request)
{
    const struct tent_engine *engine = handle;
    struct yolk_request own;
    char *text = NULL;
    if (engine == NULL || request == NULL) {
        (void)compat_tent_invalid("tent_describe_route", "needs an engine and a request");
        return NULL;
    }
    enum yolk_status status = translate(engine, request, &own);
    if (status == YOLK_OK)
        status = check_opcode(request->opcode, YOLK_OK);
    if (status == YOLK_OK)
        status = yolk_peer_describe_route(engine->peer, &own, &text);
    return compat_tent_answer(status, "tent_describe_route") == 0 ? text : NULL;
}

char *tent_metrics(tent_engine_t handle)
{
    const struct tent_engine *engine = handle;
    char *text = NULL;
    if (engine == NULL) {
        (void)compat_tent_invalid("tent_metrics", "needs an engine");
        return NULL;
    }
    return compat_tent_answer(yolk_engine_metrics(of(engine), &text), "tent_metrics") == 0 ? text
                                                                                           : NULL;
}

int tent_get_nic_load_stats(tent_engine_t handle, tent_nic_load_stat_t *stats, size_t *count)
{
    const struct tent_engine *engine = handle;
    if (engine == NULL || stats == NULL || count == NULL)
        return compat_tent_invalid("tent_get_nic_load_stats",
                                   "needs an engine and room for the answer");
    return compat_tent_answer(compat_engine_loads(of(engine), (struct compat_load *)stats, count),
                              "tent_get_nic_load_stats");
}
