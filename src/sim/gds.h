/* SPDX-License-Identifier: Apache-2.0 */
/* A client's GDS file: the real reservations, commits and leases (store/gds_state.h) on a simulated
 * file, whose life and journal are sim/disk.h's; the writes of puts to it and the reads of its
 * owner, of which now and then nobody knows whether they are over. */
#ifndef SIM_GDS_H
#define SIM_GDS_H

#include "store/disk_state.h"
#include "store/gds_state.h"

struct sim;
struct sim_transfer;

/* One life. */
struct sim_gds {
    struct store_disk disk; /* what the file's owner sees of it */
    struct store_gds file;
    struct store_reserver reserver;
    uint64_t stuck; /* writes of which nobody knows whether they ended: their extents stay taken */
};

/* Which peers of this seed have one, drawn apart from all else. */
int sim_gds_is_drawn(uint64_t seed, int peer);
/* The disk of the peer is open. */
void sim_gds_open(struct sim *sim, int peer);
/* Its slots and transfers have ended. */
void sim_gds_end(struct sim *sim, int peer);
void sim_gds_mounted(struct sim *sim, int peer, uint64_t segment);
/* What the journal has taken meanwhile; what the master cannot name any more. */
void sim_gds_look(struct sim *sim, int peer);

/* STORE_COMMIT of a slot; over when sim_gds_look says so to its machine. */
void sim_gds_commit(struct sim *sim, int peer, int slot, const struct store_action *action);

/* ---- transfers between a client's buffer and its own file ---- */
int sim_gds_is_own(const struct sim *sim, const struct sim_transfer *transfer);
/* May it begin? Of a read: the lease. */
enum yolk_status sim_gds_begin(struct sim *sim, struct sim_transfer *transfer);
/* Moves up to `size` bytes more. */
enum yolk_status sim_gds_move(struct sim *sim, struct sim_transfer *transfer, uint64_t size);
/* The last bytes of a write that was given up. */
void sim_gds_land(struct sim *sim, struct sim_transfer *transfer);
/* All bytes are there. */
void sim_gds_written(struct sim *sim, struct sim_transfer *transfer);
void sim_gds_unlease(struct sim *sim, struct sim_transfer *transfer);

void sim_gds_check_books(struct sim *sim, int peer);

#endif
