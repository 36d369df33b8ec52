/*
 * store_client HOST NETWORK MEGABYTES: writes a file in blocks of 1 MB, reads it back and compares.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "store.h"

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void fill(char *block, unsigned number)
{
	for (unsigned i = 0; i < STORE_BLOCK; i++)
		block[i] = (char)(i * 7 + i / 4096 + number);
}

int main(int argc, char **argv)
{
	if (argc != 4) {
		fprintf(stderr, "usage: %s HOST NETWORK MEGABYTES\n", argv[0]);
		return 2;
	}
	CLIENT *client = clnt_create(argv[1], STORE_PROG, STORE_VERS, argv[2]);
	if (client == NULL) {
		clnt_pcreateerror(argv[1]);
		return 1;
	}
	unsigned blocks = (unsigned)atoi(argv[3]);
	char *block = malloc(STORE_BLOCK);
	double begun = now();

	for (unsigned i = 0; i < blocks; i++) {
		fill(block, i);
		store_write_args args = {
			.name = "example",
			.offset = (u_quad_t)i * STORE_BLOCK,
			.data = { .store_data_len = STORE_BLOCK, .store_data_val = block },
		};
		store_status *status = store_write_1(&args, client);
		if (status == NULL) {
			clnt_perror(client, "write");
			return 1;
		}
		if (*status != STORE_OK) {
			fprintf(stderr, "write: status %d\n", *status);
			return 1;
		}
	}
	double written = now();
	for (unsigned i = 0; i < blocks; i++) {
		store_read_args args = {
			.name = "example",
			.offset = (u_quad_t)i * STORE_BLOCK,
			.count = STORE_BLOCK,
		};
		store_read_result *result = store_read_1(&args, client);
		if (result == NULL) {
			clnt_perror(client, "read");
			return 1;
		}
		fill(block, i);
		store_data *data = &result->store_read_result_u.data;
		if (result->status != STORE_OK || data->store_data_len != STORE_BLOCK ||
		    memcmp(data->store_data_val, block, STORE_BLOCK) != 0) {
			fprintf(stderr, "read: block %u differs\n", i);
			return 1;
		}
		clnt_freeres(client, (xdrproc_t)xdr_store_read_result, (char *)result);
	}
	double read = now();
	printf("%u blocks of 1 MB: %.0f MB/s written, %.0f MB/s read\n", blocks, blocks / (written - begun),
	       blocks / (read - written));
	free(block);
	clnt_destroy(client);
	return 0;
}
