/* SPDX-License-Identifier: Apache-2.0 */
/* What `yolk bench gpu` and `yolk bench gds` print: rows as the other measurements have them, and
 * parts that fail alone. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "cli/bench_gpu.h"
#include "cli/common.h"

void bench_sheet_open(struct bench_sheet *sheet, bool check)
{
    *sheet = (struct bench_sheet){.root = json_object(), .rows = json_array(), .check = check};
    json_object_set_new(sheet->root, "version", json_string(YOLK_VERSION));
    json_object_set_new(sheet->root, "check", json_boolean(check));
    json_object_set(sheet->root, "rows", sheet->rows);
}

void bench_sheet_add(struct bench_sheet *sheet, const struct bench_row *row)
{
    sheet->count++;
    if (sheet->check) {
        json_array_append_new(sheet->rows, json_pack("{s:s, s:b}", "name", row->name, "right", 1));
        printf("%-58s right\n", row->name);
        return;
    }
    json_array_append_new(sheet->rows, bench_row_json(row));
    sheet->missed += !bench_holds(row);
    printf("%-58s %8.4g %-10s", row->name, row->value, row->unit);
    if (row->ceiling_name != NULL)
        printf(" %8.4g %-24s %5.3f", row->ceiling, row->ceiling_name, bench_ratio(row));
    if (row->bound == BENCH_RATIO_AT_LEAST)
        printf("  >= %.2f %s", row->limit, bench_holds(row) ? "holds" : "MISSED");
    putchar('\n');
    (void)fflush(stdout);
}

void bench_sheet_skip(struct bench_sheet *sheet, const char *name, const char *reason)
{
    json_array_append_new(sheet->rows,
                          json_pack("{s:s, s:s}", "name", name, "not measured", reason));
    printf("%-58s not measured: %s\n", name, reason);
    (void)fflush(stdout);
}

bool bench_sheet_part(struct bench_sheet *sheet, const char *name, enum yolk_status status)
{
    if (status == YOLK_OK)
        return true;
    sheet->failed++;
    bench_sheet_skip(sheet, name, cli_reason(status));
    return false;
}

void bench_sheet_discard(struct bench_sheet *sheet)
{
    json_decref(sheet->rows);
    json_decref(sheet->root);
}

int bench_sheet_close(struct bench_sheet *sheet, const char *path)
{
    int code = sheet->failed > 0 ? CLI_FAILED : CLI_OK;
    printf("%u rows, %u missed, %u parts failed\n", sheet->count, sheet->missed, sheet->failed);
    if (path[0] != '\0' && json_dump_file(sheet->root, path, JSON_INDENT(1)) != 0) {
        fprintf(stderr, "yolk bench: --json %s: cannot be written\n", path);
        code = CLI_FAILED;
    }
    bench_sheet_discard(sheet);
    return code;
}
