/* SPDX-License-Identifier: Apache-2.0 */
#define LOG_ROOM "store"
#include "store/gds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mutation.h"
#include "engine/metrics.h"
#include "platform/clock.h"
#include "store/disk_state.h"
#include "store/gds_state.h"
#include "store/tier_state.h"

enum { SYNC_MS = 100 }; /* what a power loss may cost */

struct store_disk *store_gds_disk(struct store_gds *gds)
{
    return gds->disk;
}

uint64_t store_gds_handle(struct store_gds *gds)
{
    struct store_disk *disk = gds->disk;
    mutex_lock(&disk->lock);
    uint64_t handle = disk->handle;
    mutex_unlock(&disk->lock);
    return handle;
}

void store_gds_write_key(const struct store_gds *gds, uint8_t mac[16])
{
    memcpy(mac, gds->disk->write_key, sizeof(gds->disk->write_key));
}

/* ---- from the control thread ---- */

void store_gds_mounted(struct store_gds *gds, uint64_t segment)
{
    struct store_disk *disk = gds->disk;
    mutex_lock(&disk->lock);
    store_gds_forget_mount(gds);
    gds->segment = segment;
    store_disk_rouse(disk);
    condition_broadcast(&disk->journaled);
    mutex_unlock(&disk->lock);
    /* The machine has no memory segment to name, and gets no tasks. */
    store_disk_mounted(disk, segment, segment);
}

void store_gds_input(struct store_gds *gds, uint16_t message, const uint8_t *body, size_t size)
{
    struct store_disk *disk = gds->disk;
    struct wire_facts facts;
    if (message == WIRE_FACTS && wire_decode(message, body, size, &facts) == YOLK_OK) {
        mutex_lock(&disk->lock);
        int mine = facts.segment == disk->tier->disk && facts.seq == disk->tier->fact_seq + 1;
        for (uint32_t i = 0; mine && i < wire_fact_count(facts.recs); i++) {
            struct wire_fact fact = wire_fact_at(facts.recs, i);
            if (fact.kind == WIRE_FACT_FREED)
                store_gds_was_freed(gds, fact.offset);
        }
        mutex_unlock(&disk->lock);
    }
    store_disk_input(disk, message, body, size);
}

/* ---- gets ---- */

int store_gds_is_own(const struct store_gds *gds, const struct wire_gds *wanted)
{
    const struct store_disk_mount *mount = &gds->disk->mount;
    return memcmp(wanted->owner_client_id, gds->client_id, sizeof(gds->client_id)) == 0 &&
           memcmp(wanted->storage_id, mount->storage_id, sizeof(mount->storage_id)) == 0 &&
           wanted->storage_generation == mount->storage_generation;
}

static int is_at(const struct store_gds *gds, const struct storage_extent *extent,
                 const struct wire_gds *wanted)
{
    struct wire_gds found;
    store_gds_describe(gds, extent, &found);
    return wire_gds_equal(&found, wanted);
}

int store_gds_read_begin(struct store_gds *gds, const void *key, size_t key_size,
                         const struct wire_gds *wanted, uint32_t *checksum, int *verify)
{
    struct store_disk *disk = gds->disk;
    struct storage_extent extent = {0};
    int status = YOLK_ERR_STALE;
    mutex_lock(&disk->lock);
    if (mutated(MUT_GDS_ANY_EXTENT) ||
        (storage_find(disk->storage, key, key_size, &extent) == YOLK_OK &&
         is_at(gds, &extent, wanted)))
        status = storage_lease(disk->storage, wanted->value_offset, wanted->value_size,
                               base_hash64(key, key_size));
    if (status == YOLK_OK) {
        *checksum = extent.checksum;
        *verify = extent.checked && gds->verify;
    } else {
        gds->stats.stale++;
    }
    mutex_unlock(&disk->lock);
    return status;
}

void store_gds_read_end(struct store_gds *gds, const struct wire_gds *wanted)
{
    struct store_disk *disk = gds->disk;
    mutex_lock(&disk->lock);
    storage_unlease(disk->storage, wanted->value_offset);
    store_disk_rouse(disk); /* a FREED fact may wait for this reader */
    mutex_unlock(&disk->lock);
}

/* ---- figures ---- */

static unsigned bucket_of(uint64_t took_ns)
{
    unsigned bucket = 0;
    for (uint64_t us = took_ns / NS_PER_US; us > 0 && bucket + 1 < GDS_BUCKETS; us >>= 1)
        bucket++;
    return bucket;
}

void store_gds_note(struct store_gds *gds, int read, int status, uint64_t bytes, uint64_t took_ns)
{
    struct gds_figures *figures = read ? &gds->stats.reads : &gds->stats.writes;
    mutex_lock(&gds->disk->lock);
    if (status == YOLK_OK) {
        figures->values++;
        figures->bytes += bytes;
        figures->took_ns += took_ns;
        figures->buckets[bucket_of(took_ns)]++;
    } else {
        figures->failed++;
    }
    mutex_unlock(&gds->disk->lock);
}

void store_gds_note_unsummed(struct store_gds *gds)
{
    if (gds != NULL) {
        mutex_lock(&gds->disk->lock);
        (void)snprintf(gds->stats.why_unchecked, sizeof(gds->stats.why_unchecked), "%s",
                       yolk_last_error());
        mutex_unlock(&gds->disk->lock);
    }
    base_error_clear();
}

/* No value of that share took longer; 0: there was none. */
static uint64_t quantile_us(const struct gds_figures *figures, uint64_t per_cent)
{
    uint64_t seen = 0, wanted = (figures->values * per_cent + 99) / 100;
    for (unsigned i = 0; i < GDS_BUCKETS; i++) {
        seen += figures->buckets[i];
        if (seen >= wanted)
            return wanted == 0 ? 0 : UINT64_C(1) << i;
    }
    return 0;
}

static int print_figures(struct base_buf *lines, const char *name,
                         const struct gds_figures *figures)
{
    return base_buf_printf(lines,
                           "client_gds_%s_total %llu\nclient_gds_%s_bytes_total %llu\n"
                           "client_gds_%s_failed_total %llu\nclient_gds_%s_time_us_total %llu\n"
                           "client_gds_%s_p50_us %llu\nclient_gds_%s_p99_us %llu\n",
                           name, (unsigned long long)figures->values, name,
                           (unsigned long long)figures->bytes, name,
                           (unsigned long long)figures->failed, name,
                           (unsigned long long)(figures->took_ns / NS_PER_US), name,
                           (unsigned long long)quantile_us(figures, 50), name,
                           (unsigned long long)quantile_us(figures, 99));
}

static int print_reason(struct base_buf *lines, const struct yolk_file_figures *file)
{
    char reason[2 * sizeof(file->reason)];
    metrics_escape(file->reason, reason, sizeof(reason));
    return base_buf_printf(lines, "client_gds_mode_reason{mode=\"%s\",reason=\"%s\"} 1\n",
                           file->mode, reason);
}

static int print_checksums(struct base_buf *lines, const struct gds_stats *stats)
{
    char reason[2 * sizeof(stats->why_unchecked)];
    metrics_escape(stats->why_unchecked, reason, sizeof(reason));
    int status = base_buf_printf(
        lines, "client_gds_unchecked_total %llu\nclient_gds_gpu_checksums_total %llu\n",
        (unsigned long long)stats->unchecked, (unsigned long long)stats->by_gpu);
    if (status == YOLK_OK && reason[0] != '\0')
        status = base_buf_printf(lines, "client_gds_unchecked_reason{reason=\"%s\"} 1\n", reason);
    return status;
}

int store_gds_stat(struct store_gds *gds, struct base_buf *lines)
{
    struct storage_stats storage;
    mutex_lock(&gds->disk->lock);
    struct gds_stats stats = gds->stats;
    size_t preserved = gds->limbo_count;
    storage_stats(gds->disk->storage, &storage);
    mutex_unlock(&gds->disk->lock);
    struct yolk_file_figures mode;
    gds->look(storage_info(gds->disk->storage)->path, false, &mode);
    int status = store_disk_stat(gds->disk, lines);
    if (status == YOLK_OK)
        status = base_buf_printf(
            lines,
            "client_gds_mode{mode=\"%s\"} 1\n"
            "client_gds_file_bytes_total{operation=\"read\"} %llu\n"
            "client_gds_file_bytes_total{operation=\"write\"} %llu\n"
            "client_gds_compatible_bytes_total %llu\n"
            "client_gds_bounced_bytes_total %llu\n"
            "client_gds_unregistered_bytes_total %llu\n",
            mode.mode, (unsigned long long)mode.bytes_read, (unsigned long long)mode.bytes_written,
            (unsigned long long)mode.bytes_compatible, (unsigned long long)mode.bytes_bounced,
            (unsigned long long)mode.bytes_unregistered);
    if (status == YOLK_OK && mode.reason[0] != '\0')
        status = print_reason(lines, &mode);
    if (status == YOLK_OK)
        status = print_figures(lines, "puts", &stats.writes);
    if (status == YOLK_OK)
        status = print_figures(lines, "hits", &stats.reads);
    if (status == YOLK_OK)
        status = print_checksums(lines, &stats);
    if (status == YOLK_OK)
        status = base_buf_printf(
            lines,
            "client_gds_stale_total %llu\nclient_gds_no_space_total %llu\n"
            "client_gds_reserved %llu\nclient_gds_preserved %zu\nclient_gds_leases %llu\n"
            "client_gds_doomed %llu\n",
            (unsigned long long)stats.stale, (unsigned long long)stats.no_space,
            (unsigned long long)(storage.reserved + storage.written), preserved,
            (unsigned long long)storage.leases, (unsigned long long)storage.doomed);
    return status;
}

/* ---- opening and closing ---- */

/* What moves between this process's memory and the file, the best first. */
static void choose_ways(const struct store_gds_options *options, const char *ways[4])
{
    size_t count = 0;
    if (!options->no_cufile)
        ways[count++] = "gds";
    if (options->allow_fallback && !options->no_uring)
        ways[count++] = "uring";
    if (options->allow_fallback)
        ways[count++] = "posix";
    ways[count] = NULL;
}

static int has_cufile(const struct store_gds *gds)
{
    return strncmp(gds->disk->own, "gds=", 4) == 0;
}

static int no_transport(const char *path, const char *why)
{
    return base_fail(YOLK_ERR_UNSUPPORTED, 0,
                     "the GDS tier cannot use %s: no gds transport: %s "
                     "(MOONCAKE_GDS_OFFLOAD_ALLOW_FALLBACK=1 has it go without)",
                     path, why);
}

/* What would not be what was asked for ends the opening, or is said where that is allowed. */
static int check(const struct store_gds *gds, const struct store_gds_options *options)
{
    const struct storage_info *info = storage_info(gds->disk->storage);
    char why[512] = "it is turned off";
    if (!info->direct && !options->allow_fallback)
        return base_fail(YOLK_ERR_UNSUPPORTED, 0,
                         "the GDS tier cannot use %s: its file system refuses O_DIRECT "
                         "(MOONCAKE_GDS_OFFLOAD_ALLOW_FALLBACK=1 has it go through the page cache)",
                         info->path);
    if (!info->direct)
        log_warn("the GDS tier's file %s goes through the page cache: its file system refuses "
                 "O_DIRECT",
                 info->path);
    if (has_cufile(gds))
        return YOLK_OK;
    if (!options->no_cufile &&
        yolk_engine_has_transport(options->engine, "gds", why, sizeof(why))) {
        struct yolk_file_figures mode;
        options->look(info->path, true, &mode);
        (void)snprintf(why, sizeof(why), "%s",
                       mode.reason[0] != '\0' ? mode.reason : "cuFile does not take the file");
    }
    if (!options->allow_fallback)
        return no_transport(info->path, why);
    if (gds->disk->own[0] == '\0')
        return base_fail(YOLK_ERR_UNSUPPORTED, 0,
                         "the GDS tier cannot use %s: neither cuFile (%s), nor io_uring, nor plain "
                         "file I/O",
                         info->path, why);
    log_warn("the GDS tier's file %s is used without cuFile, through host memory: %s", info->path,
             why);
    return YOLK_OK;
}

static int check_transport(const struct store_gds_options *options)
{
    char why[512] = "";
    if (options->allow_fallback ||
        yolk_engine_has_transport(options->engine, "gds", why, sizeof(why)))
        return YOLK_OK;
    return no_transport(options->path, why);
}

static int was_killed(const struct storage_info *info)
{
    return !info->clean && !info->created;
}

int store_gds_open(const struct store_gds_options *options, struct store_gds **out)
{
    const char *ways[4];
    int status = check_transport(options); /* before there is a file */
    if (status != YOLK_OK)
        return status;
    struct store_gds *gds = base_calloc(1, sizeof(*gds));
    if (gds == NULL)
        return base_fail(YOLK_ERR_NO_MEMORY, 0, "no memory for a GDS tier");
    choose_ways(options, ways);
    struct store_disk_options disk = {
        .fs = options->fs,
        .medium = WIRE_MEDIUM_GDS,
        .path = options->path,
        .size_bytes = options->size_bytes,
        .sync_ms = SYNC_MS,
        .start_empty = options->start_empty,
        .ways = ways,
        .engine = options->engine,
        .wake = options->wake,
        .wake_self = options->wake_self,
    };
    gds->verify = options->verify;
    gds->look = options->look;
    memcpy(gds->client_id, options->client_id, sizeof(gds->client_id));
    base_error_clear();
    status = store_disk_open(&disk, &gds->disk);
    if (status == YOLK_OK)
        status = check(gds, options);
    if (status == YOLK_OK)
        gds->verify |= was_killed(storage_info(gds->disk->storage));
    if (status != YOLK_OK) {
        char text[MAX_LAST_ERROR];
        (void)snprintf(text, sizeof(text), "%s", yolk_last_error());
        store_gds_close(gds);
        return base_fail(status, 0, "%s", text);
    }
    *out = gds;
    return YOLK_OK;
}

void store_gds_close(struct store_gds *gds)
{
    if (gds == NULL)
        return;
    if (gds->open_count > 0)
        log_error("%zu reservations in the GDS file were never closed", gds->open_count);
    while (gds->open != NULL) {
        struct gds_reservation *reservation = gds->open;
        gds->open = reservation->next;
        free(reservation);
    }
    free(gds->limbo);
    store_disk_close(gds->disk);
    free(gds);
}
