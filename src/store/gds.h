/* SPDX-License-Identifier: Apache-2.0 */
/* A client's GDS file: the extent file of disk.h, which puts write beside memory and gets read
 * where memory has nothing. Here: who may reserve, commit and read in it.
 *
 * The master hears of an extent when a put names it, and from then on says when it is free. Before
 * that, and where nobody knows whether it heard, the file's owner keeps it; see reservation.h. */
#ifndef STORE_GDS_H
#define STORE_GDS_H

#include <stdbool.h>

#include "store/disk.h"
#include "store/reservation.h"
#include "store/action.h"

struct store_gds;

struct store_gds_options {
    const struct file_system *fs;
    const char *path;
    uint64_t size_bytes;
    int start_empty;
    int allow_fallback;
    int no_cufile;
    int no_uring;
    int verify; /* each read, not only those after an unclean stop */
    struct yolk_engine *engine;
    const uint8_t *client_id; /* 16 bytes, of the session */
    /* How cuFile has the file of that path, and what came of it. why: it may be tried for that. */
    void (*look)(const char *path, bool why, struct yolk_file_figures *out);
    void (*wake)(void *self);
    void *wake_self;
};

/* Also refuses what cannot work: no direct I/O, no cuFile without allow_fallback. */
YOLK_MUST_USE int store_gds_open(const struct store_gds_options *options, struct store_gds **out);
/* Each reservation is closed, no read is under way. */
void store_gds_close(struct store_gds *gds);

/* ---- from the control thread ---- */
/* For all that is as with a disk. */
struct store_disk *store_gds_disk(struct store_gds *gds);
void store_gds_mounted(struct store_gds *gds, uint64_t segment);
void store_gds_input(struct store_gds *gds, uint16_t message, const uint8_t *body, size_t size);
/* Every message with a lower op is refused by now, and what the master pushed before that has come.
 */
void store_gds_floor(struct store_gds *gds, uint64_t op);

/* ---- puts ---- */
struct store_reserver store_gds_reserver(struct store_gds *gds);
/* What STORE_COMMIT asks for: returns when the journal has all of them, or can not, or at the
 * deadline. */
void store_gds_commit(struct store_gds *gds, struct store_reservation *const *reservations,
                      size_t count, uint64_t deadline_ns);

/* ---- moves: requests to the engine on its own segment ---- */
/* 0: not mounted. */
uint64_t store_gds_handle(struct store_gds *gds);
/* What a write there must carry. */
void store_gds_write_key(const struct store_gds *gds, uint8_t mac[16]);
/* A put, or a get, of one value ended. */
void store_gds_note(struct store_gds *gds, int read, int status, uint64_t bytes, uint64_t took_ns);
/* A GPU made no checksum, for the reason that is this thread's last error. NULL is allowed: the
 * value is of another's file. */
void store_gds_note_unsummed(struct store_gds *gds);

/* ---- gets ---- */
/* 1: it is of this file, as it is now. */
int store_gds_is_own(const struct store_gds *gds, const struct wire_gds *wanted);
/* Finds the key, compares all six fields and takes a lease, in one step. STALE: something differs,
 * or nothing is committed there. *checksum is to be compared if *verify. */
YOLK_MUST_USE int store_gds_read_begin(struct store_gds *gds, const void *key, size_t key_size,
                                       const struct wire_gds *wanted, uint32_t *checksum,
                                       int *verify);
void store_gds_read_end(struct store_gds *gds, const struct wire_gds *wanted);

/* Lines "name value". */
YOLK_MUST_USE int store_gds_stat(struct store_gds *gds, struct base_buf *lines);
#endif
