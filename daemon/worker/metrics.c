#include "daemon/worker/metrics.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/json.h"

bool metrics_append(const char *folder, const struct metrics_row *row)
{
	char path[CHECKPOINT_PATH_MAX + 16];
	struct json json = { 0 };

	(void)mkdir(folder, 0777);
	(void)snprintf(path, sizeof(path), "%s/metrics.jsonl", folder);
	json_object(&json);
	json_key(&json, "step");
	json_uint(&json, row->step);
	json_key(&json, "unix_ms");
	json_uint(&json, row->unix_ms);
	json_key(&json, "loss");
	json_double(&json, row->loss);
	json_key(&json, "val_loss");
	json_double(&json, row->val_loss);
	json_key(&json, "grad_norm");
	json_double(&json, row->grad_norm);
	json_key(&json, "lr");
	json_double(&json, row->lr);
	json_key(&json, "tokens_per_s");
	json_double(&json, row->tokens_per_s);
	json_key(&json, "contributors");
	json_uint(&json, row->contributors);
	json_key(&json, "view");
	json_uint(&json, row->view);
	json_key(&json, "sent_bytes");
	json_double(&json, row->sent_bytes);
	json_key(&json, "dense_bytes");
	json_double(&json, row->dense_bytes);
	json_key(&json, "hidden");
	json_double(&json, row->hidden);
	json_key(&json, "step_s");
	json_double(&json, row->step_s);
	json_key(&json, "planned_step_s");
	json_double(&json, row->planned_step_s);
	json_end(&json);
	const char *text = json_text(&json);
	bool written = false;
	int fd = text == NULL ? -1 : open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
	if (fd >= 0) {
		char line[1024];
		int length = snprintf(line, sizeof(line), "%s\n", text);
		written = length > 0 && (size_t)length < sizeof(line) &&
		    write(fd, line, (size_t)length) == length;
		(void)close(fd);
	}
	json_finish(&json);
	return written;
}
