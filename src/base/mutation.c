/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mutation.h"

#ifdef YOLK_MUTANTS
enum base_mutant base_mutant_active = MUT_NONE;
#endif

const char *base_mutant_name(enum base_mutant mutant)
{
    switch (mutant) {
    case MUT_NONE:
        return "none";
    case MUT_SKIP_GUARD_CHECK:
        return "skip-guard-check";
    case MUT_ACCEPT_STALE:
        return "accept-stale";
    case MUT_COMPLETE_TWICE:
        return "complete-twice";
    case MUT_REUSE_UNDER_WRITER:
        return "reuse-under-writer";
    case MUT_LOSE_JOURNAL_RECORD:
        return "lose-journal-record";
    case MUT_REUSE_UNDER_READ:
        return "reuse-under-read";
    case MUT_KEEP_REPLACED:
        return "keep-replaced";
    case MUT_FREE_AT_CANCEL:
        return "free-at-cancel";
    case MUT_END_BEFORE_QUIET:
        return "end-before-quiet";
    case MUT_IGNORE_DEADLINE:
        return "ignore-deadline";
    case MUT_MERGE_ACROSS_PRIORITIES:
        return "merge-across-priorities";
    case MUT_RESUBMIT_ALIAS:
        return "resubmit-alias";
    case MUT_GDS_FREE_EARLY:
        return "gds-free-early";
    case MUT_GDS_ANY_EXTENT:
        return "gds-any-extent";
    case MUT_GDS_COMMIT_EARLY:
        return "gds-commit-early";
    case MUT_ANY_GENERATION:
        return "any-generation";
    case MUT_FREED_UNDER_READER:
        return "freed-under-reader";
    case MUT_COUNT:
        break;
    }
    return "unknown";
}
