/* SPDX-License-Identifier: Apache-2.0 */
#include "compat/show_links.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/json_write.h"

struct nic {
    const char *name, *state;
    long long numa, mbits; /* -1: not known */
};

static const char *text_of(const struct base_json *object, const char *name, const char *otherwise)
{
    const struct base_json *member = base_json_member(object, name);
    return member != NULL && member->text != NULL ? member->text : otherwise;
}

static struct nic nic_of(const struct base_json *node)
{
    return (struct nic){.name = text_of(node, "name", ""),
                        .state = text_of(node, "state", "unknown"),
                        .numa = strtoll(text_of(node, "numa_node", "-1"), NULL, 10),
                        .mbits = strtoll(text_of(node, "speed_mbits", "-1"), NULL, 10)};
}

/* The fields of a device that RDMA has opened are there too, as they are for one it has not. */
static void write_nic(struct base_json_writer *json, const struct nic *nic)
{
    if (json->comma)
        base_json_raw(json, ",");
    base_json_open(json, '{');
    base_json_text(json, "device", nic->name);
    base_json_name(json, "numa");
    base_json_raw(json, "%lld", nic->numa);
    base_json_text(json, "gid", "");
    base_json_name(json, "gid_index");
    base_json_raw(json, "-1");
    base_json_number(json, "port", 0);
    base_json_number(json, "speed_gbps", nic->mbits > 0 ? (uint64_t)nic->mbits / 1000 : 0);
    base_json_text(json, "state", nic->state);
    base_json_text(json, "source", "topology");
    base_json_close(json, '}');
}

static enum yolk_status as_json(const struct base_json *nics, const char *matrix,
                                struct base_buf *out)
{
    struct base_json_writer json = {.out = out};
    base_json_open(&json, '{');
    base_json_name(&json, "local_nics");
    base_json_open(&json, '[');
    for (const struct base_json *each = nics; each != NULL; each = each->next) {
        struct nic nic = nic_of(each);
        write_nic(&json, &nic);
    }
    base_json_close(&json, ']');
    base_json_name(&json, "topology");
    base_json_raw(&json, "%s", matrix);
    base_json_close(&json, '}');
    return (enum yolk_status)json.status;
}

static enum yolk_status as_lines(const struct base_json *nics, const char *matrix,
                                 struct base_buf *out)
{
    int status = base_buf_printf(out, "=== Local NICs ===\n");
    if (nics == NULL && status == YOLK_OK)
        status = base_buf_printf(out, "  (none)\n");
    for (const struct base_json *each = nics; each != NULL && status == YOLK_OK;
         each = each->next) {
        struct nic nic = nic_of(each);
        status = base_buf_printf(out, "  %-12s NUMA=%lld  %s", nic.name, nic.numa, nic.state);
        if (status == YOLK_OK)
            status = nic.mbits > 0 ? base_buf_printf(out, "  %.3gGbps\n", (double)nic.mbits / 1000)
                                   : base_buf_printf(out, "  speed not known\n");
    }
    return (enum yolk_status)(
        status == YOLK_OK ? base_buf_printf(out, "=== Topology ===\n%s\n", matrix) : status);
}

enum yolk_status compat_show_links(const char *topology, const char *matrix, bool json,
                                   struct base_buf *out)
{
    struct base_json *root;
    int status = base_json_parse("topology", topology, strlen(topology), &root);
    if (status != YOLK_OK)
        return (enum yolk_status)status;
    const struct base_json *nics = base_json_member(root, "nics");
    const struct base_json *first = nics != NULL ? nics->first : NULL;
    status = json ? as_json(first, matrix, out) : as_lines(first, matrix, out);
    base_json_free(root);
    return (enum yolk_status)status;
}
