/* Job files from anybody: parsed, checked as a whole, freed. No file is touched. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "client/trainctl/jobfile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	Traind__V1__JobSpec *spec = job_spec_new(true);
	struct jobfile_places places;
	struct tr_error error = { 0 };
	if (spec == NULL)
		return 0;
	tr_status status = jobfile_parse("fuzz", data, size, spec, &places, &error);
	if (status == TR_OK)
		status = job_validate(spec, &error);
	/* A refusal says why. */
	if (status != TR_OK &&
	    (error.text[0] == '\0' || memchr(error.text, '\n', strlen(error.text)) != NULL))
		abort();
	traind__v1__job_spec__free_unpacked(spec, NULL);
	return 0;
}
