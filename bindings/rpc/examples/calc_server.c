/*
 * The procedures of the calculator. `rpcgen` makes the rest of the server, which serves udp and tcp, and by libmapwire_rpc
 * mapwire too.
 */
#include <string.h>
#include <time.h>

#include "calc.h"

static unsigned long long calls;

calc_result *calc_add_1_svc(calc_pair *pair, struct svc_req *request)
{
	static calc_result result;

	(void)request;
	calls++;
	result.status = CALC_OK;
	result.calc_result_u.value = pair->left + pair->right;
	return &result;
}

calc_result *calc_divide_1_svc(calc_pair *pair, struct svc_req *request)
{
	static calc_result result;

	(void)request;
	if (pair->right == 0) {
		result.status = CALC_DIVISION_BY_ZERO;
		return &result;
	}
	result.status = CALC_OK;
	result.calc_result_u.value = pair->left / pair->right;
	return &result;
}

quad_t *calc_sum_1_svc(calc_list *list, struct svc_req *request)
{
	static quad_t sum;

	(void)request;
	sum = 0;
	for (u_int i = 0; i < list->calc_list_len; i++)
		sum += list->calc_list_val[i];
	return &sum;
}

calc_caller *calc_whoami_1_svc(void *nothing, struct svc_req *request)
{
	static calc_caller caller;

	(void)nothing;
	memset(&caller, 0, sizeof caller);
	caller.flavour = (u_int)request->rq_cred.oa_flavor;
	if (request->rq_cred.oa_flavor == AUTH_UNIX) {
		struct authunix_parms *sys = request->rq_clntcred;

		caller.uid = sys->aup_uid;
		caller.gid = sys->aup_gid;
	}
	return &caller;
}

u_int *calc_wait_1_svc(u_int *milliseconds, struct svc_req *request)
{
	static u_int waited;
	struct timespec time = {
		.tv_sec = *milliseconds / 1000,
		.tv_nsec = (long)(*milliseconds % 1000) * 1000000,
	};

	(void)request;
	calls++;
	nanosleep(&time, NULL);
	waited = *milliseconds;
	return &waited;
}

u_quad_t *calc_count_1_svc(void *nothing, struct svc_req *request)
{
	static u_quad_t count;

	(void)nothing;
	(void)request;
	count = calls;
	return &count;
}

calc_result *calc_multiply_2_svc(calc_pair *pair, struct svc_req *request)
{
	static calc_result result;

	(void)request;
	result.status = CALC_OK;
	result.calc_result_u.value = pair->left * pair->right;
	return &result;
}
