// touch MEGABYTES READS: writes a region, scans it twice, reads pages of it at random, and prints rates, latencies and a sum as JSON.

#define _GNU_SOURCE
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

enum { PAGE = 4096, WORDS = PAGE / 8 };

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static uint64_t state = 1;

static uint64_t next(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int count, char **arguments) {
    if (count != 3) {
        fprintf(stderr, "usage: touch MEGABYTES READS\n");
        return 2;
    }
    size_t bytes = strtoull(arguments[1], NULL, 10) << 20, pages = bytes / PAGE, reads = strtoull(arguments[2], NULL, 10);
    volatile uint64_t *region = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    double *times = malloc(reads * sizeof *times);
    if (region == MAP_FAILED || !times || !pages || !reads) {
        fprintf(stderr, "touch: no memory for %zu bytes\n", bytes);
        return 1;
    }
    // Half of each page is random.
    for (size_t page = 0; page < pages; page++)
        for (size_t word = 0; word < WORDS; word++) region[page * WORDS + word] = word % 2 ? page : next();
    uint64_t sum = 0;
    double begun = now();
    for (size_t word = 0; word < pages * WORDS; word++) sum += region[word];
    double read = bytes / 1e6 / (now() - begun);
    begun = now();
    for (size_t word = 0; word < pages * WORDS; word++) region[word] += word;
    double write = bytes / 1e6 / (now() - begun);
    for (size_t turn = 0; turn < reads; turn++) {
        size_t word = next() % pages * WORDS + 8;
        begun = now();
        sum = sum * 31 + region[word];
        times[turn] = (now() - begun) * 1e6;
    }
    // A quarter of the pages may be in RAM: those do not fault.
    qsort(times, reads, sizeof *times, compare);
    double *faults = times + reads / 4;
    size_t faulted = reads - reads / 4;
    printf("{\"sum\":\"%016" PRIx64 "\",\"scan_read_mbs\":%.1f,\"scan_write_mbs\":%.1f,\"read_p50_us\":%.2f,\"read_p99_us\":%.2f}\n", sum, read,
           write, faults[faulted / 2], faults[faulted * 99 / 100]);
    return 0;
}
