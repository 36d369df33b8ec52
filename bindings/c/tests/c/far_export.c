/*
 * Two ranks export far memory of which most is not in RAM, fetch what the other has, and store into it. With the argument "open" it is that of
 * mw_far_open; else the program runs under `mapwire far`.
 */
#include "expect.h"

enum { MIB = 1 << 20, BYTES = 12 * MIB, EXPORTED = 6 * MIB, WORDS = BYTES / 8, PIECE = 1 << 16 };

static uint64_t pattern(uint64_t word, uint32_t rank) {
    return (word + rank) * 0x9e3779b97f4a7c15u | 1;
}

static size_t wrong(const uint64_t *memory, size_t words, size_t first, uint32_t rank) {
    size_t count = 0;
    for (size_t word = 0; word < words; word++) {
        count += memory[word] != pattern(first + word, rank);
    }
    return count;
}

int main(int count, char **arguments) {
    static uint64_t piece[PIECE];
    mw_node_t *node;
    mw_far_t *far = NULL;
    uint32_t rank;
    void *memory = NULL;
    OK(mw_node_join(&node));
    OK(mw_node_rank(node, &rank));
    if (count > 1 && strcmp(arguments[1], "open") == 0) {
        mw_far_options_t options = {.size = sizeof options, .local_bytes = 2 * MIB};
        OK(mw_far_open(&options, &far));
        OK(mw_far_alloc(far, BYTES, &memory));
    } else {
        memory = malloc(BYTES);
    }
    uint64_t *words = memory;
    for (size_t word = 0; word < WORDS; word++) {
        words[word] = pattern(word, rank);
    }
    mw_export_t *export;
    mw_import_t *import;
    OK(mw_export_create_range(node, memory, EXPORTED, "far", NULL, &export));
    mw_import_options_t both = {.size = sizeof both, .rights = MW_RIGHT_STORE | MW_RIGHT_FETCH};
    OK(mw_import_create(node, 1 - rank, "far", &both, &import));
    HOLDS(wrong(words, WORDS, 0, rank) == 0);
    for (size_t at = 0; at < EXPORTED; at += sizeof piece) {
        OK(mw_import_fetch(import, at, piece, sizeof piece));
        HOLDS(wrong(piece, PIECE, at / 8, 1 - rank) == 0);
    }
    OK(mw_node_barrier(node));
    /* Everything becomes that of a rank 5. */
    for (size_t at = 0; at < EXPORTED; at += sizeof piece) {
        for (size_t word = 0; word < PIECE; word++) {
            piece[word] = pattern(at / 8 + word, 5);
        }
        OK(mw_import_send(import, piece, sizeof piece, at));
    }
    OK(mw_import_flush(import));
    OK(mw_node_barrier(node));
    HOLDS(wrong(words, EXPORTED / 8, 0, 5) == 0);
    HOLDS(wrong(words + EXPORTED / 8, WORDS - EXPORTED / 8, EXPORTED / 8, rank) == 0);
    OK(mw_node_barrier(node));
    OK(mw_import_free(import));
    OK(mw_export_revoke(export));
    HOLDS(wrong(words, EXPORTED / 8, 0, 5) == 0);
    HOLDS(wrong(words + EXPORTED / 8, WORDS - EXPORTED / 8, EXPORTED / 8, rank) == 0);
    OK(mw_node_free(node));
    OK(mw_far_close(far));
    puts("whole");
    return 0;
}
