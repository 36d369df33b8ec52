// Memory that is held by reference, or pinned, while the program touches other memory: who holds it sees what was given, and what a device
// stores there arrives. The first argument names the way, the second a file that may be made.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <linux/if_xdp.h>
#include <linux/io_uring.h>
#include <net/if.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what) ((what) ? (void)0 : (printf("line %d: %s: %s\n", __LINE__, #what, strerror(errno)), exit(1)))

enum { PAGE = 4096, HELD = 64 << 10, MANY = 1 << 20, OTHER = 16 << 20 };

static void skip(const char *what) {
    printf("skipped: %s: %s\n", what, strerror(errno));
    exit(0);
}

static uint64_t value(size_t word, uint64_t round) { return (word + round * 0x51ed270b) * 0x9E3779B97F4A7C15ull + 7; }

static uint64_t *far_memory(size_t bytes) {
    uint64_t *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    return memory;
}

static void fill(uint64_t *memory, size_t bytes, uint64_t round) {
    for (size_t word = 0; word < bytes / 8; word++) memory[word] = value(word, round);
}

static size_t wrong(const uint64_t *memory, size_t bytes, uint64_t round) {
    size_t count = 0;
    for (size_t word = 0; word < bytes / 8; word++) count += memory[word] != value(word, round);
    return count;
}

// Has all other pages leave the RAM.
static void touch_others(void) {
    static uint64_t *other;
    if (!other) other = far_memory(OTHER);
    for (int round = 0; round < 4; round++)
        for (size_t word = 0; word < OTHER / 8; word += 64) other[word] = 0xBADBADBADBADull + word;
}

static void read_all(int from, void *to, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        ssize_t got = read(from, (char *)to + done, bytes - done);
        CHECK(got > 0);
        done += got;
    }
}

// What was given and has `bytes` bytes comes out of `from`.
static void check_given(int from, uint64_t *memory, size_t bytes) {
    touch_others();
    uint64_t *got = malloc(bytes);
    read_all(from, got, bytes);
    CHECK(wrong(got, bytes, 0) == 0);
    CHECK(wrong(memory, bytes, 0) == 0);
}

static void through_pipes(int pipes, int rights) {
    uint64_t *memory = far_memory(MANY);
    fill(memory, HELD, 0);
    CHECK(mprotect(memory, MANY, rights) == 0);
    int first[2], second[2];
    CHECK(pipe(first) == 0 && pipe(second) == 0);
    CHECK(vmsplice(first[1], &(struct iovec){memory, HELD}, 1, 0) == HELD);
    if (pipes == 2) CHECK(splice(first[0], NULL, second[1], NULL, HELD, 0) == HELD);
    check_given(pipes == 2 ? second[0] : first[0], memory, HELD);
}

// A connection whose reader does not read yet and whose writer may queue all it has.
static void connect_pair(int *in, int *out) {
    int listener = socket(AF_INET, SOCK_STREAM, 0), small = 65536, large = 8 << 20;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    CHECK(setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof small) == 0);
    CHECK(bind(listener, (void *)&address, length) == 0 && listen(listener, 1) == 0);
    CHECK(getsockname(listener, (void *)&address, &length) == 0);
    *out = socket(AF_INET, SOCK_STREAM, 0);
    if (setsockopt(*out, SOL_SOCKET, SO_SNDBUFFORCE, &large, sizeof large)) skip("SO_SNDBUFFORCE");
    CHECK(connect(*out, (void *)&address, length) == 0);
    CHECK((*in = accept(listener, NULL, NULL)) >= 0);
}

static void zero_copy(void) {
    uint64_t *memory = far_memory(MANY);
    fill(memory, MANY, 0);
    int in, out, one = 1;
    connect_pair(&in, &out);
    if (setsockopt(out, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof one)) skip("SO_ZEROCOPY");
    size_t given = 0;
    while (given < MANY) {
        ssize_t sent = send(out, (char *)memory + given, MANY - given, MSG_ZEROCOPY | MSG_DONTWAIT);
        if (sent <= 0) break;
        given += sent;
    }
    CHECK(given >= HELD);
    check_given(in, memory, given & ~7ul);
}

// An io_uring of one request at a time.
static struct {
    int fd;
    _Atomic unsigned *tail, *done_head, *done_tail;
    unsigned *entries;
    struct io_uring_sqe *requests;
    struct io_uring_cqe *results;
    unsigned mask;
} ring;

static void start_ring(void) {
    struct io_uring_params params = {0};
    ring.fd = syscall(SYS_io_uring_setup, 4, &params);
    if (ring.fd < 0) skip("io_uring_setup");
    CHECK(params.features & IORING_FEAT_SINGLE_MMAP);
    char *rings = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_SHARED, ring.fd, IORING_OFF_SQ_RING);
    if (rings == MAP_FAILED) rings = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, ring.fd, IORING_OFF_SQ_RING);
    ring.requests = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, ring.fd, IORING_OFF_SQES);
    CHECK(rings != MAP_FAILED && ring.requests != MAP_FAILED);
    ring.tail = (void *)(rings + params.sq_off.tail);
    ring.entries = (void *)(rings + params.sq_off.array);
    ring.done_head = (void *)(rings + params.cq_off.head);
    ring.done_tail = (void *)(rings + params.cq_off.tail);
    ring.results = (void *)(rings + params.cq_off.cqes);
    ring.mask = params.cq_entries - 1;
}

static int submit(struct io_uring_sqe request) {
    ring.requests[0] = request;
    ring.entries[*ring.tail & 3] = 0;
    *ring.tail += 1;
    CHECK(syscall(SYS_io_uring_enter, ring.fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) == 1);
    CHECK(*ring.done_head != *ring.done_tail);
    int result = ring.results[*ring.done_head & ring.mask].res;
    *ring.done_head += 1;
    return result;
}

static void ring_zero_copy(void) {
    start_ring();
    uint64_t *memory = far_memory(MANY);
    fill(memory, MANY, 0);
    int in, out;
    connect_pair(&in, &out);
    int sent = submit((struct io_uring_sqe){
        .opcode = IORING_OP_SEND_ZC, .fd = out, .addr = (uintptr_t)memory, .len = MANY, .msg_flags = MSG_DONTWAIT});
    if (sent == -EINVAL) errno = EINVAL, skip("IORING_OP_SEND_ZC");
    CHECK(sent >= HELD);
    check_given(in, memory, sent & ~7);
}

static void ring_splice(void) {
    start_ring();
    uint64_t *memory = far_memory(MANY);
    fill(memory, HELD, 0);
    int first[2], second[2];
    CHECK(pipe(first) == 0 && pipe(second) == 0);
    CHECK(vmsplice(first[1], &(struct iovec){memory, HELD}, 1, 0) == HELD);
    int moved = submit((struct io_uring_sqe){.opcode = IORING_OP_SPLICE, .fd = second[1], .off = -1,
                                             .splice_fd_in = first[0], .splice_off_in = -1, .len = HELD});
    CHECK(moved == HELD);
    check_given(second[0], memory, HELD);
}

static int open_direct(const char *name) {
    int file = open(name, O_CREAT | O_TRUNC | O_RDWR | O_DIRECT, 0600);
    if (file < 0) skip("O_DIRECT");
    return file;
}

// Pinned for as long as the ring lives.
static void ring_buffers(const char *name) {
    start_ring();
    uint64_t *memory = far_memory(MANY);
    fill(memory, MANY, 0);
    if (syscall(SYS_io_uring_register, ring.fd, IORING_REGISTER_BUFFERS, &(struct iovec){memory, HELD}, 1))
        skip("IORING_REGISTER_BUFFERS");
    int file = open_direct(name);
    struct io_uring_sqe request = {.fd = file, .addr = (uintptr_t)memory, .len = HELD, .buf_index = 0};
    for (uint64_t round = 1; round < 4; round++) {
        touch_others();
        fill(memory, HELD, round);
        touch_others();
        request.opcode = IORING_OP_WRITE_FIXED;
        CHECK(submit(request) == HELD);
        fill(memory, HELD, 99);
        touch_others();
        request.opcode = IORING_OP_READ_FIXED;
        CHECK(submit(request) == HELD);
        CHECK(wrong(memory, HELD, round) == 0);
    }
    CHECK(wrong(memory + HELD / 8, 0, 0) == 0);
}

static _Atomic int is_over;

static void *touch_until_over(void *unused) {
    while (!is_over) touch_others();
    return unused;
}

// Reads and writes are under way while pages come and go.
static void direct(const char *name) {
    int file = open_direct(name);
    uint64_t *memory = far_memory(MANY);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, touch_until_over, NULL) == 0);
    for (uint64_t round = 0; round < 40; round++) {
        fill(memory, MANY, round);
        CHECK(pwrite(file, memory, MANY, 0) == MANY);
        fill(memory, MANY, 1000 + round);
        CHECK(pread(file, memory, MANY, 0) == MANY);
        CHECK(wrong(memory, MANY, round) == 0);
    }
    is_over = 1;
    CHECK(pthread_join(thread, NULL) == 0);
}

// Another process stores into the memory and loads from it.
static void another_process(void) {
    enum { PIECE = 1000 };
    static uint64_t piece[PIECE / 8];
    size_t pieces = MANY / PIECE;
    char *memory = (char *)far_memory(MANY);
    pid_t parent = getpid(), child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        for (uint64_t round = 1; round <= 20; round++)
            for (size_t at = 0; at < pieces; at++) {
                fill(piece, PIECE, round + at);
                struct iovec here = {piece, PIECE}, there = {memory + at * PIECE, PIECE};
                if (process_vm_writev(parent, &here, 1, &there, 1, 0) != PIECE) _exit(errno);
                size_t other = at * 7919 % (at + 1);
                there.iov_base = memory + other * PIECE;
                if (process_vm_readv(parent, &here, 1, &there, 1, 0) != PIECE) _exit(errno);
                if (wrong(piece, PIECE, round + other)) _exit(200);
            }
        _exit(0);
    }
    int status;
    while (waitpid(child, &status, WNOHANG) == 0) touch_others();
    CHECK(WIFEXITED(status));
    errno = WEXITSTATUS(status);
    if (errno == EPERM) skip("process_vm_writev");
    CHECK(WEXITSTATUS(status) == 0);
    for (size_t at = 0; at < pieces; at++) CHECK(wrong((uint64_t *)(memory + at * PIECE), PIECE, 20 + at) == 0);
}

// Packets of a socket that has the memory as its own.
static void packets(void) {
    enum { FRAME = 4096, FRAMES = 16, RING = 16, BYTES = 1024 };
    struct sockaddr_xdp place = {.sxdp_family = AF_XDP, .sxdp_flags = XDP_COPY, .sxdp_ifindex = if_nametoindex("lo")};
    int in = socket(AF_PACKET, SOCK_RAW, htons(0x88b5)), out = socket(AF_XDP, SOCK_RAW, 0), length = RING;
    if (in < 0) skip("AF_PACKET");
    if (out < 0) skip("AF_XDP");
    uint64_t *memory = far_memory(MANY);
    fill(memory, FRAME * FRAMES, 0);
    struct xdp_umem_reg umem = {.addr = (uintptr_t)memory, .len = FRAME * FRAMES, .chunk_size = FRAME};
    if (setsockopt(out, SOL_XDP, XDP_UMEM_REG, &umem, sizeof umem)) skip("XDP_UMEM_REG");
    CHECK(setsockopt(out, SOL_XDP, XDP_UMEM_FILL_RING, &length, sizeof length) == 0);
    CHECK(setsockopt(out, SOL_XDP, XDP_UMEM_COMPLETION_RING, &length, sizeof length) == 0);
    CHECK(setsockopt(out, SOL_XDP, XDP_TX_RING, &length, sizeof length) == 0);
    struct xdp_mmap_offsets offsets;
    socklen_t size = sizeof offsets;
    CHECK(getsockopt(out, SOL_XDP, XDP_MMAP_OFFSETS, &offsets, &size) == 0);
    char *sends = mmap(NULL, offsets.tx.desc + RING * sizeof(struct xdp_desc), PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_POPULATE, out, XDP_PGOFF_TX_RING);
    CHECK(sends != MAP_FAILED);
    if (bind(out, (void *)&place, sizeof place)) skip("an AF_XDP socket of lo");
    struct sockaddr_ll lo = {.sll_family = AF_PACKET, .sll_protocol = htons(0x88b5), .sll_ifindex = place.sxdp_ifindex};
    CHECK(bind(in, (void *)&lo, sizeof lo) == 0);
    CHECK(setsockopt(in, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){.tv_sec = 20}, sizeof(struct timeval)) == 0);
    for (int frame = 0; frame < FRAMES; frame++) {
        touch_others();
        uint64_t *packet = memory + frame * FRAME / 8, got[BYTES / 8];
        fill(packet, BYTES, 5 + frame);
        memset(packet, 0, 12);
        ((char *)packet)[12] = 0x88;
        ((char *)packet)[13] = 0xb5;
        touch_others();
        struct xdp_desc *next = (struct xdp_desc *)(sends + offsets.tx.desc) + frame;
        *next = (struct xdp_desc){.addr = frame * FRAME, .len = BYTES};
        *(_Atomic uint32_t *)(sends + offsets.tx.producer) += 1;
        CHECK(sendto(out, NULL, 0, MSG_DONTWAIT, NULL, 0) >= 0 || errno == EAGAIN || errno == EBUSY);
        // It comes twice: where it leaves and where it arrives.
        struct sockaddr_ll from;
        do {
            size = sizeof from;
            CHECK(recvfrom(in, got, BYTES, 0, (void *)&from, &size) == BYTES);
        } while (from.sll_pkttype == PACKET_OUTGOING);
        CHECK(memcmp(got, packet, BYTES) == 0);
        CHECK(got[100] == value(100, 5 + frame));
    }
}

int main(int count, char **arguments) {
    CHECK(count == 3);
    const char *way = arguments[1], *file = arguments[2];
    if (!strcmp(way, "vmsplice")) through_pipes(1, PROT_READ | PROT_WRITE), through_pipes(1, PROT_READ);
    else if (!strcmp(way, "splice")) through_pipes(2, PROT_READ | PROT_WRITE);
    else if (!strcmp(way, "zero-copy")) zero_copy();
    else if (!strcmp(way, "ring-zero-copy")) ring_zero_copy();
    else if (!strcmp(way, "ring-splice")) ring_splice();
    else if (!strcmp(way, "ring-buffers")) ring_buffers(file);
    else if (!strcmp(way, "direct")) direct(file);
    else if (!strcmp(way, "another-process")) another_process();
    else if (!strcmp(way, "packets")) packets();
    else return 2;
    puts("all is well");
    return 0;
}
