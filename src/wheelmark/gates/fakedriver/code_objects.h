/* What the recording driver reads from code objects: architecture, kernels, their parameters and static shared memory.
 *
 * Formats: cubin .nv.info attributes and hsaco AMDGPU metadata as measured on objects of ptxas 12.8 to 13.4 and
 * LLVM 22 (records: u8 format, u8 code, u16 size; 0x17 KPARAM_INFO, 0x45 KPARAM_INFO_V2).
 */
#ifndef FAKE_DRIVER_CODE_OBJECTS_H
#define FAKE_DRIVER_CODE_OBJECTS_H

#include <elf.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PARAMETERS 512

struct parameter { uint32_t offset, size; };
struct function {
    uint32_t magic;
    struct module *module;
    char name[512];
    int known;                 /* whether the object says what the parameters are */
    int count;
    struct parameter parameters[MAX_PARAMETERS];
    int static_shared, dynamic_shared;
};
struct module { uint32_t magic; const uint8_t *image; size_t size; int hip, context, device; };
#define MODULE 0x6d6f6475u
#define FUNCTION 0x66756e63u

static uint16_t u16(const uint8_t *p) { uint16_t v; memcpy(&v, p, 2); return v; }
static uint32_t u32(const uint8_t *p) { uint32_t v; memcpy(&v, p, 4); return v; }

/* End of an ELF file: the driver is given no length. */
static size_t elf_size(const uint8_t *image) {
    Elf64_Ehdr header;
    memcpy(&header, image, sizeof header);
    size_t end = header.e_shoff + (size_t)header.e_shnum * header.e_shentsize;
    for (int i = 0; i < header.e_shnum; ++i) {
        Elf64_Shdr section;
        memcpy(&section, image + header.e_shoff + (size_t)i * header.e_shentsize, sizeof section);
        if (section.sh_type != SHT_NOBITS && section.sh_offset + section.sh_size > end) end = section.sh_offset + section.sh_size;
    }
    return end;
}

static int find_section(const struct module *module, const char *name, Elf64_Shdr *out, int *index) {
    Elf64_Ehdr header;
    Elf64_Shdr names;
    memcpy(&header, module->image, sizeof header);
    memcpy(&names, module->image + header.e_shoff + (size_t)header.e_shstrndx * header.e_shentsize, sizeof names);
    for (int i = 0; i < header.e_shnum; ++i) {
        memcpy(out, module->image + header.e_shoff + (size_t)i * header.e_shentsize, sizeof *out);
        if (!strcmp((const char *)module->image + names.sh_offset + out->sh_name, name)) { if (index) *index = i; return 1; }
    }
    return 0;
}

static int has_symbol(const struct module *module, const char *table, const char *strings, const char *name) {
    Elf64_Shdr symbols, text;
    if (!find_section(module, table, &symbols, NULL) || !find_section(module, strings, &text, NULL)) return 0;
    for (size_t at = 0; at + sizeof(Elf64_Sym) <= symbols.sh_size; at += sizeof(Elf64_Sym)) {
        Elf64_Sym symbol;
        memcpy(&symbol, module->image + symbols.sh_offset + at, sizeof symbol);
        if (symbol.st_shndx != SHN_UNDEF && !strcmp((const char *)module->image + text.sh_offset + symbol.st_name, name)) return 1;
    }
    return 0;
}

/* Parameters of a cubin's kernel from its .nv.info section; static shared memory from .nv.shared (sm_90 and up keep
 * 1,024 bytes there for the system). */
static int read_cubin_function(struct function *out, int sm) {
    char section[600];
    Elf64_Shdr info, shared;
    snprintf(section, sizeof section, ".text.%s", out->name);
    if (!find_section(out->module, section, &info, NULL) || !has_symbol(out->module, ".symtab", ".strtab", out->name)) return 0;
    snprintf(section, sizeof section, ".nv.shared.%s", out->name);
    if (find_section(out->module, section, &shared, NULL)) {
        out->static_shared = (int)shared.sh_size - (sm >= 90 ? 1024 : 0);
        if (out->static_shared < 0) out->static_shared = 0;
    }
    snprintf(section, sizeof section, ".nv.info.%s", out->name);
    if (!find_section(out->module, section, &info, NULL)) return 1;
    const uint8_t *at = out->module->image + info.sh_offset, *end = at + info.sh_size;
    out->known = 1;
    while (at + 4 <= end) {
        uint8_t format = at[0], code = at[1];
        uint16_t length = format == 4 ? u16(at + 2) : 0;
        const uint8_t *body = at + 4;
        if ((code == 0x17 || code == 0x45) && length >= 12) {
            /* u32 index, u16 ordinal, u16 offset, u32: bytes << 18 (0x17), or u32 ordinal, u32 offset, u32 bytes (0x45) */
            unsigned ordinal = code == 0x17 ? u16(body + 4) : u32(body);
            if (ordinal < MAX_PARAMETERS) {
                out->parameters[ordinal].offset = code == 0x17 ? u16(body + 6) : u32(body + 4);
                out->parameters[ordinal].size = code == 0x17 ? u32(body + 8) >> 18 : u32(body + 8);
                if ((int)ordinal + 1 > out->count) out->count = (int)ordinal + 1;
            }
        }
        at = body + length;
    }
    return 1;
}

/* Enough msgpack to walk AMDGPU metadata: lengths of every kind of value. */
struct pack { const uint8_t *at, *end; int bad; };

static uint64_t big(struct pack *p, int bytes) {
    uint64_t value = 0;
    if (p->end - p->at < bytes) { p->bad = 1; return 0; }
    while (bytes--) value = value << 8 | *p->at++;
    return value;
}

/* Reads a head: kind 'm'ap, 'a'rray, 's'tring/binary, 'i'nteger, 'o'ther; `value` is count, length or number. */
static char head(struct pack *p, uint64_t *value) {
    uint8_t byte = (uint8_t)big(p, 1);
    *value = 0;
    if (p->bad) return 'o';
    if (byte < 0x80) { *value = byte; return 'i'; }
    if (byte < 0x90) { *value = byte & 15; return 'm'; }
    if (byte < 0xa0) { *value = byte & 15; return 'a'; }
    if (byte < 0xc0) { *value = byte & 31; return 's'; }
    if (byte >= 0xe0) { *value = (uint64_t)(int8_t)byte; return 'i'; }
    switch (byte) {
    case 0xc4: case 0xd9: *value = big(p, 1); return 's';
    case 0xc5: case 0xda: *value = big(p, 2); return 's';
    case 0xc6: case 0xdb: *value = big(p, 4); return 's';
    case 0xcc: case 0xd0: *value = big(p, 1); return 'i';
    case 0xcd: case 0xd1: *value = big(p, 2); return 'i';
    case 0xce: case 0xd2: *value = big(p, 4); return 'i';
    case 0xcf: case 0xd3: *value = big(p, 8); return 'i';
    case 0xca: big(p, 4); return 'o';
    case 0xcb: big(p, 8); return 'o';
    case 0xdc: *value = big(p, 2); return 'a';
    case 0xdd: *value = big(p, 4); return 'a';
    case 0xde: *value = big(p, 2); return 'm';
    case 0xdf: *value = big(p, 4); return 'm';
    case 0xc0: case 0xc2: case 0xc3: return 'o';
    default: p->bad = 1; return 'o';
    }
}

static void skip(struct pack *p, int depth) {
    uint64_t value;
    char kind = head(p, &value);
    if (depth > 32) p->bad = 1;
    if (p->bad) return;
    if (kind == 's') { if ((uint64_t)(p->end - p->at) < value) p->bad = 1; else p->at += value; }
    else if (kind == 'a' || kind == 'm') for (value *= kind == 'm' ? 2 : 1; value && !p->bad; --value) skip(p, depth + 1);
}

/* Reads a string into `out` (cut to fit); any other value is skipped and gives "". */
static void text(struct pack *p, char *out, size_t size) {
    struct pack start = *p;
    uint64_t length;
    *out = 0;
    if (head(p, &length) != 's') { *p = start; skip(p, 0); return; }
    if (p->bad || (uint64_t)(p->end - p->at) < length) { p->bad = 1; return; }
    size_t kept = length < size - 1 ? (size_t)length : size - 1;
    memcpy(out, p->at, kept);
    out[kept] = 0;
    p->at += length;
}

static uint64_t count_of(struct pack *p, char wanted) {
    uint64_t value;
    if (head(p, &value) != wanted) p->bad = 1;
    return p->bad ? 0 : value;
}

static void read_arguments(struct pack *p, struct function *out) {
    for (uint64_t left = count_of(p, 'a'); left && !p->bad; --left) {
        struct parameter parameter = {0, 0};
        int hidden = 0;
        for (uint64_t members = count_of(p, 'm'); members && !p->bad; --members) {
            char key[64], kind[64];
            uint64_t value;
            text(p, key, sizeof key);
            if (!strcmp(key, ".offset")) { head(p, &value); parameter.offset = (uint32_t)value; }
            else if (!strcmp(key, ".size")) { head(p, &value); parameter.size = (uint32_t)value; }
            else if (!strcmp(key, ".value_kind")) { text(p, kind, sizeof kind); hidden = !strncmp(kind, "hidden_", 7); }
            else skip(p, 0);
        }
        if (!hidden && out->count < MAX_PARAMETERS) out->parameters[out->count++] = parameter;
    }
}

static void read_kernels(struct pack *p, struct function *out, int *found) {
    for (uint64_t left = count_of(p, 'a'); left && !p->bad; --left) {
        struct function *seen = calloc(1, sizeof *seen);
        char name[512] = "";
        if (!seen) { p->bad = 1; return; }
        for (uint64_t members = count_of(p, 'm'); members && !p->bad; --members) {
            char key[64];
            uint64_t value;
            text(p, key, sizeof key);
            if (!strcmp(key, ".name")) text(p, name, sizeof name);
            else if (!strcmp(key, ".args")) read_arguments(p, seen);
            else if (!strcmp(key, ".group_segment_fixed_size")) { head(p, &value); seen->static_shared = (int)value; }
            else skip(p, 0);
        }
        if (!p->bad && !strcmp(name, out->name)) {
            memcpy(out->parameters, seen->parameters, sizeof out->parameters);
            out->count = seen->count;
            out->static_shared = seen->static_shared;
            out->known = 1;
            *found = 1;
        }
        free(seen);
    }
}

/* Parameters of an hsaco's kernel from its AMDGPU note (type 32). */
static int read_hsaco_function(struct function *out) {
    Elf64_Shdr note;
    char descriptor[600];
    int found = 0;
    snprintf(descriptor, sizeof descriptor, "%s.kd", out->name);
    if (!has_symbol(out->module, ".dynsym", ".dynstr", descriptor) || !find_section(out->module, ".note", &note, NULL)) return 0;
    const uint8_t *at = out->module->image + note.sh_offset, *end = at + note.sh_size;
    while (at + 12 <= end) {
        uint32_t name = u32(at), size = u32(at + 4), type = u32(at + 8);
        const uint8_t *body = at + 12 + ((name + 3) & ~3u);
        if (type == 32 && name == 7 && body + size <= end) {
            struct pack p = {body, body + size, 0};
            for (uint64_t members = count_of(&p, 'm'); members && !p.bad; --members) {
                char key[64];
                text(&p, key, sizeof key);
                if (!strcmp(key, "amdhsa.kernels")) read_kernels(&p, out, &found);
                else skip(&p, 0);
            }
        }
        at = body + ((size + 3) & ~3u);
    }
    return found;
}

/* What the object is for: "90" or "gfx942"; empty where it is nothing this driver knows. */
static void object_arch(const uint8_t *image, int hip, char *out, size_t size) {
    Elf64_Ehdr header;
    memcpy(&header, image, sizeof header);
    *out = 0;
    if (!hip && header.e_machine == 190)
        snprintf(out, size, "%u", image[7] == 0x41 ? header.e_flags >> 8 & 0xff : header.e_flags & 0xff);
    if (hip && header.e_machine == 224) {
        static const struct { unsigned mach; const char *name; } known[] = {
            {0x3f, "gfx90a"}, {0x4c, "gfx942"}, {0x4f, "gfx950"}, {0x41, "gfx1100"}, {0x49, "gfx1250"}};
        for (size_t i = 0; i < sizeof known / sizeof *known; ++i)
            if (known[i].mach == (header.e_flags & 0xff)) snprintf(out, size, "%s", known[i].name);
    }
}

#endif
