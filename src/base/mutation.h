/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deliberate mistakes, compiled only into the simulator, to prove that its checks can fail. At the
 * place of the check:  if (!guard_holds(g) && !mutated(MUT_SKIP_GUARD_CHECK)) return ...;
 * Elsewhere mutated() is the constant false.
 */
#ifndef BASE_MUTATION_H
#define BASE_MUTATION_H

#include <stdbool.h>

enum base_mutant {
    MUT_NONE = 0,
    MUT_SKIP_GUARD_CHECK,    /* a get reports bytes whose guard ran out */
    MUT_ACCEPT_STALE,        /* the access check takes a segment id of an earlier life */
    MUT_COMPLETE_TWICE,      /* a batch completes a task twice */
    MUT_REUSE_UNDER_WRITER,  /* the master reuses space its writer may still write */
    MUT_LOSE_JOURNAL_RECORD, /* the disk tier takes a record as written that never was */
    MUT_REUSE_UNDER_READ,    /* the disk tier frees an extent that is being read */
    MUT_KEEP_REPLACED,       /* the master says that an upsert is done, and keeps the old value */
    MUT_FREE_AT_CANCEL,      /* a task ends by cancel or deadline while a transport has it */
    MUT_END_BEFORE_QUIET,    /* a task fails while others of its slices are under way */
    MUT_IGNORE_DEADLINE,     /* nothing ends a task in time */
    MUT_MERGE_ACROSS_PRIORITIES, /* neighbours of several priorities are moved as one */
    MUT_RESUBMIT_ALIAS,          /* of a group, what is over is posted again with the others */
    MUT_GDS_FREE_EARLY,     /* a GDS file's extent is free while a write may still be under way */
    MUT_GDS_ANY_EXTENT,     /* a file is read at a place without a look at what is there now */
    MUT_GDS_COMMIT_EARLY,   /* a put is committed when the file has it, and memory not yet */
    MUT_ANY_GENERATION,     /* the master takes a descriptor of an earlier storage generation */
    MUT_FREED_UNDER_READER, /* the owner of a file is told to delete what somebody reads */
    MUT_COUNT
};

/* The name on the command line of the simulator, for example "skip-guard-check". */
const char *base_mutant_name(enum base_mutant mutant);

#ifdef YOLK_MUTANTS
extern enum base_mutant base_mutant_active;

static inline bool mutated(enum base_mutant mutant)
{
    return base_mutant_active == mutant;
}
#else
static inline bool mutated(enum base_mutant mutant)
{
    (void)mutant;
    return false;
}
#endif

#endif
