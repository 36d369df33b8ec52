/*
 * Null calls and calls of 1 MB by the C library of ONC RPC, between two processes on two processors.
 *
 *   rpc WAY [CALLS]
 *
 * WAY is tcp, udp or unix: libtirpc as it is; tcp-spin, udp-spin or unix-spin: the same, with a poll() that never sleeps, at client and
 * server; mapwire: libmapwire_rpc, which waits as MAPWIRE_WAIT says. Built once with -ltirpc alone, for libtirpc's ways, and once with
 * -lmapwire_rpc before it.
 *
 * Prints one line of JSON: medians of 9 rounds, in ns, for a null call, a call with 1 MB of arguments, a memcpy of 1 MB, and the round
 * trip of a flag between the two processors.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <rpc/rpc.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PROGRAM 0x20004d60
#define VERSION 1
#define TAKE 1
#define BLOCK (1u << 20)
#define ROUNDS 9

struct shared {
	_Alignas(128) atomic_uint ping;
	_Alignas(128) atomic_uint pong;
	_Alignas(128) atomic_int port;
};

static struct shared *shared;
static int is_spinning;

/* What libtirpc calls, in place of the C library's. */
int poll(struct pollfd *fds, nfds_t count, int timeout)
{
	struct timespec none = { 0, 0 }, limit, now;

	if (!is_spinning) {
		limit.tv_sec = timeout / 1000;
		limit.tv_nsec = timeout % 1000 * 1000000L;
		return (int)syscall(SYS_ppoll, fds, count, timeout < 0 ? NULL : &limit, NULL, 0);
	}
	clock_gettime(CLOCK_MONOTONIC, &limit);
	for (;;) {
		int ready = (int)syscall(SYS_ppoll, fds, count, &none, NULL, 0);

		if (ready != 0 || timeout == 0)
			return ready;
		clock_gettime(CLOCK_MONOTONIC, &now);
		if (timeout > 0 && (now.tv_sec - limit.tv_sec) * 1000 + (now.tv_nsec - limit.tv_nsec) / 1000000 >= timeout)
			return 0;
	}
}

static double now_ns(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static void pin(int processor)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(processor, &set);
	sched_setaffinity(0, sizeof set, &set);
}

struct bytes {
	char *at;
	u_int length;
};

static bool_t xdr_block(XDR *xdrs, struct bytes *bytes)
{
	return xdr_bytes(xdrs, &bytes->at, &bytes->length, BLOCK);
}

static void dispatch(struct svc_req *request, SVCXPRT *transport)
{
	static char place[BLOCK];
	struct bytes bytes = { place, 0 };

	switch (request->rq_proc) {
	case NULLPROC:
		svc_sendreply(transport, (xdrproc_t)xdr_void, NULL);
		return;
	case TAKE:
		if (!svc_getargs(transport, (xdrproc_t)xdr_block, (caddr_t)&bytes))
			svcerr_decode(transport);
		else
			svc_sendreply(transport, (xdrproc_t)xdr_u_int, (caddr_t)&bytes.length);
		return;
	default:
		svcerr_noproc(transport);
	}
}

static const char *unix_path(void)
{
	static char path[64];

	snprintf(path, sizeof path, "/tmp/rpc-bench.%d", (int)(shared->port ? shared->port : getpid()));
	return path;
}

static void fail(const char *what)
{
	fprintf(stderr, "rpc: %s failed\n", what);
	exit(1);
}

static void serve(const char *way)
{
	SVCXPRT *transport = NULL;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	pin(1);
	for (unsigned i = 1; i <= 100000; i++) {
		while (atomic_load_explicit(&shared->ping, memory_order_acquire) != i)
			;
		atomic_store_explicit(&shared->pong, i, memory_order_release);
	}
	if (strcmp(way, "mapwire") == 0) {
		if (svc_create(dispatch, PROGRAM, VERSION, "mapwire") == 0)
			fail("svc_create");
		shared->port = 1;
	} else {
		if (strcmp(way, "tcp") == 0)
			transport = svctcp_create(RPC_ANYSOCK, 0, 0);
		else if (strcmp(way, "udp") == 0)
			transport = svcudp_create(RPC_ANYSOCK);
		else
			transport = svcunix_create(RPC_ANYSOCK, 0, 0, (char *)unix_path());
		if (transport == NULL || !svc_register(transport, PROGRAM, VERSION, dispatch, 0))
			fail("svc_register");
		shared->port = strcmp(way, "unix") == 0 ? getpid() : transport->xp_port;
	}
	svc_run();
	exit(1);
}

static CLIENT *connect_to(const char *way)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	int socket = RPC_ANYSOCK;

	if (strcmp(way, "mapwire") == 0)
		return clnt_create("localhost", PROGRAM, VERSION, "mapwire");
	if (strcmp(way, "unix") == 0) {
		struct sockaddr_un local = { .sun_family = AF_UNIX };

		strcpy(local.sun_path, unix_path());
		return clntunix_create(&local, PROGRAM, VERSION, &socket, 0, 0);
	}
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	address.sin_port = htons((unsigned short)shared->port);
	if (strcmp(way, "tcp") == 0)
		return clnttcp_create(&address, PROGRAM, VERSION, &socket, 0, 0);
	return clntudp_create(&address, PROGRAM, VERSION, (struct timeval){ 5, 0 }, &socket);
}

static int ascending(const void *one, const void *other)
{
	double a = *(const double *)one, b = *(const double *)other;

	return (a > b) - (a < b);
}

static double median(double *values)
{
	qsort(values, ROUNDS, sizeof *values, ascending);
	return values[ROUNDS / 2];
}

int main(int argc, char **argv)
{
	char way[16] = "";
	int calls = argc > 2 ? atoi(argv[2]) : 2000;
	struct timeval limit = { 25, 0 };
	double null[ROUNDS], block[ROUNDS], copy[ROUNDS], flag;
	static char from[BLOCK], to[BLOCK];

	if (argc < 2 || calls < 1) {
		fprintf(stderr, "usage: rpc tcp|udp|unix|tcp-spin|udp-spin|unix-spin|mapwire [CALLS]\n");
		return 2;
	}
	snprintf(way, sizeof way, "%s", argv[1]);
	if (strchr(way, '-')) {
		*strchr(way, '-') = 0;
		is_spinning = 1;
	}
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t server = fork();

	if (server == 0)
		serve(way);
	pin(0);
	double begun = now_ns();
	for (unsigned i = 1; i <= 100000; i++) {
		atomic_store_explicit(&shared->ping, i, memory_order_release);
		while (atomic_load_explicit(&shared->pong, memory_order_acquire) != i)
			;
	}
	flag = (now_ns() - begun) / 100000;
	while (shared->port == 0 && waitpid(server, NULL, WNOHANG) == 0)
		usleep(1000);
	CLIENT *client = connect_to(way);
	if (client == NULL) {
		clnt_pcreateerror(way);
		return 1;
	}
	memset(from, 7, sizeof from);
	for (int round = -1; round < ROUNDS; round++) {
		int each = round < 0 ? calls / 10 + 1 : calls;
		double t0 = now_ns();

		for (int i = 0; i < each; i++)
			if (clnt_call(client, NULLPROC, (xdrproc_t)xdr_void, NULL, (xdrproc_t)xdr_void, NULL, limit))
				fail(clnt_sperror(client, "null call"));
		double t1 = now_ns();
		int blocks = strcmp(way, "udp") == 0 ? 0 : 20;

		for (int i = 0; i < blocks; i++) {
			struct bytes bytes = { from, BLOCK };
			u_int taken = 0;

			if (clnt_call(client, TAKE, (xdrproc_t)xdr_block, (caddr_t)&bytes, (xdrproc_t)xdr_u_int,
				      (caddr_t)&taken, limit) || taken != BLOCK)
				fail(clnt_sperror(client, "call of 1 MB"));
		}
		double t2 = now_ns();

		for (int i = 0; i < 20; i++) {
			memcpy(to, from, BLOCK);
			/* Somebody may read it. */
			__asm__ volatile("" ::"r"(to), "r"(from) : "memory");
		}
		double t3 = now_ns();

		if (round >= 0) {
			null[round] = (t1 - t0) / each;
			block[round] = blocks ? (t2 - t1) / blocks : 0;
			copy[round] = (t3 - t2) / 20;
		}
	}
	double null_ns = median(null), block_ns = median(block), copy_ns = median(copy);

	printf("{\"bench\":\"rpc-c\",\"way\":\"%s\",\"null_ns\":%.0f,\"null_min_ns\":%.0f,\"block_ns\":%.0f,\"memcpy_ns\":%.0f,"
	       "\"flag_ns\":%.0f,\"placement\":\"processors 0 and 1\",\"wait\":\"%s\"}\n",
	       argv[1], null_ns, null[0], block_ns, copy_ns, flag, getenv("MAPWIRE_WAIT") ? getenv("MAPWIRE_WAIT") : "");
	clnt_destroy(client);
	kill(server, SIGKILL);
	waitpid(server, NULL, 0);
	if (strcmp(way, "unix") == 0)
		unlink(unix_path());
	return 0;
}
