/* Bad input to every function: a code and a message, nothing written, and the job goes on. 2 ranks. */
#include "expect.h"

#include <stdint.h>

enum { BYTES = 8192 };

static const uint64_t SHORT_NS = 50 * 1000 * 1000;

static void nulls(mw_node_t *node, mw_buffer_t *buffer) {
    uint32_t number;
    size_t length;
    uint64_t word;
    int32_t flag;
    char byte = 0;
    void *memory = &byte;
    mw_node_t *no_node = NULL;
    mw_export_t *export = (mw_export_t *)&byte;
    mw_import_t *import = (mw_import_t *)&byte;
    mw_request_t *request = (mw_request_t *)&byte;

    FAILS(MW_ERR_ARGUMENT, "`node` is NULL", mw_node_join(NULL));
    FAILS(MW_ERR_ARGUMENT, "`node` is NULL", mw_node_rank(NULL, &number));
    FAILS(MW_ERR_ARGUMENT, "`rank` is NULL", mw_node_rank(node, NULL));
    FAILS(MW_ERR_ARGUMENT, "`node` is NULL", mw_node_size(NULL, &number));
    FAILS(MW_ERR_ARGUMENT, "`size` is NULL", mw_node_size(node, NULL));
    FAILS(MW_ERR_ARGUMENT, "`node` is NULL", mw_node_poll(NULL, &flag));
    OK(mw_node_poll(node, NULL));
    FAILS(MW_ERR_ARGUMENT, "mw_node_counters_t` is NULL", mw_node_counters(node, NULL));

    FAILS(MW_ERR_ARGUMENT, "`node` is NULL", mw_buffer_alloc(no_node, 1, &buffer));
    HOLDS(buffer == NULL);
    FAILS(MW_ERR_ARGUMENT, "`buffer` is NULL", mw_buffer_alloc(node, 1, NULL));
    FAILS(MW_ERR_ARGUMENT, "`buffer` is NULL", mw_buffer_ptr(NULL, &memory));
    FAILS(MW_ERR_ARGUMENT, "`buffer` is NULL", mw_buffer_len(NULL, &length));

    OK(mw_buffer_alloc(node, BYTES, &buffer));
    FAILS(MW_ERR_ARGUMENT, "`memory` is NULL", mw_buffer_ptr(buffer, NULL));
    FAILS(MW_ERR_ARGUMENT, "`length` is NULL", mw_buffer_len(buffer, NULL));

    FAILS(MW_ERR_ARGUMENT, "`node` is NULL", mw_export_create(NULL, buffer, "a", NULL, &export));
    HOLDS(export == NULL);
    FAILS(MW_ERR_ARGUMENT, "`buffer` is NULL", mw_export_create(node, NULL, "a", NULL, &export));
    FAILS(MW_ERR_ARGUMENT, "`name` is NULL", mw_export_create(node, buffer, NULL, NULL, &export));
    FAILS(MW_ERR_ARGUMENT, "`exported` is NULL", mw_export_create(node, buffer, "a", NULL, NULL));
    FAILS(MW_ERR_ARGUMENT, "`memory` is NULL", mw_export_create_range(node, NULL, 1, "a", NULL, &export));
    FAILS(MW_ERR_ARGUMENT, "`exported` is NULL", mw_export_len(NULL, &word));
    FAILS(MW_ERR_ARGUMENT, "`exported` is NULL", mw_export_read(NULL, 0, memory, 1));
    FAILS(MW_ERR_ARGUMENT, "`exported` is NULL", mw_export_write(NULL, 0, memory, 1));
    FAILS(MW_ERR_ARGUMENT, "`exported` is NULL", mw_export_signal(NULL, 0, &word));
    FAILS(MW_ERR_ARGUMENT, "`exported` is NULL", mw_export_wait_signal(NULL, 0, 1, 0, &word));
    FAILS(MW_ERR_ARGUMENT, "`exported` is NULL", mw_export_redirect(NULL, buffer));
    FAILS(MW_ERR_ARGUMENT, "`exported` is NULL", mw_export_redirect_back(NULL));

    FAILS(MW_ERR_ARGUMENT, "`node` is NULL", mw_import_create(NULL, 0, "a", NULL, &import));
    HOLDS(import == NULL);
    FAILS(MW_ERR_ARGUMENT, "`name` is NULL", mw_import_create(node, 0, NULL, NULL, &import));
    FAILS(MW_ERR_ARGUMENT, "`import` is NULL", mw_import_create(node, 0, "a", NULL, NULL));
    FAILS(MW_ERR_ARGUMENT, "`import` is NULL", mw_import_len(NULL, &word));
    FAILS(MW_ERR_ARGUMENT, "`import` is NULL", mw_import_rank(NULL, &number));
    FAILS(MW_ERR_ARGUMENT, "`import` is NULL", mw_import_rights(NULL, &number));
    FAILS(MW_ERR_ARGUMENT, "`import` is NULL", mw_import_is_direct(NULL, &flag));
    FAILS(MW_ERR_ARGUMENT, "`import` is NULL", mw_import_proxy_address(NULL, &word));
    FAILS(MW_ERR_ARGUMENT, "`import` is NULL", mw_import_send(NULL, memory, 1, 0));
    FAILS(MW_ERR_ARGUMENT, "`import` is NULL", mw_import_put_signal(NULL, memory, 1, 0, 0, 1));
    FAILS(MW_ERR_ARGUMENT, "`import` is NULL", mw_import_send_notify(NULL, memory, 1, 0));
    FAILS(MW_ERR_ARGUMENT, "`import` is NULL", mw_import_send_async(NULL, memory, 1, 0, &request));
    HOLDS(request == NULL);
    FAILS(MW_ERR_ARGUMENT, "`import` is NULL", mw_import_fetch(NULL, 0, memory, 1));
    FAILS(MW_ERR_ARGUMENT, "`request` is NULL", mw_request_is_done(NULL, &flag));
    FAILS(MW_ERR_ARGUMENT, "`node` is NULL", mw_node_send_to(NULL, 4096, memory, 1));
    FAILS(MW_ERR_ARGUMENT, "`node` is NULL", mw_node_put_signal_to(NULL, 4096, memory, 1, 4096, 1));
    FAILS(MW_ERR_ARGUMENT, "`node` is NULL", mw_node_fetch_from(NULL, 4096, memory, 1));
    FAILS(MW_ERR_ADDRESS, "proxy 0x0 is in no import", mw_node_send_to(node, 0, memory, 1));

    FAILS(MW_ERR_ARGUMENT, "`shared` is NULL", mw_shared_open(node, 1, NULL));
    FAILS(MW_ERR_ARGUMENT, "`shared` is NULL", mw_shared_alloc(NULL, 1, &memory));
    FAILS(MW_ERR_ARGUMENT, "`shared` is NULL", mw_shared_barrier(NULL));
    FAILS(MW_ERR_ARGUMENT, "`shared` is NULL", mw_shared_barrier_of(NULL, 0));
    FAILS(MW_ERR_ARGUMENT, "`shared` is NULL", mw_shared_prefetch(NULL, memory, 1));
    FAILS(MW_ERR_ARGUMENT, "`shared` is NULL", mw_shared_prefetch_to_write(NULL, memory, 1));
    FAILS(MW_ERR_ARGUMENT, "`shared` is NULL", mw_shared_lock(NULL, 0));
    FAILS(MW_ERR_ARGUMENT, "`shared` is NULL", mw_shared_unlock(NULL, 0));
    FAILS(MW_ERR_ARGUMENT, "`shared` is NULL", mw_shared_broadcast(NULL, 0, &word));
    FAILS(MW_ERR_ARGUMENT, "`shared` is NULL", mw_shared_set_threads(NULL, 1));
    FAILS(MW_ERR_ARGUMENT, "`shared` is NULL", mw_shared_counters(NULL, NULL));

    /* What gives objects back takes NULL, as free does. */
    OK(mw_node_free(NULL));
    OK(mw_buffer_free(NULL));
    OK(mw_export_revoke(NULL));
    OK(mw_import_free(NULL));
    OK(mw_request_wait(NULL));
    OK(mw_shared_close(NULL));
    OK(mw_buffer_free(buffer));
}

static void structures(mw_node_t *node) {
    mw_node_counters_t counters;
    memset(&counters, 0x55, sizeof counters);
    FAILS(MW_ERR_ARGUMENT, "set its field `size`", mw_node_counters(node, &counters));
    counters.size = 4;
    FAILS(MW_ERR_ARGUMENT, "has 4 bytes", mw_node_counters(node, &counters));
    HOLDS(counters.commands == 0x5555555555555555);
    counters.size = sizeof counters;
    OK(mw_node_counters(node, &counters));
    HOLDS(counters.commands < 0x5555555555555555);

    char memory[64];
    mw_export_t *export;
    mw_export_options_t options = {0};
    FAILS(MW_ERR_ARGUMENT, "has 0 bytes", mw_export_create_range(node, memory, 64, "s", &options, &export));
    options.size = sizeof options;
    options.rights = 4;
    FAILS(MW_ERR_ARGUMENT, "unknown rights 0x4", mw_export_create_range(node, memory, 64, "s", &options, &export));
    options.rights = 0;
    options.importers = 99;
    FAILS(MW_ERR_ARGUMENT, "unknown importers 99", mw_export_create_range(node, memory, 64, "s", &options, &export));
    options.importers = MW_IMPORTERS_TOKEN;
    FAILS(MW_ERR_ARGUMENT, "all zero", mw_export_create_range(node, memory, 64, "s", &options, &export));
    options.importers = MW_IMPORTERS_NODES;
    FAILS(MW_ERR_ARGUMENT, "lists none", mw_export_create_range(node, memory, 64, "s", &options, &export));
    options.node_count = 1;
    FAILS(MW_ERR_ARGUMENT, "`nodes` is NULL", mw_export_create_range(node, memory, 64, "s", &options, &export));
    uint32_t rank = 70000;
    options.nodes = &rank;
    FAILS(MW_ERR_RANGE, "rank 70000", mw_export_create_range(node, memory, 64, "s", &options, &export));
    options.node_count = SIZE_MAX;
    FAILS(MW_ERR_RANGE, "`nodes`", mw_export_create_range(node, memory, 64, "s", &options, &export));
    options.importers = MW_IMPORTERS_JOB;
    options.flags = 0x80;
    FAILS(MW_ERR_ARGUMENT, "unknown flags 0x80", mw_export_create_range(node, memory, 64, "s", &options, &export));
    HOLDS(export == NULL);

    /* A program of the future: what it adds must be zero, or the library would leave out what was asked for. */
    struct {
        mw_export_options_t known;
        uint64_t newer;
    } future;
    memset(&future, 0, sizeof future);
    future.known.size = sizeof future;
    OK(mw_export_create_range(node, memory, 64, "s", &future.known, &export));
    OK(mw_export_revoke(export));
    future.newer = 1;
    FAILS(MW_ERR_VERSION, "newer", mw_export_create_range(node, memory, 64, "s", &future.known, &export));

    mw_import_t *import;
    mw_import_options_t asked = {0};
    FAILS(MW_ERR_ARGUMENT, "has 0 bytes", mw_import_create(node, 0, "s", &asked, &import));
    asked.size = sizeof asked;
    asked.rights = 8;
    FAILS(MW_ERR_ARGUMENT, "unknown rights 0x8", mw_import_create(node, 0, "s", &asked, &import));
    asked.rights = 0;
    asked.reserved = 1;
    FAILS(MW_ERR_ARGUMENT, "`reserved`", mw_import_create(node, 0, "s", &asked, &import));
}

static void versions(void) {
    OK(mw_version_check(MW_VERSION_NUMBER, MW_ABI));
    FAILS(MW_ERR_VERSION, "compiled for mapwire 99.0.0", mw_version_check(99000000, MW_ABI));
    FAILS(MW_ERR_VERSION, "binary interface 7", mw_version_check(MW_VERSION_NUMBER, 7));
    HOLDS(mw_version_number() == MW_VERSION_NUMBER);
    char version[32];
    snprintf(version, sizeof version, "%d.%d.%d", MW_VERSION_MAJOR, MW_VERSION_MINOR, MW_VERSION_PATCH);
    HOLDS(strcmp(mw_version(), version) == 0);
    HOLDS(strcmp(mw_status_name(MW_ERR_TIMEOUT), "MW_ERR_TIMEOUT") == 0);
    HOLDS(strcmp(mw_status_name(12345), "MW_ERR_?") == 0);
}

static void memory_and_names(mw_node_t *node) {
    mw_buffer_t *buffer;
    FAILS(MW_ERR_ARGUMENT, "0 bytes", mw_buffer_alloc(node, 0, &buffer));
    HOLDS(buffer == NULL);
    FAILS(MW_ERR_LIMIT, "", mw_buffer_alloc(node, SIZE_MAX, &buffer));
    FAILS(MW_ERR_LIMIT, "", mw_buffer_alloc(node, (size_t)1 << 60, &buffer));
    OK(mw_buffer_alloc(node, BYTES, &buffer));
    size_t length;
    OK(mw_buffer_len(buffer, &length));
    HOLDS(length == BYTES);

    mw_export_t *export, *other;
    char text[300];
    memset(text, 'x', sizeof text);
    text[299] = 0;
    FAILS(MW_ERR_ARGUMENT, "1 to 255", mw_export_create(node, buffer, text, NULL, &export));
    FAILS(MW_ERR_ARGUMENT, "1 to 255", mw_export_create(node, buffer, "", NULL, &export));
    FAILS(MW_ERR_ARGUMENT, "not UTF-8 from byte 2", mw_export_create(node, buffer, "ab\xff", NULL, &export));
    OK(mw_export_create(node, buffer, "taken", NULL, &export));
    FAILS(MW_ERR_EXISTS, "`taken`", mw_export_create(node, buffer, "taken", NULL, &other));
    HOLDS(other == NULL);

    char stack[64];
    FAILS(MW_ERR_ARGUMENT, "0 bytes", mw_export_create_range(node, stack, 0, "none", NULL, &other));
    FAILS(MW_ERR_ADDRESS, "", mw_export_create_range(node, (void *)16, 64, "wild", NULL, &other));
    FAILS(MW_ERR_ADDRESS, "", mw_export_create_range(node, stack, SIZE_MAX / 4, "long", NULL, &other));
    FAILS(MW_ERR_ADDRESS, "", mw_export_create_range(node, (char *)"constant", 4, "constant", NULL, &other));

    uint64_t word = 7;
    memset(stack, 9, sizeof stack);
    FAILS(MW_ERR_RANGE, "8 bytes at 8185", mw_export_read(export, BYTES - 7, &word, 8));
    FAILS(MW_ERR_RANGE, "", mw_export_read(export, UINT64_MAX, &word, 8));
    FAILS(MW_ERR_RANGE, "", mw_export_read(export, 0, &word, SIZE_MAX));
    FAILS(MW_ERR_RANGE, "", mw_export_write(export, 1, &word, SIZE_MAX - 1));
    FAILS(MW_ERR_ARGUMENT, "`into` is NULL", mw_export_read(export, 0, NULL, 8));
    FAILS(MW_ERR_RANGE, "", mw_export_signal(export, BYTES - 4, &word));
    FAILS(MW_ERR_ALIGNMENT, "multiple of 8", mw_export_signal(export, 4, &word));
    FAILS(MW_ERR_TIMEOUT, "offset 0 is 0", mw_export_wait_signal(export, 0, 1, SHORT_NS, &word));
    FAILS(MW_ERR_TIMEOUT, "", mw_export_wait_signal(export, 0, 1, 0, &word));
    FAILS(MW_ERR_STATE, "direct path", mw_export_redirect(export, buffer));
    FAILS(MW_ERR_ARGUMENT, "`buffer` is NULL", mw_export_redirect(export, NULL));
    HOLDS(word == 7);
    OK(mw_export_read(export, BYTES, NULL, 0));
    OK(mw_export_revoke(export));
    OK(mw_buffer_free(buffer));
}

/* Rank 0 offers, rank 1 tries what it must not. */
static void offer(mw_node_t *node) {
    static uint64_t store_only[8], fetch_only[8], secret[8], guarded[8], direct_words[8];
    mw_export_t *exports[5];
    mw_export_options_t options = {.size = sizeof options};
    options.rights = MW_RIGHT_STORE;
    OK(mw_export_create_range(node, store_only, sizeof store_only, "store", &options, &exports[0]));
    options.rights = MW_RIGHT_FETCH;
    OK(mw_export_create_range(node, fetch_only, sizeof fetch_only, "fetch", &options, &exports[1]));
    options.rights = 0;
    options.importers = MW_IMPORTERS_TOKEN;
    memset(options.token, 0xa5, sizeof options.token);
    OK(mw_export_create_range(node, secret, sizeof secret, "secret", &options, &exports[2]));
    options.importers = MW_IMPORTERS_NODES;
    uint32_t only = 0;
    options.nodes = &only;
    options.node_count = 1;
    OK(mw_export_create_range(node, guarded, sizeof guarded, "guarded", &options, &exports[3]));
    OK(mw_export_create_range(node, direct_words, sizeof direct_words, "done", NULL, &exports[4]));

    /* A direct export too: the errors must be the same. */
    mw_buffer_t *buffer;
    mw_export_t *direct;
    OK(mw_buffer_alloc(node, BYTES, &buffer));
    OK(mw_export_create(node, buffer, "direct", NULL, &direct));

    OK(mw_export_wait_signal(exports[4], 0, 1, MW_FOREVER, NULL));
    OK(mw_export_revoke(direct));
    OK(mw_export_revoke(exports[0]));
    OK(mw_export_create_range(node, store_only, sizeof store_only, "revoked", NULL, &exports[0]));
    OK(mw_export_wait_signal(exports[4], 0, 2, MW_FOREVER, NULL));
    for (int i = 0; i < 8; i++) {
        HOLDS(store_only[i] == 0 && fetch_only[i] == 0 && secret[i] == (i == 0 ? 5u : 0u) && guarded[i] == 0);
    }
    for (int i = 0; i < 5; i++) {
        OK(mw_export_revoke(exports[i]));
    }
    OK(mw_buffer_free(buffer));
}

/* What an import of either kind refuses. */
static void ranges(const mw_import_t *import, uint64_t length) {
    uint64_t word = 1;
    mw_request_t *request = (mw_request_t *)&word;
    FAILS(MW_ERR_RANGE, "pass the end", mw_import_send(import, &word, 8, length - 7));
    FAILS(MW_ERR_RANGE, "pass the end", mw_import_send(import, &word, 8, UINT64_MAX - 3));
    FAILS(MW_ERR_RANGE, "pass the end", mw_import_send(import, &word, SIZE_MAX, 0));
    FAILS(MW_ERR_RANGE, "pass the end", mw_import_send_notify(import, &word, length + 1, 0));
    FAILS(MW_ERR_RANGE, "pass the end", mw_import_send_async(import, &word, SIZE_MAX / 2, 0, &request));
    HOLDS(request == NULL);
    FAILS(MW_ERR_RANGE, "pass the end", mw_import_put_signal(import, &word, 8, 0, length, 1));
    FAILS(MW_ERR_ALIGNMENT, "offset 4", mw_import_put_signal(import, &word, 8, 0, 4, 1));
    FAILS(MW_ERR_ARGUMENT, "`data` is NULL", mw_import_send(import, NULL, 8, 0));
    FAILS(MW_ERR_ARGUMENT, "`request` is NULL", mw_import_send_async(import, &word, 8, 0, NULL));
    OK(mw_import_send(import, NULL, 0, length));
    OK(mw_import_send_async(import, NULL, 0, 0, &request));
    OK(mw_request_wait(request));
}

/* The same by proxy address. */
static void proxies(mw_node_t *node, const mw_import_t *import, uint64_t length) {
    uint64_t word = 1, first;
    OK(mw_import_proxy_address(import, &first));
    FAILS(MW_ERR_RANGE, "pass the end", mw_node_send_to(node, first + length - 7, &word, 8));
    FAILS(MW_ERR_RANGE, "pass the end", mw_node_send_to(node, first + length, &word, 1));
    FAILS(MW_ERR_RANGE, "pass the end", mw_node_fetch_from(node, first + length - 7, &word, 8));
    FAILS(MW_ERR_RANGE, "longer than memory", mw_node_send_to(node, first, &word, SIZE_MAX));
    FAILS(MW_ERR_RANGE, "pass the end", mw_node_put_signal_to(node, first, &word, 8, first + length, 1));
    FAILS(MW_ERR_ALIGNMENT, "offset 4", mw_node_put_signal_to(node, first, &word, 8, first + 4, 1));
    FAILS(MW_ERR_ADDRESS, "in no import", mw_node_send_to(node, UINT64_MAX, &word, 8));
    FAILS(MW_ERR_ARGUMENT, "`data` is NULL", mw_node_send_to(node, first, NULL, 8));
    FAILS(MW_ERR_ARGUMENT, "`into` is NULL", mw_node_fetch_from(node, first, NULL, 8));
    OK(mw_node_send_to(node, first + length, NULL, 0));
    HOLDS(word == 1);
}

static void use(mw_node_t *node) {
    mw_import_t *store, *fetch, *secret, *done, *direct, *none;
    uint64_t words[8] = {5};
    mw_import_options_t options = {.size = sizeof options};
    options.timeout_ns = SHORT_NS;
    FAILS(MW_ERR_TIMEOUT, "`nothing`", mw_import_create(node, 0, "nothing", &options, &none));
    HOLDS(none == NULL);
    FAILS(MW_ERR_RANGE, "rank 2", mw_import_create(node, 2, "store", NULL, &none));
    FAILS(MW_ERR_RANGE, "rank 4294967295", mw_import_create(node, UINT32_MAX, "store", NULL, &none));
    options.timeout_ns = 0;
    FAILS(MW_ERR_REFUSED, "`guarded`", mw_import_create(node, 0, "guarded", &options, &none));
    FAILS(MW_ERR_REFUSED, "`secret`", mw_import_create(node, 0, "secret", &options, &none));
    memset(options.token, 0xa6, sizeof options.token);
    FAILS(MW_ERR_REFUSED, "`secret`", mw_import_create(node, 0, "secret", &options, &none));
    memset(options.token, 0xa5, sizeof options.token);
    OK(mw_import_create(node, 0, "secret", &options, &secret));
    OK(mw_import_send(secret, words, 8, 0));
    memset(options.token, 0, sizeof options.token);
    options.rights = MW_RIGHT_STORE;
    FAILS(MW_ERR_RIGHTS, "`fetch`", mw_import_create(node, 0, "fetch", &options, &none));
    options.rights = MW_RIGHT_FETCH;
    FAILS(MW_ERR_RIGHTS, "`store`", mw_import_create(node, 0, "store", &options, &none));
    OK(mw_import_create(node, 0, "fetch", &options, &fetch));
    options.rights = MW_RIGHT_STORE | MW_RIGHT_FETCH;
    OK(mw_import_create(node, 0, "direct", &options, &direct));
    OK(mw_import_create(node, 0, "store", NULL, &store));
    OK(mw_import_create(node, 0, "done", NULL, &done));

    ranges(store, 64);
    ranges(direct, BYTES);
    proxies(node, store, 64);
    proxies(node, direct, BYTES);
    uint64_t proxy, other;
    OK(mw_import_proxy_address(store, &proxy));
    OK(mw_import_proxy_address(direct, &other));
    FAILS(MW_ERR_ARGUMENT, "two imports", mw_node_put_signal_to(node, proxy, words, 8, other, 1));
    FAILS(MW_ERR_RIGHTS, "", mw_node_fetch_from(node, proxy, words, 8));
    FAILS(MW_ERR_RIGHTS, "", mw_import_fetch(store, 0, words, 8));
    FAILS(MW_ERR_RIGHTS, "", mw_import_send(fetch, words, 8, 0));
    FAILS(MW_ERR_RIGHTS, "", mw_import_put_signal(fetch, words, 8, 0, 0, 1));
    FAILS(MW_ERR_RANGE, "", mw_import_fetch(fetch, 1, words, 64));
    FAILS(MW_ERR_RANGE, "", mw_import_fetch(fetch, 0, words, SIZE_MAX));
    FAILS(MW_ERR_ARGUMENT, "`into` is NULL", mw_import_fetch(fetch, 0, NULL, 8));
    HOLDS(words[0] == 5);
    OK(mw_import_fetch(fetch, 0, words, 64));
    HOLDS(words[0] == 0);
    uint32_t number;
    OK(mw_import_rank(store, &number));
    HOLDS(number == 0);
    OK(mw_import_rights(store, &number));
    HOLDS(number == MW_RIGHT_STORE);

    OK(mw_import_put_signal(done, NULL, 0, 0, 0, 1));
    /* When rank 0 offers this, it has revoked the others before. */
    OK(mw_import_create(node, 0, "revoked", NULL, &none));
    FAILS(MW_ERR_REVOKED, "`direct`", mw_import_send(direct, words, 8, 0));
    FAILS(MW_ERR_REVOKED, "`direct`", mw_import_fetch(direct, 0, words, 8));
    FAILS(MW_ERR_REVOKED, "`direct`", mw_import_send_notify(direct, words, 8, 0));
    FAILS(MW_ERR_REVOKED, "`store`", mw_import_send(store, words, 8, 0));
    FAILS(MW_ERR_REVOKED, "`direct`", mw_node_send_to(node, other, words, 8));
    FAILS(MW_ERR_REVOKED, "`store`", mw_node_send_to(node, proxy, words, 8));
    OK(mw_import_put_signal(done, NULL, 0, 0, 0, 2));
    OK(mw_import_free(none));
    OK(mw_import_free(secret));
    OK(mw_import_free(fetch));
    OK(mw_import_free(direct));
    OK(mw_import_free(store));
    FAILS(MW_ERR_ADDRESS, "dropped", mw_node_send_to(node, proxy, words, 8));
    OK(mw_import_free(done));
}

static void shared_memory(mw_node_t *node, uint32_t rank) {
    mw_shared_t *shared, *second;
    mw_export_t *export;
    void *memory = &shared;
    OK(mw_shared_open(node, 1, &shared));
    FAILS(MW_ERR_EXISTS, "", mw_shared_open(node, 1, &second));
    HOLDS(second == NULL);
    FAILS(MW_ERR_ARGUMENT, "`memory` is NULL", mw_shared_alloc(shared, 1, NULL));
    FAILS(MW_ERR_ARGUMENT, "0 bytes", mw_shared_alloc(shared, 0, &memory));
    HOLDS(memory == NULL);
    FAILS(MW_ERR_LIMIT, "", mw_shared_alloc(shared, SIZE_MAX, &memory));
    FAILS(MW_ERR_LIMIT, "", mw_shared_alloc(shared, (size_t)1 << 40, &memory));
    FAILS(MW_ERR_RANGE, "4096", mw_shared_lock(shared, 4096));
    FAILS(MW_ERR_STATE, "lock 5", mw_shared_unlock(shared, 5));
    FAILS(MW_ERR_ADDRESS, "share", mw_shared_prefetch(shared, &second, 8));
    FAILS(MW_ERR_RANGE, "256", mw_shared_barrier_of(shared, 256));
    FAILS(MW_ERR_LIMIT, "", mw_shared_set_threads(shared, 0));
    FAILS(MW_ERR_LIMIT, "", mw_shared_set_threads(shared, 65));
    FAILS(MW_ERR_ARGUMENT, "`value` is NULL", mw_shared_broadcast(shared, 0, NULL));
    uint64_t value = 3;
    FAILS(MW_ERR_RANGE, "rank 2", mw_shared_broadcast(shared, 2, &value));
    FAILS(MW_ERR_RANGE, "", mw_shared_broadcast(shared, UINT32_MAX, &value));
    HOLDS(value == 3);
    if (rank == 0) {
        OK(mw_shared_lock(shared, 5));
        FAILS(MW_ERR_STATE, "lock 5", mw_shared_lock(shared, 5));
        OK(mw_shared_unlock(shared, 5));
        OK(mw_shared_alloc(shared, 100, &memory));
        memset(memory, 1, 100);
        FAILS(MW_ERR_ADDRESS, "share", mw_shared_prefetch_to_write(shared, memory, SIZE_MAX));
        OK(mw_shared_prefetch_to_write(shared, memory, 100));
        FAILS(MW_ERR_ADDRESS, "shared memory", mw_export_create_range(node, memory, 100, "shared", NULL, &export));
    }
    mw_shared_counters_t counters = {.size = 8};
    FAILS(MW_ERR_ARGUMENT, "8 bytes", mw_shared_counters(shared, &counters));
    counters.size = sizeof counters;
    OK(mw_shared_counters(shared, &counters));
    HOLDS(counters.allocations == (rank == 0 ? 1u : 0u));
    OK(mw_shared_close(shared));
}

int main(void) {
    mw_node_t *node, *second;
    uint32_t rank, size;
    HOLDS(strcmp(mw_error_message(), "") == 0);
    versions();
    OK(mw_node_join(&node));
    FAILS(MW_ERR_EXISTS, "joined before", mw_node_join(&second));
    HOLDS(second == NULL);
    OK(mw_node_rank(node, &rank));
    OK(mw_node_size(node, &size));
    HOLDS(size == 2);
    nulls(node, NULL);
    structures(node);
    memory_and_names(node);
    if (rank == 0) {
        offer(node);
    } else {
        use(node);
    }
    shared_memory(node, rank);
    OK(mw_node_free(node));
    printf("rank %u: all refused\n", rank);
    return 0;
}
