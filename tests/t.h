/* t.h - what every test shares: cases, checks, a generator, guarded buffers on both sides.

   A test is one .cu file that is C99 as well. gcc compiles it with -x c: then the reference is
   tested alone, against answers known by construction. nvcc compiles the same file: then the device
   has to agree with the reference, bit for bit, as well. Nothing in a test knows whether a GPU or
   ptxrun runs the kernels.

   What is counted are cases: a case is one input, run and checked in every way that applies to it.
   A case that checked nothing fails, and so does a program without cases: a test that did nothing
   must not look green. The last line of the output is "N passed, N failed, N skipped".

       program [--quick] [--seed N] [--cases N] [--list] [part of a group's name ...] */

#ifndef T_H_INCLUDED
#define T_H_INCLUDED

#if defined(__CUDACC__)
#define T_DEVICE 1
#if !defined(T_LINKED)
#define SPECVERIFY_IMPLEMENTATION
#endif
#include <cuda_profiler_api.h>
#include <cuda_runtime.h>

#include "ptxrun/include/ptxrun_count.h"
#else
#define T_DEVICE 0
#endif
/* T_LINKED: to compile/kernels.cu, which is then built once for all programs. Those with T_INSIDE
   call what has no name outside of the headers, or, with T_INSIDE_REFERENCE, of the reference. */
#if !defined(T_LINKED) || defined(T_INSIDE_REFERENCE)
#define SPECVERIFY_REF_STATIC
#define SPECVERIFY_REF_IMPLEMENTATION
#endif
#include "specverify_ref.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define T_FN static SPECV_UNUSED /* no test uses everything */

#define T_COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

/* ------------------------------------------------------------------------------------- cases */

typedef struct t_group {
    const char *name;
    void (*run)(void);
} t_group;

static struct {
    uint64_t seed, case_seed, random;
    long cases, passed, failed, skipped, in_group;
    long checks, bad; /* of the open case */
    int quick, open;
    void (*at_end)(void); /* what a program prints before the last line */
    const char *group;
    char what[256];
} t;

T_FN void t_free_buffers(void);

T_FN void t_close_case(void) {
    if (!t.open) return;
    t.open = 0;
    if (t.checks == 0) printf("FAIL %s: \"%s\" checked nothing\n", t.group, t.what);
    if (t.bad || t.checks == 0)
        t.failed += 1;
    else
        t.passed += 1;
    t_free_buffers();
}

/* Starts the next case and seeds its numbers. The seed of case i of a group is --seed plus i:
   "--seed S --cases 1" repeats the case that printed seed S. */
T_FN void t_case(const char *format, ...) {
    va_list args;
    t_close_case();
    va_start(args, format);
    vsnprintf(t.what, sizeof t.what, format, args);
    va_end(args);
    t.case_seed = t.seed + (uint64_t)t.in_group;
    t.random = t.case_seed * 0x9E3779B97F4A7C15u + 1;
    t.in_group += 1;
    t.open = 1;
    t.checks = t.bad = 0;
}

/* Adds to the description of the open case what was drawn for it. */
T_FN void t_note(const char *format, ...) {
    size_t used = strlen(t.what);
    va_list args;
    va_start(args, format);
    vsnprintf(t.what + used, sizeof t.what - used, format, args);
    va_end(args);
}

/* Skips the open case, or, if nothing of it was checked yet, the whole group. */
T_FN void t_skip(const char *reason) {
    if (t.open && t.bad == 0) {
        t.open = 0;
        t_free_buffers();
    }
    t_close_case();
    printf("skipped %s: %s\n", t.group, reason);
    t.skipped += 1;
}

/* ------------------------------------------------------------------------------------ checks */

/* A broken kernel fails in every case and in every row. So what is printed of a check is the first
   time that it fails, with the case that shows it, and that of the first few checks; all are
   counted, and the counts come at the end. `what` is the same each time, the values are in
   `detail`. */
typedef struct t_failure {
    const char *file;
    int line;
    char what[128];
    long times, cases, last_case;
} t_failure;

enum { T_SHOWN = 8, T_MAX_FAILURES = 40 };

static t_failure t_failures[T_MAX_FAILURES];
static int t_num_failures;
static long t_failures_beyond; /* of checks that are not in the list any more */

T_FN void t_fail(const char *file, int line, const char *what, const char *detail) {
    const long this_case = t.passed + t.failed;
    t_failure *f = t_failures;
    t.bad += 1;
    while (f < t_failures + t_num_failures && (f->line != line || strcmp(f->file, file) != 0 ||
                                               strncmp(f->what, what, sizeof f->what - 1) != 0))
        ++f;
    if (f == t_failures + T_MAX_FAILURES) {
        t_failures_beyond += 1;
        return;
    }
    if (f == t_failures + t_num_failures) {
        t_num_failures += 1;
        f->file = file, f->line = line, f->last_case = -1;
        snprintf(f->what, sizeof f->what, "%s", what);
        if (t_num_failures <= T_SHOWN) {
            printf("FAIL %s:%d: %s\n", file, line, what);
            if (detail[0]) printf("     %s\n", detail);
            printf("     in %s: %s, seed %llu\n", t.group, t.what, (unsigned long long)t.case_seed);
        }
    }
    f->times += 1;
    f->cases += f->last_case != this_case;
    f->last_case = this_case;
}

/* Before the last line: how often what was shown happened. */
T_FN void t_print_counts(void) {
    for (const t_failure *f = t_failures; f < t_failures + t_num_failures; ++f)
        if (f->times > 1 || f >= t_failures + T_SHOWN)
            printf("     %ld time%s, in %ld case%s: %s:%d: %s\n", f->times,
                   f->times == 1 ? "" : "s", f->cases, f->cases == 1 ? "" : "s", f->file, f->line,
                   f->what);
    if (t_failures_beyond) printf("     %ld times: other checks\n", t_failures_beyond);
}

T_FN int t_check(int ok, const char *file, int line, const char *text) {
    t.checks += 1;
    if (!ok) t_fail(file, line, text, "");
    return ok;
}

T_FN int t_check_eq(int64_t actual, int64_t expected, int64_t row, const char *file, int line,
                    const char *text) {
    char detail[128];
    t.checks += 1;
    if (actual == expected) return 1;
    snprintf(detail, sizeof detail,
             row < 0 ? "is %lld, not %lld" : "is %lld, not %lld, at row %lld", (long long)actual,
             (long long)expected, (long long)row);
    t_fail(file, line, text, detail);
    return 0;
}

#define CHECK(condition) t_check(!!(condition), __FILE__, __LINE__, #condition)
#define CHECK_EQ(actual, expected, row)                                                            \
    t_check_eq((int64_t)(actual), (int64_t)(expected), (int64_t)(row), __FILE__, __LINE__, #actual)

/* The run cannot go on: say so in the form that whoever adds up the numbers expects. */
T_FN void t_die(const char *file, int line, const char *what, const char *why) {
    printf("FAIL %s:%d: %s: %s\n     in %s: %s, seed %llu\n", file, line, what, why, t.group,
           t.what, (unsigned long long)t.case_seed);
    t_print_counts();
    printf("%ld passed, %ld failed, %ld skipped\n", t.passed, t.failed + 1, t.skipped);
    exit(1);
}

#if T_DEVICE
#define T_CUDA(call)                                                                               \
    do {                                                                                           \
        cudaError_t t_error = (call);                                                              \
        if (t_error != cudaSuccess) t_die(__FILE__, __LINE__, #call, cudaGetErrorString(t_error)); \
    } while (0)
#endif

/* --------------------------------------------------------------------------------- generator */

T_FN uint64_t t_mix(uint64_t x) { /* splitmix64 */
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}
T_FN uint64_t t_random(void) { return t_mix(t.random += 0x9E3779B97F4A7C15u); }
T_FN int64_t t_below(int64_t bound) { return (int64_t)(t_random() % (uint64_t)bound); }
T_FN int64_t t_between(int64_t low, int64_t high) { return low + t_below(high - low + 1); }
T_FN int t_chance(int percent) { return t_below(100) < percent; }
T_FN double t_uniform(void) { return (double)(t_random() >> 11) / 9007199254740992.0; }

#define T_PICK(array) ((array)[t_below(T_COUNT(array))])

/* ----------------------------------------------------------------------------------- buffers */

/* A buffer has two sides with the same bytes: the reference works on one, the device on the other.
   Inputs end where their last element ends, so that ASan and ptxrun see the first byte that is read
   too much. Outputs are full of poison, with a guard on each side: an element that nobody wrote and
   one that nobody should have written are both seen. */
enum { T_HOST_SIDE, T_DEVICE_SIDE, T_POISON = 0xCA, T_GUARD = 64, T_MAX_BUFFERS = 256 };

/* A call that makes a buffer, how it is written (`maker`), and the bytes of an element. */
typedef struct t_site {
    const char *file, *maker;
    int line, unit;
} t_site;

typedef struct t_buf {
    char *host, *device; /* what a descriptor points to; null if the buffer has no bytes */
    char *host_base, *device_base;
    size_t bytes, before, total;
    uint64_t hash;
    int is_output;
    int is_private; /* each side has its own bytes there: nothing to compare */
    t_site site;
} t_buf;

static t_buf t_buffers[T_MAX_BUFFERS];
static int t_num_buffers;
static t_site t_next_site; /* of the next buffer, if it has a file */

/* Bytes of an element, from the text of a size: "4 * rows" has words. 1 where it does not tell. */
T_FN int t_unit_of(const char *size) {
    const long first = strtol(size, NULL, 10);
    if (first == 2 || first == 8) return (int)first;
    return first > 0 && first % 4 == 0 ? 4 : 1;
}

/* What goes around a helper that makes one buffer: its caller's line, not the helper's own, is the
   buffer's.  #define words(count) (T_SITE(words, 4), words(count))  behind the helper. */
T_FN void t_here(const char *file, int line, const char *maker, int unit) {
    t_next_site.file = file, t_next_site.line = line;
    t_next_site.maker = maker, t_next_site.unit = unit;
}
#define T_SITE(maker, unit) t_here(__FILE__, __LINE__, #maker, unit)

T_FN void t_here_unless_known(const char *file, int line, const char *maker, const char *size) {
    if (!t_next_site.file) t_here(file, line, maker, t_unit_of(size));
}

T_FN uint64_t t_hash(const char *data, size_t bytes) {
    uint64_t hash = bytes;
    size_t i = 0;
    for (; i + 8 <= bytes; i += 8) {
        uint64_t word;
        memcpy(&word, data + i, 8);
        hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 29;
    }
    for (; i < bytes; ++i) hash = (hash ^ (uint8_t)data[i]) * 0x100000001B3u;
    return hash;
}

T_FN t_buf t_new_buffer(size_t bytes, size_t offset, int is_output) {
    t_buf b;
    memset(&b, 0, sizeof b);
    b.bytes = bytes, b.is_output = is_output;
    b.site = t_next_site;
    t_next_site.file = NULL;
    if (bytes == 0 && !is_output) return b;
    b.before = offset + (is_output ? T_GUARD : 0);
    b.total = b.before + bytes + (is_output ? T_GUARD : 0);
    b.host_base = (char *)malloc(b.total);
    if (!b.host_base || t_num_buffers == T_MAX_BUFFERS)
        t_die(__FILE__, __LINE__, "t_new_buffer", "no memory");
    memset(b.host_base, T_POISON, b.total);
    b.host = b.host_base + b.before;
#if T_DEVICE
    T_CUDA(cudaMalloc((void **)&b.device_base, b.total));
    b.device = b.device_base + b.before;
#endif
    t_buffers[t_num_buffers++] = b;
    return b;
}

/* `offset` shifts the buffer from a 16-byte boundary. They live until the case ends. */
T_FN t_buf t_in(int64_t bytes, int64_t offset) {
    return t_new_buffer((size_t)bytes, (size_t)offset, 0);
}
T_FN t_buf t_out(int64_t bytes, int64_t offset) {
    return t_new_buffer((size_t)bytes, (size_t)offset, 1);
}
#define t_in(bytes, offset)                                                                        \
    (t_here_unless_known(__FILE__, __LINE__, "t_in", #bytes), t_in(bytes, offset))
#define t_out(bytes, offset)                                                                       \
    (t_here_unless_known(__FILE__, __LINE__, "t_out", #bytes), t_out(bytes, offset))

T_FN int32_t word_at(const t_buf *b, int64_t index) {
    int32_t word;
    memcpy(&word, b->host + 4 * index, 4);
    return word;
}
T_FN void put_word(const t_buf *b, int64_t index, int32_t word) {
    memcpy(b->host + 4 * index, &word, 4);
}

/* What element i of a status array holds before a launch with keep_status, and afterwards too. */
T_FN uint32_t t_old_status(int keep, int64_t i) {
    return keep ? (uint32_t)(i + 1) * 2654435761u : 0;
}

T_FN void t_fill_status(const t_buf *status, int keep) {
    for (int64_t i = 0; keep && i < (int64_t)status->bytes / 4; ++i) {
        const uint32_t old = t_old_status(keep, i);
        memcpy(status->host + 4 * i, &old, 4);
    }
}

T_FN void *t_at(const t_buf *b, int side) { return side == T_HOST_SIDE ? b->host : b->device; }

T_FN void t_free_buffers(void) {
    while (t_num_buffers > 0) {
        t_buf *b = &t_buffers[--t_num_buffers];
        free(b->host_base);
#if T_DEVICE
        T_CUDA(cudaFree(b->device_base));
#endif
    }
}

/* Gives both sides the bytes of the host. Call it when the inputs are filled in, before anything
   runs. */
T_FN void t_upload(void) {
    for (int i = 0; i < t_num_buffers; ++i) {
        t_buf *b = &t_buffers[i];
        if (!b->is_output) b->hash = t_hash(b->host_base, b->total);
#if T_DEVICE
        T_CUDA(cudaMemcpy(b->device_base, b->host_base, b->total, cudaMemcpyHostToDevice));
#endif
    }
}

/* Gives the host what the device has made of them: of a run that has no reference. */
T_FN void t_download(void) {
#if T_DEVICE
    T_CUDA(cudaDeviceSynchronize());
    for (int i = 0; i < t_num_buffers; ++i) {
        const t_buf *b = &t_buffers[i];
        T_CUDA(cudaMemcpy(b->host_base, b->device_base, b->total, cudaMemcpyDeviceToHost));
    }
#endif
}

/* Poisons the device's outputs again, for another run on the same inputs. */
T_FN void t_poison_device(void) {
#if T_DEVICE
    for (int i = 0; i < t_num_buffers; ++i)
        if (t_buffers[i].is_output)
            T_CUDA(cudaMemset(t_buffers[i].device_base, T_POISON, t_buffers[i].total));
#endif
}

/* Where `needle` begins in a line as a name of its own, for time n from 0; null: seldomer. */
T_FN const char *t_nth(const char *line, const char *needle, int n) {
    const char *at = line;
    for (; (at = strstr(at, needle)) != NULL; ++at) {
        const char before = at == line ? ' ' : at[-1];
        if (before == '_' || (before >= 'a' && before <= 'z')) continue;
        if (n-- == 0) return at;
    }
    return NULL;
}

/* What a buffer is called where it was made: "w->tokens" of "w->tokens = t_in(". Without the
   source, or where it is not assigned there, how it was made: "t_in". */
T_FN void t_name_of(const t_buf *b, char *name, size_t size) {
    const t_site *s = &b->site;
    char line[512], before[512] = "", call[64];
    int nth = 0, same = 0;
    const char *at = NULL, *from;
    FILE *f = s->file ? fopen(s->file, "r") : NULL;
    snprintf(name, size, "%s", s->file ? s->maker : "buffer");
    if (!f) return;
    snprintf(call, sizeof call, "%s(", s->maker);
    for (int i = 0; i < s->line; ++i) {
        if (i) memcpy(before, line, sizeof before);
        if (!fgets(line, sizeof line, f)) break;
    }
    fclose(f);
    for (int i = 0; i < t_num_buffers && t_buffers[i].host_base != b->host_base; ++i)
        nth += t_buffers[i].site.line == s->line && !strcmp(t_buffers[i].site.maker, s->maker) &&
               !strcmp(t_buffers[i].site.file, s->file);
    while (t_nth(line, call, same)) ++same;
    if (same) at = t_nth(line, call, nth % same);
    if (!at) return;
    for (int of_line = 0; of_line < 2; ++of_line) { /* what is assigned to may end the line above */
        const char *start = of_line ? before : line;
        if (of_line) at = before + strlen(before);
        while (at > start && strchr(" =\n", at[-1])) --at;
        for (from = at; from > start && !strchr(" ,;({*&", from[-1]); --from) continue;
        if (from == at) continue;
        snprintf(name, size, "%.*s", (int)(at - from), from);
        return;
    }
}

/* The number of an element in a failure: of bytes as they are, else decimal and in bits. */
T_FN void t_print_element(char *text, size_t size, const char *data, size_t unit) {
    int32_t word = 0;
    int64_t wide = 0;
    uint16_t half = 0;
    memcpy(&half, data, unit == 2 ? 2 : 0), memcpy(&word, data, unit == 4 ? 4 : 0);
    memcpy(&wide, data, unit == 8 ? 8 : 0);
    if (unit == 8)
        snprintf(text, size, "%lld (0x%016llx)", (long long)wide, (unsigned long long)wide);
    else if (unit == 4)
        snprintf(text, size, "%ld (0x%08lx)", (long)word, (unsigned long)(uint32_t)word);
    else if (unit == 2)
        snprintf(text, size, "0x%04x", half);
    else
        snprintf(text, size, "0x%02x", (uint8_t)data[0]);
}

/* "WHOSE NAME (made at FILE:LINE)": the same for all buffers of a call. */
T_FN void t_label(const t_buf *b, const char *whose, char *label, size_t size, char name[64]) {
    t_name_of(b, name, 64);
    snprintf(label, size, "%s %s (made at %s:%d)", whose, name,
             b->site.file ? b->site.file : "an unknown line", b->site.line);
}

/* Byte `at`, from element 0 on, is not as it was: it is outside of what was asked for. */
T_FN void t_fail_outside(const t_buf *b, int64_t at, char is, char should, const char *whose,
                         const char *file, int line) {
    char label[128], name[64], detail[256];
    t_label(b, whose, label, sizeof label, name);
    snprintf(detail, sizeof detail, "byte %lld is 0x%02x, not 0x%02x, and %s has bytes 0 to %lld",
             (long long)at, (uint8_t)is, (uint8_t)should, name, (long long)b->bytes - 1);
    t_fail(file, line, label, detail);
}

/* The only way in which bytes are compared. What they are called is `text`, or, where the buffer b
   is known, its name after `whose`. */
T_FN int t_check_bytes(const char *actual, const char *expected, size_t bytes, const t_buf *b,
                       const char *whose, const char *text, const char *file, int line) {
    const int inside = b && actual >= b->host && actual < b->host + b->bytes;
    const size_t start = inside ? (size_t)(actual - b->host) : 0; /* rows of a buffer count on */
    size_t unit = b && b->site.file ? (size_t)b->site.unit : 1, first = 0;
    char label[128], name[64], is[40], should[40], detail[256];
    long bad = 0;
    t.checks += 1;
    if (bytes == 0 || memcmp(actual, expected, bytes) == 0) return 1;
    if (bytes % unit || start % unit) unit = 1;
    for (size_t at = 0; at < bytes; at += unit)
        if (memcmp(actual + at, expected + at, unit) != 0 && bad++ == 0) first = at;
    snprintf(name, sizeof name, "it");
    snprintf(label, sizeof label, "%s", text);
    if (b) t_label(b, whose, label, sizeof label, name);
    t_print_element(is, sizeof is, actual + first, unit);
    t_print_element(should, sizeof should, expected + first, unit);
    snprintf(detail, sizeof detail, "%s[%lld] is %s, not %s; %ld of %lld %s differ", name,
             (long long)((start + first) / unit), is, should, bad, (long long)(bytes / unit),
             unit == 1 ? "bytes" : "elements");
    t_fail(file, line, label, detail);
    return 0;
}

/* The buffer whose bytes on the host begin there or before, or null. */
T_FN const t_buf *t_buffer_at(const void *host) {
    for (const t_buf *b = t_buffers; b < t_buffers + t_num_buffers; ++b)
        if ((const char *)host >= b->host && (const char *)host < b->host + b->bytes) return b;
    return NULL;
}

/* `bytes` bytes from `actual` on, in a buffer or anything else, are as expected. */
#define CHECK_BYTES(actual, expected, bytes)                                                       \
    t_check_bytes((const char *)(actual), (const char *)(expected), (size_t)(bytes),               \
                  t_buffer_at(actual), "not as expected:", #actual, __FILE__, __LINE__)

/* Of what is around a buffer's elements, the first byte that is not as expected; null: poison. */
T_FN void t_check_around(const t_buf *b, const char *actual, const char *expected,
                         const char *whose, const char *file, int line) {
    for (size_t at = 0; at < b->total; ++at) {
        char should = (char)T_POISON;
        if (at == b->before) at += b->bytes;
        if (at == b->total) return;
        if (expected) should = expected[at];
        if (actual[at] == should) continue;
        t_fail_outside(b, (int64_t)at - (int64_t)b->before, actual[at], should, whose, file, line);
        return;
    }
}

/* The host side after the reference ran: inputs unchanged, guards whole. */
T_FN void t_check_host_at(const char *file, int line) {
    for (int i = 0; i < t_num_buffers; ++i) {
        const t_buf *b = &t_buffers[i];
        char label[128], name[64];
        if (b->is_output) {
            t_check_around(b, b->host_base, NULL, "the reference, around", file, line);
            continue;
        }
        t.checks += 1;
        if (t_hash(b->host_base, b->total) == b->hash) continue;
        t_label(b, "the reference changed its input", label, sizeof label, name);
        t_fail(file, line, label, "");
    }
}
#define t_check_host() t_check_host_at(__FILE__, __LINE__)

/* Both sides of every buffer, inputs, outputs, gaps and guards, have the same bytes. */
T_FN void t_check_device_at(const char *file, int line) {
#if T_DEVICE
    static char few[1 << 16];
    T_CUDA(cudaDeviceSynchronize());
    for (int i = 0; i < t_num_buffers; ++i) {
        const t_buf *b = &t_buffers[i];
        char *seen = few;
        if (b->is_private) continue;
        if (b->total > sizeof few) seen = (char *)malloc(b->total);
        if (!seen) t_die(file, line, "t_check_device", "no memory");
        T_CUDA(cudaMemcpy(seen, b->device_base, b->total, cudaMemcpyDeviceToHost));
        t_check_bytes(seen + b->before, b->host, b->bytes, b,
                      b->is_output ? "device, not reference: output" : "device: changed input", "",
                      file, line);
        t_check_around(b, seen, b->host_base, "device, around", file, line);
        if (seen != few) free(seen);
    }
#else
    (void)file, (void)line;
#endif
}
#define t_check_device() t_check_device_at(__FILE__, __LINE__)

/* ------------------------------------------------------------------------------------ streams */

#if T_DEVICE
/* Copies bytes, and lets its programmatic dependents start before it has written anything: one that
   does not wait reads too early. */
static SPECV_UNUSED __global__ void t_produce_kernel(char *to, const char *from, int64_t bytes) {
    specv_i_begin(SPECV_CHAINED_BEFORE);
    for (int64_t i = threadIdx.x; i < bytes; i += blockDim.x) to[i] = from[i];
}

T_FN void t_produce(void *to, const void *from, int64_t bytes) {
    T_CUDA(cudaProfilerStart());
    t_produce_kernel<<<1, 128>>>((char *)to, (const char *)from, bytes);
}

/* All that was launched since t_produce were programmatic dependents, if their code can wait. Only
   the interpreter knows. */
T_FN void t_check_dependents(void) {
    struct cudaFuncAttributes attributes;
    T_CUDA(cudaDeviceSynchronize());
    T_CUDA(cudaProfilerStop());
    T_CUDA(cudaFuncGetAttributes(&attributes, (const void *)t_produce_kernel));
    const long long launches = ptxrun_count(NULL, "launches");
    if (launches < 0) return;
    CHECK_EQ(ptxrun_count(NULL, "dependent_launches"),
             attributes.ptxVersion >= 90 ? launches - 1 : 0, launches);
}

/* A kernel as the programmatic dependent of what was launched before it. */
T_FN int t_launch_dependent(const void *kernel, int blocks, int threads, const void *desc) {
    cudaLaunchConfig_t config = SPECV_ZERO;
    cudaLaunchAttribute attribute = SPECV_ZERO;
    struct cudaFuncAttributes attributes;
    void *args[1] = {(void *)desc};
    T_CUDA(cudaFuncGetAttributes(&attributes, kernel)); /* older code knows no dependents */
    config.gridDim = dim3((unsigned)blocks), config.blockDim = dim3((unsigned)threads);
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &attribute, config.numAttrs = attributes.ptxVersion >= 90;
    return (int)cudaLaunchKernelExC(&config, kernel, args);
}

typedef struct t_copy {
    char *to;
    const char *from;
    int64_t bytes;
} t_copy;

/* A user's kernel that does not wait. */
static SPECV_UNUSED __global__ void t_follow_kernel(t_copy c) {
    for (int64_t i = threadIdx.x; i < c.bytes; i += blockDim.x) c.to[i] = c.from[i];
}

/* Copies bytes as a programmatic dependent of what was launched before, without a wait: right if
   that one lets nobody start early. */
T_FN void t_follow(void *to, const void *from, int64_t bytes) {
    t_copy c = {(char *)to, (const char *)from, bytes};
    CHECK_EQ(t_launch_dependent((const void *)t_follow_kernel, 1, 32, &c), 0, -1);
}

/* What is launched on the stream between the two becomes a graph that runs `times` times. */
T_FN cudaStream_t t_begin_graph(void) {
    cudaStream_t stream;
    T_CUDA(cudaStreamCreate(&stream));
    T_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    return stream;
}

T_FN void t_run_graph(cudaStream_t stream, int times) {
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    T_CUDA(cudaStreamEndCapture(stream, &graph));
    T_CUDA(cudaGraphInstantiate(&executable, graph, 0));
    for (int i = 0; i < times; ++i) T_CUDA(cudaGraphLaunch(executable, stream));
    T_CUDA(cudaStreamSynchronize(stream));
    T_CUDA(cudaGraphExecDestroy(executable));
    T_CUDA(cudaGraphDestroy(graph));
    T_CUDA(cudaStreamDestroy(stream));
}
#endif

/* -------------------------------------------------------------------------------------- main */

T_FN int t_main(int argc, char **argv, const t_group *groups, int num_groups) {
    int num_filters = 0, list = 0;
    t.seed = 1;
    for (int i = 1; i < argc; ++i) {
        if (!strcmp(argv[i], "--quick"))
            t.quick = 1;
        else if (!strcmp(argv[i], "--list"))
            list = 1;
        else if (!strcmp(argv[i], "--seed") && i + 1 < argc)
            t.seed = strtoull(argv[++i], NULL, 0);
        else if (!strcmp(argv[i], "--cases") && i + 1 < argc)
            t.cases = strtol(argv[++i], NULL, 0);
        else if (argv[i][0] == '-')
            return fprintf(stderr, "%s: unknown option %s\n", argv[0], argv[i]), 2;
        else
            argv[num_filters++] = argv[i];
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int g = 0; g < num_groups; ++g) {
        int wanted = num_filters == 0;
        for (int f = 0; f < num_filters; ++f) wanted |= strstr(groups[g].name, argv[f]) != NULL;
        if (!wanted) continue;
        if (list) {
            printf("%s\n", groups[g].name);
            continue;
        }
        t.group = groups[g].name;
        t.in_group = 0;
        groups[g].run();
        t_close_case();
    }
    if (list) return 0;
    t_print_counts();
    if (t.at_end) t.at_end();
    if (t.passed + t.failed + t.skipped == 0) {
        printf("FAIL: no case ran\n");
        t.failed = 1;
    }
    printf("%ld passed, %ld failed, %ld skipped\n", t.passed, t.failed, t.skipped);
    return t.failed != 0;
}

#endif /* T_H_INCLUDED */
