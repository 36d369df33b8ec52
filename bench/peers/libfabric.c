/* libfabric between reliable unconnected endpoints: send and recv; where the provider keeps the order of writes, also a write and one of its
 * flag. PEERS_PROVIDER names the provider. */
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "peer.h"

static struct fid_ep *endpoint;
static struct fid_cq *sent, *come;
static fi_addr_t other;
static char *inbox, *received;
static uint64_t theirs, key;
static size_t inject_bytes;
static int has_put;
static char put_name[128], send_name[128];

static int fail(const char *what, ssize_t code) {
    fprintf(stderr, "libfabric: %s: %s\n", what, fi_strerror((int)-code));
    return 1;
}

#define CHECK(what, call)                                                                                              \
    do {                                                                                                               \
        ssize_t code = (call);                                                                                         \
        if (code < 0) return fail(what, code);                                                                         \
    } while (0)

/* What one process tells the other. */
typedef struct {
    uint64_t memory, key;
    char address[512];
} hello_t;

static struct fi_info *look(const char *provider, int wants_put) {
    struct fi_info *hints = fi_allocinfo(), *found = NULL;
    if (hints == NULL) return NULL;
    hints->caps = FI_MSG | (wants_put ? FI_RMA : 0);
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->tx_attr->msg_order = FI_ORDER_SAS | (wants_put ? FI_ORDER_WAW : 0);
    hints->fabric_attr->prov_name = strdup(provider);
    if (fi_getinfo(FI_VERSION(1, 17), "127.0.0.1", NULL, FI_SOURCE, hints, &found)) found = NULL;
    fi_freeinfo(hints);
    return found;
}

int peer_open(const peer_host_t *host) {
    const char *provider = getenv("PEERS_PROVIDER");
    if (provider == NULL) provider = "tcp;ofi_rxm";
    struct fi_info *info = look(provider, 1);
    has_put = info != NULL;
    if (!has_put) info = look(provider, 0);
    if (info == NULL) {
        fprintf(stderr, "libfabric: there is no provider %s\n", provider);
        return 1;
    }
    inject_bytes = info->tx_attr->inject_size;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *addresses;
    CHECK("fi_fabric", fi_fabric(info->fabric_attr, &fabric, NULL));
    CHECK("fi_domain", fi_domain(fabric, info, &domain, NULL));
    CHECK("fi_endpoint", fi_endpoint(domain, info, &endpoint, NULL));
    struct fi_cq_attr queue = {.format = FI_CQ_FORMAT_CONTEXT, .wait_obj = FI_WAIT_NONE};
    CHECK("fi_cq_open", fi_cq_open(domain, &queue, &sent, NULL));
    CHECK("fi_cq_open", fi_cq_open(domain, &queue, &come, NULL));
    struct fi_av_attr table = {.type = FI_AV_TABLE};
    CHECK("fi_av_open", fi_av_open(domain, &table, &addresses, NULL));
    CHECK("fi_ep_bind", fi_ep_bind(endpoint, &sent->fid, FI_TRANSMIT));
    CHECK("fi_ep_bind", fi_ep_bind(endpoint, &come->fid, FI_RECV));
    CHECK("fi_ep_bind", fi_ep_bind(endpoint, &addresses->fid, 0));
    CHECK("fi_enable", fi_enable(endpoint));

    static hello_t mine;
    static char bytes[PEER_EXCHANGE_BYTES];
    inbox = calloc(1, host->room);
    received = calloc(1, host->most_bytes);
    if (inbox == NULL || received == NULL) return fail("memory", -FI_ENOMEM);
    if (has_put) {
        struct fid_mr *region;
        CHECK("fi_mr_reg", fi_mr_reg(domain, inbox, host->room, FI_REMOTE_WRITE, 0, 1, 0, &region, NULL));
        mine.key = fi_mr_key(region);
        mine.memory = info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? (uintptr_t)inbox : 0;
    }
    size_t length = sizeof mine.address;
    CHECK("fi_getname", fi_getname(&endpoint->fid, mine.address, &length));
    host->exchange(&mine, sizeof mine, bytes);
    const hello_t *hello = (const hello_t *)bytes;
    theirs = hello->memory;
    key = hello->key;
    if (fi_av_insert(addresses, hello->address, 1, &other, 0, NULL) != 1) return fail("fi_av_insert", -FI_EINVAL);

    snprintf(put_name, sizeof put_name, "libfabric put, %s", provider);
    snprintf(send_name, sizeof send_name, "libfabric send and recv, %s", provider);
    return 0;
}

const char *const *peer_ways(void) {
    static const char *ways[] = {send_name, NULL, NULL};
    if (has_put) ways[1] = put_name;
    return ways;
}

static size_t flag_at(size_t bytes, size_t at) { return at + (bytes + 7) / 8 * 8; }

/* Completions of a queue, or an error. */
static ssize_t look_at(struct fid_cq *queue) {
    struct fi_cq_entry entry;
    ssize_t found = fi_cq_read(queue, &entry, 1);
    return found == -FI_EAGAIN ? 0 : found;
}

/* Does `call` until there is room for it. */
#define TRY(what, call)                                                                                                \
    do {                                                                                                               \
        ssize_t code;                                                                                                  \
        while ((code = (call)) == -FI_EAGAIN) peer_progress();                                                         \
        if (code) return fail(what, code);                                                                             \
    } while (0)

static int wait_for_sent(void) {
    ssize_t found;
    while ((found = look_at(sent)) == 0) {
    }
    return found < 0 ? fail("fi_cq_read", found) : 0;
}

int peer_put(unsigned way, const void *data, size_t bytes, size_t at, uint64_t number) {
    static struct fi_context context;
    if (way == 0) {
        if (bytes <= inject_bytes) {
            TRY("fi_inject", fi_inject(endpoint, data, bytes, other));
            return 0;
        }
        TRY("fi_send", fi_send(endpoint, data, bytes, NULL, other, &context));
        return wait_for_sent();
    }
    if (bytes <= inject_bytes) {
        TRY("fi_inject_write", fi_inject_write(endpoint, data, bytes, other, theirs + at, key));
    } else {
        TRY("fi_write", fi_write(endpoint, data, bytes, NULL, other, theirs + at, key, &context));
        if (wait_for_sent()) return 1;
    }
    TRY("fi_inject_write", fi_inject_write(endpoint, &number, 8, other, theirs + flag_at(bytes, at), key));
    return 0;
}

const void *peer_take(unsigned way, size_t bytes, size_t at, uint64_t number) {
    static struct fi_context context;
    ssize_t found = 0;
    if (way == 0) {
        while ((found = fi_recv(endpoint, received, bytes, NULL, other, &context)) == -FI_EAGAIN) peer_progress();
        while (found == 0 && (found = look_at(come)) == 0) {
        }
        if (found != 1) fail("fi_recv", found);
        return found == 1 ? received : NULL;
    }
    const uint64_t *flag = (const uint64_t *)(inbox + flag_at(bytes, at));
    while (__atomic_load_n(flag, __ATOMIC_ACQUIRE) != number) {
        if (look_at(come) < 0) return NULL;
    }
    return inbox + at;
}

/* Reads no completion of a send that is waited for: that is the only one then. */
void peer_progress(void) {
    fi_cq_read(come, NULL, 0);
    fi_cq_read(sent, NULL, 0);
}

void peer_close(void) { fi_close(&endpoint->fid); }
