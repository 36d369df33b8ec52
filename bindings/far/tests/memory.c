/* What programs may ask of their memory, and what mistakes do. 2 MiB are in RAM. */
#define _GNU_SOURCE
#include <errno.h>
#include <locale.h>
#include <malloc.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define CHECK(what) do { if (!(what)) { fprintf(stderr, "line %d: %s\n", __LINE__, #what); _exit(3); } } while (0)

static char *map(size_t bytes) {
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    return memory;
}

/* The signal that ends a child which stores to this address; 0: none. */
static int stores(char *address) {
    pid_t child = fork();
    if (child == 0) {
        *(volatile char *)address = 42;
        _exit(0);
    }
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

/* Blocks of a hundred sizes, whose bytes are of their number. */
static void children_have_the_heap_in_any_locale(void) {
    setlocale(LC_ALL, "C.UTF-8");
    enum { BLOCKS = 4000 };
    char **blocks = malloc(BLOCKS * sizeof *blocks);
    for (int n = 0; n < BLOCKS; n++) blocks[n] = memset(malloc(16 + n % 100 * 16), n % 251 + 1, 16);
    pid_t child = fork();
    for (int n = 0; n < BLOCKS; n++)
        for (int i = 0; i < 16; i++) CHECK(blocks[n][i] == (char)(n % 251 + 1));
    if (child == 0) _exit(0);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void what_is_given_back_is_gone(void) {
    char *memory = map(8 * MIB);
    memset(memory, 7, 8 * MIB);
    CHECK(stores(memory) == 0 && munmap(memory + 2 * MIB, 4 * MIB) == 0);
    CHECK(stores(memory + 2 * MIB) == SIGSEGV && stores(memory + 6 * MIB - 1) == SIGSEGV);
    CHECK(stores(memory + 2 * MIB - 1) == 0 && stores(memory + 6 * MIB) == 0);
    CHECK(memory[2 * MIB - 1] == 7 && memory[6 * MIB] == 7);
    char *again = map(4 * MIB);
    for (size_t i = 0; i < 4 * MIB; i += 512) CHECK(again[i] == 0);
    CHECK(munmap(again, 4 * MIB) == 0 && munmap(memory, 2 * MIB) == 0 && munmap(memory + 6 * MIB, 2 * MIB) == 0);
}

static void mappings_grow_shrink_and_move(void) {
    char *memory = map(2 * MIB), *behind = map(MIB);
    for (size_t i = 0; i < 2 * MIB; i += 4096) memory[i] = (char)(i >> 12);
    char *moved = mremap(memory, 2 * MIB, 16 * MIB, MREMAP_MAYMOVE);
    CHECK(moved != MAP_FAILED);
    for (size_t i = 0; i < 16 * MIB; i += 4096) CHECK(moved[i] == (i < 2 * MIB ? (char)(i >> 12) : 0));
    memset(moved + 2 * MIB, 1, 14 * MIB);
    CHECK(mremap(moved, 16 * MIB, MIB, 0) == moved && stores(moved + MIB) == SIGSEGV);
    /* No mapping of the kernel comes in between. */
    char *small = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(mremap(small, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, behind) == MAP_FAILED && errno == EINVAL);
    CHECK(mmap(behind, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED);
    CHECK(stores(behind) == 0);
}

/* Kilobytes in RAM, of all kinds. */
static long resident(void) {
    long pages, resident;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file && fscanf(file, "%ld %ld", &pages, &resident) == 2);
    fclose(file);
    return resident * 4;
}

static void a_short_mapping_is_far_when_it_has_grown(void) {
    enum { SHORT = 65536 };
    char *memory = map(SHORT), *locked = map(SHORT), *shared;
    for (int i = 0; i < SHORT; i++) memory[i] = (char)(i % 251);
    long before = resident();
    memory = mremap(memory, SHORT, 32 * MIB, MREMAP_MAYMOVE);
    CHECK(memory != MAP_FAILED);
    for (int i = 0; i < SHORT; i++) CHECK(memory[i] == (char)(i % 251));
    for (size_t i = SHORT; i < 32 * MIB; i++) CHECK(memory[i] == 0);
    memset(memory + SHORT, 3, 32 * MIB - SHORT);
    CHECK(resident() < before + 8 * 1024);
    for (int i = 0; i < SHORT; i++) CHECK(memory[i] == (char)(i % 251));
    CHECK(munmap(memory, 32 * MIB) == 0);
    /* What is of another kind stays the kernel's. */
    CHECK(mlock(locked, SHORT) == 0);
    locked[SHORT - 1] = 5;
    locked = mremap(locked, SHORT, 2 * MIB, MREMAP_MAYMOVE);
    CHECK(locked != MAP_FAILED && locked[SHORT - 1] == 5 && munlock(locked, 2 * MIB) == 0);
    shared = mmap(NULL, SHORT, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    shared[0] = 6;
    shared = mremap(shared, SHORT, 2 * MIB, MREMAP_MAYMOVE);
    CHECK(shared != MAP_FAILED && shared[0] == 6);
    CHECK(munmap(locked, 2 * MIB) == 0 && munmap(shared, 2 * MIB) == 0);
}

static void advice_is_taken_or_refused(void) {
    char *memory = map(4 * MIB);
    memset(memory, 9, 4 * MIB);
    CHECK(madvise(memory, MIB, MADV_DONTNEED) == 0 && memory[0] == 0 && memory[MIB] == 9);
    CHECK(madvise(memory, MIB, MADV_WILLNEED) == 0 && madvise(memory, MIB, MADV_HUGEPAGE) == 0);
    CHECK(madvise(memory, MIB, MADV_WIPEONFORK) == -1 && errno == EINVAL);
    CHECK(madvise(memory, MIB, 12345) == -1 && madvise(memory + 1, MIB, MADV_DONTNEED) == -1);
}

static void pieces_of_any_alignment_can_be_given_back(void) {
    for (size_t alignment = 16; alignment <= 4 * MIB; alignment *= 2) {
        void *memory;
        CHECK(posix_memalign(&memory, alignment, 100) == 0 && (uintptr_t)memory % alignment == 0);
        CHECK(malloc_usable_size(memory) >= 100);
        memset(memory, 5, 100);
        char *longer = realloc(memory, 100000);
        CHECK(longer && longer[99] == 5);
        free(longer);
        free(memalign(alignment, 5000));
    }
    void *memory;
    CHECK(posix_memalign(&memory, 24, 100) == EINVAL && !aligned_alloc(24, 100));
    CHECK(!malloc(PTRDIFF_MAX) && errno == ENOMEM && !reallocarray(NULL, SIZE_MAX / 2, 3) && errno == ENOMEM);
}

int main(void) {
    children_have_the_heap_in_any_locale();
    what_is_given_back_is_gone();
    mappings_grow_shrink_and_move();
    a_short_mapping_is_far_when_it_has_grown();
    advice_is_taken_or_refused();
    pieces_of_any_alignment_can_be_given_back();
    puts("all is well");
    return 0;
}
