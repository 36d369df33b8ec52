/* What programs may lock in RAM. 2 MiB are there, of which half may be locked. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define CHECK(what) do { if (!(what)) { fprintf(stderr, "line %d: %s: %s\n", __LINE__, #what, strerror(errno)); _exit(3); } } while (0)

static unsigned char *map(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    return memory;
}

/* Kilobytes of a line of /proc/self/status. */
static long status(const char *name) {
    char line[256];
    long found = -1;
    FILE *file = fopen("/proc/self/status", "r");
    CHECK(file);
    while (fgets(line, sizeof line, file))
        if (!strncmp(line, name, strlen(name))) found = atol(line + strlen(name) + 1);
    fclose(file);
    return found;
}

/* Goes over more memory than is in RAM: all that may leave it does. */
static void press(unsigned char *memory, size_t bytes, int round) {
    for (size_t at = 0; at < bytes; at += 4096) memory[at] = (unsigned char)(at / 4096 + round);
    for (size_t at = 0; at < bytes; at += 4096) CHECK(memory[at] == (unsigned char)(at / 4096 + round));
}

static int are_all_in_ram(unsigned char *memory, size_t bytes) {
    unsigned char in_ram[1024];
    CHECK(bytes / 4096 <= sizeof in_ram && mincore(memory, bytes, in_ram) == 0);
    for (size_t page = 0; page < bytes / 4096; page++)
        if (!(in_ram[page] & 1)) return 0;
    return 1;
}

int main(void) {
    unsigned char *memory = map(8 * MIB), *others = map(8 * MIB);
    memset(memory, 1, 8 * MIB);
    press(others, 8 * MIB, 0);

    /* The program cannot lock more than it may have in RAM. */
    CHECK(mlockall(MCL_CURRENT | MCL_FUTURE) == -1 && errno == ENOMEM);
    CHECK(mlockall(MCL_FUTURE | MCL_ONFAULT) == -1 && errno == ENOMEM);
    CHECK(mlockall(0) == -1 && errno == EINVAL && mlockall(64) == -1 && errno == EINVAL);
    CHECK(mlock(memory, 4 * MIB) == -1 && errno == ENOMEM);
    CHECK(mlock(memory, 768 * KIB) == 0);
    CHECK(mlock(memory + 2 * MIB, 768 * KIB) == -1 && errno == ENOMEM);
    CHECK(mlock(memory + 512 * KIB, 512 * KIB) == 0 && mlock2(memory, MIB, MLOCK_ONFAULT) == 0);
    CHECK(munlock(memory + 512 * KIB, 512 * KIB) == 0);

    /* What is locked stays there, and the rest fits into what is left. */
    for (int round = 1; round <= 3; round++) {
        press(others, 8 * MIB, round);
        CHECK(are_all_in_ram(memory, 512 * KIB));
        for (size_t at = 0; at < 8 * MIB; at++) CHECK(memory[at] == 1);
    }
    CHECK(status("VmLck:") < 1024 && status("RssAnon:") < 8 * 1024);
    CHECK(madvise(memory, MIB, MADV_DONTNEED) == -1 && errno == EINVAL && memory[0] == 1);

    /* Pages around those that are locked keep what they hold. */
    for (size_t at = 3 * MIB; at < 7 * MIB; at += 512 * KIB) CHECK(mlock(memory + at + 20480, 8192) == 0);
    press(others, 8 * MIB, 4);
    for (size_t at = 0; at < 8 * MIB; at++) CHECK(memory[at] == 1);
    CHECK(munlock(memory + 3 * MIB, 4 * MIB) == 0);

    /* A child locks nothing. */
    pid_t child = fork();
    if (child == 0) {
        CHECK(mlock(memory + 4 * MIB, 768 * KIB) == 0);
        press(others, 8 * MIB, 9);
        CHECK(memory[0] == 1);
        _exit(0);
    }
    int code;
    CHECK(waitpid(child, &code, 0) == child && code == 0);

    /* Locked memory moves, and stays locked. */
    CHECK((memory = mremap(memory, 8 * MIB, 16 * MIB, MREMAP_MAYMOVE)) != MAP_FAILED);
    press(others, 8 * MIB, 4);
    CHECK(are_all_in_ram(memory, 512 * KIB) && memory[0] == 1 && memory[8 * MIB - 1] == 1);

    /* It can be given back, and is zeros when it comes again. */
    CHECK(munmap(memory, 16 * MIB) == 0 && status("VmLck:") == 0);
    memory = map(8 * MIB);
    for (size_t at = 0; at < 8 * MIB; at++) CHECK(memory[at] == 0);
    CHECK(mlock(memory, MIB) == 0 && munlockall() == 0 && mlock(memory + 4 * MIB, MIB) == 0);
    void *again = mmap(memory + 4 * MIB, MIB, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    CHECK(again == memory + 4 * MIB && memory[4 * MIB] == 0 && mlock(memory, MIB) == 0);
    press(others, 8 * MIB, 5);
    CHECK(munlock(memory, MIB) == 0 && madvise(memory, MIB, MADV_DONTNEED) == 0);
    puts("all is well");
    return 0;
}
