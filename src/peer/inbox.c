/* SPDX-License-Identifier: Apache-2.0 */
/* Notifications that came and were not yet taken. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "peer/internal.h"

struct message {
    struct base_list node;
    struct yolk_notification what;
};

void peer_inbox_init(struct peer_inbox *inbox, size_t count_max)
{
    mutex_init(&inbox->lock);
    base_list_init(&inbox->list);
    inbox->count = 0;
    inbox->count_max = count_max;
}

static void free_parts(struct yolk_notification *notification)
{
    free(notification->name);
    free(notification->message);
}

void peer_inbox_free(struct peer_inbox *inbox)
{
    struct base_list *node;
    while ((node = base_list_pop_front(&inbox->list)) != NULL) {
        struct message *message = BASE_CONTAINER(node, struct message, node);
        free_parts(&message->what);
        free(message);
    }
    mutex_destroy(&inbox->lock);
}

/* NUL terminated, so that texts can be used as they are. */
static char *copy(struct wire_view view)
{
    char *text = malloc(view.size + 1);
    if (text == NULL)
        return NULL;
    if (view.size > 0)
        memcpy(text, view.data, view.size);
    text[view.size] = '\0';
    return text;
}

enum yolk_status peer_inbox_put(struct peer_inbox *inbox, struct wire_view name,
                                struct wire_view message)
{
    struct message *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a notification");
    made->what = (struct yolk_notification){copy(name), copy(message), message.size};
    enum yolk_status status =
        made->what.name != NULL && made->what.message != NULL
            ? YOLK_OK
            : base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a notification");
    mutex_lock(&inbox->lock);
    if (status == YOLK_OK && inbox->count >= inbox->count_max)
        status = base_fail(YOLK_ERR_LIMIT, 0, "%zu notifications wait to be taken already",
                           inbox->count);
    if (status == YOLK_OK) {
        base_list_push_back(&inbox->list, &made->node);
        inbox->count++;
    }
    mutex_unlock(&inbox->lock);
    if (status != YOLK_OK) {
        free_parts(&made->what);
        free(made);
    }
    return status;
}

enum yolk_status peer_inbox_take(struct peer_inbox *inbox, struct yolk_notification **out,
                                 size_t *count)
{
    enum yolk_status status = YOLK_OK;
    *out = NULL;
    *count = 0;
    mutex_lock(&inbox->lock);
    if (inbox->count > 0) {
        *out = malloc(inbox->count * sizeof(**out));
        if (*out == NULL)
            status =
                base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for %zu notifications", inbox->count);
    }
    while (*out != NULL && inbox->count > 0) {
        struct message *message =
            BASE_CONTAINER(base_list_pop_front(&inbox->list), struct message, node);
        (*out)[(*count)++] = message->what;
        free(message);
        inbox->count--;
    }
    mutex_unlock(&inbox->lock);
    return status;
}

void yolk_notifications_free(struct yolk_notification *notifications, size_t count)
{
    for (size_t i = 0; notifications != NULL && i < count; i++)
        free_parts(&notifications[i]);
    free(notifications);
}
