/*
 * A flush says whether what was sent is in place; refused sends are counted; memory that is not mapped is refused. 2 ranks.
 */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "expect.h"

#include <stdlib.h>
#include <sys/mman.h>

enum { WORDS = 1 << 20, PAGE = 4096 };

static mw_node_counters_t counted(mw_node_t *node) {
    mw_node_counters_t counters = {.size = sizeof counters};
    OK(mw_node_counters(node, &counters));
    return counters;
}

static void receive(mw_node_t *node) {
    mw_buffer_t *buffer;
    mw_export_t *words, *end_export;
    mw_import_t *back;
    void *memory;
    uint64_t stored = 0;
    static uint64_t end;
    mw_export_options_t options = {.size = sizeof options, .flags = MW_EXPORT_RING_ONLY};
    OK(mw_buffer_alloc(node, 8 * WORDS, &buffer));
    OK(mw_buffer_ptr(buffer, &memory));
    OK(mw_export_create(node, buffer, "words", &options, &words));
    OK(mw_export_create_range(node, &end, sizeof end, "end", NULL, &end_export));
    OK(mw_export_wait_signal(words, 8 * 400, 1, MW_FOREVER, NULL));
    OK(mw_export_revoke(words));
    while (stored < WORDS && ((volatile uint64_t *)memory)[stored] != 0) {
        stored++;
    }
    OK(mw_import_create(node, 1, "back", NULL, &back));
    OK(mw_import_put_signal(back, NULL, 0, 0, 0, stored));
    OK(mw_import_flush(back));
    /* Else it might be revoked before the answer to the flush. */
    OK(mw_import_put_signal(back, NULL, 0, 0, 8, 1));
    OK(mw_export_wait_signal(end_export, 0, 1, MW_FOREVER, NULL));
    OK(mw_export_revoke(end_export));
    OK(mw_import_free(back));
    OK(mw_buffer_free(buffer));
}

static void send(mw_node_t *node) {
    mw_buffer_t *buffer;
    mw_export_t *back;
    mw_import_t *words, *end;
    mw_status_t status = MW_OK;
    uint64_t sent = 0, stored = 0;
    OK(mw_buffer_alloc(node, 16, &buffer));
    OK(mw_import_create(node, 0, "words", NULL, &words));
    OK(mw_import_flush(words));

    char *memory = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    HOLDS(memory != MAP_FAILED);
    OK(mw_import_send(words, memory, 2 * PAGE, 8 * 500));
    OK(mw_import_flush(words));
    HOLDS(munmap(memory + PAGE, PAGE) == 0);
    FAILS(MW_ERR_ADDRESS, "is not mapped", mw_import_send(words, memory, 2 * PAGE, 8 * 500));
    FAILS(MW_ERR_ADDRESS, "is not mapped", mw_import_send(words, memory + PAGE, 8, 8 * 500));

    while (status == MW_OK && sent < WORDS) {
        uint64_t word = sent + 1;
        status = mw_import_send(words, &word, sizeof word, 8 * sent);
        sent += status == MW_OK;
    }
    HOLDS(status == MW_ERR_REVOKED);
    OK(mw_export_create(node, buffer, "back", NULL, &back));
    OK(mw_export_wait_signal(back, 0, 1, MW_FOREVER, &stored));
    if (stored == sent) {
        OK(mw_import_flush(words));
    } else {
        char count[64];
        snprintf(count, sizeof count, "%llu send%s to `words`", (unsigned long long)(sent - stored), sent - stored == 1 ? "" : "s");
        FAILS(MW_ERR_REVOKED, count, mw_import_flush(words));
        HOLDS(counted(node).refused_stores <= sent - stored);
    }
    OK(mw_import_flush(words));
    FAILS(MW_ERR_ARGUMENT, "`import` is NULL", mw_import_flush(NULL));
    OK(mw_import_create(node, 0, "end", NULL, &end));
    OK(mw_import_put_signal(end, NULL, 0, 0, 0, 1));
    OK(mw_import_free(end));
    OK(mw_import_free(words));
    OK(mw_export_wait_signal(back, 8, 1, MW_FOREVER, NULL));
    OK(mw_export_revoke(back));
    OK(mw_buffer_free(buffer));
}

int main(void) {
    mw_node_t *node;
    uint32_t rank;
    OK(mw_node_join(&node));
    OK(mw_node_rank(node, &rank));
    if (rank == 0) {
        receive(node);
    } else {
        send(node);
    }
    HOLDS((counted(node).link_packets_sent > 0) == (getenv("MAPWIRE_TEST_LINKS") != NULL));
    HOLDS((counted(node).link_rtt_ns > 0) == (getenv("MAPWIRE_TEST_LINKS") != NULL));
    OK(mw_node_free(node));
    printf("flushed\n");
    return 0;
}
