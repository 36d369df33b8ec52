/* UCX: one-sided put with a fence before the flag, and tag matching. UCX_TLS chooses the transports. With PEERS_HOSTS a put needs the
 * receiver's library. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>

#include "peer.h"

static ucp_context_h context;
static ucp_worker_h worker;
static ucp_ep_h endpoint;
static ucp_mem_h region;
static ucp_rkey_h key;
static char *inbox, *tagged;
static uint64_t theirs;
static char put_name[128], tag_name[128];
static int hosts;

static int fail(const char *what, ucs_status_t status) {
    fprintf(stderr, "ucx: %s: %s\n", what, ucs_status_string(status));
    return 1;
}

#define CHECK(what, call)                                                                                              \
    do {                                                                                                               \
        ucs_status_t status = (call);                                                                                  \
        if (status != UCS_OK) return fail(what, status);                                                               \
    } while (0)

/* What one process tells the other: lengths, then the worker's address and the key of its memory. */
typedef struct {
    uint64_t memory, address_bytes, key_bytes;
    char bytes[PEER_EXCHANGE_BYTES - 24];
} hello_t;

static int finish(const char *what, ucs_status_ptr_t request) {
    if (request == NULL) return 0;
    if (UCS_PTR_IS_ERR(request)) return fail(what, UCS_PTR_STATUS(request));
    ucs_status_t status;
    while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS) ucp_worker_progress(worker);
    ucp_request_free(request);
    return status == UCS_OK ? 0 : fail(what, status);
}

int peer_open(const peer_host_t *host) {
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_RMA | UCP_FEATURE_TAG};
    CHECK("ucp_init", ucp_init(&params, NULL, &context));
    ucp_worker_params_t single = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE, .thread_mode = UCS_THREAD_MODE_SINGLE};
    CHECK("ucp_worker_create", ucp_worker_create(context, &single, &worker));

    ucp_mem_map_params_t map = {
        .field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS,
        .length = host->room,
        .flags = UCP_MEM_MAP_ALLOCATE,
    };
    CHECK("ucp_mem_map", ucp_mem_map(context, &map, &region));
    ucp_mem_attr_t found = {.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS};
    CHECK("ucp_mem_query", ucp_mem_query(region, &found));
    inbox = found.address;
    memset(inbox, 0, host->room);
    tagged = calloc(1, host->room);

    static hello_t mine, other;
    ucp_address_t *address;
    size_t bytes;
    CHECK("ucp_worker_get_address", ucp_worker_get_address(worker, &address, &bytes));
    void *packed;
    size_t packed_bytes;
    CHECK("ucp_rkey_pack", ucp_rkey_pack(context, region, &packed, &packed_bytes));
    if (tagged == NULL || bytes + packed_bytes > sizeof mine.bytes) {
        fprintf(stderr, "ucx: no memory, or an address of %zu bytes\n", bytes + packed_bytes);
        return 1;
    }
    mine.memory = (uintptr_t)inbox;
    mine.address_bytes = bytes;
    mine.key_bytes = packed_bytes;
    memcpy(mine.bytes, address, bytes);
    memcpy(mine.bytes + bytes, packed, packed_bytes);
    host->exchange(&mine, sizeof mine, &other);

    ucp_ep_params_t to = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, .address = (ucp_address_t *)other.bytes};
    CHECK("ucp_ep_create", ucp_ep_create(worker, &to, &endpoint));
    CHECK("ucp_ep_rkey_unpack", ucp_ep_rkey_unpack(endpoint, other.bytes + other.address_bytes, &key));
    theirs = other.memory;

    hosts = getenv("PEERS_HOSTS") != NULL;
    const char *transports = getenv("UCX_TLS");
    snprintf(put_name, sizeof put_name, "UCX put, %s", transports ? transports : "all");
    snprintf(tag_name, sizeof tag_name, "UCX tag, %s", transports ? transports : "all");
    return 0;
}

const char *const *peer_ways(void) {
    static const char *ways[] = {put_name, tag_name, NULL};
    return ways;
}

static size_t flag_at(size_t bytes, size_t at) { return at + (bytes + 7) / 8 * 8; }

int peer_put(unsigned way, const void *data, size_t bytes, size_t at, uint64_t number) {
    const ucp_request_param_t param = {0};
    if (way == 1) return finish("ucp_tag_send", ucp_tag_send_nbx(endpoint, data, bytes, number, &param));
    if (finish("ucp_put", ucp_put_nbx(endpoint, data, bytes, theirs + at, key, &param))) return 1;
    CHECK("ucp_worker_fence", ucp_worker_fence(worker));
    return finish("ucp_put", ucp_put_nbx(endpoint, &number, sizeof number, theirs + flag_at(bytes, at), key, &param));
}

const void *peer_take(unsigned way, size_t bytes, size_t at, uint64_t number) {
    if (way == 1) {
        const ucp_request_param_t param = {0};
        ucs_status_ptr_t request = ucp_tag_recv_nbx(worker, tagged + at, bytes, number, UINT64_MAX, &param);
        return finish("ucp_tag_recv", request) ? NULL : tagged + at;
    }
    const uint64_t *flag = (const uint64_t *)(inbox + flag_at(bytes, at));
    while (__atomic_load_n(flag, __ATOMIC_ACQUIRE) != number) {
        if (hosts) ucp_worker_progress(worker);
    }
    return inbox + at;
}

void peer_progress(void) { ucp_worker_progress(worker); }

void peer_close(void) {
    const ucp_request_param_t param = {0};
    finish("ucp_ep_close", ucp_ep_close_nbx(endpoint, &param));
}
