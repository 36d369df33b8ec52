/* mapwire, by its C library: memory of mw_buffer_alloc, memory of the program, and the ring. With PEERS_HOSTS by datagrams only. */
#include <mapwire.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "peer.h"

enum { DIRECT, HEAP, RING, WAYS };

static mw_node_t *node;
static char *inbox[WAYS];
static mw_import_t *theirs[WAYS];
static mw_export_t *ours[WAYS];
static const char *ways[WAYS + 1] = {"mapwire direct", "mapwire heap", "mapwire ring", NULL};
/* The first way that there is, by the numbers above. */
static unsigned first;

static int failed(mw_status_t status) {
    if (status != MW_OK) fprintf(stderr, "mapwire: %s\n", mw_error_message());
    return status != MW_OK;
}

int peer_open(const peer_host_t *host) {
    static const char *const names[] = {"direct", "heap", "ring"};
    static char name[128];
    const char *hosts = getenv("PEERS_HOSTS");
    if (hosts != NULL) {
        first = RING;
        snprintf(name, sizeof name, "mapwire, %s", hosts);
        ways[RING] = name;
    }
    if (failed(mw_node_join(&node))) return 1;
    for (int way = (int)first; way < WAYS; way++) {
        mw_export_options_t options = {.size = sizeof options, .flags = way == RING ? MW_EXPORT_RING_ONLY : 0};
        if (way == HEAP) {
            void *memory;
            if (posix_memalign(&memory, 4096, host->room)) return 1;
            memset(memory, 0, host->room);
            inbox[way] = memory;
            if (failed(mw_export_create_range(node, memory, host->room, names[way], &options, &ours[way]))) return 1;
        } else {
            mw_buffer_t *buffer;
            void *memory;
            if (failed(mw_buffer_alloc(node, host->room, &buffer))) return 1;
            if (failed(mw_buffer_ptr(buffer, &memory))) return 1;
            inbox[way] = memory;
            if (failed(mw_export_create(node, buffer, names[way], &options, &ours[way]))) return 1;
        }
        if (failed(mw_import_create(node, (uint32_t)(1 - host->rank), names[way], NULL, &theirs[way]))) return 1;
    }
    return failed(mw_node_begin_polling(node));
}

const char *const *peer_ways(void) { return ways + first; }

static size_t flag_at(size_t bytes, size_t at) { return at + (bytes + 7) / 8 * 8; }

int peer_put(unsigned way, const void *data, size_t bytes, size_t at, uint64_t number) {
    return failed(mw_import_put_signal(theirs[first + way], data, bytes, at, flag_at(bytes, at), number));
}

const void *peer_take(unsigned way, size_t bytes, size_t at, uint64_t number) {
    way += first;
    const uint64_t *flag = (const uint64_t *)(inbox[way] + flag_at(bytes, at));
    if (way == RING && failed(mw_export_wait_signal(ours[way], flag_at(bytes, at), number, MW_FOREVER, NULL))) return NULL;
    while (__atomic_load_n(flag, __ATOMIC_ACQUIRE) != number) {
    }
    return inbox[way] + at;
}

void peer_progress(void) {
    int32_t worked;
    mw_node_poll(node, &worked);
}

void peer_close(void) {
    mw_node_end_polling(node);
    mw_node_free(node);
}
