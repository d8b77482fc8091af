/* SPDX-License-Identifier: Apache-2.0 */
/* `yolk bench NAME`: measurements, one a file. */
#ifndef CLI_BENCH_H
#define CLI_BENCH_H

/* argv[0] is "bench", argv[1] the measurement's name. */
int cli_bench(int argc, char **argv);

/* Each gets its own name as argv[0]. */
int cli_bench_ssd(int argc, char **argv);
int cli_bench_policy(int argc, char **argv);

#endif
