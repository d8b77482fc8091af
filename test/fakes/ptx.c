/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the text of a kernel, thread by thread: the few instructions of PTX that the gather kernel
 * has. It stands in for a GPU where it is asked whether the text is right, not how fast.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda.h"

enum { LINES = 256, REGISTERS = 96, OPERANDS = 6, TEXT = 32, STEPS = 100000 };

struct instruction {
    char label[TEXT]; /* of this place, or "" */
    char guard[TEXT]; /* the predicate's register, or "" */
    char op[TEXT];    /* "" where there is a label only */
    int operands;
    char operand[OPERANDS][TEXT];
    int target; /* of bra */
};

struct program {
    struct instruction code[LINES];
    int count;
    char names[REGISTERS][TEXT];
    int registers;
};

struct thread {
    uint64_t value[REGISTERS];
    uint64_t parameters[2];
    uint32_t tid, ntid, ctaid, nctaid;
};

__attribute__((noreturn)) static void wrong(const char *what, const char *text)
{
    dprintf(STDERR_FILENO, "fake CUDA: the kernel has %s: %s\n", what, text);
    _exit(98);
}

/* Names between separators, braces and brackets gone: "{%a0, %a1}, [%read+512]" is three. */
static void split_operands(struct instruction *in, char *text)
{
    char *save = NULL;
    for (char *word = strtok_r(text, ",{}[] \t", &save); word != NULL;
         word = strtok_r(NULL, ",{}[] \t", &save)) {
        if (in->operands == OPERANDS)
            wrong("too many operands", word);
        snprintf(in->operand[in->operands++], TEXT, "%.31s", word);
    }
}

static void parse_line(struct program *p, char *line)
{
    struct instruction in = {.target = -1};
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
            snprintf(in.guard, TEXT, "%.31s", word + 1);
            word = strtok_r(NULL, " \t", &save);
        }
        if (word == NULL || word[0] == '{' || word[0] == '}' || word[0] == '.')
            return; /* declarations: registers are known by their use */
        snprintf(in.op, TEXT, "%.31s", word);
        split_operands(&in, save);
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
    for (char *line = strtok_r(copy, "\n", &save); line != NULL; line = strtok_r(NULL, "\n", &save))
        parse_line(p, line);
    for (int i = 0; i < p->count; i++) {
        for (int k = 0; k < p->count && strcmp(p->code[i].op, "bra") == 0; k++) {
            if (strcmp(p->code[k].label, p->code[i].operand[0]) == 0)
                p->code[i].target = k;
        }
    }
    free(copy);
    return p;
}

static uint64_t *reg(struct program *p, struct thread *t, const char *name)
{
    for (int i = 0; i < p->registers; i++) {
        if (strcmp(p->names[i], name) == 0)
            return &t->value[i];
    }
    if (p->registers == REGISTERS || name[0] != '%')
        wrong("an operand that is no register", name);
    snprintf(p->names[p->registers], TEXT, "%.31s", name);
    return &t->value[p->registers++];
}

static uint64_t value(struct program *p, struct thread *t, const char *name)
{
    if (isdigit((unsigned char)name[0]))
        return strtoull(name, NULL, 10);
    if (strcmp(name, "%tid.x") == 0)
        return t->tid;
    if (strcmp(name, "%ntid.x") == 0)
        return t->ntid;
    if (strcmp(name, "%ctaid.x") == 0)
        return t->ctaid;
    if (strcmp(name, "%nctaid.x") == 0)
        return t->nctaid;
    return *reg(p, t, name);
}

/* "%read+512" */
static uint64_t address(struct program *p, struct thread *t, const char *text)
{
    char name[TEXT];
    snprintf(name, sizeof(name), "%s", text);
    char *plus = strchr(name, '+');
    uint64_t offset = plus != NULL ? strtoull(plus + 1, NULL, 10) : 0;
    if (plus != NULL)
        *plus = '\0';
    return *reg(p, t, name) + offset;
}

static bool has(const char *op, const char *part)
{
    return strstr(op, part) != NULL;
}

/* A load or store of one or more values; false: an address that is not the GPU's, or unaligned. */
static bool access_memory(struct program *p, struct thread *t, const struct instruction *in,
                          int ordinal)
{
    bool store = strncmp(in->op, "st.", 3) == 0, ordinary;
    size_t width = has(in->op, ".u8") ? 1 : has(in->op, ".u32") ? 4 : 8;
    int count = has(in->op, ".v4") ? 4 : has(in->op, ".v2") ? 2 : 1;
    if (in->operands != count + 1)
        wrong("an access with other operands than its width", in->op);
    uint64_t at = address(p, t, in->operand[store ? 0 : count]);
    uint8_t *memory = fake_reach(ordinal, at, width * (size_t)count, store, &ordinary);
    if (memory == NULL || at % (width * (size_t)count) != 0)
        return false;
    for (int i = 0; i < count; i++) {
        uint64_t *r = reg(p, t, in->operand[store ? i + 1 : i]);
        if (store) {
            memcpy(memory + (size_t)i * width, r, width);
        } else {
            *r = 0;
            memcpy(r, memory + (size_t)i * width, width);
        }
    }
    return true;
}

static uint64_t compute(const char *op, uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t mask = has(op, "32") && !has(op, "wide") && !has(op, "u64") ? UINT32_MAX : UINT64_MAX;
    if (strncmp(op, "mov.", 4) == 0 || strncmp(op, "cvt.", 4) == 0)
        return a & mask;
    if (strncmp(op, "and.", 4) == 0)
        return a & b & mask;
    if (strncmp(op, "or.", 3) == 0)
        return (a | b) & mask;
    if (strncmp(op, "shr.", 4) == 0)
        return (a & mask) >> b;
    if (strncmp(op, "add.", 4) == 0)
        return (a + b) & mask;
    if (strncmp(op, "mul.wide.u32", 12) == 0)
        return (a & UINT32_MAX) * (b & UINT32_MAX);
    if (strncmp(op, "mul.lo.", 7) == 0)
        return (a * b) & mask;
    if (strncmp(op, "mad.lo.", 7) == 0)
        return (a * b + c) & mask;
    if (strncmp(op, "setp.ge.", 8) == 0)
        return (a & mask) >= (b & mask);
    if (strncmp(op, "setp.ne.", 8) == 0)
        return (a & mask) != (b & mask);
    wrong("an instruction that is not known", op);
}

static bool run_thread(struct program *p, struct thread *t, int ordinal)
{
    int at = 0;
    for (int steps = 0; at < p->count; steps++) {
        const struct instruction *in = &p->code[at++];
        if (steps == STEPS)
            wrong("no end", "");
        if (in->op[0] == '\0' || (in->guard[0] != '\0' && *reg(p, t, in->guard) == 0))
            continue;
        if (strcmp(in->op, "ret") == 0)
            return true;
        if (strcmp(in->op, "bra") == 0) {
            if (in->target < 0)
                wrong("a jump to nowhere", in->operand[0]);
            at = in->target;
        } else if (strncmp(in->op, "ld.param.", 9) == 0) {
            *reg(p, t, in->operand[0]) = t->parameters[strcmp(in->operand[1], "count") == 0];
        } else if (strncmp(in->op, "ld.", 3) == 0 || strncmp(in->op, "st.", 3) == 0) {
            if (!access_memory(p, t, in, ordinal))
                return false;
        } else {
            uint64_t a = value(p, t, in->operand[1]);
            uint64_t b = in->operands > 2 ? value(p, t, in->operand[2]) : 0;
            uint64_t c = in->operands > 3 ? value(p, t, in->operand[3]) : 0;
            *reg(p, t, in->operand[0]) = compute(in->op, a, b, c);
        }
    }
    wrong("no ret", "");
}

bool fake_run_text(int ordinal, const char *text, const struct fake_op *op)
{
    struct program *p = parse(text);
    bool good = true;
    for (unsigned i = 0; i < op->grid * op->block && good; i++) {
        struct thread t = {.parameters = {op->from, op->count},
                           .tid = i % op->block,
                           .ntid = op->block,
                           .ctaid = i / op->block,
                           .nctaid = op->grid};
        good = run_thread(p, &t, ordinal);
    }
    free(p);
    return good;
}
