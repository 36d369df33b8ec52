/*
 * Calls of the calculator that go well, and others that do not: one of them a run, by its name. Prints what came of it.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "calc.h"

#define MAPWIRE "mapwire"

static const char *host = "localhost";

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}


static CLIENT *create(unsigned long version)
{
	CLIENT *client = clnt_create(host, CALC_PROG, (rpcvers_t)version, MAPWIRE);

	if (client == NULL) {
		clnt_pcreateerror("create");
		exit(1);
	}
	return client;
}

static long long add(CLIENT *client, long long left, long long right)
{
	calc_pair pair = { left, right };
	calc_result *result = calc_add_1(&pair, client);

	if (result == NULL) {
		clnt_perror(client, "add");
		exit(1);
	}
	return result->calc_result_u.value;
}

static enum clnt_stat wait_call(CLIENT *client, u_int ms, u_int limit_ms)
{
	u_int waited = 0;
	struct timeval limit = { limit_ms / 1000, (limit_ms % 1000) * 1000 };

	return clnt_call(client, CALC_WAIT, (xdrproc_t)xdr_u_int, (caddr_t)&ms, (xdrproc_t)xdr_u_int, (caddr_t)&waited,
			 limit);
}

static struct timeval seconds(long count)
{
	struct timeval time = { count, 0 };

	return time;
}

static bool_t nothing(XDR *xdrs, ...)
{
	(void)xdrs;
	return TRUE;
}

/* The server has the program, in versions 1 and 2. */
static int wrong_version(void)
{
	CLIENT *client = create(7);
	enum clnt_stat status = clnt_call(client, NULLPROC, nothing, NULL, nothing, NULL, seconds(5));
	struct rpc_err error;

	clnt_geterr(client, &error);
	printf("status %d, versions %u to %u: %s\n", status, error.re_vers.low, error.re_vers.high,
	       clnt_sperror(client, "version 7"));
	return 0;
}

static int wrong_program(void)
{
	CLIENT *client = clnt_create(host, CALC_PROG + 0x100000, 1, MAPWIRE);

	printf("client %p, status %d: %s\n", (void *)client, rpc_createerr.cf_stat, clnt_spcreateerror("create"));
	client = create(CALC_VERS_1);
	u_int program = CALC_PROG + 0x100000;
	clnt_control(client, CLSET_PROG, (char *)&program);
	enum clnt_stat status = clnt_call(client, NULLPROC, nothing, NULL, nothing, NULL, seconds(5));
	printf("call: status %d\n", status);
	return 0;
}

static int wrong_procedure(void)
{
	CLIENT *client = create(CALC_VERS_1);
	enum clnt_stat status = clnt_call(client, 99, nothing, NULL, nothing, NULL, seconds(5));

	printf("status %d: %s\n", status, clnt_sperror(client, "procedure 99"));
	printf("sum %lld\n", add(client, 1, 2));
	return 0;
}

/* Arguments that are too short, too long for their type, and results of another type. */
static int wrong_arguments(void)
{
	CLIENT *client = create(CALC_VERS_1);
	u_int word = 0x7fffffff;
	quad_t sum;
	enum clnt_stat status = clnt_call(client, CALC_ADD, (xdrproc_t)xdr_u_int, (caddr_t)&word, nothing, NULL, seconds(5));

	printf("short: status %d: %s\n", status, clnt_sperror(client, "call"));
	/* A list that says it has two thousand million elements. */
	status = clnt_call(client, CALC_SUM, (xdrproc_t)xdr_u_int, (caddr_t)&word, (xdrproc_t)xdr_quad_t, (caddr_t)&sum,
			   seconds(5));
	printf("false length: status %d\n", status);
	calc_list list = { 0, NULL };
	/* The result, the number 1, is no list of one element. */
	word = 1;
	status = clnt_call(client, CALC_WAIT, (xdrproc_t)xdr_u_int, (caddr_t)&word, (xdrproc_t)xdr_calc_list,
			   (caddr_t)&list, seconds(5));
	printf("other result: status %d\n", status);
	printf("sum %lld\n", add(client, 1, 2));
	return 0;
}

/* Lists of words, up to one that is longer than the server takes. */
static int long_arguments(void)
{
	CLIENT *client = create(CALC_VERS_1);

	for (u_int count = 1; count <= 1u << 20; count *= 4) {
		calc_list list = { count, malloc(count * sizeof(quad_t)) };
		quad_t sum = 0;

		for (u_int i = 0; i < count; i++)
			list.calc_list_val[i] = i;
		enum clnt_stat status = clnt_call(client, CALC_SUM, (xdrproc_t)xdr_calc_list, (caddr_t)&list,
						  (xdrproc_t)xdr_quad_t, (caddr_t)&sum, seconds(20));
		quad_t wanted = (quad_t)count * (count - 1) / 2;
		printf("%u: %s\n", count, status ? clnt_sperror(client, "sum") : sum == wanted ? "ok" : "WRONG");
		free(list.calc_list_val);
	}
	printf("sum %lld\n", add(client, 1, 2));
	return 0;
}

static void who(CLIENT *client, const char *what)
{
	calc_caller *caller = calc_whoami_1(NULL, client);

	if (caller == NULL)
		printf("%s: %s\n", what, clnt_sperror(client, "whoami"));
	else
		printf("%s: flavour %u uid %u gid %u\n", what, caller->flavour, caller->uid, caller->gid);
}

static int credentials(void)
{
	CLIENT *client = create(CALC_VERS_1);
	char name[] = "somewhere";

	who(client, "none");
	client->cl_auth = authunix_create_default();
	who(client, "own");
	auth_destroy(client->cl_auth);
	gid_t group = 4242;
	client->cl_auth = authunix_create(name, 4242, 4242, 1, &group);
	who(client, "other");
	auth_destroy(client->cl_auth);
	client->cl_auth = authnone_create();
	who(client, "none");
	return 0;
}

/* A reply that comes late is dropped, and the next call gets its own. */
static int time_out(void)
{
	CLIENT *client = create(CALC_VERS_1);
	double begun = now();
	enum clnt_stat status = wait_call(client, 400, 100);
	double after = now() - begun;

	printf("status %d %s: %s\n", status, after > 0.09 && after < 0.35 ? "in time" : "LATE", clnt_sperror(client, "wait"));
	printf("sum %lld\n", add(client, 1, 2));
	printf("sum %lld\n", add(client, 3, 4));
	struct timeval limit = { 0, 50000 }, got;
	clnt_control(client, CLSET_TIMEOUT, (char *)&limit);
	clnt_control(client, CLGET_TIMEOUT, (char *)&got);
	status = wait_call(client, 300, 20000);
	printf("by control: status %d, %ld us\n", status, (long)got.tv_usec);
	limit = seconds(20);
	clnt_control(client, CLSET_TIMEOUT, (char *)&limit);
	printf("sum %lld\n", add(client, 5, 6));
	return 0;
}

static int control(void)
{
	CLIENT *client = create(CALC_VERS_1);
	u_int word = 0, version = CALC_VERS_2;
	struct sockaddr_in address;
	struct netbuf buffer;

	printf("%d", clnt_control(client, CLGET_VERS, (char *)&word));
	printf(" version %u,", word);
	printf(" %d", clnt_control(client, CLGET_PROG, (char *)&word));
	printf(" program %s,", word == CALC_PROG ? "ok" : "WRONG");
	clnt_control(client, CLGET_XID, (char *)&word);
	u_int before = word;
	add(client, 1, 1);
	clnt_control(client, CLGET_XID, (char *)&word);
	printf(" xid +%u,", word - before);
	printf(" %d", clnt_control(client, CLGET_SERVER_ADDR, (char *)&address));
	printf(" at %s,", inet_ntoa(address.sin_addr));
	printf(" %d", clnt_control(client, CLGET_SVC_ADDR, (char *)&buffer));
	printf(" of %u,", buffer.len);
	printf(" unknown %d\n", clnt_control(client, 999, (char *)&word));
	clnt_control(client, CLSET_VERS, (char *)&version);
	calc_pair pair = { 6, 7 };
	calc_result *result = calc_multiply_2(&pair, client);
	printf("product %lld\n", result ? (long long)result->calc_result_u.value : -1);
	clnt_destroy(client);
	rpcvers_t found = 0;
	client = clnt_create_vers(host, CALC_PROG, &found, 1, 9, MAPWIRE);
	printf("version %u of 1 to 9\n", client ? found : 0);
	if (client)
		clnt_destroy(client);
	client = clnt_create_vers(host, CALC_PROG, &found, 3, 9, MAPWIRE);
	printf("version 3 to 9: %s\n", client ? "FOUND" : clnt_spcreateerror("create"));
	return 0;
}

static bool_t each(char *results, struct netbuf *from, struct netconfig *network)
{
	(void)results;
	(void)from;
	(void)network;
	return TRUE;
}

static int broadcast(void)
{
	enum clnt_stat status = rpc_broadcast(CALC_PROG, 1, NULLPROC, nothing, NULL, nothing, NULL, (resultproc_t)each,
					      MAPWIRE);

	printf("status %d: %s\n", status, clnt_sperrno(status));
	calc_pair pair = { 20, 22 };
	calc_result result;
	status = rpc_call(host, CALC_PROG, 1, CALC_ADD, (xdrproc_t)xdr_calc_pair, (char *)&pair,
			  (xdrproc_t)xdr_calc_result, (char *)&result, MAPWIRE);
	printf("rpc_call: status %d, %lld\n", status, (long long)result.calc_result_u.value);
	return 0;
}

/* Calls that nobody waits for. */
static int one_way(void)
{
	CLIENT *client = create(CALC_VERS_1);
	struct timeval none = { 0, 0 };
	calc_pair pair = { 1, 2 };
	u_quad_t before = *calc_count_1(NULL, client);

	for (int i = 0; i < 100; i++) {
		enum clnt_stat status = clnt_call(client, CALC_ADD, (xdrproc_t)xdr_calc_pair, (caddr_t)&pair, NULL, NULL, none);
		if (status != RPC_SUCCESS) {
			printf("status %d\n", status);
			return 1;
		}
	}
	printf("carried out %llu\n", (unsigned long long)(*calc_count_1(NULL, client) - before));
	return 0;
}

/* Waits for a server that is killed meanwhile, or lives on. */
static int long_call(const char *ms)
{
	CLIENT *client = create(CALC_VERS_1);

	printf("ready\n");
	fflush(stdout);
	double begun = now();
	enum clnt_stat status = wait_call(client, (u_int)atoi(ms), 25000);
	printf("status %d after %.1f s: %s\n", status, now() - begun, clnt_sperror(client, "wait"));
	calc_pair pair = { 1, 2 };
	calc_result *result = calc_add_1(&pair, client);
	printf("next: %s\n", result ? "ok" : clnt_sperror(client, "add"));
	return 0;
}

static int compare(const void *left, const void *right)
{
	u_quad_t one = *(const u_quad_t *)left, other = *(const u_quad_t *)right;

	return (one > other) - (one < other);
}

/*
 * Once a line comes, calls until the server has carried out so many calls of all clients. Prints how many of them this client made, and
 * how many of others the server carried out between two of them, in the median.
 */
static int count_calls(const char *total)
{
	CLIENT *client = create(CALC_VERS_1);
	u_quad_t end = (u_quad_t)atoi(total), last = 0, *between = malloc(end * sizeof *between);
	size_t count = 0;
	char line[16];

	add(client, 0, 0);
	printf("ready\n");
	fflush(stdout);
	if (fgets(line, sizeof line, stdin) == NULL)
		return 1;
	do {
		if (add(client, (long long)count, 1) != (long long)count + 1) {
			printf("WRONG\n");
			return 1;
		}
		u_quad_t now = *calc_count_1(NULL, client);
		between[count++] = now - last - 1;
		last = now;
	} while (last < end);
	/* The first is counted from nothing. */
	qsort(between + 1, count - 1, sizeof *between, compare);
	printf("%zu %llu\n", count, (unsigned long long)between[count / 2]);
	return 0;
}

static void *thread(void *number)
{
	CLIENT *client = create(CALC_VERS_1);
	long long mine = (long long)(intptr_t)number * 1000000;

	for (int i = 0; i < 2000; i++) {
		calc_pair pair = { mine, i };
		calc_result result = { 0 };
		enum clnt_stat status = clnt_call(client, CALC_ADD, (xdrproc_t)xdr_calc_pair, (caddr_t)&pair,
						  (xdrproc_t)xdr_calc_result, (caddr_t)&result, seconds(20));
		if (status != RPC_SUCCESS || result.calc_result_u.value != mine + i) {
			printf("WRONG: status %d, %lld\n", status, (long long)result.calc_result_u.value);
			exit(1);
		}
	}
	clnt_destroy(client);
	return NULL;
}

static int threads(void)
{
	pthread_t ids[8];

	for (intptr_t i = 0; i < 8; i++)
		pthread_create(&ids[i], NULL, thread, (void *)i);
	for (int i = 0; i < 8; i++)
		pthread_join(ids[i], NULL);
	printf("8 threads, 16000 calls\n");
	return 0;
}

static pthread_barrier_t together;

static void *one_of_many(void *number)
{
	pthread_barrier_wait(&together);
	CLIENT *client = create(CALC_VERS_1);
	pthread_barrier_wait(&together);
	pthread_barrier_wait(&together);
	calc_pair pair = { (intptr_t)number, 1 };
	calc_result result = { 0 };
	enum clnt_stat status = clnt_call(client, CALC_ADD, (xdrproc_t)xdr_calc_pair, (caddr_t)&pair,
					  (xdrproc_t)xdr_calc_result, (caddr_t)&result, seconds(20));

	if (status != RPC_SUCCESS || result.calc_result_u.value != (intptr_t)number + 1) {
		printf("WRONG: status %d\n", status);
		exit(1);
	}
	clnt_destroy(client);
	return NULL;
}

/* Threads make clients at the same time: how many descriptors that takes. */
static int crowd(void)
{
	enum { THREADS = 100 };
	pthread_t ids[THREADS];
	int descriptors = 0;

	pthread_barrier_init(&together, NULL, THREADS + 1);
	for (intptr_t i = 0; i < THREADS; i++)
		pthread_create(&ids[i], NULL, one_of_many, (void *)i);
	pthread_barrier_wait(&together);
	pthread_barrier_wait(&together);
	for (int fd = 0; fd < 1024; fd++)
		descriptors += fcntl(fd, F_GETFD) >= 0;
	pthread_barrier_wait(&together);
	for (int i = 0; i < THREADS; i++)
		pthread_join(ids[i], NULL);
	printf("%d descriptors\n", descriptors);
	return 0;
}

/* A child does not use its parent's client, and makes its own. */
static int forks(void)
{
	CLIENT *client = create(CALC_VERS_1);

	add(client, 1, 1);
	fflush(stdout);
	pid_t child = fork();
	if (child == 0) {
		calc_pair pair = { 1, 2 };
		printf("child: %s\n", calc_add_1(&pair, client) ? "ANSWERED" : clnt_sperror(client, "add"));
		clnt_destroy(client);
		printf("child: sum %lld\n", add(create(CALC_VERS_1), 2, 3));
		fflush(stdout);
		_exit(0);
	}
	int status = -1;
	waitpid(child, &status, 0);
	printf("child ended with %d; sum %lld\n", status, add(client, 3, 4));
	return 0;
}

/* A server's children try what is their parent's to do. */
static int children(void)
{
	static const char *const what[] = { "replies", "reads", "destroys", "unregisters", "serves" };
	CLIENT *client = create(CALC_VERS_1);
	CLIENT *second = create(CALC_VERS_2);

	for (u_int i = 0; i < sizeof what / sizeof what[0]; i++) {
		u_int ended = 0;
		enum clnt_stat status = clnt_call(client, CALC_WAIT, (xdrproc_t)xdr_u_int, (caddr_t)&i,
						  (xdrproc_t)xdr_u_int, (caddr_t)&ended, seconds(25));
		printf("%s: status %d, child ended with %u;", what[i], status, ended);
		printf(" sum %lld;", add(client, 1, 2));
		printf(" version 2: %lld\n", add(second, 2, 2));
	}
	return 0;
}

/* A server makes a child that stays. */
static int stays(void)
{
	CLIENT *client = create(CALC_VERS_1);
	u_int what = 5, process = 0;
	enum clnt_stat status = clnt_call(client, CALC_WAIT, (xdrproc_t)xdr_u_int, (caddr_t)&what,
					  (xdrproc_t)xdr_u_int, (caddr_t)&process, seconds(25));

	printf("status %d\n%u\n", status, process);
	return 0;
}

/* Clients come and go in one process. */
static int again(const char *times)
{
	for (int i = 0; i < atoi(times); i++) {
		CLIENT *client = create(CALC_VERS_1);

		if (add(client, i, 1) != i + 1)
			return 1;
		clnt_destroy(client);
	}
	printf("ok\n");
	return 0;
}

/* By a port that is known, over another network. */
static int by_port(const char *network, const char *port)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	int socket = RPC_ANYSOCK;

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	address.sin_port = htons((unsigned short)atoi(port));
	CLIENT *client = strcmp(network, "tcp") == 0
				 ? clnttcp_create(&address, CALC_PROG, CALC_VERS_1, &socket, 0, 0)
				 : clntudp_create(&address, CALC_PROG, CALC_VERS_1, seconds(5), &socket);
	if (client == NULL) {
		clnt_pcreateerror(network);
		return 1;
	}
	for (int i = 0; i < 300; i++)
		if (add(client, i, 1) != i + 1)
			return 1;
	printf("ok\n");
	return 0;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	const char *more = argc > 2 ? argv[2] : "0";

	if (getenv("CHECK_HOST"))
		host = getenv("CHECK_HOST");

	if (strcmp(what, "version") == 0)
		return wrong_version();
	if (strcmp(what, "program") == 0)
		return wrong_program();
	if (strcmp(what, "procedure") == 0)
		return wrong_procedure();
	if (strcmp(what, "arguments") == 0)
		return wrong_arguments();
	if (strcmp(what, "long-arguments") == 0)
		return long_arguments();
	if (strcmp(what, "credentials") == 0)
		return credentials();
	if (strcmp(what, "time-out") == 0)
		return time_out();
	if (strcmp(what, "control") == 0)
		return control();
	if (strcmp(what, "broadcast") == 0)
		return broadcast();
	if (strcmp(what, "one-way") == 0)
		return one_way();
	if (strcmp(what, "long-call") == 0)
		return long_call(more);
	if (strcmp(what, "count") == 0)
		return count_calls(more);
	if (strcmp(what, "threads") == 0)
		return threads();
	if (strcmp(what, "crowd") == 0)
		return crowd();
	if (strcmp(what, "forks") == 0)
		return forks();
	if (strcmp(what, "children") == 0)
		return children();
	if (strcmp(what, "stays") == 0)
		return stays();
	if (strcmp(what, "again") == 0)
		return again(more);
	if (strcmp(what, "port") == 0 && argc > 3)
		return by_port(more, argv[3]);
	fprintf(stderr, "check: no check %s\n", what);
	return 2;
}
