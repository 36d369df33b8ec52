/*
 * The procedures of the store: one file at a time, of up to 64 MB, in memory.
 */
#include <stdlib.h>
#include <string.h>

#include "store.h"

#define MOST (64u << 20)

static char *file_name;
static char *bytes;
static u_quad_t length;

store_status *store_write_1_svc(store_write_args *args, struct svc_req *request)
{
	static store_status status;
	u_quad_t count = args->data.store_data_len;

	(void)request;
	status = STORE_NO_SPACE;
	if (args->offset > MOST || count > MOST - args->offset)
		return &status;
	if (file_name == NULL || strcmp(file_name, args->name) != 0) {
		free(file_name);
		file_name = strdup(args->name);
		length = 0;
		if (file_name == NULL)
			return &status;
	}
	if (args->offset + count > length) {
		char *longer = realloc(bytes, args->offset + count);

		if (longer == NULL)
			return &status;
		memset(longer + length, 0, args->offset + count - length);
		bytes = longer;
		length = args->offset + count;
	}
	memcpy(bytes + args->offset, args->data.store_data_val, count);
	status = STORE_OK;
	return &status;
}

store_read_result *store_read_1_svc(store_read_args *args, struct svc_req *request)
{
	static store_read_result result;
	u_quad_t left;

	(void)request;
	if (file_name == NULL || strcmp(file_name, args->name) != 0) {
		result.status = STORE_NO_FILE;
		return &result;
	}
	left = args->offset < length ? length - args->offset : 0;
	if (left > args->count)
		left = args->count;
	if (left > STORE_BLOCK)
		left = STORE_BLOCK;
	result.status = STORE_OK;
	/* The reply is encoded from here, into the memory that the client lends. */
	result.store_read_result_u.data.store_data_val = left == 0 ? NULL : bytes + args->offset;
	result.store_read_result_u.data.store_data_len = (u_int)left;
	return &result;
}
