/*
 * calc_client HOST NETWORK LEFT RIGHT: adds and divides, over mapwire, tcp or udp.
 */
#include <stdio.h>
#include <stdlib.h>

#include "calc.h"

static void show(CLIENT *client, const char *what, calc_result *result)
{
	if (result == NULL) {
		clnt_perror(client, what);
		exit(1);
	}
	if (result->status == CALC_DIVISION_BY_ZERO)
		printf("%s: division by zero\n", what);
	else
		printf("%s: %lld\n", what, (long long)result->calc_result_u.value);
}

int main(int argc, char **argv)
{
	if (argc != 5) {
		fprintf(stderr, "usage: %s HOST NETWORK LEFT RIGHT\n", argv[0]);
		return 2;
	}
	CLIENT *client = clnt_create(argv[1], CALC_PROG, CALC_VERS_1, argv[2]);
	if (client == NULL) {
		clnt_pcreateerror(argv[1]);
		return 1;
	}
	calc_pair pair = { .left = atoll(argv[3]), .right = atoll(argv[4]) };
	show(client, "sum", calc_add_1(&pair, client));
	show(client, "quotient", calc_divide_1(&pair, client));
	clnt_destroy(client);
	return 0;
}
