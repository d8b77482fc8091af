/* SPDX-License-Identifier: Apache-2.0 */
/* A node's disk: simulated files that outlive the node's processes, the real extent file and the
 * real tier machine on them, the I/O between as events in pieces, what goes wrong with it, and a
 * model of what must be found again after a restart. */
#ifndef SIM_DISK_H
#define SIM_DISK_H

#include "engine/access.h"
#include "platform/file.h"
#include "sim/world.h"
#include "storage/storage.h"
#include "store/disk_mount.h"
#include "store/tier.h"

struct sim;

enum {
    SIM_EXTENT_UNIT = 4096, /* every value fits into one */
    SIM_EXTENTS_MIN = 4,
    SIM_EXTENTS_MAX = 12,
    SIM_MOVES = 3,
    SIM_IOS = SIM_MOVES + 2, /* a journal write and a sync beside them */
};

/* What the promises of src/storage say about one unit of the disk. A sync that began after an
 * extent was COMMITTED makes it DURABLE; one that is deleted is MAYBE there until its space is
 * written anew. */
enum sim_kept_state {
    SIM_KEPT_NOTHING, /* free: whatever is found here came back from the dead */
    SIM_KEPT_MAYBE,
    SIM_KEPT_COMMITTED, /* survives a kill */
    SIM_KEPT_DURABLE,   /* survives a power loss too */
};
struct sim_kept {
    enum sim_kept_state state;
    int covered;        /* by the sync under way */
    int rotten;         /* its bytes were harmed */
    int unchecked;      /* without a checksum: that it was synced must be proven by another sync */
    uint64_t proven_ns; /* DURABLE and unchecked: by then that one was made at latest */
    uint64_t key_hash;
    uint64_t size;
    uint32_t checksum;
};

enum sim_io_kind { SIM_IO_NONE, SIM_IO_WRITE, SIM_IO_READ, SIM_IO_JOURNAL, SIM_IO_SYNC };

struct sim_io {
    enum sim_io_kind kind;
    uint32_t move;
    uint64_t memory_offset;
    uint64_t disk_offset;
    uint64_t size;
    uint64_t key_hash;
    uint64_t done;
    int summed; /* WRITE: the checksum is known; at the beginning or the end, as it happens */
    int leased; /* READ */
    int ready;  /* SYNC: performed already, only the answer is late */
    int status; /* of that */
    uint32_t checksum;
    int unchecked;
    const uint8_t *data; /* JOURNAL */
    uint64_t file_offset;
};

/* How a process ends. */
enum sim_end {
    SIM_KILLED, /* what it wrote is there */
    SIM_POWER_LOST,
    SIM_CLOSED, /* in good order */
};

enum sim_disk_fault {
    SIM_DISK_FAIL_WRITE,
    SIM_DISK_FAIL_SYNC,
    SIM_DISK_FAIL_READ,
    SIM_DISK_FULL,
    SIM_DISK_SLOW,
    SIM_DISK_FAULTS,
};

struct sim_disk {
    int present;
    uint64_t extents; /* its capacity in units */
    uint64_t sync_ns; /* of the tier */
    struct file_sim *files;
    enum sim_end end; /* of the last life */
    uint64_t ended_ns;
    uint8_t boot; /* of its machine: another one after each loss of power */
    int trouble;  /* opening or closing the file failed since it was last opened well */
    uint64_t until_ns[SIM_DISK_FAULTS];
    struct sim_kept kept[SIM_EXTENTS_MAX];
    /* one life */
    struct storage *storage;
    struct store_tier *tier;
    struct store_disk_mount mount;
    struct access_grant grant;
    struct sim_io ios[SIM_IOS];
    int quieting;      /* the session waits until nothing moves */
    int found;         /* extents found at the start and not yet offered to anybody */
    uint64_t rejected; /* of the offers under way */
    uint64_t tick_at_ns;
    uint64_t frame_at_ns; /* frames leave in order */
};

/* disk.c */
/* Makes the files of a node that has a disk. */
void sim_disk_create(struct sim *sim, int node);
void sim_disk_destroy(struct sim *sim, int node);
/* 0: the file could not be opened; the process ends. */
int sim_disk_open(struct sim *sim, int node);
void sim_disk_end(struct sim *sim, int node, enum sim_end end);
/* Lets the machines act; 1: the session has something new to do. */
int sim_disk_drive(struct sim *sim, int node);
/* As soon as whoever calls has returned. */
void sim_disk_wake(struct sim *sim, int node);
void sim_disk_mounted(struct sim *sim, int node, uint64_t segment);
void sim_disk_opened(struct sim *sim, int node);
/* Keys whose value must be readable from this disk; how many. */
int sim_disk_sound_keys(const struct sim *sim, int node, int keys[SIM_EXTENTS_MAX]);
void sim_disk_check_settled(struct sim *sim, int node);

/* disk_io.c */
int sim_disk_is_failing(const struct sim *sim, int node, enum sim_disk_fault fault);
void sim_disk_begin_io(struct sim *sim, int node, const struct store_tier_output *output);
void sim_disk_step(struct sim *sim, int node, size_t io);
/* What is under way when the process dies lands in part. */
void sim_disk_cut_off(struct sim *sim, int node);
/* Ends everything under way at once. */
void sim_disk_finish_all(struct sim *sim, int node);
/* Bytes of a value, for a client or for the memory segment. */
enum yolk_status sim_disk_read(struct sim *sim, int node, uint64_t offset, uint8_t *bytes,
                               uint64_t size);
enum yolk_status sim_disk_lease(struct sim *sim, int node, uint64_t offset, uint64_t size,
                                uint64_t key_hash);
/* The same to it; a failed one may have been done in part. */
enum yolk_status sim_disk_write(struct sim *sim, int node, const uint8_t *bytes, uint64_t size,
                                uint64_t offset);
/* Some committed values of the node each lose a bit. */
void sim_disk_rot(struct sim *sim, int node);

/* kept.c */
void sim_kept_writing(struct sim_disk *disk, uint64_t offset);
void sim_kept_written(struct sim_disk *disk, const struct sim_io *io);
void sim_kept_look(struct sim_disk *disk);
void sim_kept_sync_began(struct sim_disk *disk);
void sim_kept_synced(struct sim_disk *disk, uint64_t now_ns);
/* What was to prove something is made again. */
void sim_kept_failed(struct sim_disk *disk, uint64_t now_ns);
/* Its process stands still: what is to be proven is proven so much later. */
void sim_kept_stopped(struct sim_disk *disk, uint64_t now_ns, uint64_t until_ns);
/* Right after the file was opened. */
void sim_kept_check(struct sim *sim, int node);

#endif
