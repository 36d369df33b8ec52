/* The mapped pointer of an import, and threads that poll. 2 ranks. */
#define _POSIX_C_SOURCE 200809L
#include "expect.h"

#include <pthread.h>
#include <time.h>

enum { BYTES = 8192, FETCHES = 10 };

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void *begin_and_end_without(void *node) {
    OK(mw_node_begin_polling(node));
    return NULL;
}

static void *end_of_another(void *node) {
    FAILS(MW_ERR_STATE, "does not poll", mw_node_end_polling(node));
    return NULL;
}

static void in_a_thread(void *(*body)(void *), mw_node_t *node) {
    pthread_t thread;
    HOLDS(pthread_create(&thread, NULL, body, node) == 0);
    HOLDS(pthread_join(thread, NULL) == 0);
}

static void polling(mw_node_t *node) {
    FAILS(MW_ERR_ARGUMENT, "`node` is NULL", mw_node_begin_polling(NULL));
    FAILS(MW_ERR_ARGUMENT, "`node` is NULL", mw_node_end_polling(NULL));
    FAILS(MW_ERR_STATE, "does not poll", mw_node_end_polling(node));
    OK(mw_node_begin_polling(node));
    OK(mw_node_begin_polling(node));
    in_a_thread(end_of_another, node);
    OK(mw_node_poll(node, NULL));
    OK(mw_node_end_polling(node));
    OK(mw_node_end_polling(node));
    FAILS(MW_ERR_STATE, "does not poll", mw_node_end_polling(node));
}

/* Exports memory, and leaves the fetches of rank 1 to the service thread. */
static void offer(mw_node_t *node) {
    mw_buffer_t *buffer;
    mw_export_t *direct, *ring, *done;
    void *memory;
    static uint64_t words[8], end;
    OK(mw_buffer_alloc(node, BYTES, &buffer));
    OK(mw_buffer_ptr(buffer, &memory));
    OK(mw_export_create(node, buffer, "direct", NULL, &direct));
    mw_export_options_t options = {.size = sizeof options, .flags = MW_EXPORT_RING_ONLY};
    OK(mw_export_create_range(node, words, sizeof words, "ring", &options, &ring));
    in_a_thread(begin_and_end_without, node);
    while (__atomic_load_n((uint64_t *)memory, __ATOMIC_ACQUIRE) == 0) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    HOLDS(((uint64_t *)memory)[1] == 42 && ((uint64_t *)memory)[BYTES / 8 - 1] == 43);
    OK(mw_export_create_range(node, &end, sizeof end, "end", NULL, &done));
    OK(mw_export_wait_signal(done, 0, 1, MW_FOREVER, NULL));
    OK(mw_export_revoke(done));
    OK(mw_export_revoke(ring));
    OK(mw_export_revoke(direct));
    OK(mw_buffer_free(buffer));
}

static void use(mw_node_t *node) {
    mw_import_t *direct, *ring, *done;
    mw_import_options_t options = {.size = sizeof options, .rights = MW_RIGHT_STORE | MW_RIGHT_FETCH};
    OK(mw_import_create(node, 0, "direct", &options, &direct));
    OK(mw_import_create(node, 0, "ring", &options, &ring));
    void *whole, *part, *none = &none;
    OK(mw_import_pointer(direct, 0, BYTES, &whole));
    OK(mw_import_pointer(direct, BYTES - 8, 8, &part));
    HOLDS((char *)part == (char *)whole + BYTES - 8);
    OK(mw_import_pointer(direct, BYTES, 0, &part));
    HOLDS((char *)part == (char *)whole + BYTES);
    FAILS(MW_ERR_RANGE, "pass the end", mw_import_pointer(direct, 1, BYTES, &none));
    HOLDS(none == NULL);
    FAILS(MW_ERR_RANGE, "pass the end", mw_import_pointer(direct, UINT64_MAX, 2, &none));
    FAILS(MW_ERR_RANGE, "pass the end", mw_import_pointer(ring, 64, 1, &none));
    FAILS(MW_ERR_ADDRESS, "8 bytes at 16", mw_import_pointer(ring, 16, 8, &none));
    FAILS(MW_ERR_ARGUMENT, "`import` is NULL", mw_import_pointer(NULL, 0, 1, &none));
    FAILS(MW_ERR_ARGUMENT, "`pointer` is NULL", mw_import_pointer(direct, 0, 1, NULL));

    uint64_t shortest = UINT64_MAX;
    for (int i = 0; i < FETCHES; i++) {
        uint64_t word, begin = now_ns();
        OK(mw_import_fetch(ring, 0, &word, sizeof word));
        uint64_t took = now_ns() - begin;
        shortest = i > 0 && took < shortest ? took : shortest;
    }
    HOLDS(shortest < 50 * 1000 * 1000); /* rank 0 is woken: its thread that polled has ended */

    uint64_t *words = whole;
    words[1] = 42;
    words[BYTES / 8 - 1] = 43;
    __atomic_store_n(words, 1, __ATOMIC_RELEASE);
    OK(mw_import_create(node, 0, "end", NULL, &done));
    OK(mw_import_put_signal(done, NULL, 0, 0, 0, 1));
    OK(mw_import_free(done));
    OK(mw_import_free(ring));
    OK(mw_import_free(direct));
}

int main(void) {
    mw_node_t *node;
    uint32_t rank;
    OK(mw_node_join(&node));
    OK(mw_node_rank(node, &rank));
    polling(node);
    if (rank == 0) {
        offer(node);
    } else {
        use(node);
    }
    OK(mw_node_free(node));
    printf("pointed\n");
    return 0;
}
