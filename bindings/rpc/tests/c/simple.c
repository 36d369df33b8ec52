/*
 * A server whose functions rpc_reg() registers, and its client: `simple serve NETWORK`, `simple call NETWORK`. The client says by which
 * network it calls, and what came of each function.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calc.h"

enum { TWICE = 1, GREET, NOTHING, UNKNOWN = 99 };

static char *twice(char *number)
{
	static int result;

	result = 2 * *(int *)number;
	return (char *)&result;
}

static char *greet(char *name)
{
	static char text[100], *result = text;

	snprintf(text, sizeof text, "hello %s", *(char **)name);
	return (char *)&result;
}

static char *nothing(char *none)
{
	(void)none;
	return NULL;
}

static int serve(char *network)
{
	if (rpc_reg(CALC_PROG, CALC_VERS_1, TWICE, twice, (xdrproc_t)xdr_int, (xdrproc_t)xdr_int, network) != 0 ||
	    rpc_reg(CALC_PROG, CALC_VERS_1, GREET, greet, (xdrproc_t)xdr_wrapstring, (xdrproc_t)xdr_wrapstring, network) != 0 ||
	    rpc_reg(CALC_PROG, CALC_VERS_1, NOTHING, nothing, (xdrproc_t)xdr_void, (xdrproc_t)xdr_void, network) != 0)
		return 1;
	/* The null procedure is not to be had. */
	if (rpc_reg(CALC_PROG, CALC_VERS_1, 0, nothing, (xdrproc_t)xdr_void, (xdrproc_t)xdr_void, network) == 0)
		return 1;
	svc_run();
	return 1;
}

static int call(const char *network)
{
	CLIENT *client = clnt_create("localhost", CALC_PROG, CALC_VERS_1, network);
	struct timeval limit = { 10, 0 };
	char *name = strdup("world"), *text = NULL;
	int number = 21, doubled = 0;

	if (client == NULL) {
		clnt_pcreateerror("create");
		return 1;
	}
	printf("by %s\n", client->cl_netid);
	enum clnt_stat status =
		clnt_call(client, TWICE, (xdrproc_t)xdr_int, (caddr_t)&number, (xdrproc_t)xdr_int, (caddr_t)&doubled, limit);
	printf("twice: status %d, %d\n", status, doubled);
	status = clnt_call(client, GREET, (xdrproc_t)xdr_wrapstring, (caddr_t)&name, (xdrproc_t)xdr_wrapstring, (caddr_t)&text,
			   limit);
	printf("greet: status %d, %s\n", status, text ? text : "none");
	status = clnt_call(client, NOTHING, (xdrproc_t)xdr_void, NULL, (xdrproc_t)xdr_void, NULL, limit);
	printf("nothing: status %d\n", status);
	status = clnt_call(client, GREET, (xdrproc_t)xdr_void, NULL, (xdrproc_t)xdr_void, NULL, limit);
	printf("short: status %d\n", status);
	status = clnt_call(client, NULLPROC, (xdrproc_t)xdr_void, NULL, (xdrproc_t)xdr_void, NULL, limit);
	printf("null: status %d\n", status);
	if (strcmp(client->cl_netid, "mapwire") == 0) {
		status = clnt_call(client, UNKNOWN, (xdrproc_t)xdr_void, NULL, (xdrproc_t)xdr_void, NULL, limit);
		printf("unknown: status %d\n", status);
	}
	clnt_destroy(client);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	return strcmp(argv[1], "serve") == 0 ? serve(argv[2]) : call(argv[2]);
}
