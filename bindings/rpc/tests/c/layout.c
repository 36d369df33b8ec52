/*
 * Prints sizes and offsets of the structures that libmapwire_rpc shares with libtirpc, as its headers have them.
 */
#include <rpc/rpc.h>
#include <rpc/svc_mt.h>
#include <stddef.h>
#include <stdio.h>

#undef rpc_createerr

#define SIZE(type) printf("%s %zu\n", #type, sizeof(type))
#define FIELD(type, field) printf("%s.%s %zu\n", #type, #field, offsetof(type, field))

typedef struct rpc_msg rpc_msg;
typedef struct rpc_err rpc_err;
typedef struct rpc_createerr rpc_createerr;
typedef struct opaque_auth opaque_auth;
typedef struct netbuf netbuf;
typedef struct netconfig netconfig;
typedef struct clnt_ops clnt_ops;
typedef struct xp_ops xp_ops;
typedef struct xp_ops2 xp_ops2;
typedef struct xdr_ops xdr_ops;
typedef struct call_body call_body;
typedef struct reply_body reply_body;
typedef struct accepted_reply accepted_reply;
typedef struct rejected_reply rejected_reply;
typedef struct timeval timeval;

int main(void)
{
	SIZE(XDR);
	FIELD(XDR, x_op);
	FIELD(XDR, x_ops);
	FIELD(XDR, x_handy);
	FIELD(xdr_ops, x_getpostn);
	SIZE(opaque_auth);
	FIELD(opaque_auth, oa_flavor);
	FIELD(opaque_auth, oa_base);
	FIELD(opaque_auth, oa_length);
	FIELD(AUTH, ah_cred);
	FIELD(AUTH, ah_verf);
	SIZE(timeval);
	SIZE(netbuf);
	FIELD(netbuf, buf);
	FIELD(netconfig, nc_netid);
	SIZE(rpc_err);
	FIELD(rpc_err, ru);
	SIZE(rpc_createerr);
	FIELD(rpc_createerr, cf_error);
	SIZE(CLIENT);
	FIELD(CLIENT, cl_auth);
	FIELD(CLIENT, cl_ops);
	FIELD(CLIENT, cl_private);
	FIELD(CLIENT, cl_netid);
	FIELD(CLIENT, cl_tp);
	SIZE(clnt_ops);
	FIELD(clnt_ops, cl_call);
	FIELD(clnt_ops, cl_abort);
	FIELD(clnt_ops, cl_geterr);
	FIELD(clnt_ops, cl_freeres);
	FIELD(clnt_ops, cl_destroy);
	FIELD(clnt_ops, cl_control);
	SIZE(SVCXPRT);
	FIELD(SVCXPRT, xp_fd);
	FIELD(SVCXPRT, xp_port);
	FIELD(SVCXPRT, xp_ops);
	FIELD(SVCXPRT, xp_addrlen);
	FIELD(SVCXPRT, xp_raddr);
	FIELD(SVCXPRT, xp_ops2);
	FIELD(SVCXPRT, xp_tp);
	FIELD(SVCXPRT, xp_netid);
	FIELD(SVCXPRT, xp_ltaddr);
	FIELD(SVCXPRT, xp_rtaddr);
	FIELD(SVCXPRT, xp_verf);
	FIELD(SVCXPRT, xp_p1);
	FIELD(SVCXPRT, xp_p2);
	FIELD(SVCXPRT, xp_p3);
	FIELD(SVCXPRT, xp_type);
	SIZE(SVCXPRT_EXT);
	SIZE(xp_ops);
	FIELD(xp_ops, xp_recv);
	FIELD(xp_ops, xp_stat);
	FIELD(xp_ops, xp_getargs);
	FIELD(xp_ops, xp_reply);
	FIELD(xp_ops, xp_freeargs);
	FIELD(xp_ops, xp_destroy);
	SIZE(xp_ops2);
	SIZE(rpc_msg);
	FIELD(rpc_msg, rm_xid);
	FIELD(rpc_msg, rm_direction);
	FIELD(rpc_msg, ru);
	SIZE(call_body);
	FIELD(call_body, cb_prog);
	FIELD(call_body, cb_vers);
	FIELD(call_body, cb_proc);
	FIELD(call_body, cb_cred);
	FIELD(call_body, cb_verf);
	SIZE(reply_body);
	FIELD(reply_body, rp_stat);
	FIELD(reply_body, ru);
	SIZE(accepted_reply);
	FIELD(accepted_reply, ar_verf);
	FIELD(accepted_reply, ar_stat);
	FIELD(accepted_reply, ru);
	SIZE(rejected_reply);
	FIELD(rejected_reply, rj_stat);
	FIELD(rejected_reply, ru);
	return 0;
}
