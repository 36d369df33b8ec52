/*
 * A server whose function for CALC_WAIT forks, as servers do that leave long work to a child. What the child tries is named by the
 * argument; the reply says how it ended.
 */
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "calc.h"

enum { CHILD_REPLIES, CHILD_READS, CHILD_DESTROYS, CHILD_UNREGISTERS, CHILD_SERVES };

static void child(u_int what, SVCXPRT *transport)
{
	u_int word = 4242;

	alarm(20);
	switch (what) {
	case CHILD_REPLIES:
		_exit(svc_sendreply(transport, (xdrproc_t)xdr_u_int, (char *)&word) ? 1 : 0);
	case CHILD_READS:
		_exit(svc_getargs(transport, (xdrproc_t)xdr_u_int, (char *)&word) ? 1 : 0);
	case CHILD_DESTROYS:
		svc_destroy(transport);
		_exit(0);
	case CHILD_UNREGISTERS:
		svc_unreg(CALC_PROG, CALC_VERS_2);
		_exit(0);
	default:
		_exit(SVC_STAT(transport) == XPRT_IDLE ? 0 : 1);
	}
}

static void dispatch(struct svc_req *request, SVCXPRT *transport)
{
	calc_pair pair;
	calc_result result = { CALC_OK, { 0 } };
	u_int what = 0;
	int status = -1;

	switch (request->rq_proc) {
	case NULLPROC:
		svc_sendreply(transport, (xdrproc_t)xdr_void, NULL);
		return;
	case CALC_ADD:
		if (!svc_getargs(transport, (xdrproc_t)xdr_calc_pair, (char *)&pair)) {
			svcerr_decode(transport);
			return;
		}
		result.calc_result_u.value = pair.left + pair.right;
		svc_sendreply(transport, (xdrproc_t)xdr_calc_result, (char *)&result);
		return;
	case CALC_WAIT:
		if (!svc_getargs(transport, (xdrproc_t)xdr_u_int, (char *)&what)) {
			svcerr_decode(transport);
			return;
		}
		pid_t process = fork();
		if (process == 0)
			child(what, transport);
		waitpid(process, &status, 0);
		what = WIFEXITED(status) ? (u_int)WEXITSTATUS(status) : 1000 + (u_int)WTERMSIG(status);
		svc_sendreply(transport, (xdrproc_t)xdr_u_int, (char *)&what);
		return;
	default:
		svcerr_noproc(transport);
	}
}

int main(void)
{
	if (!svc_create(dispatch, CALC_PROG, CALC_VERS_1, "mapwire") ||
	    !svc_create(dispatch, CALC_PROG, CALC_VERS_2, "mapwire")) {
		fprintf(stderr, "children: cannot serve\n");
		return 1;
	}
	svc_run();
	return 1;
}
