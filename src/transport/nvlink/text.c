/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text of a served segment: fields separated by '+', the first of which is its version, then
 * '@' and the text of the links. No field has one of these, nor what the engine keeps for itself.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "platform/process.h"
#include "transport/nvlink/internal.h"

static char machine[NVLINK_MACHINE_TEXT];
static pthread_once_t machine_once = PTHREAD_ONCE_INIT;

void nvlink_hex(const uint8_t *bytes, size_t size, char *out)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < size; i++) {
        out[2 * i] = digits[bytes[i] >> 4];
        out[2 * i + 1] = digits[bytes[i] & 15];
    }
    out[2 * size] = '\0';
}

static void read_machine(void)
{
    uint8_t boot[16];
    if (machine[0] != '\0')
        return; /* a test said another one */
    process_boot_id(boot);
    nvlink_hex(boot, sizeof boot, machine);
}

const char *nvlink_machine(void)
{
    (void)pthread_once(&machine_once, read_machine);
    return machine;
}

void nvlink_machine_set(const char *text)
{
    (void)snprintf(machine, sizeof machine, "%s", text);
}

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool nvlink_unhex(const char *text, uint8_t *out, size_t size)
{
    if (strlen(text) != 2 * size)
        return false;
    for (size_t i = 0; i < size; i++) {
        int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        out[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

int nvlink_text_format(const struct nvlink_export *export, const char *rest, char *text,
                       size_t text_size)
{
    char uuid[33], fabric[129] = "", ipc[129] = "";
    nvlink_hex(export->uuid, sizeof export->uuid, uuid);
    if (export->handles & NVLINK_FABRIC)
        nvlink_hex(export->fabric, sizeof export->fabric, fabric);
    if (export->handles & NVLINK_IPC)
        nvlink_hex(export->ipc, sizeof export->ipc, ipc);
    int n = snprintf(text, text_size,
                     "2+%s+%s+%d+%" PRIx64 "+%" PRIx64 "+%" PRIx64 "+%" PRIx64
                     "+%s+%s+%s+%s+%s+%" PRIx64 "@%s",
                     export->parts == 0 ? "any"
                     : export->host     ? "host"
                                        : "gpu",
                     uuid, export->node, export->base, export->size, export->id, export->offset,
                     fabric, export->handles & NVLINK_FD ? "fd" : "", ipc, export->machine,
                     export->tcp, (uint64_t) export->parts, rest);
    if (n < 0 || (size_t)n >= text_size)
        return base_fail(YOLK_ERR_BUFFER_SMALL, 0, "nvlink: endpoint text");
    return YOLK_OK;
}

enum { FIELDS = 14 };

/* Cuts the copy in its fields. */
static bool cut(char *copy, char *fields[FIELDS])
{
    size_t count = 0;
    for (char *at = copy; at != NULL && count < FIELDS;) {
        fields[count++] = at;
        at = strchr(at, '+');
        if (at != NULL)
            *at++ = '\0';
        if (at != NULL && count == FIELDS)
            return false;
    }
    return count == FIELDS;
}

static bool number(const char *text, uint64_t *out)
{
    char *end;
    *out = strtoull(text, &end, 16);
    return digit(text[0]) >= 0 && *end == '\0';
}

static bool read_fields(char *fields[FIELDS], struct nvlink_export *out)
{
    char *end;
    uint64_t parts = 0;
    out->host = strcmp(fields[1], "host") == 0;
    out->node = (int)strtol(fields[3], &end, 10);
    out->handles = (fields[8][0] != '\0' ? NVLINK_FABRIC : 0u) |
                   (strcmp(fields[9], "fd") == 0 ? NVLINK_FD : 0u) |
                   (fields[10][0] != '\0' ? NVLINK_IPC : 0u);
    bool any = strcmp(fields[1], "any") == 0;
    if (strcmp(fields[0], "2") != 0 || (!out->host && !any && strcmp(fields[1], "gpu") != 0) ||
        !number(fields[13], &parts) || parts > NVLINK_PARTS_MAX || any != (parts == 0) ||
        *end != '\0' || strlen(fields[11]) >= sizeof out->machine ||
        strlen(fields[12]) >= sizeof out->tcp)
        return false;
    out->parts = (unsigned)parts;
    memcpy(out->machine, fields[11], strlen(fields[11]) + 1);
    memcpy(out->tcp, fields[12], strlen(fields[12]) + 1);
    return nvlink_unhex(fields[2], out->uuid, sizeof out->uuid) && number(fields[4], &out->base) &&
           number(fields[5], &out->size) && number(fields[6], &out->id) &&
           number(fields[7], &out->offset) && out->offset <= out->size &&
           (!(out->handles & NVLINK_FABRIC) ||
            nvlink_unhex(fields[8], out->fabric, sizeof out->fabric)) &&
           (!(out->handles & NVLINK_IPC) || nvlink_unhex(fields[10], out->ipc, sizeof out->ipc));
}

int nvlink_text_parse(const char *text, struct nvlink_export *out, const char **rest)
{
    char copy[640];
    char *fields[FIELDS];
    const char *at = strchr(text, '@');
    *out = (struct nvlink_export){.node = -1};
    if (at == NULL || (size_t)(at - text) >= sizeof copy)
        return base_fail(YOLK_ERR_INVALID, 0, "nvlink: not an endpoint: %.200s", text);
    memcpy(copy, text, (size_t)(at - text));
    copy[at - text] = '\0';
    if (!cut(copy, fields) || !read_fields(fields, out))
        return base_fail(YOLK_ERR_INVALID, 0, "nvlink: not an endpoint: %.200s", text);
    *rest = at + 1;
    return YOLK_OK;
}
