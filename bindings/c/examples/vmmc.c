/*
 * Virtual memory-mapped communication between two ranks: export, import, fetch, put with a signal, send with a notification,
 * a send that overlaps with work. Each rank checks what it sees.
 *
 *   mapwire run -n 2 -- ./vmmc
 */
#include <mapwire.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TABLE_BYTES = 1 << 20, INBOX_BYTES = 1 << 16, LONG_BYTES = 50000 };
/* Offsets in the table: a signal, a greeting for whoever fetches it, and where rank 1 stores. */
enum { SIGNAL = 0, GREETING = 64, STORED = 4096 };

static const char greeting[] = "fetched without asking rank 0";

#define CHECK(call) check((call), #call, __LINE__)

static void check(mw_status_t status, const char *call, int line) {
    if (status != MW_OK) {
        fprintf(stderr, "vmmc.c:%d: %s: %s: %s\n", line, call, mw_status_name(status), mw_error_message());
        exit(1);
    }
}

static void expect(int holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "vmmc.c: %s does not hold\n", what);
        exit(1);
    }
}

static unsigned char pattern(size_t index) {
    return (unsigned char)(index % 251);
}

/* What the notifications told, added up. They may come in any thread. */
struct mail {
    atomic_uint messages;
    atomic_ullong bytes;
};

static void on_notify(const mw_notification_t *notification, void *data) {
    struct mail *mail = data;
    atomic_fetch_add(&mail->bytes, notification->length);
    atomic_fetch_add(&mail->messages, 1);
}

static void receive(mw_node_t *node) {
    /* A buffer can be mapped by importers: the direct path. */
    mw_buffer_t *buffer;
    void *memory;
    CHECK(mw_buffer_alloc(node, TABLE_BYTES, &buffer));
    CHECK(mw_buffer_ptr(buffer, &memory));
    memcpy((char *)memory + GREETING, greeting, sizeof greeting);
    mw_export_t *table;
    CHECK(mw_export_create(node, buffer, "table", NULL, &table));

    /* Any memory can be exported: the ring path. */
    unsigned char *heap = calloc(1, INBOX_BYTES);
    expect(heap != NULL, "memory for the inbox");
    struct mail mail = {0, 0};
    mw_export_options_t options = {.size = sizeof options};
    options.rights = MW_RIGHT_STORE;
    options.notify = on_notify;
    options.notify_data = &mail;
    mw_export_t *inbox;
    CHECK(mw_export_create_range(node, heap, INBOX_BYTES, "inbox", &options, &inbox));

    CHECK(mw_export_wait_signal(table, SIGNAL, 1, MW_FOREVER, NULL));
    const unsigned char *stored = (unsigned char *)memory + STORED;
    for (size_t i = 0; i < LONG_BYTES; i++) {
        expect(stored[i] == pattern(i), "the data is there when the signal is");
    }
    puts("put_signal: ok");

    while (atomic_load(&mail.messages) < 2) {
        CHECK(mw_node_poll(node, NULL));
    }
    expect(atomic_load(&mail.bytes) == 5 + LONG_BYTES, "the notifications tell of all bytes");
    char hello[6] = {0};
    CHECK(mw_export_read(inbox, 0, hello, 5));
    expect(strcmp(hello, "hello") == 0, "the short message is there");
    puts("send_notify: ok");

    CHECK(mw_export_wait_signal(inbox, INBOX_BYTES - 8, 1, MW_FOREVER, NULL));
    for (size_t i = 0; i < LONG_BYTES; i++) {
        unsigned char byte;
        CHECK(mw_export_read(inbox, 16 + i, &byte, 1));
        expect(byte == pattern(i + 1), "what was sent asynchronously came before the signal");
    }
    puts("send_async: ok");

    CHECK(mw_export_revoke(inbox));
    CHECK(mw_export_revoke(table));
    CHECK(mw_buffer_free(buffer));
    free(heap);
}

static void send(mw_node_t *node) {
    unsigned char *data = malloc(LONG_BYTES);
    expect(data != NULL, "memory for the data");
    for (size_t i = 0; i < LONG_BYTES; i++) {
        data[i] = pattern(i);
    }
    mw_import_options_t options = {.size = sizeof options};
    options.rights = MW_RIGHT_STORE | MW_RIGHT_FETCH;
    mw_import_t *table;
    CHECK(mw_import_create(node, 0, "table", &options, &table));
    uint64_t length, proxy;
    int direct;
    CHECK(mw_import_len(table, &length));
    CHECK(mw_import_is_direct(table, &direct));
    CHECK(mw_import_proxy_address(table, &proxy));
    expect(length == TABLE_BYTES && proxy != 0, "the import is as long as the export");
    printf("table: %s path\n", direct ? "direct" : "ring");

    char text[sizeof greeting];
    CHECK(mw_import_fetch(table, GREETING, text, sizeof text));
    expect(strcmp(text, greeting) == 0, "what was fetched is what rank 0 wrote");
    puts("fetch: ok");

    /* A proxy address is a number that says both: which import, and where in it. */
    CHECK(mw_node_send_to(node, proxy + GREETING, "HELLO", 5));
    CHECK(mw_node_fetch_from(node, proxy + GREETING, text, sizeof text));
    expect(memcmp(text, "HELLO", 5) == 0, "what was sent to a proxy address is fetched from it");
    puts("send_to: ok");
    CHECK(mw_import_put_signal(table, data, LONG_BYTES, STORED, SIGNAL, 1));

    mw_import_t *inbox;
    CHECK(mw_import_create(node, 0, "inbox", NULL, &inbox));
    CHECK(mw_import_is_direct(inbox, &direct));
    expect(!direct, "memory that is no buffer takes the ring path");
    CHECK(mw_import_send_notify(inbox, "hello", 5, 0));
    CHECK(mw_import_send_notify(inbox, data, LONG_BYTES, 16));

    for (size_t i = 0; i < LONG_BYTES; i++) {
        data[i] = pattern(i + 1);
    }
    mw_request_t *request;
    CHECK(mw_import_send_async(inbox, data, LONG_BYTES, 16, &request));
    int done = 0;
    while (!done) { /* or any other work that leaves data alone */
        CHECK(mw_request_is_done(request, &done));
    }
    CHECK(mw_request_wait(request));
    CHECK(mw_import_put_signal(inbox, NULL, 0, 0, INBOX_BYTES - 8, 1));

    CHECK(mw_import_free(inbox));
    CHECK(mw_import_free(table));
    free(data);
}

int main(void) {
    CHECK(mw_version_check(MW_VERSION_NUMBER, MW_ABI));
    mw_node_t *node;
    uint32_t rank, size;
    CHECK(mw_node_join(&node));
    CHECK(mw_node_rank(node, &rank));
    CHECK(mw_node_size(node, &size));
    if (size != 2) {
        fprintf(stderr, "vmmc is a program of 2 ranks, not of %u: mapwire run -n 2 -- ./vmmc\n", size);
        return 2;
    }
    if (rank == 0) {
        receive(node);
    } else {
        send(node);
    }
    CHECK(mw_node_free(node));
    return 0;
}
