/*
 * A server that dispatches inside a procedure: `nested serve`. OUTER serves others until INNER was called, and then replies; each replies with
 * the port of its caller. `nested call OUTER|INNER` prints that.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>

#include "calc.h"

enum { OUTER = 1, INNER = 2 };

static int inner_calls;

static void serve_until_inner(void)
{
	int before = inner_calls;

	printf("waiting\n");
	fflush(stdout);
	while (inner_calls == before) {
		fd_set ready = svc_fdset;

		if (select(FD_SETSIZE, &ready, NULL, NULL, NULL) > 0)
			svc_getreqset(&ready);
	}
}

/* By both ways in which a server can ask. */
static int port_of(SVCXPRT *transport)
{
	struct sockaddr_in *old = (struct sockaddr_in *)svc_getcaller(transport);
	struct sockaddr_in *now = svc_getrpccaller(transport)->buf;

	if (old->sin_family != AF_INET || now->sin_family != AF_INET || old->sin_port != now->sin_port ||
	    old->sin_addr.s_addr != htonl(INADDR_LOOPBACK) || now->sin_addr.s_addr != htonl(INADDR_LOOPBACK))
		return -1;
	return ntohs(now->sin_port);
}

static void dispatch(struct svc_req *request, SVCXPRT *transport)
{
	int number = 0, port = port_of(transport);

	if (request->rq_proc == OUTER)
		serve_until_inner();
	else
		inner_calls++;
	/* The call's own arguments and caller are there yet. */
	if (!svc_getargs(transport, (xdrproc_t)xdr_int, (caddr_t)&number) || number != (int)request->rq_proc ||
	    port != port_of(transport))
		port = -1;
	if (!svc_sendreply(transport, (xdrproc_t)xdr_int, (char *)&port))
		svcerr_systemerr(transport);
}

static int serve(void)
{
	if (!svc_create(dispatch, CALC_PROG, CALC_VERS_1, "mapwire"))
		return 1;
	svc_run();
	return 1;
}

static int call(int procedure)
{
	CLIENT *client = clnt_create("localhost", CALC_PROG, CALC_VERS_1, "mapwire");
	struct timeval limit = { 50, 0 };
	int port = 0;

	if (client == NULL) {
		clnt_pcreateerror("create");
		return 1;
	}
	enum clnt_stat status = clnt_call(client, (rpcproc_t)procedure, (xdrproc_t)xdr_int, (caddr_t)&procedure,
					  (xdrproc_t)xdr_int, (caddr_t)&port, limit);
	if (status != RPC_SUCCESS)
		printf("%s\n", clnt_sperror(client, "call"));
	else
		printf("port %d\n", port);
	clnt_destroy(client);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "serve") == 0)
		return serve();
	if (argc != 3)
		return 2;
	return call(strcmp(argv[2], "outer") == 0 ? OUTER : INNER);
}
