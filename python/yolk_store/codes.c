/* SPDX-License-Identifier: Apache-2.0 */
/* Upstream's error numbers for Python, and the sentence that goes with the last one. */
#include <stdio.h>
#include <string.h>

#include "compat/codes.h"
#include "extension.h"

static _Thread_local char last_text[1024];

int64_t code_of(int64_t status)
{
    return compat_code_of(status);
}

int64_t code_of_failure(int64_t status)
{
    const char *text = yolk_last_error();
    return code_with_text(status, text[0] != '\0' ? text : yolk_strerror((int)status));
}

int64_t code_with_text(int64_t status, const char *text)
{
    (void)snprintf(last_text, sizeof(last_text), "%s", text);
    return code_of(status);
}

const char *code_last_text(void)
{
    return last_text;
}

PyObject *code_table(void)
{
    size_t count;
    const struct compat_code_row *rows = compat_code_rows(&count);
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list != NULL && i < count; i++) {
        PyObject *row = Py_BuildValue("(isi)", (int)rows[i].status,
                                      yolk_status_name(rows[i].status), (int)rows[i].code);
        if (row == NULL || PyList_Append(list, row) != 0)
            Py_CLEAR(list);
        Py_XDECREF(row);
    }
    return list;
}
