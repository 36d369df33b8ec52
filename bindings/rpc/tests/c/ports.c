/*
 * A server of the calculator by udp, tcp and what else is offered, which says its ports rather than to rpcbind. With an argument it
 * becomes a daemon's way: it registers, forks, and its child serves.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "calc.h"

void calc_prog_1(struct svc_req *request, SVCXPRT *transport);

int main(int argc, char **argv)
{
	SVCXPRT *udp = svcudp_create(RPC_ANYSOCK);
	SVCXPRT *tcp = svctcp_create(RPC_ANYSOCK, 0, 0);

	(void)argv;
	if (udp == NULL || tcp == NULL || !svc_register(udp, CALC_PROG, CALC_VERS_1, calc_prog_1, 0) ||
	    !svc_register(tcp, CALC_PROG, CALC_VERS_1, calc_prog_1, 0)) {
		fprintf(stderr, "ports: cannot serve\n");
		return 1;
	}
	printf("udp %d tcp %d\n", udp->xp_port, tcp->xp_port);
	fflush(stdout);
	if (argc > 1 && fork() != 0)
		_exit(0);
	svc_run();
	fprintf(stderr, "ports: svc_run returned\n");
	return 1;
}
