/* SPDX-License-Identifier: Apache-2.0 */
#include "platform/library.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

static const char *machine_name(unsigned machine, char text[32])
{
    static const struct {
        unsigned machine;
        const char *name;
    } names[] = {{EM_386, "x86 of 32 bits"}, {EM_X86_64, "x86-64"},      {EM_AARCH64, "AArch64"},
                 {EM_ARM, "ARM of 32 bits"}, {EM_PPC64, "POWER"},        {EM_S390, "S/390"},
                 {EM_RISCV, "RISC-V"},       {EM_LOONGARCH, "LoongArch"}};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (names[i].machine == machine)
            return names[i].name;
    snprintf(text, 32, "machine %u", machine);
    return text;
}

/* The loader's own words for these ("invalid ELF header", "wrong ELF class") help nobody. */
static int check_header(const char *path, int fd)
{
    union {
        unsigned char ident[EI_NIDENT];
        Elf64_Ehdr header; /* type and machine lie at the same place in both classes */
    } file, own;
    char text[32], other[32];
    ssize_t got = pread(fd, &file, sizeof(file), 0);
    if (got < 0)
        return base_fail(YOLK_ERR_CONFIG, errno, "%s: cannot be read", path);
    if (got < (ssize_t)offsetof(Elf64_Ehdr, e_version) || memcmp(file.ident, ELFMAG, SELFMAG) != 0)
        return base_fail(YOLK_ERR_CONFIG, 0, "%s: is no shared library: it does not begin as one",
                         path);
    int self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    bool known = self >= 0 && pread(self, &own, sizeof(own), 0) == (ssize_t)sizeof(own);
    if (self >= 0)
        close(self);
    if (known &&
        (own.ident[EI_CLASS] != file.ident[EI_CLASS] || own.ident[EI_DATA] != file.ident[EI_DATA] ||
         own.header.e_machine != file.header.e_machine)) {
        bool swapped = own.ident[EI_DATA] != file.ident[EI_DATA];
        unsigned machine = file.header.e_machine;
        machine = swapped ? (machine >> 8 | machine << 8) & 0xffff : machine;
        return base_fail(YOLK_ERR_CONFIG, 0, "%s: is built for %s, this process is of %s", path,
                         machine_name(machine, text), machine_name(own.header.e_machine, other));
    }
    if (file.header.e_type != ET_DYN)
        return base_fail(YOLK_ERR_CONFIG, 0,
                         "%s: is no shared library, but a program or an object file", path);
    return YOLK_OK;
}

/* The loader maps what the headers name, and touching what the file does not have kills the
 * process. The header is known to be of this machine. */
static int check_size(const char *path, int fd, uint64_t size)
{
    Elf64_Ehdr header;
    bool whole = pread(fd, &header, sizeof(header), 0) == (ssize_t)sizeof(header) &&
                 header.e_phentsize == sizeof(Elf64_Phdr);
    for (unsigned i = 0; whole && i < header.e_phnum; i++) {
        Elf64_Phdr part;
        whole = pread(fd, &part, sizeof(part), (off_t)(header.e_phoff + i * sizeof(part))) ==
                    (ssize_t)sizeof(part) &&
                part.p_filesz <= size && part.p_offset <= size - part.p_filesz;
    }
    if (!whole)
        return base_fail(YOLK_ERR_CONFIG, 0,
                         "%s: is cut off: its headers name more than its %llu bytes", path,
                         (unsigned long long)size);
    return YOLK_OK;
}

static int check_rights(const char *path, const struct stat *info)
{
    char folder[PATH_MAX];
    struct stat above;
    snprintf(folder, sizeof(folder), "%.*s", (int)(strrchr(path, '/') - path + 1), path);
    if ((info->st_mode & S_IWOTH) != 0)
        return base_fail(YOLK_ERR_ACCESS, 0,
                         "%s: everybody may write to this file (mode %04o), and its code would run "
                         "in this process: refused, take that right away (chmod o-w)",
                         path, (unsigned)info->st_mode & 07777);
    if (stat(folder, &above) == 0 && (above.st_mode & S_IWOTH) != 0 &&
        (above.st_mode & S_ISVTX) == 0)
        return base_fail(YOLK_ERR_ACCESS, 0,
                         "%s: everybody may put another file in its place (folder of mode %04o): "
                         "refused, take that right away (chmod o-w)",
                         path, (unsigned)above.st_mode & 07777);
    return YOLK_OK;
}

static int check_file(const char *path)
{
    struct stat info;
    /* Not to wait for the other end of a pipe. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return base_fail(YOLK_ERR_CONFIG, errno, "%s: cannot be opened", path);
    int status = YOLK_OK;
    if (fstat(fd, &info) != 0)
        status = base_fail(YOLK_ERR_CONFIG, errno, "%s: cannot be looked at", path);
    else if (!S_ISREG(info.st_mode))
        status = base_fail(YOLK_ERR_CONFIG, 0, "%s: is no ordinary file", path);
    if (status == YOLK_OK)
        status = check_rights(path, &info);
    if (status == YOLK_OK)
        status = check_header(path, fd);
    if (status == YOLK_OK)
        status = check_size(path, fd, (uint64_t)info.st_size);
    close(fd);
    return status;
}

int library_open(const char *path, void **library)
{
    if (path[0] != '/')
        return base_fail(YOLK_ERR_CONFIG, 0, "\"%s\": the path must be absolute", path);
    if (strlen(path) >= PATH_MAX)
        return base_fail(YOLK_ERR_CONFIG, 0, "a path of %zu bytes: the longest is of %d",
                         strlen(path), PATH_MAX - 1);
    int status = check_file(path);
    if (status != YOLK_OK)
        return status;
    /* All that it needs is found now, or said to be missing; what it defines is nobody else's. */
    *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (*library == NULL) {
        const char *why = dlerror();
        return base_fail(YOLK_ERR_SYSTEM, 0, "%s: cannot be loaded: %s", path,
                         why != NULL ? why : "the loader does not say why");
    }
    return YOLK_OK;
}

void *library_symbol(void *library, const char *name)
{
    return dlsym(library, name);
}

void library_close(void *library)
{
    (void)dlclose(library);
}
