/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel by which it is seen what copies take from a GPU's arithmetic. */
#ifndef YOLK_CLI_BUSY_PTX_H
#define YOLK_CLI_BUSY_PTX_H

/* Integer multiply-adds in four chains a thread; the parameters are named as the gather kernel's.
 */
static const char busy_ptx[] = ".version 6.4\n"
                               ".target sm_60\n"
                               ".address_size 64\n"
                               ".visible .entry yolk_busy(.param .u64 list, .param .u32 count)\n"
                               "{\n"
                               "    .reg .pred %p;\n"
                               "    .reg .b32 %i, %t, %index, %count, %a, %b, %c, %d;\n"
                               "    .reg .b64 %list, %place;\n"
                               "    ld.param.u64 %list, [list];\n"
                               "    ld.param.u32 %count, [count];\n"
                               "    mov.u32 %index, %ctaid.x;\n"
                               "    mov.u32 %t, %ntid.x;\n"
                               "    mov.u32 %i, %tid.x;\n"
                               "    mad.lo.u32 %index, %index, %t, %i;\n"
                               "    mov.u32 %a, %index;\n"
                               "    add.u32 %b, %index, 1;\n"
                               "    add.u32 %c, %index, 2;\n"
                               "    add.u32 %d, %index, 3;\n"
                               "    mov.u32 %i, 0;\n"
                               "again:\n"
                               "    setp.ge.u32 %p, %i, %count;\n"
                               "    @%p bra done;\n"
                               "    mad.lo.u32 %a, %a, %b, %c;\n"
                               "    mad.lo.u32 %b, %b, %c, %d;\n"
                               "    mad.lo.u32 %c, %c, %d, %a;\n"
                               "    mad.lo.u32 %d, %d, %a, %b;\n"
                               "    add.u32 %i, %i, 1;\n"
                               "    bra again;\n"
                               "done:\n"
                               "    mul.wide.u32 %place, %index, 4;\n"
                               "    add.u64 %place, %list, %place;\n"
                               "    st.global.u32 [%place], %d;\n"
                               "    ret;\n"
                               "}\n";

#endif
