/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the text of a kernel, thread by thread: the few instructions of PTX that the kernels of Yolk
 * have. It stands in for a GPU where it is asked whether the text is right, not how fast.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda.h"

enum { LINES = 512, REGISTERS = 512, OPERANDS = 6, TEXT = 32, STEPS = 4000000, WARP = 32 };

enum code {
    NOTHING, /* a label only */
    MOVE,
    AND,
    OR,
    XOR,
    NEGATE,
    SHIFT_LEFT,
    SHIFT_RIGHT,
    FIELD,
    ADD,
    SUBTRACT,
    MULTIPLY,
    MULTIPLY_ADD,
    SELECT,
    EQUAL,
    DIFFERENT,
    LESS,
    GREATER,
    AT_LEAST,
    PARAMETER,
    LOAD,
    STORE,
    SHUFFLE,
    JUMP,
    END,
};

/* By how the names begin; the longer ones first. */
static const struct {
    const char *name;
    enum code code;
} CODES[] = {
    {"mov.", MOVE},
    {"cvt.", MOVE},
    {"and.", AND},
    {"or.", OR},
    {"xor.", XOR},
    {"neg.", NEGATE},
    {"shl.", SHIFT_LEFT},
    {"shr.", SHIFT_RIGHT},
    {"bfe.", FIELD},
    {"add.", ADD},
    {"sub.", SUBTRACT},
    {"mul.", MULTIPLY},
    {"mad.", MULTIPLY_ADD},
    {"selp.", SELECT},
    {"setp.eq.", EQUAL},
    {"setp.ne.", DIFFERENT},
    {"setp.lt.", LESS},
    {"setp.gt.", GREATER},
    {"setp.ge.", AT_LEAST},
    {"ld.param.", PARAMETER},
    {"ld.", LOAD},
    {"st.", STORE},
    {"shfl.sync.bfly.b32", SHUFFLE},
    {"bra", JUMP},
    {"ret", END},
};

struct operand {
    char text[TEXT];
    int reg;        /* -1: it is a number */
    uint64_t value; /* the number, or what is added to the register: "%read+512" */
};

struct instruction {
    char label[TEXT]; /* of this place, or "" */
    enum code code;
    int guard; /* the predicate's register; -1: none */
    int operands;
    struct operand operand[OPERANDS];
    int target; /* of bra */
    size_t width;
    int count; /* of a vector */
    bool narrow, is_signed;
};

struct program {
    struct instruction code[LINES];
    int count;
    char names[REGISTERS][TEXT];
    int registers;
};

/* The registers that every thread has. */
enum { TID, NTID, CTAID, NCTAID, SPECIAL };
static const char *const SPECIALS[SPECIAL] = {"%tid.x", "%ntid.x", "%ctaid.x", "%nctaid.x"};

struct thread {
    uint64_t value[REGISTERS];
    uint64_t parameters[2];
    int at, steps;
    bool over;
};

__attribute__((noreturn)) static void wrong(const char *what, const char *text)
{
    dprintf(STDERR_FILENO, "fake CUDA: the kernel has %s: %s\n", what, text);
    _exit(98);
}

static int reg(struct program *p, const char *name)
{
    for (int i = 0; i < p->registers; i++) {
        if (strcmp(p->names[i], name) == 0)
            return i;
    }
    if (p->registers == REGISTERS || name[0] != '%')
        wrong("an operand that is no register", name);
    snprintf(p->names[p->registers], TEXT, "%s", name);
    return p->registers++;
}

static void add_operand(struct program *p, struct instruction *in, const char *word)
{
    struct operand *o = &in->operand[in->operands++];
    snprintf(o->text, TEXT, "%.31s", word);
    o->reg = -1;
    if (isdigit((unsigned char)word[0]) || word[0] == '-') {
        o->value = (uint64_t)strtoll(word, NULL, 10);
    } else if (word[0] == '%') {
        char name[TEXT];
        snprintf(name, sizeof(name), "%.31s", word);
        char *plus = strchr(name, '+');
        if (plus != NULL)
            *plus = '\0';
        o->reg = reg(p, name);
        o->value = plus != NULL ? strtoull(plus + 1, NULL, 10) : 0;
    }
}

/* Names between separators, braces and brackets gone: "{%a0, %a1}, [%read+512]" is three. */
static void split_operands(struct program *p, struct instruction *in, char *text)
{
    char *save = NULL;
    for (char *word = strtok_r(text, ",{}[] \t", &save); word != NULL;
         word = strtok_r(NULL, ",{}[] \t", &save)) {
        if (in->operands == OPERANDS)
            wrong("too many operands", word);
        add_operand(p, in, word);
    }
}

static bool has(const char *op, const char *part)
{
    return strstr(op, part) != NULL;
}

static void decode(struct instruction *in, const char *op)
{
    for (size_t i = 0; i < sizeof(CODES) / sizeof(CODES[0]) && in->code == NOTHING; i++) {
        if (strncmp(op, CODES[i].name, strlen(CODES[i].name)) == 0)
            in->code = CODES[i].code;
    }
    if (in->code == NOTHING)
        wrong("an instruction that is not known", op);
    in->width = has(op, ".u8") ? 1 : has(op, ".u32") ? 4 : 8;
    in->count = has(op, ".v4") ? 4 : has(op, ".v2") ? 2 : 1;
    in->is_signed = has(op, ".s32") || has(op, ".s64");
    in->narrow = has(op, "32") && !has(op, "wide") && strncmp(op, "cvt.u64", 7) != 0;
    if ((in->code == LOAD || in->code == STORE) && in->operands != in->count + 1)
        wrong("an access with other operands than its width", op);
}

static void parse_line(struct program *p, char *line)
{
    struct instruction in = {.target = -1, .guard = -1};
    while (isspace((unsigned char)*line))
        line++;
    char *end = strpbrk(line, ";");
    size_t size = strlen(line);
    if (end != NULL)
        *end = '\0';
    if (size > 1 && line[size - 1] == ':') {
        snprintf(in.label, TEXT, "%.*s", (int)(size - 1 < TEXT ? size - 1 : TEXT - 1), line);
    } else {
        char *save = NULL;
        char *word = strtok_r(line, " \t", &save);
        if (word != NULL && word[0] == '@') {
            in.guard = reg(p, word + 1);
            word = strtok_r(NULL, " \t", &save);
        }
        if (word == NULL || strchr("{}.()", word[0]) != NULL)
            return; /* declarations: registers are known by their use */
        split_operands(p, &in, save);
        decode(&in, word);
    }
    if (p->count == LINES)
        wrong("too many lines", line);
    p->code[p->count++] = in;
}

static struct program *parse(const char *text)
{
    struct program *p = calloc(1, sizeof(*p));
    char *copy = strdup(text), *save = NULL;
    if (p == NULL || copy == NULL)
        abort();
    for (int i = 0; i < SPECIAL; i++)
        (void)reg(p, SPECIALS[i]);
    for (char *line = strtok_r(copy, "\n", &save); line != NULL; line = strtok_r(NULL, "\n", &save))
        parse_line(p, line);
    for (int i = 0; i < p->count; i++) {
        for (int k = 0; k < p->count && p->code[i].code == JUMP; k++) {
            if (strcmp(p->code[k].label, p->code[i].operand[0].text) == 0)
                p->code[i].target = k;
        }
    }
    free(copy);
    return p;
}

static uint64_t value(const struct thread *t, const struct instruction *in, int i)
{
    if (i >= in->operands)
        return 0;
    const struct operand *o = &in->operand[i];
    return o->reg < 0 ? o->value : t->value[o->reg] + o->value;
}

static void give(struct thread *t, const struct operand *to, uint64_t number)
{
    if (to->reg < 0)
        wrong("a result for what is no register", to->text);
    t->value[to->reg] = number;
}

/* A load or store of one or more values; false: an address that is not the GPU's, or unaligned. */
static bool access_memory(struct thread *t, const struct instruction *in, int ordinal)
{
    bool store = in->code == STORE, ordinary;
    size_t width = in->width, all = width * (size_t)in->count;
    uint64_t at = value(t, in, store ? 0 : in->count);
    uint8_t *memory = fake_reach(ordinal, at, all, store, &ordinary);
    if (memory == NULL || at % all != 0)
        return false;
    for (int i = 0; i < in->count; i++) {
        uint64_t number = store ? value(t, in, i + 1) : 0;
        if (store) {
            memcpy(memory + (size_t)i * width, &number, width);
        } else {
            memcpy(&number, memory + (size_t)i * width, width);
            give(t, &in->operand[i], number);
        }
    }
    return true;
}

static bool is_less(const struct instruction *in, uint64_t a, uint64_t b)
{
    if (in->is_signed)
        return in->narrow ? (int32_t)a < (int32_t)b : (int64_t)a < (int64_t)b;
    return a < b;
}

static uint64_t shifted_right(const struct instruction *in, uint64_t a, uint64_t by)
{
    if (!in->is_signed)
        return a >> by;
    return in->narrow ? (uint64_t)((int32_t)a >> by) : (uint64_t)((int64_t)a >> by);
}

/* Bits [at, at + count) of it, with the sign of the highest one. */
static uint64_t field(const struct instruction *in, uint64_t a, uint64_t at, uint64_t count)
{
    uint64_t bits = a >> at & ((UINT64_C(1) << count) - 1);
    bool minus = in->is_signed && (bits >> (count - 1) & 1) != 0;
    return minus ? bits | UINT64_MAX << count : bits;
}

static uint64_t compute(const struct thread *t, const struct instruction *in)
{
    uint64_t mask = in->narrow ? UINT32_MAX : UINT64_MAX;
    uint64_t a = value(t, in, 1) & mask, b = value(t, in, 2) & mask, c = value(t, in, 3);
    switch (in->code) {
    case MOVE:
        return a;
    case AND:
        return a & b;
    case OR:
        return a | b;
    case XOR:
        return a ^ b;
    case NEGATE:
        return 0 - a;
    case SHIFT_LEFT:
        return a << b;
    case SHIFT_RIGHT:
        return shifted_right(in, a, b);
    case FIELD:
        return field(in, a, b, c);
    case ADD:
        return a + b;
    case SUBTRACT:
        return a - b;
    case MULTIPLY:
        return a * b;
    case MULTIPLY_ADD:
        return a * b + c;
    case SELECT:
        return c != 0 ? a : b;
    case EQUAL:
        return a == b;
    case DIFFERENT:
        return a != b;
    case LESS:
        return is_less(in, a, b);
    case GREATER:
        return is_less(in, b, a);
    case AT_LEAST:
        return !is_less(in, a, b);
    default:
        wrong("an instruction without a result", in->operand[0].text);
    }
}

/* Until its end, or until it has to exchange something with its warp. False: it touched what it may
 * not. */
static bool run_thread(const struct program *p, struct thread *t, int ordinal)
{
    while (t->at < p->count) {
        const struct instruction *in = &p->code[t->at];
        if (in->code == SHUFFLE)
            return true;
        t->at++;
        if (t->steps++ == STEPS)
            wrong("no end", "");
        if (in->code == NOTHING || (in->guard >= 0 && t->value[in->guard] == 0))
            continue;
        if (in->code == END) {
            t->over = true;
            return true;
        }
        if (in->code == JUMP) {
            if (in->target < 0)
                wrong("a jump to nowhere", in->operand[0].text);
            t->at = in->target;
        } else if (in->code == PARAMETER) {
            give(t, &in->operand[0], t->parameters[strcmp(in->operand[1].text, "count") == 0]);
        } else if (in->code == LOAD || in->code == STORE) {
            if (!access_memory(t, in, ordinal))
                return false;
        } else {
            uint64_t mask = in->narrow ? UINT32_MAX : UINT64_MAX;
            give(t, &in->operand[0], compute(t, in) & mask);
        }
    }
    wrong("no ret", "");
}

/* All of a warp stand at the same exchange: each gets what the lane has whose number differs from
 * its own by the mask. */
static void exchange(const struct program *p, struct thread *warp)
{
    uint64_t mine[WARP], from[WARP];
    const struct instruction *in = &p->code[warp[0].at];
    for (int i = 0; i < WARP; i++) {
        if (warp[i].over || warp[i].at != warp[0].at || (uint32_t)value(&warp[i], in, 4) != ~0u)
            wrong("an exchange that not all lanes take part in", in->operand[0].text);
        mine[i] = value(&warp[i], in, 1);
        from[i] = (uint64_t)i ^ value(&warp[i], in, 2);
    }
    for (int i = 0; i < WARP; i++) {
        give(&warp[i], &in->operand[0], from[i] < WARP ? mine[from[i]] : mine[i]);
        warp[i].at++;
    }
}

static bool run_warp(const struct program *p, struct thread *warp, int ordinal)
{
    for (;;) {
        bool over = true;
        for (int i = 0; i < WARP; i++) {
            if (!warp[i].over && !run_thread(p, &warp[i], ordinal))
                return false;
            over &= warp[i].over;
        }
        if (over)
            return true;
        exchange(p, warp);
    }
}

bool fake_run_text(int ordinal, const char *text, const struct fake_op *op)
{
    struct program *p = parse(text);
    struct thread *warp = calloc(WARP, sizeof(*warp));
    bool good = true;
    if (warp == NULL)
        abort();
    for (unsigned i = 0; i < op->grid * op->block && good; i += WARP) {
        memset(warp, 0, WARP * sizeof(*warp));
        for (unsigned k = 0; k < WARP; k++) {
            warp[k].parameters[0] = op->from;
            warp[k].parameters[1] = op->count;
            warp[k].value[TID] = (i + k) % op->block;
            warp[k].value[NTID] = op->block;
            warp[k].value[CTAID] = (i + k) / op->block;
            warp[k].value[NCTAID] = op->grid;
            warp[k].over = i + k >= op->grid * op->block;
        }
        good = run_warp(p, warp, ordinal);
    }
    free(warp);
    free(p);
    return good;
}
