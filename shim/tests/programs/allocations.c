// Counts allocations: preloaded before everything else, it stands in front of libc's allocator.

#define _GNU_SOURCE
#include <stdatomic.h>
#include <stddef.h>

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);

static atomic_long count;

long allocations(void) { return count; }

void *malloc(size_t size) {
    count++;
    return __libc_malloc(size);
}

void *calloc(size_t many, size_t size) {
    count++;
    return __libc_calloc(many, size);
}

void *realloc(void *old, size_t size) {
    count++;
    return __libc_realloc(old, size);
}
