/*
 * Far memory: 8 MiB of which 1 MiB is in RAM, a mapped file, and arguments that make no sense.
 */
#define _GNU_SOURCE /* pread */
#include "expect.h"

#include <unistd.h>

enum { MIB = 1 << 20, PAGE = 4096 };

static mw_far_stats_t stats_of(const mw_far_t *far) {
    mw_far_stats_t stats = {.size = sizeof stats};
    OK(mw_far_stats(far, &stats));
    return stats;
}

static void allocates(mw_far_t *far) {
    void *memory;
    OK(mw_far_alloc(far, 8 * MIB, &memory));
    unsigned char *bytes = memory;
    for (size_t at = 0; at < 8 * MIB; at += PAGE) {
        HOLDS(bytes[at] == 0);
        bytes[at] = (unsigned char)(at / PAGE % 251 + 1);
    }
    for (size_t at = 0; at < 8 * MIB; at += PAGE) {
        HOLDS(bytes[at] == at / PAGE % 251 + 1);
    }
    mw_far_stats_t stats = stats_of(far);
    HOLDS(stats.limit_pages == 256 && stats.resident_pages <= 256 && stats.disk_pages >= 1700);
    HOLDS(stats.new_faults > 10 && stats.fetch_faults > 10 && stats.stored_pages >= 1700);
    HOLDS(stats.fault_p50_ns > 0 && stats.fault_p50_ns <= stats.fault_p99_ns);
    HOLDS(stats.fault_p99_ns <= stats.fault_p999_ns && stats.fault_p999_ns <= stats.fault_max_ns);
    HOLDS(stats.remote_pages == 0 && stats.lost_pages == 0);
    FAILS(MW_ERR_ADDRESS, "no far memory begins at", mw_far_free(far, bytes + PAGE));
    OK(mw_far_free(far, memory));
    FAILS(MW_ERR_ADDRESS, "once", mw_far_free(far, memory));
    OK(mw_far_free(far, NULL));
    HOLDS(stats_of(far).disk_pages == 0);
}

static void maps(mw_far_t *far) {
    static unsigned char page[PAGE];
    FILE *file = tmpfile();
    HOLDS(file != NULL);
    for (int at = 0; at < 1024; at++) {
        memset(page, at % 255 + 1, PAGE);
        HOLDS(fwrite(page, PAGE, 1, file) == 1);
    }
    HOLDS(fflush(file) == 0);
    int fd = fileno(file);
    void *memory = far, *part;
    uint64_t before = stats_of(far).stored_pages;
    OK(mw_far_map(far, fd, 0, 4 * MIB, &memory));
    OK(mw_far_map(far, fd, 10 * PAGE, PAGE + 1, &part));
    unsigned char *bytes = memory, *others = part;
    for (int round = 0; round < 2; round++) {
        for (size_t at = 0; at < 4 * MIB; at += PAGE) {
            HOLDS(bytes[at] == at / PAGE % 255 + 1);
        }
    }
    HOLDS(stats_of(far).stored_pages == before && stats_of(far).file_pages >= 1024);
    bytes[10 * PAGE] = 77;
    HOLDS(others[0] == 11 && others[PAGE] == 12);
    HOLDS(pread(fd, page, 1, 10 * PAGE) == 1 && page[0] == 11);
    FAILS(MW_ERR_RANGE, "pass the end, which is at 4194304", mw_far_map(far, fd, PAGE, 4 * MIB, &part));
    FAILS(MW_ERR_ALIGNMENT, "offset 7 in the file", mw_far_map(far, fd, 7, 1, &part));
    FAILS(MW_ERR_ARGUMENT, "0 bytes", mw_far_map(far, fd, 0, 0, &part));
    FAILS(MW_ERR_ARGUMENT, "-1 is not the descriptor", mw_far_map(far, -1, 0, 1, &part));
    FAILS(MW_ERR_SYSTEM, "Bad file descriptor", mw_far_map(far, 9999, 0, 1, &part));
    HOLDS(part == NULL);
    fclose(file);
    HOLDS(bytes[2 * MIB] == 512 % 255 + 1 && bytes[10 * PAGE] == 77);
    OK(mw_far_free(far, memory));
}

int main(void) {
    mw_far_t *far;
    mw_far_options_t options = {.size = sizeof options, .local_bytes = MIB, .disk = "/tmp"};
    mw_status_t status = mw_far_open(&options, &far);
    if (status == MW_ERR_SYSTEM && strstr(mw_error_message(), "userfaultfd") != NULL) {
        printf("skipped: %s\n", mw_error_message());
        return 0;
    }
    expect(status, MW_OK, "", "mw_far_open", __LINE__);
    allocates(far);
    maps(far);
    void *memory;
    FAILS(MW_ERR_ARGUMENT, "0 bytes", mw_far_alloc(far, 0, &memory));
    FAILS(MW_ERR_LIMIT, "beyond the address space", mw_far_alloc(far, SIZE_MAX, &memory));
    FAILS(MW_ERR_ARGUMENT, "`memory` is NULL", mw_far_alloc(far, 1, NULL));
    FAILS(MW_ERR_ARGUMENT, "`far` is NULL", mw_far_alloc(NULL, 1, &memory));
    FAILS(MW_ERR_ARGUMENT, "size", mw_far_stats(far, &(mw_far_stats_t){.size = 8}));
    OK(mw_far_alloc(far, 1, &memory));
    OK(mw_far_close(far));
    OK(mw_far_close(NULL));
    for (uint64_t local = 0; local < 65536; local += 65535) {
        options.local_bytes = local;
        FAILS(MW_ERR_ARGUMENT, "bytes in RAM are too few", mw_far_open(&options, &far));
        HOLDS(far == NULL);
    }
    options.local_bytes = UINT64_MAX;
    FAILS(MW_ERR_LIMIT, "beyond the address space", mw_far_open(&options, &far));
    options.local_bytes = MIB;
    options.disk = "/no/such/folder";
    FAILS(MW_ERR_SYSTEM, "cannot keep far memory in /no/such/folder", mw_far_open(&options, &far));
    FAILS(MW_ERR_ARGUMENT, "NULL", mw_far_open(NULL, &far));
    printf("far and back\n");
    return 0;
}
