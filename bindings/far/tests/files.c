/* Private mappings of a file of 16 MiB, of which 2 MiB are in RAM. argv[1] is the file. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define BYTES (16 * MIB)
#define CHECK(what) do { if (!(what)) { fprintf(stderr, "line %d: %s\n", __LINE__, #what); _exit(3); } } while (0)

static const char *path;
static int file;

/* The first word of page `page` of the file. */
static uint64_t word_of(size_t page) { return page * 0x9e3779b97f4a7c15 + 1; }

static void write_file(void) {
    static char page[4096];
    file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(file >= 0);
    for (size_t at = 0; at < BYTES / 4096; at++) {
        *(uint64_t *)page = word_of(at);
        CHECK(write(file, page, 4096) == 4096);
    }
}

static uint64_t *word(char *memory, size_t page) { return (uint64_t *)(memory + page * 4096); }

/* Pages from `first` on are those of the file from `from` on. */
static void check(char *memory, size_t first, size_t pages, size_t from) {
    for (size_t n = 0; n < pages; n++) CHECK(*word(memory, first + n) == word_of(from + n));
}

static char *map(size_t bytes, int rights, size_t from) {
    char *memory = mmap(NULL, bytes, rights, MAP_PRIVATE, file, from * 4096);
    CHECK(memory != MAP_FAILED);
    return memory;
}

/* Far memory, as the kernel knows it, has no name. */
static int is_far(char *memory) {
    char line[512], name[256];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps)) {
        uintptr_t start, end;
        name[0] = 0;
        sscanf(line, "%lx-%lx %*s %*s %*s %*s %255s", &start, &end, name);
        if (start <= (uintptr_t)memory && (uintptr_t)memory < end) {
            fclose(maps);
            return name[0] == 0;
        }
    }
    CHECK(!"mapped");
    return 0;
}

static int signal_of_access(char *address, int stores) {
    pid_t child = fork();
    if (child == 0) {
        if (stores) *(volatile char *)address = 1;
        else (void)*(volatile char *)address;
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void which_mappings_are_far(void) {
    char *whole = map(BYTES, PROT_READ, 0), *small = map(MIB - 4096, PROT_READ, 0);
    char *shared = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    char *code = map(BYTES, PROT_READ | PROT_EXEC, 0);
    CHECK(is_far(whole) && !is_far(small) && !is_far(shared) && !is_far(code));
    check(whole, 0, BYTES / 4096, 0);
    CHECK(munmap(whole, BYTES) == 0 && munmap(small, MIB - 4096) == 0);
    CHECK(munmap(shared, BYTES) == 0 && munmap(code, BYTES) == 0);
    /* What the kernel refuses is refused. */
    CHECK(mmap(NULL, BYTES, PROT_READ, MAP_PRIVATE, file, 5) == MAP_FAILED);
    CHECK(mmap(NULL, BYTES, PROT_READ, MAP_PRIVATE, 9999, 0) == MAP_FAILED);
    int null = open("/dev/zero", O_RDONLY), only = open(path, O_WRONLY);
    char *zeros = mmap(NULL, BYTES, PROT_READ, MAP_PRIVATE, null, 0);
    CHECK(zeros != MAP_FAILED && zeros[12345] == 0 && munmap(zeros, BYTES) == 0);
    CHECK(mmap(NULL, BYTES, PROT_READ, MAP_PRIVATE, only, 0) == MAP_FAILED);
    close(null);
    close(only);
}

static void changes_are_private_and_dropped_by_advice(void) {
    char *one = map(BYTES, PROT_READ | PROT_WRITE, 0), *two = map(BYTES - 4 * MIB, PROT_READ | PROT_WRITE, 1024);
    for (size_t page = 0; page < BYTES / 4096; page += 2) *word(one, page) = page;
    check(two, 0, 3072, 1024);
    for (size_t page = 0; page < BYTES / 4096; page++)
        CHECK(*word(one, page) == (page % 2 ? word_of(page) : page));
    CHECK(madvise(one + MIB, MIB, MADV_DONTNEED) == 0);
    check(one, 256, 256, 256);
    CHECK(*word(one, 254) == 254 && *word(one, 512) == 512);
    CHECK(munmap(two, BYTES - 4 * MIB) == 0);
    /* Pieces go, and what comes in their place is zeros. */
    CHECK(munmap(one + 4 * MIB, 4 * MIB) == 0 && signal_of_access(one + 4 * MIB, 0) == SIGSEGV);
    char *zeros = mmap(NULL, 4 * MIB, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t page = 0; page < 1024; page++) CHECK(*word(zeros, page) == 0);
    CHECK(munmap(zeros, 4 * MIB) == 0 && *word(one, 2048) == 2048);
    CHECK(mmap(one, MIB, PROT_READ, MAP_PRIVATE | MAP_FIXED, file, 8 * MIB) == one);
    check(one, 0, 256, 2048);
    CHECK(mmap(one, MIB, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == one && *word(one, 3) == 0);
    munmap(one, BYTES);
    char byte;
    CHECK(pread(file, &byte, 1, 2 * 4096) == 1 && byte == (char)word_of(2));
}

static void mappings_grow_and_move(void) {
    char *memory = map(2 * MIB, PROT_READ | PROT_WRITE, 256);
    char *behind = map(2 * MIB, PROT_READ, 0);
    *word(memory, 7) = 77;
    char *moved = mremap(memory, 2 * MIB, 8 * MIB, MREMAP_MAYMOVE);
    CHECK(moved != MAP_FAILED && *word(moved, 7) == 77);
    check(moved, 8, 2040, 264);
    check(behind, 0, 512, 0);
    CHECK(mremap(moved, 8 * MIB, MIB, 0) == moved);
    check(moved, 8, 248, 264);
    munmap(moved, MIB);
    munmap(behind, 2 * MIB);
}

static void rights_and_ends_are_those_of_the_kernel(void) {
    char *memory = map(BYTES, PROT_READ, 0);
    for (int round = 0; round < 2; round++) check(memory, 0, BYTES / 4096, 0);
    CHECK(signal_of_access(memory, 1) == SIGSEGV);
    CHECK(mprotect(memory, MIB, PROT_READ | PROT_WRITE) == 0 && signal_of_access(memory, 1) == 0);
    munmap(memory, BYTES);
    /* The last page is half a page; there is nothing behind it. */
    CHECK(ftruncate(file, 8 * MIB + 2048) == 0);
    memory = map(BYTES, PROT_READ, 0);
    CHECK(*word(memory, 2048) == word_of(2048) && memory[8 * MIB + 4095] == 0);
    CHECK(signal_of_access(memory + 8 * MIB + 4096, 0) == SIGBUS);
    munmap(memory, BYTES);
    write_file();
}

static void children_have_the_file_and_the_changes(void) {
    char *memory = map(BYTES, PROT_READ | PROT_WRITE, 0);
    for (size_t page = 0; page < BYTES / 4096; page += 3) *word(memory, page) = page;
    close(file);
    pid_t child = fork();
    for (size_t page = 0; page < BYTES / 4096; page++)
        CHECK(*word(memory, page) == (page % 3 ? word_of(page) : page));
    if (child == 0) {
        *word(memory, 1) = 5;
        CHECK(madvise(memory + 8 * MIB, 8 * MIB, MADV_DONTNEED) == 0);
        check(memory, 2048, 2048, 2048);
        CHECK(*word(memory, 1) == 5);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(*word(memory, 1) == word_of(1) && *word(memory, 2049) == 2049);
    munmap(memory, BYTES);
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    path = arguments[1];
    write_file();
    which_mappings_are_far();
    changes_are_private_and_dropped_by_advice();
    mappings_grow_and_move();
    rights_and_ends_are_those_of_the_kernel();
    children_have_the_file_and_the_changes();
    puts("all is well");
    return 0;
}
