/* SPDX-License-Identifier: Apache-2.0 */
/* Values spread evenly over memory controllers, whatever the sizes and the number of the segments
 * behind each (config.place_by_controller). A segment may say which one it is behind; of the others
 * each counts as one. What is ahead is a difference, so that a controller that is new, or comes
 * back, is not given all that the others already have. */
#include "master/state.h"

#include <string.h>

#define LABEL "numa="
/* No controller is further ahead: one that could not be used for long is not flooded. */
#define AHEAD_MAX (UINT64_C(1) << 30)

/* The part "numa=TEXT" of the endpoints; empty: there is none. */
static struct wire_view label_of(const char *endpoints)
{
    for (const char *at = endpoints; at != NULL; at = strchr(at, ';')) {
        at += *at == ';';
        if (strncmp(at, LABEL, sizeof(LABEL) - 1) == 0) {
            const char *text = at + sizeof(LABEL) - 1;
            return wire_view_of(text, strcspn(text, ";"));
        }
    }
    return wire_view_of("", 0);
}

bool master_spread_is_label(struct wire_view label)
{
    for (size_t i = 0; i < label.size; i++) {
        uint8_t c = label.data[i];
        if (c != '.' && (c < '0' || c > '9') && (c < 'a' || c > 'f'))
            return false;
    }
    return label.size > 0 && label.size <= MASTER_LABEL_MAX;
}

bool master_spread_together(const struct master_segment *a, const struct master_segment *b)
{
    return a == b || (a->controller.size > 0 && a->controller.size == b->controller.size &&
                      memcmp(a->controller.data, b->controller.data, a->controller.size) == 0);
}

static bool counts(const struct master_segment *segment)
{
    return segment->state == SEGMENT_OPEN && !master_segment_is_disk(segment);
}

void master_spread_mounted(struct master_core *core, struct master_segment *segment)
{
    segment->controller = label_of(segment->endpoints);
    if (!master_spread_is_label(segment->controller))
        segment->controller.size = 0;
    segment->ahead = 0;
    BASE_LIST_FOREACH(node, &core->segments)
    {
        const struct master_segment *other = BASE_CONTAINER(node, struct master_segment, link);
        if (other != segment && counts(other) && master_spread_together(other, segment))
            segment->ahead = other->ahead;
    }
}

void master_spread_placed(struct master_core *core, const struct master_segment *segment,
                          uint64_t size)
{
    uint64_t least = UINT64_MAX;
    if (!core->config.place_by_controller)
        return;
    BASE_LIST_FOREACH(node, &core->segments)
    {
        struct master_segment *other = BASE_CONTAINER(node, struct master_segment, link);
        if (master_spread_together(other, segment))
            other->ahead = size > AHEAD_MAX - other->ahead ? AHEAD_MAX : other->ahead + size;
        if (counts(other) && other->ahead < least)
            least = other->ahead;
    }
    BASE_LIST_FOREACH(node, &core->segments)
    {
        struct master_segment *other = BASE_CONTAINER(node, struct master_segment, link);
        other->ahead -= other->ahead < least ? other->ahead : least;
    }
}
