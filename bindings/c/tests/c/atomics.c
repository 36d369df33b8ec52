/* Atomic operations and signals that add up. 2 ranks. */
#include "expect.h"

enum { BYTES = 8192, ROUNDS = 500 };

static void change(mw_import_t *import) {
    uint64_t old = 7;
    uint32_t half = 7;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        OK(mw_import_fetch_add_u64(import, 0, 1, NULL));
        OK(mw_import_fetch_add_u32(import, 8, 2, &half));
        OK(mw_import_put_signal_add(import, NULL, 0, 0, 16, 3));
    }
    OK(mw_import_put_signal_or(import, NULL, 0, 0, 24, 1));
    FAILS(MW_ERR_ALIGNMENT, "multiple", mw_import_fetch_add_u64(import, 4, 1, &old));
    FAILS(MW_ERR_ALIGNMENT, "multiple", mw_import_swap_u32(import, 2, 1, &half));
    FAILS(MW_ERR_RANGE, "pass the end", mw_import_compare_swap_u64(import, BYTES, 0, 1, &old));
    FAILS(MW_ERR_ALIGNMENT, "multiple of 8", mw_import_put_signal_add(import, NULL, 0, 0, 12, 1));
    FAILS(MW_ERR_RANGE, "pass the end", mw_import_put_signal_or(import, NULL, 0, 0, BYTES, 1));
    FAILS(MW_ERR_ARGUMENT, "`import` is NULL", mw_import_fetch_add_u64(NULL, 0, 1, &old));
    HOLDS(old == 7);
}

int main(void) {
    mw_node_t *node;
    mw_buffer_t *buffer;
    mw_export_t *exports[2];
    mw_export_options_t options = {.size = sizeof options, .flags = MW_EXPORT_RING_ONLY};
    static _Alignas(8) unsigned char words[BYTES];
    uint32_t rank;
    OK(mw_node_join(&node));
    OK(mw_node_rank(node, &rank));
    if (rank == 0) {
        OK(mw_buffer_alloc(node, BYTES, &buffer));
        OK(mw_export_create(node, buffer, "direct", NULL, &exports[0]));
        OK(mw_export_create_range(node, words, sizeof words, "ring", &options, &exports[1]));
        for (int i = 0; i < 2; i++) {
            uint64_t seen;
            OK(mw_export_wait_signal(exports[i], 24, 1, MW_FOREVER, NULL));
            OK(mw_export_signal(exports[i], 0, &seen));
            HOLDS(seen == ROUNDS);
            OK(mw_export_signal(exports[i], 8, &seen));
            HOLDS(seen == 2 * ROUNDS);
            OK(mw_export_signal(exports[i], 16, &seen));
            HOLDS(seen == 3 * ROUNDS);
            OK(mw_export_wait_signal(exports[i], 32, 9, MW_FOREVER, NULL));
            OK(mw_export_revoke(exports[i]));
        }
        OK(mw_buffer_free(buffer));
    } else {
        mw_import_options_t both = {.size = sizeof both, .rights = MW_RIGHT_STORE | MW_RIGHT_FETCH};
        for (int i = 0; i < 2; i++) {
            mw_import_t *import;
            uint64_t old;
            uint32_t half;
            OK(mw_import_create(node, 0, i ? "ring" : "direct", &both, &import));
            change(import);
            OK(mw_import_compare_swap_u32(import, 40, 0, 5, &half));
            HOLDS(half == 0);
            OK(mw_import_compare_swap_u32(import, 40, 0, 6, &half));
            HOLDS(half == 5);
            OK(mw_import_swap_u32(import, 40, 7, &half));
            HOLDS(half == 5);
            OK(mw_import_compare_swap_u64(import, 48, 1, 5, &old));
            HOLDS(old == 0);
            OK(mw_import_swap_u64(import, 32, 9, &old));
            HOLDS(old == 0);
            OK(mw_import_free(import));
        }
    }
    OK(mw_node_free(node));
    printf("changed\n");
    return 0;
}
