/*
 * mapwire.h: joins the memory of separate processes.
 * *
 * A process exports memory; another imports it and stores straight into it, or fetches from it. On that stands memory that
 * all ranks of a parallel program share. Start a program's ranks with: mapwire run -n 4 -- ./program
 * *
 * - A function returns MW_OK or a negative code, and mw_error_message() says what was wrong, with which value, and how to mend
 *   it. Results go where the last arguments point; when a function fails they stay as they were, but a pointer to an object
 *   becomes NULL.
 * - Objects belong to the program, which gives each back with its function (mw_*_free, _revoke, _wait, _close). An object may
 *   be used by several threads at once, except while it is given back, unless its functions say otherwise.
 * - Offsets and lengths are in bytes, times in nanoseconds.
 * - Signals: while shared memory is open, the library handles SIGBUS and SIGSEGV in it, and passes all others on. From the first
 *   send by the ring path on, its handler also finds out whether the memory sent is mapped.
 * - After fork(2) nothing of the parent's works in the child: calls give MW_ERR_FORKED, functions that give back (mw_*_free) give MW_OK and
 *   release nothing that the parent uses. Shared memory is there if all ranks are on one host, with the calls that mw_shared_t names, and
 *   not mapped else. exec(2), system(3) and posix_spawn(3) are fine, and a child may join a job of its own.
 * *
 * Compile with: cc program.c $(pkg-config --cflags --libs mapwire)
 * Manual pages: mw_node(3), mw_collective(3), mw_buffer(3), mw_export(3), mw_import(3), mw_request(3), mw_atomic(3), mw_eventfd(3), mw_shared(3), mw_heap(3), mw_sync(3), mw_far(3), mw_error(3)
 * *
 * This file is made from the library's source. Do not edit it.
 */

#ifndef MAPWIRE_H
#define MAPWIRE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

/* Version of this header: the first number. */
#define MW_VERSION_MAJOR 0

/* Version of this header: the second number. */
#define MW_VERSION_MINOR 1

/* Version of this header: the third number. */
#define MW_VERSION_PATCH 0

/* The three numbers in one that grows: 1002003 is version 1.2.3. */
#define MW_VERSION_NUMBER (((MW_VERSION_MAJOR * 1000000) + (MW_VERSION_MINOR * 1000)) + MW_VERSION_PATCH)

/*
 * The binary interface that this header describes; also the number behind `libmapwire.so.`. It grows when something is removed or
 * changed. Additions do not change it: structures say their own size, and new functions are new symbols.
 */
#define MW_ABI 0

/* Reduce to the sum; integers wrap modulo 2^64. */
#define MW_SUM 0

/* Reduce to the minimum. */
#define MW_MIN 1

/* Reduce to the maximum. */
#define MW_MAX 2

/* Importers may store. */
#define MW_RIGHT_STORE 1

/* Importers may fetch. */
#define MW_RIGHT_FETCH 2

/* Every rank of the job may import it. */
#define MW_IMPORTERS_JOB 0

/* Processes of one user may: `user` of the options. */
#define MW_IMPORTERS_USER 1

/* Listed ranks may: `nodes` and `node_count` of the options. */
#define MW_IMPORTERS_NODES 2

/* Any process that shows a token may: `token` of the options. */
#define MW_IMPORTERS_TOKEN 3

/*
 * For `flags` of an export's options: use the ring path even if importers could map the memory, which then does not move, and which
 * `mw_export_redirect` requires.
 */
#define MW_EXPORT_RING_ONLY 1

/* Bytes of a token. */
#define MW_TOKEN_BYTES 16

/* Wait without limit. */
#define MW_FOREVER UINT64_MAX

/* The unit that is the whole allocation. */
#define MW_UNIT_WHOLE UINT64_MAX

/* In a job of hlrc, the allocation is sequentially consistent, as with minipages. */
#define MW_ALLOC_MINIPAGES 1

/* The allocation is lazily consistent, which only a job of hlrc has. */
#define MW_ALLOC_HLRC 2

/* `home` names a rank. */
#define MW_ALLOC_HOME 4

/*
 * Result of a call: `MW_OK`, or a negative code. `mw_error_message()` says more. Later versions may return codes that this header does
 * not name: treat them as failures.
 */
enum mw_status_t
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif /* defined(__cplusplus) || __STDC_VERSION__ >= 202311L */
 {
    /* Success. */
    MW_OK = 0,
    /*
     * An invalid argument: `NULL`, an unknown enumerator or flag, a structure without its size, an invalid name, a length of 0 that must
     * not be.
     */
    MW_ERR_ARGUMENT = -1,
    /* A range outside the buffer, export, import or shared memory; a number of a rank, lock or barrier that does not exist. */
    MW_ERR_RANGE = -2,
    /* A signal that is not 8 aligned bytes. */
    MW_ERR_ALIGNMENT = -3,
    /* Memory that this process does not have, may not use so, or that cannot serve this purpose; a proxy address in no import. */
    MW_ERR_ADDRESS = -4,
    /* A right that the import does not carry. */
    MW_ERR_RIGHTS = -5,
    /* The exporter does not admit this process, or the token is wrong. */
    MW_ERR_REFUSED = -6,
    /* The export was revoked. */
    MW_ERR_REVOKED = -7,
    /* A rank, or the launcher, has left or died. */
    MW_ERR_GONE = -8,
    /* The timeout has expired. */
    MW_ERR_TIMEOUT = -9,
    /* The name is taken, or the object is open already. */
    MW_ERR_EXISTS = -10,
    /* The present state forbids it: a lock that is not held, a redirection of mapped memory, two calls that exclude each other. */
    MW_ERR_STATE = -11,
    /* A limit is reached: of memory, address space, pinned pages, descriptors, or a table of the NIC. The message names it. */
    MW_ERR_LIMIT = -12,
    /* A `MAPWIRE_*` variable is invalid, or differs between ranks. */
    MW_ERR_CONFIG = -13,
    /* The operating system refused for another reason. */
    MW_ERR_SYSTEM = -14,
    /* A peer or the launcher does not follow the protocol; the job cannot continue. */
    MW_ERR_PROTOCOL = -15,
    /* Program, library and launcher are incompatible. */
    MW_ERR_VERSION = -16,
    /* A fault of mapwire itself. */
    MW_ERR_INTERNAL = -17,
    /* The calling process is a child by fork(2) of the one that joined the job: nodes do not work there. */
    MW_ERR_FORKED = -18
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum mw_status_t mw_status_t;
#else
typedef int32_t mw_status_t;
#endif /* __STDC_VERSION__ >= 202311L */
#endif /* __cplusplus */

/* Memory that importers can map: they store into it, and fetch from it, without help of this process (the direct path). */
typedef struct mw_buffer_t mw_buffer_t;

/*
 * A descriptor that becomes readable when something has arrived for this process, for programs that sleep in `epoll`, `poll` or an event
 * loop built on them.
 */
typedef struct mw_eventfd_t mw_eventfd_t;

/* Exported memory: others may store into it or fetch from it, until `mw_export_revoke`. Several threads may use it at once. */
typedef struct mw_export_t mw_export_t;

/*
 * Memory of which a limited part is in RAM, and the rest in an unnamed file, or in files that were mapped. Loads and stores access it as
 * usual; an access to a page that is not in RAM waits until it is. System calls may use the memory, as may any number of threads.
 * `mapwire stats` shows its figures.
 *
 * A page that cannot be read back from the disk unchanged is never given to the program: access to it raises SIGBUS, and a line on stderr
 * says why. A child by fork(2) does not have the memory. Free pages by the functions here: munmap(2) and madvise(2) bypass the library.
 */
typedef struct mw_far_t mw_far_t;

/*
 * The right to store into another rank's memory, or to fetch from it. Several threads may use it at once; what one thread sends arrives
 * in order.
 */
typedef struct mw_import_t mw_import_t;

/* A process's membership in a job: its rank, and its connections to the others. Any number of threads may use it at once. */
typedef struct mw_node_t mw_node_t;

/* A send or fetch under way. Its memory belongs to the library until `mw_request_wait`. */
typedef struct mw_request_t mw_request_t;

/*
 * Memory that all ranks of the job share, at the same addresses, and used like any other memory.
 *
 * All ranks on one host: the processor keeps it coherent, and system calls work on it. A child by fork(2) has it too: it may load, store
 * and call `mw_shared_alloc`, `mw_shared_malloc` and its like, `mw_shared_lock`, `mw_shared_unlock`, `mw_shared_barrier`,
 * `mw_shared_barrier_of`, and the functions of mw_sync(3). A child does not close it, and leaves by _exit(2) or exit(3) while its parent has it open.
 *
 * On several hosts, or with `--coherence minipages`, it is sequentially consistent: an access that needs another rank faults, and the
 * library's handler (of SIGBUS or SIGSEGV) fetches what it needs: an allocation of up to a page, or a page of a longer one. With `--coherence hlrc` a rank sees what
 * another has written once it has synchronised with it by a lock or a barrier. There system calls do not fault: they fail with EFAULT for
 * such memory, and stdio then loses data. Use `mw_shared_read`, `mw_shared_write`, `mw_shared_fread` and `mw_shared_fwrite`, or private memory. A child by fork(2) does not have the memory: touching it ends the child
 * by SIGSEGV, and a line on stderr says why.
 */
typedef struct mw_shared_t mw_shared_t;

/*
 * Chooses pages of this process to unpin, when the limit on pinned pages requires room for `wanted` more.
 *
 * `candidates` are the addresses of the first bytes of the `count` pages that may be unpinned, least recently used first. Write the
 * addresses of those to unpin to `victims`, best first, which has room for `count`, and return their number. Those beyond `wanted`,
 * duplicates and pages that are not candidates are ignored; if there are too few, the least recently used follow. `data` is that of
 * `mw_node_choose_victims`.
 *
 * It is called while the library is locked: it must call nothing of the library, touch no shared memory, and neither wait for another
 * thread nor leave by `longjmp` or an exception. It may run in any thread, one at a time.
 */
typedef size_t (*mw_choose_victims_fn)(uint64_t wanted,
                                       const uint64_t *candidates,
                                       size_t count,
                                       uint64_t *victims,
                                       void *data);

/* A notification: a message has been delivered. */
typedef struct {
    /* Offset of the message's first byte in the export. */
    uint64_t offset;
    /* Bytes of the message. */
    uint64_t length;
    /* The rank that sent it. */
    uint32_t from;
    /* Zero. */
    uint32_t reserved;
} mw_notification_t;

/*
 * Called on deliveries into an export. `notification` is valid until it returns; `data` is that of the export's options.
 *
 * It runs in whichever thread then serves what has arrived: one in a call of this library or in an access to shared memory, or the
 * library's own. It may run in several threads at once. So keep it short and take no lock that the program holds while it calls the
 * library; it may send, but must not touch shared memory, nor leave by `longjmp` or an exception. Once `mw_export_revoke` has returned,
 * it does not run any more.
 */
typedef void (*mw_notify_fn)(const mw_notification_t *notification, void *data);

/*
 * Options of an export. Set all of it to zero, `size` to `sizeof(mw_export_options_t)`, then the fields that differ: zero is the default
 * of each.
 */
typedef struct {
    /* `sizeof(mw_export_options_t)`. */
    size_t size;
    /*
     * What importers may do: `MW_RIGHT_STORE`, `MW_RIGHT_FETCH`, or both; 0 means both. Memory mapped for storing can also be read, so an
     * export that allows only stores takes the ring path.
     */
    uint32_t rights;
    /* Who may import it: one of `MW_IMPORTERS_*`. */
    uint32_t importers;
    /* The user's numeric id, for `MW_IMPORTERS_USER`. */
    uint32_t user;
    /* `MW_EXPORT_RING_ONLY`, or 0. */
    uint32_t flags;
    /* The ranks that may import it, for `MW_IMPORTERS_NODES`; copied. */
    const uint32_t *nodes;
    /* Number of these ranks; 0 is an error. */
    size_t node_count;
    /* The token to be shown, for `MW_IMPORTERS_TOKEN`; not all zero. */
    uint8_t token[MW_TOKEN_BYTES];
    /* Called on deliveries by `mw_import_send_notify`; or `NULL`. */
    mw_notify_fn notify;
    /* Passed to `notify`; not used otherwise. */
    void *notify_data;
} mw_export_options_t;

/* A signal to wait for: it has arrived when the word at `offset` of `exported` is at least `value`. */
typedef struct {
    /* Export that contains it. */
    const mw_export_t *exported;
    /* Offset in the export, in bytes; a multiple of 8. */
    uint64_t offset;
    /* Least value that counts. */
    uint64_t value;
} mw_awaited_t;

/*
 * Options of an import. Set all of it to zero, `size` to `sizeof(mw_import_options_t)`, then the fields that differ: zero is the default
 * of each.
 */
typedef struct {
    /* `sizeof(mw_import_options_t)`. */
    size_t size;
    /* How long to wait for the export, in nanoseconds; 0: `MAPWIRE_TIMEOUT` (30 s unless set). */
    uint64_t timeout_ns;
    /* Rights to request: `MW_RIGHT_STORE`, `MW_RIGHT_FETCH`, or both, and no more than the export allows; 0: all that it allows. */
    uint32_t rights;
    /* Zero. */
    uint32_t reserved;
    /* The token to show, if not all zero. */
    uint8_t token[MW_TOKEN_BYTES];
} mw_import_options_t;

/*
 * Options of an allocation: how it moves between hosts. Where all ranks are on one host they are checked in the same way and have no effect.
 * Zeroes, but for the size, are the defaults.
 */
typedef struct {
    /* `sizeof(mw_alloc_options_t)`; set it before the call. */
    size_t size;
    /*
     * With minipages, the bytes that move between ranks as one, rounded up to pages: up to the allocation's length. 0: a page of a longer
     * allocation. `MW_UNIT_WHOLE`: all of it. The last unit is shorter if they do not divide the allocation.
     */
    uint64_t unit;
    /* The allocation's name for people; or `NULL`. */
    const char *name;
    /* `MW_ALLOC_MINIPAGES` or `MW_ALLOC_HLRC`; `MW_ALLOC_HOME`. */
    uint32_t flags;
    /* With `MW_ALLOC_HOME` and under hlrc, the rank that keeps its pages. Otherwise the first rank to touch a page does. */
    uint32_t home;
} mw_alloc_options_t;

/* Rows in shared memory: three numbers, which `mw_shared_broadcast` tells other ranks. */
typedef struct {
    /* Address of the first. */
    uint64_t address;
    /* Number of rows. */
    uint64_t rows;
    /* Bytes of each. */
    uint64_t row_bytes;
} mw_rows_t;

/*
 * A mutex in shared memory, anywhere: any thread of any rank locks it, and if all ranks are on one host, forked children too. 64 zeroed bytes
 * are an unlocked one; at a multiple of 64 bytes it shares no cache line.
 *
 * On one host whoever comes when it is free takes it, except that a thread that has waited for more than a millisecond is served next, and
 * if a holder ends, all that wait and all that come later get `MW_ERR_GONE` and a message that names it. Between hosts, a rank keeps it, and
 * serves in the order of arrival.
 */
typedef struct {
    /* The library's. */
    uint64_t reserved[8];
} mw_mutex_t;

/*
 * A reader-writer lock in shared memory. 64 zeroed bytes are an unlocked one. Who cannot have it at once waits in one order: neither
 * readers nor writers starve. Holders that end are named as those of a mutex.
 */
typedef struct {
    /* The library's. */
    uint64_t reserved[8];
} mw_rwlock_t;

/* A condition variable in shared memory. 64 zeroed bytes are one on which nobody waits. */
typedef struct {
    /* The library's. */
    uint64_t reserved[8];
} mw_cond_t;

/* What one thread does for all ranks, in shared memory. 64 zeroed bytes: not done. */
typedef struct {
    /* The library's. */
    uint64_t reserved[8];
} mw_once_t;

/* What is done once. */
typedef void (*mw_once_fn)(void);

/* A counting semaphore in shared memory. 64 zeroed bytes are one of value 0. */
typedef struct {
    /* The library's. */
    uint64_t reserved[8];
} mw_sem_t;

/*
 * A number in shared memory that others wait for. 64 zeroed bytes are one of value 0. What was stored before it was set is visible to
 * those that see its value.
 */
typedef struct {
    /* The library's. */
    uint64_t reserved[8];
} mw_flag_t;

/* A barrier of a number of threads of any ranks, in shared memory. `mw_barrier_init` makes one of 64 bytes. */
typedef struct {
    /* The library's. */
    uint64_t reserved[8];
} mw_barrier_t;

/* A barrier whose threads each bring a value, in shared memory. `mw_reduction_init` makes one of 64 bytes. */
typedef struct {
    /* The library's. */
    uint64_t reserved[8];
} mw_reduction_t;

/*
 * A work-stealing queue of values in shared memory; its values follow it, see `mw_queue_bytes`. The thread that pushes first owns it: it
 * pushes and pops at one end, and all other threads of all ranks steal at the other. If it ends, another may push and so become the owner.
 */
typedef struct {
    /* The library's. */
    uint64_t reserved[16];
} mw_queue_t;

/* Options of far memory. */
typedef struct {
    /* `sizeof(mw_far_options_t)`; set it before the call. */
    size_t size;
    /* Most bytes in RAM: at least 65,536. A partial page does not count. */
    uint64_t local_bytes;
    /* Folder of the file that holds the rest; `NULL` for `/var/tmp`. */
    const char *disk;
} mw_far_options_t;

/* Counters of far memory since it was opened. Pages have 4096 bytes. */
typedef struct {
    /* `sizeof(mw_far_stats_t)`; set it before the call. */
    size_t size;
    /* Most pages in RAM. */
    uint64_t limit_pages;
    /* Pages in RAM now. */
    uint64_t resident_pages;
    /* Pages now in memory of other hosts; always 0 so far. */
    uint64_t remote_pages;
    /* Pages now on the disk only. */
    uint64_t disk_pages;
    /* Page faults on pages never touched. */
    uint64_t new_faults;
    /* Page faults on pages that were still in RAM. */
    uint64_t hit_faults;
    /* Page faults that read the disk or a mapped file. */
    uint64_t fetch_faults;
    /* Pages read from the disk. */
    uint64_t fetched_pages;
    /* Pages written to the disk. */
    uint64_t stored_pages;
    /* Pages read from mapped files. */
    uint64_t file_pages;
    /* Pages read before they were touched. */
    uint64_t ahead_pages;
    /* Of those, pages that were then used, as far as faults show. */
    uint64_t ahead_hits;
    /* Median latency of page faults, in nanoseconds. */
    uint64_t fault_p50_ns;
    /* 99th percentile of that latency, in nanoseconds. */
    uint64_t fault_p99_ns;
    /* 99.9th percentile, in nanoseconds. */
    uint64_t fault_p999_ns;
    /* Maximum, in nanoseconds. */
    uint64_t fault_max_ns;
    /* Pages that were lost. */
    uint64_t lost_pages;
} mw_far_stats_t;

/* Counters of a node's NIC and its translation since it joined. */
typedef struct {
    /* `sizeof(mw_node_counters_t)`; set it before the call. */
    size_t size;
    /* Commands carried out (sends and fetches on the ring path). */
    uint64_t commands;
    /* Commands refused. */
    uint64_t failed_commands;
    /* Packets given to the transport. */
    uint64_t packets_sent;
    /* Their payload bytes. */
    uint64_t bytes_sent;
    /* Packets accepted. */
    uint64_t packets_received;
    /* Their payload bytes. */
    uint64_t bytes_received;
    /* Packets rejected: a wrong key, a range outside the export, no right. */
    uint64_t packets_rejected;
    /* Notifications raised. */
    uint64_t notifications;
    /* Fetches completed for this process. */
    uint64_t fetches;
    /* Fetches served for others. */
    uint64_t fetches_served;
    /* Pages that the NIC translated. */
    uint64_t lookups;
    /* Pages of transfers that were not pinned. */
    uint64_t check_misses;
    /* Lookups that the NIC's cache could not serve. */
    uint64_t nic_misses;
    /* Pages pinned. */
    uint64_t pins;
    /* Pages unpinned. */
    uint64_t unpins;
    /* Pages pinned now. */
    uint64_t pinned_pages;
    /*
     * Sends of this process that the exporter refused after they had left, as far as this process knows: they had returned `MW_OK`, or
     * failed midway. `mw_import_flush` reports those of one import.
     */
    uint64_t refused_stores;
    /* Packets sent to ranks of other hosts for the first time. */
    uint64_t link_packets_sent;
    /* Packets sent to them again. */
    uint64_t link_packets_resent;
    /* Timeouts: nothing came back from them in time. */
    uint64_t link_timeouts;
    /* Smoothed round-trip time to the slowest of them, in nanoseconds; 0 before the first measurement. */
    uint64_t link_rtt_ns;
    /* Datagrams that were rejected before any other effect. */
    uint64_t datagrams_rejected;
} mw_node_counters_t;

/* Counters of a rank's shared memory since it was opened. */
typedef struct {
    /* `sizeof(mw_shared_counters_t)`; set it before the call. */
    size_t size;
    /* Read faults that needed other ranks. */
    uint64_t read_faults;
    /* Write faults that needed other ranks. */
    uint64_t write_faults;
    /* Faults on memory that was already accessible when they were served. */
    uint64_t spurious_faults;
    /* Rights to write obtained without data, because this rank had a valid copy. */
    uint64_t upgrades;
    /* Copies that this rank dropped so that another could write. */
    uint64_t invalidations;
    /* Rights to write that this rank reduced so that another could read. */
    uint64_t downgrades;
    /* Requests delayed so that a thread could use what it had just been granted. */
    uint64_t held_back;
    /* Messages to other ranks. */
    uint64_t messages_sent;
    /* Messages from other ranks. */
    uint64_t messages_received;
    /* Allocations stored as wholes into other ranks. */
    uint64_t minipages_sent;
    /* Their bytes. */
    uint64_t bytes_sent;
    /* Locks taken without a message. */
    uint64_t lock_acquires_local;
    /* Locks taken from another rank. */
    uint64_t lock_acquires_remote;
    /* Barriers passed, once a rank. */
    uint64_t barriers;
    /* Allocations made here. */
    uint64_t allocations;
    /* Their bytes, as requested. */
    uint64_t allocated_bytes;
    /* Allocations requested before any access. */
    uint64_t prefetches;
} mw_shared_counters_t;

#ifdef __cplusplus
extern "C" {
#endif /* __cplusplus */

/* Returns the version of the library as text: "0.1.0". Valid for ever. */
const char *mw_version(void);

/* Returns the version of the library as one number, like `MW_VERSION_NUMBER`. */
uint32_t mw_version_number(void);

/*
 * Checks whether a program compiled with a header of version `number` (`MW_VERSION_NUMBER`) and binary interface `abi` (`MW_ABI`) can use
 * this library. For programs that load it by hand: the dynamic linker checks by the file's name.
 *
 * Errors:
 * `MW_ERR_VERSION`: another binary interface, or a library that is older than the header.
 */
mw_status_t mw_version_check(uint32_t number,
                             uint32_t abi);

/* Returns the name of a code, such as "MW_ERR_RANGE"; "MW_ERR_?" for an unknown number. Valid for ever. */
const char *mw_status_name(int32_t status);

/*
 * Returns why this thread's last failed call failed: what was wrong, with which value, and how to fix it, in one line of UTF-8. Empty
 * before the first failure; calls that succeed do not change it. The text belongs to the library and is valid until the next failed call
 * of this thread, or the thread's end. Never `NULL`.
 */
const char *mw_error_message(void);

/*
 * Joins the job in which `mapwire run`, `mpirun`, `srun` or `mpiexec` (by PMIx, PMI-2 or PMI-1) started this process; without a launcher,
 * a job of this process alone, as rank 0. Reads the `MAPWIRE_*` variables: how threads wait (`MAPWIRE_WAIT`: poll, event or adaptive),
 * how long joining and importing may take (`MAPWIRE_TIMEOUT`, in seconds), and the others of mapwire(1). A process joins once.
 *
 * Free `*node` with `mw_node_free`.
 *
 * Errors:
 * `MW_ERR_CONFIG`: an invalid variable. `MW_ERR_GONE`: the launcher has ended. `MW_ERR_EXISTS`: this process has joined before.
 * `MW_ERR_VERSION`: the launcher is of another release. `MW_ERR_LIMIT`, `MW_ERR_SYSTEM`: the operating system refuses memory, pinned
 * pages or a thread.
 */
mw_status_t mw_node_join(mw_node_t **node);

/*
 * Frees the node. The process leaves the job once everything made from the node has been freed too (exports, imports, requests, shared
 * memory; not buffers), and what was sent has arrived, or is in memory of a rank of the same host: it waits for that for up to
 * `MAPWIRE_TIMEOUT`. Until then they can be used. `NULL` is no error.
 *
 * A process that returns from `main` or calls `exit` leaves likewise, before the `atexit` functions run that it registered before it
 * joined. Sends that did not arrive, and that no call reported, are named on standard error, and the exit code is 70 if it would have
 * been 0. A process with another exit code delivers what it sent, and then counts as a rank that failed. `_exit`, `quick_exit`, `abort`
 * and signals end a process without that.
 */
mw_status_t mw_node_free(mw_node_t *node);

/* Returns this process's number in the job, from 0, in `*rank`. */
mw_status_t mw_node_rank(const mw_node_t *node, uint32_t *rank);

/* Returns the number of processes in the job in `*size`. */
mw_status_t mw_node_size(const mw_node_t *node, uint32_t *size);

/*
 * Serves what has arrived: one turn of the driver in the calling thread, and the notification handlers. `*worked` says whether there was
 * anything (1 or 0); it may be `NULL`. Never waits.
 *
 * Needed only by programs that check memory themselves in a loop: calls that wait do it, and a thread of the library does while no thread
 * waits.
 */
mw_status_t mw_node_poll(const mw_node_t *node,
                         int32_t *worked);

/*
 * Counts the calling thread as polling, until it calls `mw_node_end_polling` or ends: what peers send wakes nobody, and is served when
 * the thread calls `mw_node_poll` or waits. For loops that poll often; a thread that computes meanwhile keeps its peers waiting. Calls
 * nest, each with its own end. Until the end the process stays in the job.
 */
mw_status_t mw_node_begin_polling(const mw_node_t *node);

/*
 * Ends the last `mw_node_begin_polling` of the calling thread, and serves what has arrived meanwhile.
 *
 * Errors:
 * `MW_ERR_STATE`: this thread is not polling.
 */
mw_status_t mw_node_end_polling(const mw_node_t *node);

/*
 * Waits until all ranks of the job have called this. As `mw_node_broadcast`, `mw_node_gather`, `mw_node_all_gather` and the reductions,
 * it is a collective call: all ranks make these calls in the same order, one thread of each at a time. All pass through rank 0, each KiB
 * in a step there and back: they are for small values, as when ranks set up what they share.
 *
 * Errors:
 * `MW_ERR_GONE`: a rank has left or died; the message names it. `MW_ERR_ARGUMENT`: a rank makes another call, or with another length or
 * root: all ranks get this error, and may continue. `MW_ERR_STATE`: another thread of this rank is in such a call, or the caller is a
 * notification function.
 */
mw_status_t mw_node_barrier(const mw_node_t *node);

/*
 * Copies `length` bytes at `data` of rank `root` to `data` of all ranks.
 *
 * Errors:
 * As `mw_node_barrier`, and `MW_ERR_RANGE`: `root` is not a rank of the job.
 *
 * Required of the caller:
 * `data` points to `length` writable bytes (it may be `NULL` if there are none), which no thread uses during the call.
 */
mw_status_t mw_node_broadcast(const mw_node_t *node,
                              uint32_t root,
                              void *data,
                              size_t length);

/*
 * Collects `length` bytes at `data` of all ranks in `into` of rank `root`, in the order of ranks.
 *
 * Errors:
 * As `mw_node_broadcast`.
 *
 * Required of the caller:
 * `data` points to `length` readable bytes. In rank `root`, `into` points to as many for each rank of the job, writable and apart
 * from `data`; elsewhere it is not used. No thread changes them during the call.
 */
mw_status_t mw_node_gather(const mw_node_t *node,
                           uint32_t root,
                           const void *data,
                           size_t length,
                           void *into);

/*
 * Collects `length` bytes at `data` of all ranks in `into` of all ranks, in the order of ranks.
 *
 * Errors:
 * As `mw_node_barrier`.
 *
 * Required of the caller:
 * `data` points to `length` readable bytes, and `into` to as many for each rank of the job, writable and apart from `data`. No thread
 * changes them during the call.
 */
mw_status_t mw_node_all_gather(const mw_node_t *node,
                               const void *data,
                               size_t length,
                               void *into);

/*
 * Replaces each of `count` values by the reduction of all ranks' values at that index: `how` is `MW_SUM`, `MW_MIN` or `MW_MAX`. All ranks
 * get the same results.
 *
 * Errors:
 * As `mw_node_barrier`.
 *
 * Required of the caller:
 * `values` points to `count` writable values, which no thread uses during the call.
 */
mw_status_t mw_node_reduce_u64(const mw_node_t *node,
                               uint32_t how,
                               uint64_t *values,
                               size_t count);

/*
 * As `mw_node_reduce_u64`, for signed integers.
 *
 * Errors:
 * As `mw_node_barrier`.
 *
 * Required of the caller:
 * As `mw_node_reduce_u64`.
 */
mw_status_t mw_node_reduce_i64(const mw_node_t *node, uint32_t how, int64_t *values, size_t count);

/*
 * As `mw_node_reduce_u64`, for floating-point numbers, which are reduced in the order of ranks. Minimum and maximum ignore NaN.
 *
 * Errors:
 * As `mw_node_barrier`.
 *
 * Required of the caller:
 * As `mw_node_reduce_u64`.
 */
mw_status_t mw_node_reduce_f64(const mw_node_t *node,
                               uint32_t how,
                               double *values,
                               size_t count);

/*
 * Lets the program choose which pages are unpinned for `MAPWIRE_PIN_LIMIT`, in place of `MAPWIRE_POLICY`: a program often knows what it
 * will use again. Without a limit nothing is unpinned to make room, and `choose` is never called. `data` is passed to it; both must stay
 * valid as long as the process runs.
 *
 * Errors:
 * `MW_ERR_STATE`: pages are pinned already; call it before anything is exported, sent or fetched.
 */
mw_status_t mw_node_choose_victims(const mw_node_t *node,
                                   mw_choose_victims_fn choose,
                                   void *data);

/*
 * Adds `value` to the 64-bit word at `offset`, wrapping. The old value is written to `*old`, which may be `NULL`. The operation is atomic
 * with the others, with those of all ranks by either path, and with the exporter's own atomics on that memory. It takes effect after
 * everything that this process has sent to the exporter.
 *
 * Errors:
 * As `mw_import_fetch`; both rights are needed. `MW_ERR_ALIGNMENT`: `offset` is not a multiple of 8. The word is unchanged then,
 * unless the exporter revokes the export or goes during the call.
 */
mw_status_t mw_import_fetch_add_u64(const mw_import_t *import,
                                    uint64_t offset,
                                    uint64_t value,
                                    uint64_t *old);

/*
 * Stores `value` in the 64-bit word at `offset`. The old value is written to `*old`, which may be `NULL`. The operation is atomic with
 * the others, with those of all ranks by either path, and with the exporter's own atomics on that memory. It takes effect after
 * everything that this process has sent to the exporter.
 *
 * Errors:
 * As `mw_import_fetch`; both rights are needed. `MW_ERR_ALIGNMENT`: `offset` is not a multiple of 8. The word is unchanged then,
 * unless the exporter revokes the export or goes during the call.
 */
mw_status_t mw_import_swap_u64(const mw_import_t *import,
                               uint64_t offset,
                               uint64_t value,
                               uint64_t *old);

/*
 * Stores `value` in the 64-bit word at `offset` if that holds `expected`, which `*old` then equals. The old value is written to `*old`,
 * which may be `NULL`. The operation is atomic with the others, with those of all ranks by either path, and with the exporter's own
 * atomics on that memory. It takes effect after everything that this process has sent to the exporter.
 *
 * Errors:
 * As `mw_import_fetch`; both rights are needed. `MW_ERR_ALIGNMENT`: `offset` is not a multiple of 8. The word is unchanged then,
 * unless the exporter revokes the export or goes during the call.
 */
mw_status_t mw_import_compare_swap_u64(const mw_import_t *import,
                                       uint64_t offset,
                                       uint64_t expected,
                                       uint64_t value,
                                       uint64_t *old);

/*
 * Adds `value` to the 32-bit word at `offset`, wrapping. The old value is written to `*old`, which may be `NULL`. The operation is atomic
 * with the others, with those of all ranks by either path, and with the exporter's own atomics on that memory. It takes effect after
 * everything that this process has sent to the exporter.
 *
 * Errors:
 * As `mw_import_fetch`; both rights are needed. `MW_ERR_ALIGNMENT`: `offset` is not a multiple of 4. The word is unchanged then,
 * unless the exporter revokes the export or goes during the call.
 */
mw_status_t mw_import_fetch_add_u32(const mw_import_t *import,
                                    uint64_t offset,
                                    uint32_t value,
                                    uint32_t *old);

/*
 * Stores `value` in the 32-bit word at `offset`. The old value is written to `*old`, which may be `NULL`. The operation is atomic with
 * the others, with those of all ranks by either path, and with the exporter's own atomics on that memory. It takes effect after
 * everything that this process has sent to the exporter.
 *
 * Errors:
 * As `mw_import_fetch`; both rights are needed. `MW_ERR_ALIGNMENT`: `offset` is not a multiple of 4. The word is unchanged then,
 * unless the exporter revokes the export or goes during the call.
 */
mw_status_t mw_import_swap_u32(const mw_import_t *import,
                               uint64_t offset,
                               uint32_t value,
                               uint32_t *old);

/*
 * Stores `value` in the 32-bit word at `offset` if that holds `expected`, which `*old` then equals. The old value is written to `*old`,
 * which may be `NULL`. The operation is atomic with the others, with those of all ranks by either path, and with the exporter's own
 * atomics on that memory. It takes effect after everything that this process has sent to the exporter.
 *
 * Errors:
 * As `mw_import_fetch`; both rights are needed. `MW_ERR_ALIGNMENT`: `offset` is not a multiple of 4. The word is unchanged then,
 * unless the exporter revokes the export or goes during the call.
 */
mw_status_t mw_import_compare_swap_u32(const mw_import_t *import,
                                       uint64_t offset,
                                       uint32_t expected,
                                       uint32_t value,
                                       uint32_t *old);

/*
 * As `mw_import_put_signal`, but adds `value` to the word at `signal_offset`, wrapping.
 *
 * Errors:
 * As `mw_import_put_signal`.
 *
 * Required of the caller:
 * As `mw_import_send`.
 */
mw_status_t mw_import_put_signal_add(const mw_import_t *import,
                                     const void *data,
                                     size_t length,
                                     uint64_t offset,
                                     uint64_t signal_offset,
                                     uint64_t value);

/*
 * As `mw_import_put_signal`, but sets the bits of `value` in the word at `signal_offset`, and leaves the others.
 *
 * Errors:
 * As `mw_import_put_signal`.
 *
 * Required of the caller:
 * As `mw_import_send`.
 */
mw_status_t mw_import_put_signal_or(const mw_import_t *import,
                                    const void *data,
                                    size_t length,
                                    uint64_t offset,
                                    uint64_t signal_offset,
                                    uint64_t value);

/*
 * Allocates `length` bytes, zeroed, on a page boundary.
 *
 * Free `*buffer` with `mw_buffer_free`.
 *
 * Errors:
 * `MW_ERR_ARGUMENT`: 0 bytes. `MW_ERR_LIMIT`: no memory, address space or descriptors for them.
 */
mw_status_t mw_buffer_alloc(const mw_node_t *node, size_t length, mw_buffer_t **buffer);

/*
 * Frees the buffer. Its memory is released when no export uses it any more, so a buffer may be freed while it is exported; do not use its
 * address afterwards. `NULL` is no error.
 */
mw_status_t mw_buffer_free(mw_buffer_t *buffer);

/*
 * Returns the address of the first byte in `*memory`. The memory does not move until it is freed. While it is exported, other ranks may
 * change it at any time: wait for a signal first (`mw_export_wait_signal`), or use atomics.
 *
 * When an export of it is revoked, its pages are replaced by a copy at the same address: a store by another thread meanwhile may be lost.
 */
mw_status_t mw_buffer_ptr(const mw_buffer_t *buffer,
                          void **memory);

/* Returns its length in bytes, as requested, in `*length`. */
mw_status_t mw_buffer_len(const mw_buffer_t *buffer, size_t *length);

/*
 * Exports a buffer under `name`: 1 to 255 bytes of UTF-8, unique among this process's exports. Whole buffers take the direct path, unless
 * the options forbid it. `options` may be `NULL`; `name` and `options` are copied.
 *
 * End the export with `mw_export_revoke`.
 *
 * Errors:
 * `MW_ERR_ARGUMENT`: an invalid name, option or structure. `MW_ERR_EXISTS`: the name is taken. `MW_ERR_LIMIT`: more pages than may be
 * pinned, or a full table. Nothing is exported then.
 *
 * Required of the caller:
 * `name` ends in a NUL. `options` is as large as its `size` says, `options->nodes` points to `node_count` numbers, and
 * `options->notify` can be called from any thread until the export is revoked.
 */
mw_status_t mw_export_create(const mw_node_t *node,
                             const mw_buffer_t *buffer,
                             const char *name,
                             const mw_export_options_t *options,
                             mw_export_t **exported);

/*
 * Exports `length` bytes of any memory: heap, stack, static, or a part of a buffer. Whole pages of heap and statics move, in place, to
 * memory that importers map, until the export is revoked; other threads may store there meanwhile, system calls may not. The rest takes
 * the ring path: this process stores what arrives, so that neighbours on the same page stay private. Otherwise as `mw_export_create`.
 *
 * Errors:
 * As `mw_export_create`, and `MW_ERR_ADDRESS`: memory that this process may not read and write, or shared memory.
 *
 * Required of the caller:
 * As `mw_export_create`. The memory stays mapped until the export has been revoked. Other ranks may change it at any time:
 * read it with `mw_export_read`, atomics, or after a signal.
 */
mw_status_t mw_export_create_range(const mw_node_t *node,
                                   void *memory,
                                   size_t length,
                                   const char *name,
                                   const mw_export_options_t *options,
                                   mw_export_t **exported);

/* Returns its length in bytes in `*length`. */
mw_status_t mw_export_len(const mw_export_t *exported, uint64_t *length);

/*
 * Copies `length` bytes from `offset` of the exported memory to `into`. Concurrent stores of others may be copied in part.
 *
 * Errors:
 * `MW_ERR_RANGE`: a range outside the export.
 *
 * Required of the caller:
 * `into` points to `length` writable bytes outside the exported memory.
 */
mw_status_t mw_export_read(const mw_export_t *exported,
                           uint64_t offset,
                           void *into,
                           size_t length);

/*
 * Copies `length` bytes from `from` to `offset` of the exported memory.
 *
 * Errors:
 * `MW_ERR_RANGE`: a range outside the export.
 *
 * Required of the caller:
 * `from` points to `length` readable bytes outside the exported memory.
 */
mw_status_t mw_export_write(const mw_export_t *exported,
                            uint64_t offset,
                            const void *from,
                            size_t length);

/*
 * Loads the signal at `offset` into `*value`. What was put before it (`mw_import_put_signal`) is visible then.
 *
 * Errors:
 * `MW_ERR_RANGE`, `MW_ERR_ALIGNMENT`: a signal is 8 bytes of the export, aligned in memory.
 */
mw_status_t mw_export_signal(const mw_export_t *exported,
                             uint64_t offset,
                             uint64_t *value);

/*
 * Waits until the signal at `offset` is at least `value`, for `timeout_ns` nanoseconds at most (`MW_FOREVER`: without limit). Returns its
 * value then in `*seen`, which may be `NULL`. Serves others meanwhile, and waits as `MAPWIRE_WAIT` says.
 *
 * Errors:
 * `MW_ERR_TIMEOUT`: the timeout has expired. `MW_ERR_GONE`: with `MW_FOREVER`, every rank that may import the export has left or died.
 * `MW_ERR_RANGE`, `MW_ERR_ALIGNMENT`: a signal is 8 bytes of the export, aligned in memory.
 */
mw_status_t mw_export_wait_signal(const mw_export_t *exported,
                                  uint64_t offset,
                                  uint64_t value,
                                  uint64_t timeout_ns,
                                  uint64_t *seen);

/*
 * Replaces the exported memory by `buffer` until `mw_export_redirect_back`: others' stores land there, at the same offsets, and their
 * fetches read there; `mw_export_read`, `mw_export_write`, `mw_export_signal` and `mw_export_wait_signal` use it too. The export keeps
 * the buffer's memory as long as it needs it.
 *
 * Errors:
 * `MW_ERR_RANGE`: the buffer is shorter than the export.
 * `MW_ERR_STATE`: an export whose importers may have mapped it (make it with `MW_EXPORT_RING_ONLY`), or another thread is in
 * a call with this export. `MW_ERR_LIMIT`: more pages than may be pinned.
 */
mw_status_t mw_export_redirect(const mw_export_t *exported,
                               const mw_buffer_t *buffer);

/*
 * Ends a redirection: others use the exported memory again.
 *
 * Errors:
 * `MW_ERR_STATE`: as `mw_export_redirect`.
 */
mw_status_t mw_export_redirect_back(const mw_export_t *exported);

/*
 * Revokes the export at once, and frees `exported`, whatever the code. Importers' sends fail from here on with `MW_ERR_REVOKED`; memory
 * that they have mapped becomes theirs alone, since this process continues with a copy at the same address. The export's `notify` has
 * ended, or ends before this returns; it may itself be the caller. `NULL` is no error.
 *
 * Errors:
 * `MW_ERR_LIMIT`: no memory for the copy: importers that have mapped the memory still see it.
 *
 * Required of the caller:
 * No other thread is in a call with `exported`, or uses it afterwards.
 */
mw_status_t mw_export_revoke(mw_export_t *exported);

/*
 * Waits until one of `count` signals has arrived, for `timeout_ns` nanoseconds at most (`MW_FOREVER`: without limit). Returns its index
 * in `*index`; of several that have arrived, the lowest. What was put before the signal is visible then. Serves others meanwhile, and
 * waits as `MAPWIRE_WAIT` says.
 *
 * Errors:
 * `MW_ERR_ARGUMENT`: no signals. `MW_ERR_TIMEOUT`: the timeout has expired. `MW_ERR_GONE`: with `MW_FOREVER`, every rank that may import
 * one of the exports has left or died. `MW_ERR_RANGE`, `MW_ERR_ALIGNMENT`: as `mw_export_wait_signal`, for any of them.
 *
 * Required of the caller:
 * `signals` points to `count` of them.
 */
mw_status_t mw_node_wait_any(const mw_node_t *node,
                             const mw_awaited_t *signals,
                             size_t count,
                             uint64_t timeout_ns,
                             size_t *index);

/*
 * Imports what rank `rank` exports, or will export, as `name`: waits for it. `options` may be `NULL`; `name` and `options` are copied.
 *
 * Free `*import` with `mw_import_free`.
 *
 * Errors:
 * `MW_ERR_RANGE`: `rank` is not a rank of the job. `MW_ERR_TIMEOUT`: the rank has not exported the name in time. `MW_ERR_REFUSED`: it
 * does not admit this process, or the token is wrong. `MW_ERR_RIGHTS`: it allows less than requested. `MW_ERR_GONE`: it has left or died.
 *
 * Required of the caller:
 * `name` ends in a NUL; `options` is as large as its `size` says.
 */
mw_status_t mw_import_create(const mw_node_t *node,
                             uint32_t rank,
                             const char *name,
                             const mw_import_options_t *options,
                             mw_import_t **import);

/*
 * Frees the import. Sends begun with it continue. `NULL` is no error.
 *
 * Required of the caller:
 * No other thread is in a call with `import`, or uses it afterwards.
 */
mw_status_t mw_import_free(mw_import_t *import);

/* Returns the length of the export in bytes in `*length`. */
mw_status_t mw_import_len(const mw_import_t *import, uint64_t *length);

/* Returns the exporting rank in `*rank`. */
mw_status_t mw_import_rank(const mw_import_t *import, uint32_t *rank);

/* Returns the rights in `*rights`: `MW_RIGHT_STORE`, `MW_RIGHT_FETCH` or both. */
mw_status_t mw_import_rights(const mw_import_t *import, uint32_t *rights);

/* Returns whether the exporter's memory is mapped here in `*direct` (1 or 0). A send is then a copy, which the MMU checks. */
mw_status_t mw_import_is_direct(const mw_import_t *import,
                                int32_t *direct);

/*
 * Returns in `*pointer` where bytes `offset` to `offset + length` of the export are mapped here, until the import is freed; only for
 * loads without `MW_RIGHT_STORE`. Loads and stores there need no call. After a revocation stores reach nobody. Stores there wake nobody:
 * an exporter that sleeps in `mw_export_wait_signal` sees them within 10 ms. If the call fails, `*pointer` becomes `NULL`.
 *
 * Errors:
 * `MW_ERR_RANGE`: a range outside the export. `MW_ERR_ADDRESS`: some of it is not mapped here: the export, or a part of it, takes the
 * ring path.
 */
mw_status_t mw_import_pointer(const mw_import_t *import,
                              uint64_t offset,
                              size_t length,
                              void **pointer);

/*
 * Returns the first proxy address of this import in `*address`. It and those that follow, one for each byte, name the bytes of the export
 * among all imports of this process, for `mw_node_send_to` and similar calls. It is a number, not a pointer: there is no memory behind
 * it. Never 0, and never reused.
 */
mw_status_t mw_import_proxy_address(const mw_import_t *import,
                                    uint64_t *address);

/*
 * Stores `length` bytes at `offset` of the export. Returns once `data` may be reused. Delivery is not confirmed: the exporter may still
 * refuse what has left, if it revokes the export meanwhile. `mw_import_flush` confirms delivery. What this process sends to another
 * arrives in order. Once this process knows that the export is revoked, every send fails.
 *
 * Errors:
 * `MW_ERR_RANGE`: a range outside the export. `MW_ERR_RIGHTS`: no right to store. `MW_ERR_REVOKED`: the export was revoked.
 * `MW_ERR_GONE`: the exporter has left or died. `MW_ERR_LIMIT`: pages of `data` cannot be pinned. A long send can fail after a part of it
 * has left: the message then gives an upper bound on the bytes that may have been stored. Otherwise nothing of it was stored.
 *
 * Required of the caller:
 * `data` points to `length` readable bytes (it may be `NULL` if there are none), which no thread changes during the call.
 */
mw_status_t mw_import_send(const mw_import_t *import,
                           const void *data,
                           size_t length,
                           uint64_t offset);

/*
 * Stores `length` bytes at `offset`, then the 8 bytes of `value` at `signal_offset`, in this order: whoever sees the value, by
 * `mw_export_wait_signal` or an acquiring load, sees the data. `length` may be 0.
 *
 * Errors:
 * As `mw_import_send`, and `MW_ERR_ALIGNMENT`: `signal_offset` is not a multiple of 8.
 *
 * Required of the caller:
 * As `mw_import_send`.
 */
mw_status_t mw_import_put_signal(const mw_import_t *import,
                                 const void *data,
                                 size_t length,
                                 uint64_t offset,
                                 uint64_t signal_offset,
                                 uint64_t value);

/*
 * Stores `length` bytes at `offset`, and has the export's `notify` called after delivery.
 *
 * Errors:
 * As `mw_import_send`.
 *
 * Required of the caller:
 * As `mw_import_send`.
 */
mw_status_t mw_import_send_notify(const mw_import_t *import,
                                  const void *data,
                                  size_t length,
                                  uint64_t offset);

/*
 * Waits until everything that this process has sent by this import is in place at the exporter. Needs no right to fetch. On the direct
 * path it is a fence and a check of the exporter's status; on the ring path a message to the exporter and back.
 *
 * Errors:
 * `MW_ERR_REVOKED`: sends since the last flush were not stored; the message says how many, and the first of them, as far as known.
 * `MW_ERR_LIMIT`: the same, because the exporter could not pin its pages. On the ring path each is reported by one flush, including those
 * that failed midway with an error of their own; on the direct path every flush after a revocation fails, since it is unknown what the
 * exporter still saw. `MW_ERR_GONE`: the exporter has left or died: it is unknown which sends were stored.
 */
mw_status_t mw_import_flush(const mw_import_t *import);

/*
 * Copies `length` bytes from `offset` of the export to `into`. They are in place when it returns.
 *
 * Errors:
 * As `mw_import_send`, for the right to fetch.
 *
 * Required of the caller:
 * `into` points to `length` writable bytes (it may be `NULL` if there are none), which no thread uses during the call.
 */
mw_status_t mw_import_fetch(const mw_import_t *import,
                            uint64_t offset,
                            void *into,
                            size_t length);

/*
 * Stores `length` bytes at proxy address `to`: `mw_import_proxy_address` plus an offset. Equivalent to `mw_import_send` to the import
 * that has the address.
 *
 * Errors:
 * As `mw_import_send`; `MW_ERR_ADDRESS`: no import has the address, or its import has been freed. `MW_ERR_RANGE`: the bytes pass the end
 * of the import.
 *
 * Required of the caller:
 * As `mw_import_send`.
 */
mw_status_t mw_node_send_to(const mw_node_t *node,
                            uint64_t to,
                            const void *data,
                            size_t length);

/*
 * Stores `length` bytes at proxy address `to`, then the 8 bytes of `value` at proxy address `signal` of the same import, in
 * this order, as `mw_import_put_signal` does. `length` may be 0.
 *
 * Errors:
 * As `mw_import_put_signal` and `mw_node_send_to`; `MW_ERR_ARGUMENT`: the addresses are in different imports.
 *
 * Required of the caller:
 * As `mw_import_send`.
 */
mw_status_t mw_node_put_signal_to(const mw_node_t *node,
                                  uint64_t to,
                                  const void *data,
                                  size_t length,
                                  uint64_t signal,
                                  uint64_t value);

/*
 * Copies `length` bytes from proxy address `from` to `into`, as `mw_import_fetch` does.
 *
 * Errors:
 * As `mw_import_fetch` and `mw_node_send_to`.
 *
 * Required of the caller:
 * As `mw_import_fetch`.
 */
mw_status_t mw_node_fetch_from(const mw_node_t *node, uint64_t from, void *into, size_t length);

/*
 * Stores `count` parts of memory one behind the other from `offset` on, like as many calls of `mw_import_send`. All are checked before
 * any byte is stored. On the ring path they follow each other without a wait, and short ones travel together.
 *
 * Errors:
 * As `mw_import_send`, for all parts together.
 *
 * Required of the caller:
 * `parts` points to `count` of them (it may be `NULL` if there are none), each with `iov_len` readable bytes at `iov_base`, which no
 * thread changes during the call.
 */
mw_status_t mw_import_sendv(const mw_import_t *import,
                            const struct iovec *parts,
                            size_t count,
                            uint64_t offset);

/*
 * Copies the bytes from `offset` of the export on to `count` parts of memory, one after the other, until they are full.
 *
 * Errors:
 * As `mw_import_fetch`, for all parts together. Some may be filled then.
 *
 * Required of the caller:
 * `parts` points to `count` of them (it may be `NULL` if there are none), each with `iov_len` writable bytes at `iov_base`, which no
 * thread uses during the call. No two of them overlap.
 */
mw_status_t mw_import_fetchv(const mw_import_t *import,
                             uint64_t offset,
                             const struct iovec *parts,
                             size_t count);

/*
 * Stores `rows` rows of `row_bytes` bytes. In `data` they begin every `local_stride` bytes, and may overlap; in the export they begin
 * every `remote_stride` bytes, the first at `offset`. All are checked before any byte is stored. On the ring path they follow each
 * other without a wait.
 *
 * Errors:
 * As `mw_import_send`: if a row leaves the export nothing is stored. `MW_ERR_ARGUMENT`: `remote_stride` is less than `row_bytes`, so rows
 * would overlap.
 *
 * Required of the caller:
 * The bytes of `data` from the first row to the end of the last are readable, and no thread changes them during the call.
 */
mw_status_t mw_import_send_strided(const mw_import_t *import,
                                   const void *data,
                                   uint64_t offset,
                                   size_t rows,
                                   size_t row_bytes,
                                   size_t local_stride,
                                   uint64_t remote_stride);

/*
 * Copies `rows` rows of `row_bytes` bytes of the export, which begin every `remote_stride` bytes there, the first at `offset`, and may
 * overlap, to rows of `into`, which begin every `local_stride` bytes. The bytes of `into` between rows stay as they are.
 *
 * Errors:
 * As `mw_import_fetch`: if a row leaves the export nothing is fetched. `MW_ERR_ARGUMENT`: `local_stride` is less than `row_bytes`, so
 * rows would overlap.
 *
 * Required of the caller:
 * The bytes of `into` from the first row to the end of the last are writable, and no thread uses them during the call.
 */
mw_status_t mw_import_fetch_strided(const mw_import_t *import,
                                    uint64_t offset,
                                    void *into,
                                    size_t rows,
                                    size_t row_bytes,
                                    size_t local_stride,
                                    uint64_t remote_stride);

/*
 * Begins to store `length` bytes at `offset`, and returns before they have left; on the ring path it waits only while 64 commands are
 * queued.
 *
 * End it with `mw_request_wait`: until then the memory belongs to the library.
 *
 * Errors:
 * As `mw_import_send`, and `MW_ERR_LIMIT`: 896 requests of this process are under way on the ring path. Nothing is begun then, and there
 * is nothing to wait for.
 *
 * Required of the caller:
 * `data` points to `length` readable bytes, which stay mapped and unchanged until `mw_request_wait` has returned, whatever its code.
 */
mw_status_t mw_import_send_async(const mw_import_t *import,
                                 const void *data,
                                 size_t length,
                                 uint64_t offset,
                                 mw_request_t **request);

/*
 * Begins to store `length` bytes at `offset`, and then the 8 bytes of `value` at `signal_offset`, as `mw_import_put_signal` does.
 * End it with `mw_request_wait`.
 *
 * Errors:
 * As `mw_import_put_signal` and `mw_import_send_async`.
 *
 * Required of the caller:
 * As `mw_import_send_async`.
 */
mw_status_t mw_import_put_signal_async(const mw_import_t *import,
                                       const void *data,
                                       size_t length,
                                       uint64_t offset,
                                       uint64_t signal_offset,
                                       uint64_t value,
                                       mw_request_t **request);

/*
 * Begins to copy `length` bytes from `offset` of the export to `into`. They are in place when `mw_request_wait` has returned `MW_OK`.
 *
 * Errors:
 * As `mw_import_fetch` and `mw_import_send_async`.
 *
 * Required of the caller:
 * `into` points to `length` writable bytes, which stay mapped and are used by nobody until `mw_request_wait` has returned, whatever
 * its code.
 */
mw_status_t mw_import_fetch_async(const mw_import_t *import,
                                  uint64_t offset,
                                  void *into,
                                  size_t length,
                                  mw_request_t **request);

/* Returns whether `mw_request_wait` would return at once in `*done` (1 or 0). Serves what has arrived; never waits. */
mw_status_t mw_request_is_done(const mw_request_t *request,
                               int32_t *done);

/*
 * Waits until the memory of a request may be used again, and frees `request`, whatever the code. `NULL` is no error.
 *
 * Errors:
 * As `mw_import_send` or `mw_import_fetch`: it failed after it had begun. Parts of it may have been stored, or be in the destination.
 *
 * Required of the caller:
 * No other thread is in a call with `request`, or uses it afterwards.
 */
mw_status_t mw_request_wait(mw_request_t *request);

/*
 * As `mw_request_wait` for `count` requests, which become `NULL`; `NULL` ones are ignored. Waits for all of them, even if some fail.
 *
 * Errors:
 * As `mw_request_wait`, for the first that failed.
 *
 * Required of the caller:
 * `requests` points to `count` writable requests, each `NULL` or distinct. No other thread is in a call with one of them, or uses it
 * afterwards.
 */
mw_status_t mw_request_wait_all(mw_request_t **requests,
                                size_t count);

/*
 * Makes a descriptor for an event loop; each loop needs its own. For each sleep: call `mw_eventfd_arm`, check everything that is waited
 * for (`mw_node_poll`, signals, requests), and sleep if there is nothing. In this order nothing is missed.
 *
 * Between two armings it becomes readable once: at once when a send, signal or notification arrives, a request ends, or a rank leaves or
 * dies; within half a second when a peer stores through `mw_import_pointer`. It may also become readable although nothing has arrived:
 * after actions of this process, and up to five times a second while it is armed and importers may have mapped memory of this process. It
 * does not become readable while a thread counts as polling (`mw_node_begin_polling`).
 *
 * It does not keep this process in the job; once the process has left, it stays readable. Free `*events` with `mw_eventfd_free`.
 *
 * Errors:
 * `MW_ERR_LIMIT`: no descriptor is left.
 */
mw_status_t mw_eventfd_create(const mw_node_t *node,
                              mw_eventfd_t **events);

/* Returns the descriptor in `*fd`. Only wait for it to be readable; leave reading, writing and closing to the library. */
mw_status_t mw_eventfd_fd(const mw_eventfd_t *events,
                          int32_t *fd);

/*
 * Clears the descriptor and arms it: what arrives from here on makes it readable. Check once more before you sleep: only that check finds
 * what arrived earlier.
 *
 * Errors:
 * `MW_ERR_GONE`: this process has left the job; the descriptor stays readable.
 */
mw_status_t mw_eventfd_arm(const mw_eventfd_t *events);

/*
 * Closes the descriptor: remove it from event loops first. `NULL` is no error.
 *
 * Required of the caller:
 * No other thread is in a call with `events`, or uses it afterwards.
 */
mw_status_t mw_eventfd_free(mw_eventfd_t *events);

/*
 * Opens the shared memory. All ranks of the job call it, and it returns when all have. `threads` threads of this rank take part in
 * barriers (usually 1; with a protocol up to 64 may use the memory). The environment sets its size, views, address and fault handling (`MAPWIRE_SHARED`,
 * `MAPWIRE_COHERENCE`, `MAPWIRE_VIEWS`, `MAPWIRE_SHARED_BASE`, `MAPWIRE_FAULTS`, `MAPWIRE_HEAP_DEBUG`), alike in all ranks.
 *
 * Close it with `mw_shared_close`.
 *
 * Errors:
 * `MW_ERR_EXISTS`: it is open. `MW_ERR_CONFIG`: a setting that is invalid, or differs between ranks. `MW_ERR_LIMIT`, `MW_ERR_SYSTEM`:
 * cannot reserve addresses, map memory or install the fault handler (the message names the setting). `MW_ERR_TIMEOUT`, `MW_ERR_GONE`: a
 * rank does not join in.
 */
mw_status_t mw_shared_open(const mw_node_t *node,
                           uint32_t threads,
                           mw_shared_t **shared);

/*
 * Waits until every rank closes, one thread of each, and frees the memory and `shared`, whatever the code. Do not touch the memory
 * afterwards. `NULL` is no error.
 *
 * Errors:
 * `MW_ERR_GONE`: a rank has left or died. `MW_ERR_FORKED`: this is a forked child, and only its own part is freed.
 *
 * Required of the caller:
 * No other thread is in a call with `shared`, or uses it or the memory afterwards.
 */
mw_status_t mw_shared_close(mw_shared_t *shared);

/*
 * Says where the calling thread allocates next, for `mapwire run --summary`: a file and its line. The allocating functions of this header
 * are macros that call it. Elsewhere the function that is called is named.
 *
 * Required of the caller:
 * `file` is `NULL`, or a string that lasts as long as the program.
 */
void mw_shared_place(const char *file,
                     uint32_t line);

/*
 * Allocates `length` zeroed bytes. With minipages up to a page move between ranks as a whole and alone, more page by page. The address, in `*memory`, is the same in
 * every rank: pass it to others by `mw_shared_broadcast`, or through other shared memory. It is aligned to 16 bytes, from 64 bytes on to
 * 64, from a page on to pages. It lasts until the shared memory is closed; on one host `mw_shared_free` may free it before.
 *
 * Errors:
 * `MW_ERR_ARGUMENT`: 0 bytes. `MW_ERR_LIMIT`: more than is left.
 */
mw_status_t mw_shared_alloc(const mw_shared_t *shared,
                            size_t length,
                            void **memory);

/*
 * Fetches what is missing here of `length` bytes at `memory` while this thread continues. It is a hint: at most 16 minipages are under
 * way at a time, faults fetch the rest, and another rank may take one away before it is used.
 *
 * Errors:
 * `MW_ERR_ADDRESS`: the bytes are not within the shared memory. `MW_ERR_GONE`: a rank has left or died.
 */
mw_status_t mw_shared_prefetch(const mw_shared_t *shared,
                               const void *memory,
                               size_t length);

/*
 * As `mw_shared_prefetch`, for stores: no other rank keeps a copy.
 *
 * Errors:
 * As `mw_shared_prefetch`.
 */
mw_status_t mw_shared_prefetch_to_write(const mw_shared_t *shared,
                                        const void *memory,
                                        size_t length);

/*
 * Waits until all participating threads of every rank have arrived.
 *
 * Errors:
 * `MW_ERR_GONE`: a rank has left or died.
 */
mw_status_t mw_shared_barrier(const mw_shared_t *shared);

/*
 * As `mw_shared_barrier`, for barrier number `barrier` of 256 independent ones. `mw_shared_barrier` is number 0.
 *
 * Errors:
 * As `mw_shared_barrier`, and `MW_ERR_RANGE`: no barrier has this number.
 */
mw_status_t mw_shared_barrier_of(const mw_shared_t *shared,
                                 uint32_t barrier);

/*
 * Tells the library that the program has installed signal handlers since the memory was opened, and that they may touch it. Takes about
 * 20 microseconds.
 *
 * Errors:
 * Only `MW_ERR_ARGUMENT`: `shared` is `NULL`.
 */
mw_status_t mw_shared_notice_handlers(const mw_shared_t *shared);

/*
 * Takes lock number `lock` of 4096, the same in every rank. Locks are granted in the order of requests. Release it in the same thread
 * with `mw_shared_unlock`.
 *
 * Errors:
 * `MW_ERR_RANGE`: no lock has this number. `MW_ERR_STATE`: this thread holds it. `MW_ERR_GONE`: a rank has left or died.
 */
mw_status_t mw_shared_lock(const mw_shared_t *shared,
                           uint32_t lock);

/*
 * Releases a lock.
 *
 * Errors:
 * `MW_ERR_RANGE`: no lock has this number. `MW_ERR_STATE`: this thread does not hold it.
 */
mw_status_t mw_shared_unlock(const mw_shared_t *shared, uint32_t lock);

/*
 * Copies `*value` of rank `root` to `*value` of all ranks. One thread of each rank calls it, with the same root; other ranks need not set
 * `*value`.
 *
 * Errors:
 * `MW_ERR_RANGE`: `root` is not a rank of the job. `MW_ERR_STATE`: ranks name different roots, or another thread of this rank is in a
 * broadcast. `MW_ERR_GONE`: a rank has left or died.
 */
mw_status_t mw_shared_broadcast(const mw_shared_t *shared,
                                uint32_t root,
                                uint64_t *value);

/*
 * Changes how many threads of this rank take part in barriers, while none waits in one: 1 to 64, or 32767 if all ranks are on one host.
 * Those of its children by fork(2) count there too: a rank with three children that meet says 4, before or after it forks them.
 *
 * Errors:
 * `MW_ERR_LIMIT`: 0, too many, or some threads wait.
 */
mw_status_t mw_shared_set_threads(const mw_shared_t *shared,
                                  uint32_t threads);

/*
 * As `mw_shared_alloc`, with options; `NULL` says nothing special.
 *
 * Errors:
 * As `mw_shared_alloc`. `MW_ERR_ARGUMENT`: a unit longer than the allocation; unknown flags. `MW_ERR_RANGE`: the home is not a rank of the
 * job. `MW_ERR_STATE`: the job cannot keep memory coherent in this way.
 *
 * Required of the caller:
 * `options` is `NULL` or as its size says, and its name is `NULL` or ends in a NUL.
 */
mw_status_t mw_shared_alloc_with(const mw_shared_t *shared,
                                 size_t length,
                                 const mw_alloc_options_t *options,
                                 void **memory);

/*
 * Allocates `rows` rows of `row_bytes` zeroed bytes; `options` may be `NULL`, and name no unit. With minipages each row moves between ranks
 * alone: those below a page share pages, each in a view of its own, and longer ones begin on a page each. On one host, and under hlrc, rows
 * are adjacent. `mw_row` gives the address of each.
 *
 * Errors:
 * As `mw_shared_alloc_with`; `MW_ERR_ARGUMENT`: no rows, rows of 0 bytes, or options with a unit.
 *
 * Required of the caller:
 * As `mw_shared_alloc_with`.
 */
mw_status_t mw_shared_alloc_rows(const mw_shared_t *shared,
                                 uint64_t rows,
                                 uint64_t row_bytes,
                                 const mw_alloc_options_t *options,
                                 mw_rows_t *place);

/*
 * Returns the address of row number `row` in `*memory`: the same in every rank. It is aligned as `row_bytes` is, up to 64 bytes.
 *
 * Errors:
 * `MW_ERR_RANGE`: there is no such row. `MW_ERR_ADDRESS`: the rows are not within the shared memory. `MW_ERR_ARGUMENT`: there are none.
 */
mw_status_t mw_row(const mw_shared_t *shared,
                   const mw_rows_t *rows,
                   uint64_t row,
                   void **memory);

/*
 * Tells rank `rank` that it will read `length` bytes at `memory`, while this thread continues: it fetches what is missing there, as by
 * `mw_shared_prefetch`, at most 16 minipages at a time. A hint, without effect on one host and under hlrc.
 *
 * Errors:
 * `MW_ERR_ADDRESS`: the bytes are not within the shared memory. `MW_ERR_RANGE`: no rank has this number. `MW_ERR_ARGUMENT`: it is this rank.
 * `MW_ERR_GONE`: a rank has left or died.
 */
mw_status_t mw_shared_push(const mw_shared_t *shared,
                           const void *memory,
                           size_t length,
                           uint32_t rank);

/*
 * Allocates `length` bytes of shared memory, as malloc(3) does of private memory: aligned to 16 bytes, at the same address in every rank,
 * freed by any thread of any rank. On one host, forked children may allocate and free too. What the block holds is unspecified.
 *
 * Returns `NULL` if no room is left; `mw_error_message` says more.
 */
void *mw_shared_malloc(const mw_shared_t *shared,
                       size_t length);

/*
 * As `mw_shared_malloc`, `count` times `length` zeroed bytes.
 *
 * Returns `NULL` if no room is left, or the product is too large.
 */
void *mw_shared_calloc(const mw_shared_t *shared, size_t count, size_t length);

/*
 * As `mw_shared_malloc`, at a multiple of `align`: a power of two, up to 2 MiB on one host, up to a page with minipages.
 *
 * Returns `NULL` if no room is left, or for another alignment.
 */
void *mw_shared_aligned_alloc(const mw_shared_t *shared,
                              size_t align,
                              size_t length);

/*
 * Makes the block at `memory` `length` bytes long, where it lies or elsewhere: what fits keeps its content. `NULL` for `memory` allocates.
 *
 * Returns `NULL` if no room is left, or nothing is allocated at `memory`; the block is then as it was.
 *
 * Required of the caller:
 * No other thread uses the block during the call, nor `memory` afterwards.
 */
void *mw_shared_realloc(const mw_shared_t *shared,
                        void *memory,
                        size_t length);

/*
 * Frees a block that any rank has allocated by these functions or, on one host, by `mw_shared_alloc`. `NULL` is no error.
 *
 * Errors:
 * `MW_ERR_ADDRESS`: no block of the shared memory begins there, or it has been freed. `MW_ERR_STATE`: freed for the second time, or, with
 * `MAPWIRE_HEAP_DEBUG=true`, something has stored beside the block (the message says where, and which rank allocated it).
 *
 * Required of the caller:
 * Nobody uses the block afterwards.
 */
mw_status_t mw_shared_free(const mw_shared_t *shared,
                           void *memory);

/*
 * Returns in `*length` the bytes that may be used of the block at `memory`: as many as were asked for, or more.
 *
 * Errors:
 * `MW_ERR_ADDRESS`: no block of the shared memory begins there.
 */
mw_status_t mw_shared_usable_size(const mw_shared_t *shared,
                                  const void *memory,
                                  size_t *length);

/*
 * Makes `*mutex` an unlocked mutex, whatever was there.
 *
 * Errors:
 * Of this and all functions of synchronisation objects: `MW_ERR_ADDRESS`: it is not in shared memory, or not aligned to 8 bytes.
 * `MW_ERR_STATE`: no shared memory is open. `MW_ERR_LIMIT`: between hosts, the rank that keeps it has 65536 objects in use.
 *
 * Required of the caller:
 * The shared memory is not closed during the call.
 */
mw_status_t mw_mutex_init(mw_mutex_t *mutex);

/*
 * Locks.
 *
 * Errors:
 * `MW_ERR_STATE`: this thread holds it, or it is destroyed, or its memory freed. `MW_ERR_GONE`: its holder has ended, or a rank has left
 * or died. `MW_ERR_LIMIT`: more than 32767 threads use such objects.
 *
 * Required of the caller:
 * The shared memory is not closed during the call.
 */
mw_status_t mw_mutex_lock(mw_mutex_t *mutex);

/*
 * Locks, if it is free.
 *
 * Errors:
 * `MW_ERR_TIMEOUT`: it is locked. Otherwise as `mw_mutex_lock`.
 *
 * Required of the caller:
 * The shared memory is not closed during the call.
 */
mw_status_t mw_mutex_trylock(mw_mutex_t *mutex);

/*
 * Locks, after `timeout_ns` nanoseconds at most.
 *
 * Errors:
 * `MW_ERR_TIMEOUT`: it is locked still. Otherwise as `mw_mutex_lock`.
 *
 * Required of the caller:
 * The shared memory is not closed during the call.
 */
mw_status_t mw_mutex_timedlock(mw_mutex_t *mutex, uint64_t timeout_ns);

/*
 * Unlocks.
 *
 * Errors:
 * `MW_ERR_STATE`: this thread does not hold it; the message names who does.
 *
 * Required of the caller:
 * The shared memory is not closed during the call.
 */
mw_status_t mw_mutex_unlock(mw_mutex_t *mutex);

/*
 * Makes later calls errors.
 *
 * Errors:
 * `MW_ERR_STATE`: it is locked.
 *
 * Required of the caller:
 * The shared memory is not closed during the call.
 */
mw_status_t mw_mutex_destroy(mw_mutex_t *mutex);

/*
 * Makes `*lock` an unlocked reader-writer lock, whatever was there.
 *
 * Required of the caller:
 * The shared memory is not closed during the call.
 */
mw_status_t mw_rwlock_init(mw_rwlock_t *lock);

/*
 * Locks for reading, with others that read.
 *
 * Errors:
 * `MW_ERR_STATE`: this thread holds it and a writer waits, or it is destroyed, or its memory freed. `MW_ERR_GONE`: a holder has ended, or
 * a rank has left or died.
 *
 * Required of the caller:
 * The shared memory is not closed during the call.
 */
mw_status_t mw_rwlock_rdlock(mw_rwlock_t *lock);

/*
 * Locks for reading, if no writer has or wants it.
 *
 * Errors:
 * `MW_ERR_TIMEOUT`: a writer has or wants it. Otherwise as `mw_rwlock_rdlock`.
 *
 * Required of the caller:
 * The shared memory is not closed during the call.
 */
mw_status_t mw_rwlock_tryrdlock(mw_rwlock_t *lock);

/*
 * Locks for reading, after `timeout_ns` nanoseconds at most.
 *
 * Errors:
 * `MW_ERR_TIMEOUT`: a writer has or wants it still. Otherwise as `mw_rwlock_rdlock`.
 *
 * Required of the caller:
 * The shared memory is not closed during the call.
 */
mw_status_t mw_rwlock_timedrdlock(mw_rwlock_t *lock, uint64_t timeout_ns);

/*
 * Locks for writing, alone.
 *
 * Errors:
 * `MW_ERR_STATE`: this thread holds it, or it is destroyed, or its memory freed. `MW_ERR_GONE`: a holder has ended, or a rank has left or
 * died.
 *
 * Required of the caller:
 * The shared memory is not closed during the call.
 */
mw_status_t mw_rwlock_wrlock(mw_rwlock_t *lock);

/*
 * Locks for writing, if nobody holds it.
 *
 * Errors:
 * `MW_ERR_TIMEOUT`: somebody holds it. Otherwise as `mw_rwlock_wrlock`.
 *
 * Required of the caller:
 * The shared memory is not closed during the call.
 */
mw_status_t mw_rwlock_trywrlock(mw_rwlock_t *lock);

/*
 * Locks for writing, after `timeout_ns` nanoseconds at most.
 *
 * Errors:
 * `MW_ERR_TIMEOUT`: somebody holds it still. Otherwise as `mw_rwlock_wrlock`.
 *
 * Required of the caller:
 * The shared memory is not closed during the call.
 */
mw_status_t mw_rwlock_timedwrlock(mw_rwlock_t *lock, uint64_t timeout_ns);

/*
 * Unlocks what this thread has locked, for reading or writing.
 *
 * Errors:
 * `MW_ERR_STATE`: this thread does not hold it.
 *
 * Required of the caller:
 * The shared memory is not closed during the call.
 */
mw_status_t mw_rwlock_unlock(mw_rwlock_t *lock);

/*
 * Makes later calls errors.
 *
 * Errors:
 * `MW_ERR_STATE`: it is locked.
 *
 * Required of the caller:
 * The shared memory is not closed during the call.
 */
mw_status_t mw_rwlock_destroy(mw_rwlock_t *lock);

/*
 * Makes `*condition` a condition variable, whatever was there.
 *
 * Required of the caller:
 * The shared memory is not closed during the call.
 */
mw_status_t mw_cond_init(mw_cond_t *condition);

/*
 * Unlocks `mutex`, waits for a signal, and locks it again. May return without a signal: look whether what is waited for is true.
 *
 * Errors:
 * `MW_ERR_STATE`: this thread does not hold the mutex, or `*condition` is destroyed. Otherwise as `mw_mutex_lock`.
 *
 * Required of the caller:
 * The shared memory is not closed during the call.
 */
mw_status_t mw_cond_wait(mw_cond_t *condition,
                         mw_mutex_t *mutex);

/*
 * As `mw_cond_wait`, for `timeout_ns` nanoseconds at most; then it has locked the mutex too.
 *
 * Errors:
 * `MW_ERR_TIMEOUT`: there was no signal. Otherwise as `mw_cond_wait`.
 *
 * Required of the caller:
 * The shared memory is not closed during the call.
 */
mw_status_t mw_cond_timedwait(mw_cond_t *condition, mw_mutex_t *mutex, uint64_t timeout_ns);

/*
 * Wakes one thread that waits.
 *
 * Errors:
 * `MW_ERR_STATE`: it is destroyed.
 *
 * Required of the caller:
 * The shared memory is not closed during the call.
 */
mw_status_t mw_cond_signal(mw_cond_t *condition);

/*
 * Wakes all threads that wait.
 *
 * Errors:
 * `MW_ERR_STATE`: it is destroyed.
 *
 * Required of the caller:
 * The shared memory is not closed during the call.
 */
mw_status_t mw_cond_broadcast(mw_cond_t *condition);

/*
 * Makes later calls errors. Nobody waits.
 *
 * Required of the caller:
 * The shared memory is not closed during the call.
 */
mw_status_t mw_cond_destroy(mw_cond_t *condition);

/*
 * Calls `routine`, unless a thread of any rank has called it for `*once`; waits while one does. What it has stored is visible then.
 *
 * Errors:
 * `MW_ERR_STATE`: `routine` calls this for the same `*once`. `MW_ERR_GONE`: the thread that called it has ended before it returned, or a
 * rank has left or died.
 *
 * Required of the caller:
 * The shared memory is not closed during the call, and `routine` returns.
 */
mw_status_t mw_once(mw_once_t *once,
                    mw_once_fn routine);

/*
 * Makes `*semaphore` a semaphore of this value, whatever was there.
 *
 * Errors:
 * `MW_ERR_LIMIT`: the value is above 2147483647.
 *
 * Required of the caller:
 * The shared memory is not closed during the call.
 */
mw_status_t mw_sem_init(mw_sem_t *semaphore, uint32_t value);

/*
 * Waits until the value is not 0, and takes 1 from it.
 *
 * Errors:
 * `MW_ERR_STATE`: it is destroyed or damaged. `MW_ERR_GONE`: a rank has left or died.
 *
 * Required of the caller:
 * The shared memory is not closed during the call.
 */
mw_status_t mw_sem_wait(mw_sem_t *semaphore);

/*
 * Takes 1 from the value, if it is not 0.
 *
 * Errors:
 * `MW_ERR_TIMEOUT`: it is 0. Otherwise as `mw_sem_wait`.
 *
 * Required of the caller:
 * The shared memory is not closed during the call.
 */
mw_status_t mw_sem_trywait(mw_sem_t *semaphore);

/*
 * As `mw_sem_wait`, for `timeout_ns` nanoseconds at most.
 *
 * Errors:
 * `MW_ERR_TIMEOUT`: it is 0 still. Otherwise as `mw_sem_wait`.
 *
 * Required of the caller:
 * The shared memory is not closed during the call.
 */
mw_status_t mw_sem_timedwait(mw_sem_t *semaphore, uint64_t timeout_ns);

/*
 * Adds 1 to the value, and wakes one that waits.
 *
 * Errors:
 * `MW_ERR_LIMIT`: the value would be above 2147483647. `MW_ERR_STATE`: it is destroyed or damaged.
 *
 * Required of the caller:
 * The shared memory is not closed during the call.
 */
mw_status_t mw_sem_post(mw_sem_t *semaphore);

/*
 * Returns the value in `*value`.
 *
 * Errors:
 * `MW_ERR_STATE`: it is destroyed or damaged.
 *
 * Required of the caller:
 * The shared memory is not closed during the call.
 */
mw_status_t mw_sem_getvalue(mw_sem_t *semaphore, uint32_t *value);

/*
 * Makes later calls errors. Nobody waits.
 *
 * Required of the caller:
 * The shared memory is not closed during the call.
 */
mw_status_t mw_sem_destroy(mw_sem_t *semaphore);

/*
 * Makes `*event` a flag of value 0, whatever was there.
 *
 * Required of the caller:
 * The shared memory is not closed during the call.
 */
mw_status_t mw_flag_init(mw_flag_t *event);

/*
 * Sets the value, 0 to clear it, and wakes those that wait for it.
 *
 * Required of the caller:
 * The shared memory is not closed during the call.
 */
mw_status_t mw_flag_set(mw_flag_t *event, uint64_t value);

/*
 * Adds to the value, and wakes those that wait for it.
 *
 * Required of the caller:
 * The shared memory is not closed during the call.
 */
mw_status_t mw_flag_add(mw_flag_t *event, uint64_t value);

/*
 * Returns the value in `*value`.
 *
 * Required of the caller:
 * The shared memory is not closed during the call.
 */
mw_status_t mw_flag_get(mw_flag_t *event, uint64_t *value);

/*
 * Waits until the value is `least` or more.
 *
 * Errors:
 * `MW_ERR_STATE`: it is destroyed. `MW_ERR_GONE`: a rank has left or died.
 *
 * Required of the caller:
 * The shared memory is not closed during the call.
 */
mw_status_t mw_flag_wait(mw_flag_t *event, uint64_t least);

/*
 * As `mw_flag_wait`, for `timeout_ns` nanoseconds at most.
 *
 * Errors:
 * `MW_ERR_TIMEOUT`: the value is less still. Otherwise as `mw_flag_wait`.
 *
 * Required of the caller:
 * The shared memory is not closed during the call.
 */
mw_status_t mw_flag_timedwait(mw_flag_t *event, uint64_t least, uint64_t timeout_ns);

/*
 * Makes later waits errors.
 *
 * Required of the caller:
 * The shared memory is not closed during the call.
 */
mw_status_t mw_flag_destroy(mw_flag_t *event);

/*
 * Makes `*barrier` a barrier of `count` threads, whatever was there.
 *
 * Errors:
 * `MW_ERR_ARGUMENT`: a count of 0.
 *
 * Required of the caller:
 * The shared memory is not closed during the call.
 */
mw_status_t mw_barrier_init(mw_barrier_t *barrier, uint32_t count);

/*
 * Waits until as many threads have arrived as the barrier counts. `*is_last` becomes 1 in one of them and 0 in the others; `is_last` may be
 * `NULL`. The barrier may be used again at once.
 *
 * Errors:
 * `MW_ERR_STATE`: it was not initialised, or is destroyed. `MW_ERR_GONE`: a rank has left or died.
 *
 * Required of the caller:
 * The shared memory is not closed during the call.
 */
mw_status_t mw_barrier_wait(mw_barrier_t *barrier,
                            int32_t *is_last);

/*
 * Makes later calls errors. Nobody waits.
 *
 * Required of the caller:
 * The shared memory is not closed during the call.
 */
mw_status_t mw_barrier_destroy(mw_barrier_t *barrier);

/*
 * Makes `*reduction` a reduction over `count` threads, whatever was there.
 *
 * Errors:
 * `MW_ERR_ARGUMENT`: a count of 0.
 *
 * Required of the caller:
 * The shared memory is not closed during the call.
 */
mw_status_t mw_reduction_init(mw_reduction_t *reduction, uint32_t count);

/*
 * Reduces `*value` of all threads of the reduction, by `MW_SUM`, `MW_MIN` or `MW_MAX`: waits until as many have come as it counts, and
 * returns the result in `*value` of all. Sums of integers wrap; the order in which floating-point numbers are added varies.
 *
 * Errors:
 * `MW_ERR_ARGUMENT`: an unknown reduction. `MW_ERR_STATE`: others ask for another one in this round, or it was not initialised, or is
 * destroyed. `MW_ERR_GONE`: a rank has left or died.
 *
 * Required of the caller:
 * The shared memory is not closed during the call, and `*value` is set.
 */
mw_status_t mw_reduction_i64(mw_reduction_t *reduction,
                             uint32_t how,
                             int64_t *value);

/*
 * As `mw_reduction_i64`, for unsigned integers.
 *
 * Errors:
 * As `mw_reduction_i64`.
 *
 * Required of the caller:
 * The shared memory is not closed during the call, and `*value` is set.
 */
mw_status_t mw_reduction_u64(mw_reduction_t *reduction, uint32_t how, uint64_t *value);

/*
 * As `mw_reduction_i64`, for floating-point numbers.
 *
 * Errors:
 * As `mw_reduction_i64`.
 *
 * Required of the caller:
 * The shared memory is not closed during the call, and `*value` is set.
 */
mw_status_t mw_reduction_f64(mw_reduction_t *reduction, uint32_t how, double *value);

/*
 * Makes later calls errors. Nobody waits.
 *
 * Required of the caller:
 * The shared memory is not closed during the call.
 */
mw_status_t mw_reduction_destroy(mw_reduction_t *reduction);

/* Returns the bytes of a queue with room for `capacity` values. */
uint64_t mw_queue_bytes(uint64_t capacity);

/*
 * Makes the `mw_queue_bytes(capacity)` bytes at `queue` an empty queue, whatever was there. `capacity` is a power of two.
 *
 * Errors:
 * `MW_ERR_ARGUMENT`: another capacity. `MW_ERR_ADDRESS`: the values are not all in shared memory.
 *
 * Required of the caller:
 * The shared memory is not closed during the call.
 */
mw_status_t mw_queue_init(mw_queue_t *queue,
                          uint64_t capacity);

/*
 * Adds a value at the owner's end.
 *
 * Errors:
 * `MW_ERR_LIMIT`: the queue is full. `MW_ERR_STATE`: another living thread owns it, or it was not initialised, or is destroyed.
 *
 * Required of the caller:
 * The shared memory is not closed during the call.
 */
mw_status_t mw_queue_push(mw_queue_t *queue,
                          uint64_t value);

/*
 * Takes the value that was pushed last.
 *
 * Errors:
 * `MW_ERR_TIMEOUT`: the queue is empty. `MW_ERR_STATE`: as `mw_queue_push`.
 *
 * Required of the caller:
 * The shared memory is not closed during the call.
 */
mw_status_t mw_queue_pop(mw_queue_t *queue, uint64_t *value);

/*
 * Takes the value that was pushed first; any thread may.
 *
 * Errors:
 * `MW_ERR_TIMEOUT`: the queue is empty. `MW_ERR_STATE`: it was not initialised, or is destroyed.
 *
 * Required of the caller:
 * The shared memory is not closed during the call.
 */
mw_status_t mw_queue_steal(mw_queue_t *queue, uint64_t *value);

/*
 * Makes later calls errors. Nobody uses it.
 *
 * Required of the caller:
 * The shared memory is not closed during the call.
 */
mw_status_t mw_queue_destroy(mw_queue_t *queue);

/*
 * Reads up to `length` bytes from the descriptor `fd` into shared memory, from its position on, until the file ends. `*done`, unless
 * `done` is `NULL`, is the number of bytes read, whatever the code: fewer than `length` if the file has ended or the read failed.
 *
 * Errors:
 * `MW_ERR_ADDRESS`: the range is not within the shared memory. `MW_ERR_SYSTEM`: read(2) failed; the message says why.
 *
 * Required of the caller:
 * `memory` to `memory + length` lies within allocations of
 * `shared`.
 */
mw_status_t mw_shared_read(const mw_shared_t *shared,
                           int32_t fd,
                           void *memory,
                           size_t length,
                           size_t *done);

/*
 * Writes `length` bytes of shared memory to the descriptor `fd`, from its position on. `*done`, unless `done` is `NULL`, is the number of
 * bytes written, whatever the code. Concurrent stores of other ranks may or may not be written.
 *
 * Errors:
 * `MW_ERR_ADDRESS`: the range is not within the shared memory. `MW_ERR_SYSTEM`: write(2) failed; the message says why.
 *
 * Required of the caller:
 * As `mw_shared_read`.
 */
mw_status_t mw_shared_write(const mw_shared_t *shared,
                            int32_t fd,
                            const void *memory,
                            size_t length,
                            size_t *done);

/*
 * As `mw_shared_read`, from `stream`, which is a `FILE *` of stdio.
 *
 * Errors:
 * As `mw_shared_read`; `MW_ERR_ARGUMENT`: `stream` is `NULL`.
 *
 * Required of the caller:
 * `stream` is an open `FILE *` of the C library that this program uses; otherwise as `mw_shared_read`.
 */
mw_status_t mw_shared_fread(const mw_shared_t *shared,
                            void *stream,
                            void *memory,
                            size_t length,
                            size_t *done);

/*
 * As `mw_shared_write`, to `stream`, which is a `FILE *` of stdio. The bytes may stay in its buffer: check fflush(3) or fclose(3).
 *
 * Errors:
 * As `mw_shared_write`; `MW_ERR_ARGUMENT`: `stream` is `NULL`.
 *
 * Required of the caller:
 * As `mw_shared_fread`.
 */
mw_status_t mw_shared_fwrite(const mw_shared_t *shared,
                             void *stream,
                             const void *memory,
                             size_t length,
                             size_t *done);

/*
 * Opens far memory. It needs userfaultfd (see `mapwire doctor`), and no job.
 *
 * Close it with `mw_far_close`.
 *
 * Errors:
 * `MW_ERR_ARGUMENT`: too few bytes in RAM. `MW_ERR_LIMIT`: more than the address space has. `MW_ERR_SYSTEM`: no file can be made in the
 * folder, or userfaultfd is refused (the message says how to fix it).
 *
 * Required of the caller:
 * `options` points to as many bytes as its `size` says, and `disk` to text with a NUL.
 */
mw_status_t mw_far_open(const mw_far_options_t *options,
                        mw_far_t **far);

/*
 * Frees all of the memory, and `far`. `NULL` is no error.
 *
 * Required of the caller:
 * No other thread is in a call with `far`, and nobody uses it or the memory afterwards.
 */
mw_status_t mw_far_close(mw_far_t *far);

/*
 * Allocates `length` bytes, zeroed, on a page boundary. It takes whole pages of 4096 bytes; untouched ones use no RAM or disk. At most
 * 1024 pieces exist at a time.
 *
 * Free `*memory` with `mw_far_free`.
 *
 * Errors:
 * `MW_ERR_ARGUMENT`: 0 bytes. `MW_ERR_LIMIT`: more than the address space has, or too many pieces.
 */
mw_status_t mw_far_alloc(const mw_far_t *far,
                         size_t length,
                         void **memory);

/*
 * Maps `length` bytes of a file from byte `offset` on, a multiple of 4096. Pages are read when they are touched. Stores change only the
 * memory, never the file. Unchanged pages are never written to the disk: they are read again.
 *
 * A page that the program has seen keeps its bytes even if the file changes meanwhile: if they are gone, access raises SIGBUS. `fd` may
 * be closed. As usual, this process's fcntl(2) locks on the file end when the memory is freed.
 *
 * Free `*memory` with `mw_far_free`.
 *
 * Errors:
 * `MW_ERR_ARGUMENT`: 0 bytes, not a regular file, or not open for reading. `MW_ERR_RANGE`: bytes behind the end of the file.
 * `MW_ERR_ALIGNMENT`: `offset` is not a multiple of 4096. `MW_ERR_LIMIT`: no address space or descriptor, or too many pieces.
 * `MW_ERR_SYSTEM`: `fd` is not open.
 */
mw_status_t mw_far_map(const mw_far_t *far,
                       int fd,
                       uint64_t offset,
                       size_t length,
                       void **memory);

/*
 * Frees memory of `mw_far_alloc` or `mw_far_map`. `NULL` is no error.
 *
 * Errors:
 * `MW_ERR_ADDRESS`: no memory of `far` begins there.
 *
 * Required of the caller:
 * Nobody uses the memory afterwards.
 */
mw_status_t mw_far_free(const mw_far_t *far, void *memory);

/*
 * Returns the counters so far in `*stats`, whose `size` must be set.
 *
 * Errors:
 * `MW_ERR_ARGUMENT`: the size is not valid.
 *
 * Required of the caller:
 * `stats` points to as many bytes as its `size` says.
 */
mw_status_t mw_far_stats(const mw_far_t *far, mw_far_stats_t *stats);

/*
 * Returns the node's counters so far in `*counters`, whose `size` must be set.
 *
 * Errors:
 * `MW_ERR_ARGUMENT`: the size is not valid.
 *
 * Required of the caller:
 * `counters` is as large as its `size` says.
 */
mw_status_t mw_node_counters(const mw_node_t *node, mw_node_counters_t *counters);

/*
 * Returns the shared memory's counters so far in `*counters`, whose `size` must be set.
 *
 * Errors:
 * `MW_ERR_ARGUMENT`: the size is not valid.
 *
 * Required of the caller:
 * `counters` is as large as its `size` says.
 */
mw_status_t mw_shared_counters(const mw_shared_t *shared, mw_shared_counters_t *counters);

#ifdef __cplusplus
}  /* extern "C" */
#endif  /* __cplusplus */

#endif  /* MAPWIRE_H */

/*
 * mapwire run --summary names the places that allocate what faults most: the calls of these. Define MW_NO_PLACES before the header is
 * included to have none named.
 */
#if !defined(MW_NO_PLACES) && (defined(__cplusplus) || (defined(__STDC_VERSION__) && __STDC_VERSION__ >= 199901L))
#define mw_shared_alloc(...) (mw_shared_place(__FILE__, __LINE__), mw_shared_alloc(__VA_ARGS__))
#define mw_shared_alloc_with(...) (mw_shared_place(__FILE__, __LINE__), mw_shared_alloc_with(__VA_ARGS__))
#define mw_shared_malloc(...) (mw_shared_place(__FILE__, __LINE__), mw_shared_malloc(__VA_ARGS__))
#define mw_shared_calloc(...) (mw_shared_place(__FILE__, __LINE__), mw_shared_calloc(__VA_ARGS__))
#define mw_shared_realloc(...) (mw_shared_place(__FILE__, __LINE__), mw_shared_realloc(__VA_ARGS__))
#define mw_shared_aligned_alloc(...) (mw_shared_place(__FILE__, __LINE__), mw_shared_aligned_alloc(__VA_ARGS__))
#endif
