/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/replay.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/replay_model.h"

static double rate_of(uint64_t part, uint64_t whole)
{
    return whole ? (double)part / (double)whole : 0;
}

static double gbps(uint64_t bytes, uint64_t ns)
{
    return ns ? (double)bytes / (double)ns : 0;
}

void replay_progress(const struct replay_options *options, const struct replay_totals *totals,
                     size_t requests)
{
    if (options->report_every && totals->requests % options->report_every == 0) {
        printf("progress %" PRIu64 " of %zu\n", totals->requests, requests);
        fflush(stdout);
    }
    static struct timespec last;
    struct timespec now;
    if (!isatty(STDERR_FILENO))
        return;
    clock_gettime(CLOCK_MONOTONIC, &now);
    int64_t since_ms = (now.tv_sec - last.tv_sec) * 1000 + (now.tv_nsec - last.tv_nsec) / 1000000;
    if (since_ms < 100 && totals->requests != requests)
        return;
    last = now;
    enum { WIDTH = 32 };
    int filled = (int)(rate_of(totals->requests, requests) * WIDTH);
    char bar[WIDTH + 1];
    for (int i = 0; i < WIDTH; i++)
        bar[i] = i < filled ? '#' : '.';
    bar[WIDTH] = 0;
    fprintf(stderr, "\r[%s] %" PRIu64 "/%zu requests, hit rate %.3f, wrong bytes %" PRIu64 " ", bar,
            totals->requests, requests, rate_of(totals->blocks_hit, totals->blocks_referenced),
            totals->wrong_bytes);
}

void replay_progress_end(const struct replay_options *options)
{
    (void)options;
    if (isatty(STDERR_FILENO))
        fputc('\n', stderr);
}

static int compare_us(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
    return left < right ? -1 : left > right;
}

/* Sorts the samples in place, which changes nothing for a second call. */
uint64_t replay_percentile_us(struct replay_totals *totals, double share)
{
    if (!totals->get_us_count)
        return 0;
    qsort(totals->get_us, totals->get_us_count, sizeof *totals->get_us, compare_us);
    size_t index = (size_t)(share * (double)totals->get_us_count);
    if (index >= totals->get_us_count)
        index = totals->get_us_count - 1;
    return totals->get_us[index];
}

static uint64_t from_memory(const struct replay_totals *totals)
{
    return totals->blocks_hit - totals->blocks_from_ssd - totals->blocks_from_gds;
}

static const char *mode_name(const struct replay_options *options)
{
    switch (options->mode) {
    case REPLAY_EMBEDDED:
        return "embedded: master and nodes in this process";
    case REPLAY_PROCESSES:
        return "processes: master, nodes, readers and writers each their own";
    default:
        return "against a running cluster";
    }
}

/* The same trace through a plain LRU of the same capacity, and of 0.90 of it: what a store that
 * lost a tenth of its memory to bookkeeping could at best do with that policy. */
static void report_model(const struct replay_options *options, const struct trace *trace)
{
    uint64_t hits = 0;
    size_t blocks = (size_t)(options->dram / options->block_size), referenced = trace->id_count;
    if (!replay_model_lru(trace, 0, &hits))
        printf("    an unbounded cache     %.4f  (%" PRIu64 " blocks)\n", rate_of(hits, referenced),
               hits);
    if (options->mode == REPLAY_MASTER)
        return;
    if (blocks && !replay_model_lru(trace, blocks, &hits))
        printf("    LRU of %9zu blocks %.4f\n", blocks, rate_of(hits, referenced));
    size_t less = blocks - blocks / 10;
    if (less && !replay_model_lru(trace, less, &hits))
        printf("    LRU of %9zu blocks %.4f  (0.90 of the capacity)\n", less,
               rate_of(hits, referenced));
    size_t all = (size_t)((options->dram + options->ssd + options->gds) / options->block_size);
    if (options->ssd + options->gds > 0 && !replay_model_lru(trace, all, &hits))
        printf("    LRU of %9zu blocks %.4f  (memory and files)\n", all, rate_of(hits, referenced));
}

void replay_report(const struct replay_options *options, const struct trace *trace,
                   struct replay_totals *totals)
{
    printf("\nreplay of %s\n", options->trace_path ? options->trace_path : "a synthetic trace");
    printf("  mode                  %s\n", mode_name(options));
    if (options->mode != REPLAY_MASTER)
        printf("  nodes, memory         %zu, %" PRIu64 " MiB together\n", options->nodes,
               options->dram >> 20);
    if (options->gds > 0)
        printf("  GDS                   %" PRIu64 " MiB together, blocks in memory of %s\n",
               options->gds >> 20, options->gpu < 0 ? "the host" : "a GPU");
    if (options->ssd > 0)
        printf("  SSD                   %" PRIu64 " MiB together\n", options->ssd >> 20);
    printf("  block, clients        %" PRIu64 " bytes, %zu%s, transport %s\n", options->block_size,
           options->clients, options->unordered ? " (unordered)" : "", options->transport);
    printf("  requests              %" PRIu64 " in %.1f s\n", totals->requests, totals->seconds);
    printf("  blocks referenced     %" PRIu64 "\n", totals->blocks_referenced);
    printf("  blocks hit            %" PRIu64 "\n", totals->blocks_hit);
    printf("    from memory, SSD, GDS %" PRIu64 ", %" PRIu64 ", %" PRIu64 "\n", from_memory(totals),
           totals->blocks_from_ssd, totals->blocks_from_gds);
    printf("  hit rate              %.4f\n",
           rate_of(totals->blocks_hit, totals->blocks_referenced));
    report_model(options, trace);
    printf(
        "  read, written         %.2f GB at %.2f GB/s, %.2f GB at %.2f GB/s (time inside calls)\n",
        (double)totals->bytes_read / 1e9, gbps(totals->bytes_read, totals->get_ns),
        (double)totals->bytes_written / 1e9, gbps(totals->bytes_written, totals->put_ns));
    printf("  one get call          p50 %" PRIu64 " us, p99 %" PRIu64 " us\n",
           replay_percentile_us(totals, 0.50), replay_percentile_us(totals, 0.99));
    printf("  largest process       %" PRIu64 " MiB resident\n", totals->rss_max_bytes >> 20);
    if (options->mode == REPLAY_PROCESSES && options->respawn)
        printf("  restarted processes   %" PRIu64 "\n", totals->restarts);
    printf("  failed puts, gets     %" PRIu64 ", %" PRIu64 "\n", totals->failed_puts,
           totals->failed_gets);
    if (totals->first_failure[0])
        printf("  first failure         %s\n", totals->first_failure);
    printf("  wrong bytes           %" PRIu64 "\n", totals->wrong_bytes);
    fflush(stdout);
}

int replay_write_json(const struct replay_options *options, struct replay_totals *totals)
{
    json_t *root = json_pack(
        "{s:I s:I s:I s:f s:{s:I s:I s:I} s:I s:I s:I s:I s:I s:f s:f s:f s:I s:I s:I s:b s:I}",
        "requests", (json_int_t)totals->requests, "blocks_referenced",
        (json_int_t)totals->blocks_referenced, "blocks_hit", (json_int_t)totals->blocks_hit,
        "hit_rate", rate_of(totals->blocks_hit, totals->blocks_referenced), "hits_by_tier",
        "memory", (json_int_t)from_memory(totals), "ssd", (json_int_t)totals->blocks_from_ssd,
        "gds", (json_int_t)totals->blocks_from_gds, "bytes_read", (json_int_t)totals->bytes_read,
        "bytes_written", (json_int_t)totals->bytes_written, "wrong_bytes",
        (json_int_t)totals->wrong_bytes, "failed_puts", (json_int_t)totals->failed_puts,
        "failed_gets", (json_int_t)totals->failed_gets, "seconds", totals->seconds, "get_gbps",
        gbps(totals->bytes_read, totals->get_ns), "put_gbps",
        gbps(totals->bytes_written, totals->put_ns), "p50_us",
        (json_int_t)replay_percentile_us(totals, 0.50), "p99_us",
        (json_int_t)replay_percentile_us(totals, 0.99), "rss_max_bytes",
        (json_int_t)totals->rss_max_bytes, "unordered", (int)options->unordered, "restarts",
        (json_int_t)totals->restarts);
    if (!root) {
        fprintf(stderr, "yolk replay: no memory for the JSON report\n");
        return -1;
    }
    int result = 0;
    if (json_dump_file(root, options->json_path, JSON_INDENT(2) | JSON_REAL_PRECISION(9))) {
        fprintf(stderr, "yolk replay: cannot write %s: %s\n", options->json_path, strerror(errno));
        result = -1;
    }
    json_decref(root);
    return result;
}
