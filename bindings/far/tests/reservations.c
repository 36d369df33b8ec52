// Address space that is reserved, and parts of it that are committed at fixed places, as compilers at run time and virtual machines do.
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what) ((what) ? (void)0 : (printf("line %d: %s: %s\n", __LINE__, #what, strerror(errno)), exit(1)))

enum { MIB = 1 << 20, OWN = MAP_PRIVATE | MAP_ANONYMOUS, OPEN = PROT_READ | PROT_WRITE };

static char *commit(char *place, int rights, int flags, int file) {
    char *memory = mmap(place, MIB, rights, flags | MAP_FIXED, file, 0);
    CHECK(memory == place);
    return memory;
}

static void store(char *memory, int value) {
    for (size_t at = 0; at < MIB; at += 64) memory[at] = value + at / 4096;
}

static void check(const char *memory, int value) {
    for (size_t at = 0; at < MIB; at += 64) CHECK(memory[at] == (char)(value + at / 4096));
}

typedef void *map(void *, size_t, int, int, int, off_t);

static void reserve(map *by, int flags, const char *name) {
    char *base = by(NULL, 64 * MIB, PROT_NONE, OWN | flags, -1, 0);
    CHECK(base != MAP_FAILED);
    // Code that is written and run.
    char *code = commit(base, OPEN | PROT_EXEC, OWN, -1);
    code[0] = 0xc3;
#if defined(__x86_64__)
    ((void (*)(void))code)();
#endif
    // Memory of all kinds beside it.
    char *shared = commit(base + 4 * MIB, OPEN, MAP_SHARED | MAP_ANONYMOUS, -1);
    char *heap = commit(base + 5 * MIB, OPEN, OWN, -1);
    char *opened = base + 6 * MIB;
    CHECK(mprotect(opened, MIB, OPEN) == 0);
    FILE *made = fopen(name, "w+");
    CHECK(made && ftruncate(fileno(made), MIB) == 0);
    char *file = commit(base + 7 * MIB, OPEN, MAP_SHARED, fileno(made));
    char *copy = commit(base + 8 * MIB, OPEN, MAP_PRIVATE, fileno(made));
    char *all[] = {shared, heap, opened, file, copy};
    for (int number = 0; number < 5; number++) store(all[number], 10 * number);
    // What the program allocates besides is far, as ever, and needs the RAM.
    char *other = malloc(16 * MIB);
    for (size_t at = 0; at < 16 * MIB; at += 512) other[at] = 1;
    for (int number = 0; number < 5; number++) check(all[number], 10 * number);
    pid_t child = fork();
    if (child == 0) {
        for (int number = 0; number < 5; number++) check(all[number], 10 * number);
        store(shared, 77);
        store(heap, 77);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    check(shared, 77);
    check(heap, 10);
    free(other);
    // Given back to the reservation, and committed again.
    commit(base + 5 * MIB, PROT_NONE, OWN | MAP_NORESERVE, -1);
    commit(base + 5 * MIB, OPEN, OWN, -1);
    for (size_t at = 0; at < MIB; at += 64) CHECK(heap[at] == 0);
    CHECK(madvise(opened, MIB, MADV_DONTNEED) == 0 && opened[0] == 0);
    CHECK(mprotect(base + 32 * MIB, MIB, PROT_READ | PROT_EXEC) == 0);
    CHECK(munmap(base, 64 * MIB) == 0);
    fclose(made);
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    reserve(mmap, MAP_NORESERVE, arguments[1]);
    reserve(mmap, 0, arguments[1]);
    // Another name of the same.
    reserve((map *)mmap64, MAP_NORESERVE, arguments[1]);
    puts("all is well");
    return 0;
}
