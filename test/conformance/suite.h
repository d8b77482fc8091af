/* SPDX-License-Identifier: Apache-2.0 */
/* One list of cases that every transport must pass, bare and wrapped by fault. A transport's own
 * test is a main() that fills in a fixture and returns conformance_run(). */
#ifndef CONFORMANCE_SUITE_H
#define CONFORMANCE_SUITE_H

#include <yolk/engine.h>

struct conformance_fixture {
    const struct yolk_transport_ops *ops;
    /* Changes the options of an engine, for example the provider's port, so that a restarted one
     * has the same address; may be NULL. */
    void (*prepare)(struct yolk_transport_options *options, int is_provider);
    int serves_files;   /* the world's memory is a file, mapped for the test to look at */
    int same_address;   /* a provider that was restarted has the address of its former life */
    int checks_tickets; /* the provider sees each write (not so where consumers map the memory) */
};

/* Runs all cases; the exit status: 0, the number of failed ones, or 77 with "SKIP: reason" on
 * stdout if the transport cannot work here. */
int conformance_run(const struct conformance_fixture *fixture);

#endif
