/*
 * Calls with long results as the first of their clients. `first serve LENGTH` answers with so many bytes; `first call TIMES LENGTH` makes so
 * many clients in turn, and says how many calls went wrong.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calc.h"

struct block {
	char *bytes;
	u_int length;
};

static struct block block;

static bool_t xdr_block(XDR *xdrs, struct block *it)
{
	return xdr_bytes(xdrs, &it->bytes, &it->length, 1 << 20);
}

static void dispatch(struct svc_req *request, SVCXPRT *transport)
{
	(void)request;
	if (!svc_sendreply(transport, (xdrproc_t)xdr_block, (char *)&block))
		svcerr_systemerr(transport);
}

static int serve(void)
{
	if (block.bytes == NULL || !svc_create(dispatch, CALC_PROG, CALC_VERS_1, "mapwire"))
		return 1;
	svc_run();
	return 1;
}

static int call(int times)
{
	struct timeval limit = { 20, 0 };
	int wrong = 0;

	for (int i = 0; i < times; i++) {
		CLIENT *client = clnt_create("localhost", CALC_PROG, CALC_VERS_1, "mapwire");
		struct block got = { NULL, 0 };

		if (client == NULL)
			return 1;
		enum clnt_stat status = clnt_call(client, 1, (xdrproc_t)xdr_void, NULL, (xdrproc_t)xdr_block, (caddr_t)&got, limit);
		if (status != RPC_SUCCESS) {
			fprintf(stderr, "%s\n", clnt_sperror(client, "first call"));
			wrong++;
		} else if (got.length != block.length || memcmp(got.bytes, block.bytes, got.length) != 0) {
			fprintf(stderr, "first call: %u other bytes\n", got.length);
			wrong++;
		}
		xdr_free((xdrproc_t)xdr_block, (char *)&got);
		clnt_destroy(client);
	}
	printf("%d wrong\n", wrong);
	return 0;
}

int main(int argc, char **argv)
{
	int is_server = argc > 1 && strcmp(argv[1], "serve") == 0;

	if (argc < 3)
		return 2;
	block.length = (u_int)atoi(argv[argc - 1]);
	block.bytes = malloc(block.length);
	for (u_int i = 0; block.bytes && i < block.length; i++)
		block.bytes[i] = (char)(i * 31);
	return is_server ? serve() : call(atoi(argv[2]));
}
