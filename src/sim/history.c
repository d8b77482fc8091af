/* SPDX-License-Identifier: Apache-2.0 */
/* What was ever put, so that every byte of every get can be judged (promise R1). */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "sim/cluster.h"

uint64_t sim_version_new(struct sim *sim, int key, uint32_t size)
{
    struct sim_version *grown =
        realloc(sim->versions, (sim->version_count + 1) * sizeof *sim->versions);
    assert(grown != NULL);
    sim->versions = grown;
    sim->versions[sim->version_count] = (struct sim_version){.key = key, .size = size};
    return sim->version_count++;
}

void sim_version_fill(uint64_t version, uint8_t *bytes, uint32_t size)
{
    assert(size >= 8);
    memcpy(bytes, &version, 8);
    for (uint32_t at = 8; at < size; at++)
        bytes[at] = (uint8_t)base_mix64(version * 4096 + at);
}

const char *sim_version_check(const struct sim *sim, int key, const uint8_t *bytes, uint64_t size)
{
    uint64_t version;
    uint8_t right[SIM_VALUE_MAX];
    if (size < 8 || size > SIM_VALUE_MAX)
        return "a size that was never put";
    memcpy(&version, bytes, 8);
    if (version >= sim->version_count)
        return "bytes that were never put";
    if (sim->versions[version].key != key)
        return "the bytes of another key";
    if (sim->versions[version].size != size)
        return "the bytes of one put with the size of another";
    if (!sim->versions[version].ended)
        return "the bytes of a put that was never committed";
    sim_version_fill(version, right, (uint32_t)size);
    return memcmp(right, bytes, size) == 0 ? NULL : "a mix of bytes";
}

int sim_version_is_removed(const struct sim *sim, uint64_t version, uint64_t get_begun_ns)
{
    const struct sim_version *v = &sim->versions[version];
    const struct sim_removal *removal = &sim->removals[v->key];
    return sim->master_alive && removal->master == sim->master_incarnation && v->acked_ns != 0 &&
           v->acked_ns < removal->sent_ns && removal->confirmed_ns < get_begun_ns;
}

int sim_version_is_replaced(const struct sim *sim, uint64_t version, uint64_t get_begun_ns)
{
    const struct sim_version *v = &sim->versions[version];
    const struct sim_removal *upsert = &sim->upserts[v->key];
    return sim->master_alive && upsert->master == sim->master_incarnation && v->acked_ns != 0 &&
           v->acked_ns < upsert->sent_ns && upsert->confirmed_ns < get_begun_ns;
}
