#include "client/trainctl/progress.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "client/trainctl/peer_links.h"
#include "client/trainctl/print.h"
#include "common/utf8.h"
#include "daemon/plan/job_sync.h"

#define BAR_MIN   8
#define BAR_MAX   40
#define SPARK_LEN 16
#define PARTS_MAX 16

/* What goes first when the line does not fit. */
#define SPARK_IMPORTANCE 8

/* One piece of the line; the least important go first when it does not fit. */
struct part {
	char text[160];
	size_t width;
	unsigned importance;
};

struct line {
	struct part parts[PARTS_MAX];
	size_t count;
};

unsigned progress_live_peers(const Traind__V1__Job *job)
{
	unsigned live = 0;
	for (size_t i = 0; i < job->n_peers; i++) {
		const char *state = job->peers[i]->state;
		live += strcmp(state, "active") == 0 || strcmp(state, "suspected") == 0 ||
		    strcmp(state, "finished") == 0;
	}
	return live;
}

uint64_t progress_steps(const Traind__V1__Job *job)
{
	const Traind__V1__TrainSpec *train = job->spec != NULL ? job->spec->train : NULL;
	if (job->progress != NULL && job->progress->steps != 0)
		return job->progress->steps;
	return train != NULL && train->optimizer != NULL ? train->optimizer->steps : 0;
}

double progress_eta_s(const Traind__V1__Job *job)
{
	const Traind__V1__Progress *progress = job->progress;
	if (progress == NULL || !(progress->tokens_per_s > 0) || job->spec == NULL ||
	    job->spec->train == NULL || job->spec->train->optimizer == NULL ||
	    progress->steps < progress->step)
		return NAN;
	double left = (double)(progress->steps - progress->step);
	return left * (double)job->spec->train->optimizer->batch_tokens / progress->tokens_per_s;
}

static void halve(struct progress_history *history)
{
	for (size_t i = 0; i < PROGRESS_SPARK_MAX / 2; i++)
		history->loss[i] = (history->loss[2 * i] + history->loss[2 * i + 1]) / 2;
	history->count = PROGRESS_SPARK_MAX / 2;
	history->per_entry *= 2;
	history->in_last = history->per_entry;
}

void progress_remember(struct progress_history *history, const Traind__V1__Job *job)
{
	const Traind__V1__Progress *progress = job->progress;
	if (progress == NULL || !isfinite(progress->loss) || progress->step == history->step)
		return;
	history->step = progress->step;
	if (history->per_entry == 0)
		history->per_entry = 1;
	if (history->count == 0 || history->in_last == history->per_entry) {
		if (history->count == PROGRESS_SPARK_MAX)
			halve(history);
		history->loss[history->count++] = 0;
		history->in_last = 0;
	}
	double *last = &history->loss[history->count - 1];
	*last += (progress->loss - *last) / ++history->in_last;
}

static struct part *add(struct line *line, unsigned importance, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static struct part *add(struct line *line, unsigned importance, const char *format, ...)
{
	struct part *part = &line->parts[line->count++];
	va_list args;
	va_start(args, format);
	(void)vsnprintf(part->text, sizeof(part->text), format, args);
	va_end(args);
	part->width = strlen(part->text);
	part->importance = importance;
	return part;
}

/* The mean loss of each of `length` spans of the history. */
static double span_of(const struct progress_history *history, size_t length, size_t i)
{
	size_t from = i * history->count / length, to = (i + 1) * history->count / length;
	double sum = 0;
	for (size_t at = from; at < to; at++)
		sum += history->loss[at];
	return to > from ? sum / (double)(to - from) : history->loss[from];
}

static void add_spark(struct line *line, const struct progress_history *history)
{
	static const char *const levels[] = { "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" };
	size_t length = history->count < SPARK_LEN ? history->count : SPARK_LEN;
	double low = INFINITY, high = -INFINITY;
	if (length < 3)
		return;
	for (size_t i = 0; i < length; i++) {
		low = fmin(low, span_of(history, length, i));
		high = fmax(high, span_of(history, length, i));
	}
	struct part *part = add(line, SPARK_IMPORTANCE, "%s", "");
	for (size_t i = 0, used = 0; i < length && high > low; i++) {
		size_t level = (size_t)((span_of(history, length, i) - low) / (high - low) * 7.999);
		used += (size_t)snprintf(part->text + used, sizeof(part->text) - used, "%s",
		    levels[level]);
	}
	part->width = high > low ? length : 0;
}

static void draw_bar(double share, size_t width, const struct progress_style *style, char *text,
    size_t bytes)
{
	size_t full = (size_t)(share * (double)width), used = 0;
	const char *done = style->utf8 ? "━" : "#", *left = style->utf8 ? "─" : "-";
	used += (size_t)snprintf(text, bytes, "%s", style->color ? "\033[32m" : "");
	for (size_t i = 0; i < width && used < bytes; i++) {
		if (i == full && style->color)
			used += (size_t)snprintf(text + used, bytes - used, "\033[0m\033[2m");
		used += (size_t)snprintf(text + used, bytes - used, "%s", i < full ? done : left);
	}
	if (used < bytes)
		(void)snprintf(text + used, bytes - used, "%s", style->color ? "\033[0m" : "");
}

uint64_t progress_merges(const Traind__V1__Job *job)
{
	const Traind__V1__TrainSpec *train = job->spec != NULL ? job->spec->train : NULL;
	if (train == NULL || job->progress == NULL || job->progress->merges == NULL ||
	    job->restarts > 0 ||
	    (train->checkpoint != NULL && train->checkpoint->resume[0] != '\0'))
		return 0;
	uint64_t all = job_sync_merges(train, job->progress->steps);
	return all >= job->progress->merges->count ? all : 0;
}

/* "12/30", or "12" where nobody knows how many there will be. */
static const char *merges_of(const Traind__V1__Job *job, char text[2 * PRINT_FIGURE_MAX])
{
	uint64_t count = job->progress->merges->count, all = progress_merges(job);
	(void)snprintf(text, 2 * PRINT_FIGURE_MAX, all > 0 ? "%llu/%llu" : "%llu",
	    (unsigned long long)count, (unsigned long long)all);
	return text;
}

/* What sets the pace. */
static void add_slow(struct line *line, const Traind__V1__Job *job)
{
	char figure[PRINT_FIGURE_MAX], link[PEER_LINKS_TEXT_MAX];
	if (peer_links_slow_text(job, figure))
		add(line, 3, "slow: %s", figure);
	if (peer_links_text(job, link))
		add(line, 6, "slowest link %s", link);
}

static void add_parts(struct line *line, const Traind__V1__Job *job)
{
	const Traind__V1__Progress *progress = job->progress;
	char figure[2 * PRINT_FIGURE_MAX];
	add(line, 1, "loss %s", print_loss(progress->loss, figure));
	if (isfinite(progress->val_loss))
		add(line, 5, "val %s", print_loss(progress->val_loss, figure));
	add(line, 2, "%s tok/s", print_rate(progress->tokens_per_s, figure));
	unsigned live = progress_live_peers(job);
	add(line, 2, "%u peer%s", live, live == 1 ? "" : "s");
	if (progress->merges != NULL) {
		const Traind__V1__Merges *merges = progress->merges;
		add(line, 3, "merge %s", merges_of(job, figure));
		add(line, 4, "%s of ddp's bytes",
		    print_part((double)merges->sent_bytes, (double)merges->dense_bytes, figure));
		add(line, 5, "%.0f%% hidden", 100 * merges->hidden);
	}
	add_slow(line, job);
	add(line, 7, "view %llu", (unsigned long long)job->view);
	add(line, 4, "eta %s", print_duration(progress_eta_s(job), figure));
}

static size_t width_of(const struct line *line, unsigned importance)
{
	size_t width = 0;
	for (size_t i = 0; i < line->count; i++) {
		if (line->parts[i].importance <= importance && line->parts[i].width > 0)
			width += line->parts[i].width + 2;
	}
	return width;
}

/* So many letters as there are columns. */
static size_t no_progress(const Traind__V1__Job *job, const struct progress_style *style,
    char text[PROGRESS_LINE_MAX])
{
	bool reason = job->reason != NULL && job->reason[0] != '\0';
	size_t columns = 0, used = 0;
	(void)snprintf(text, PROGRESS_LINE_MAX, "%s%s%s", print_state(job->state),
	    reason ? ": " : "", reason ? job->reason : "");
	for (size_t left = strlen(text); left > 0 && columns < style->width; columns++) {
		size_t letter = utf8_length((unsigned char *)text + used, left);
		letter += letter == 0;
		used += letter;
		left -= letter;
	}
	text[used] = '\0';
	return columns;
}

size_t progress_bar(const Traind__V1__Job *job, const struct progress_history *history,
    const struct progress_style *style, char text[PROGRESS_LINE_MAX])
{
	const Traind__V1__Progress *progress = job->progress;
	struct line line = { .count = 0 };
	char count[64], bar[BAR_MAX * 3 + 32] = "";
	if (progress == NULL || progress->steps == 0 ||
	    (progress->step == 0 && !isfinite(progress->loss)))
		return no_progress(job, style, text);
	size_t count_width = (size_t)snprintf(count, sizeof(count), "%llu/%llu",
	    (unsigned long long)progress->step, (unsigned long long)progress->steps);
	add_parts(&line, job);
	if (style->utf8)
		add_spark(&line, history);
	unsigned importance = SPARK_IMPORTANCE;
	while (importance > 0 &&
	    count_width + 2 + BAR_MIN + width_of(&line, importance) > style->width)
		importance--;
	size_t taken = count_width + width_of(&line, importance);
	size_t room = style->width > taken + 2 ? style->width - taken - 2 : 0;
	size_t bar_width = room < BAR_MAX ? room : BAR_MAX;
	if (bar_width >= BAR_MIN / 2) {
		draw_bar((double)progress->step / (double)progress->steps, bar_width, style, bar,
		    sizeof(bar));
		taken += bar_width + 2;
	}
	size_t used = (size_t)snprintf(text, PROGRESS_LINE_MAX, "%s%s%s", count,
	    bar[0] != '\0' ? "  " : "", bar);
	for (size_t i = 0; i < line.count && used < PROGRESS_LINE_MAX; i++) {
		if (line.parts[i].importance <= importance && line.parts[i].width > 0)
			used += (size_t)snprintf(text + used, PROGRESS_LINE_MAX - used, "  %s",
			    line.parts[i].text);
	}
	return taken;
}

void progress_plain(const Traind__V1__Job *job, char text[PROGRESS_LINE_MAX])
{
	const Traind__V1__Progress *progress = job->progress;
	char loss[PRINT_FIGURE_MAX], val[PRINT_FIGURE_MAX], eta[PRINT_FIGURE_MAX],
	    rate[PRINT_FIGURE_MAX], count[2 * PRINT_FIGURE_MAX], link[PEER_LINKS_TEXT_MAX];
	if (progress == NULL || progress->steps == 0) {
		(void)no_progress(job, &(struct progress_style){ .width = PROGRESS_LINE_MAX - 1 },
		    text);
		return;
	}
	int length = snprintf(text, PROGRESS_LINE_MAX,
	    "step %llu/%llu  loss %s  val %s  tokens/s %s  peers %u  view %llu  eta %s",
	    (unsigned long long)progress->step, (unsigned long long)progress->steps,
	    print_loss(progress->loss, loss), print_loss(progress->val_loss, val),
	    print_rate(progress->tokens_per_s, rate), progress_live_peers(job),
	    (unsigned long long)job->view, print_duration(progress_eta_s(job), eta));
	if (progress->merges != NULL && length > 0 && length < PROGRESS_LINE_MAX)
		length += snprintf(text + length, (size_t)(PROGRESS_LINE_MAX - length),
		    "  merges %s  bytes %s  hidden %.0f%%", merges_of(job, count),
		    print_part((double)progress->merges->sent_bytes,
		        (double)progress->merges->dense_bytes, rate),
		    100 * progress->merges->hidden);
	if (peer_links_slow_text(job, rate) && length > 0 && length < PROGRESS_LINE_MAX)
		length += snprintf(text + length, (size_t)(PROGRESS_LINE_MAX - length), "  slow %s",
		    rate);
	if (peer_links_text(job, link) && length > 0 && length < PROGRESS_LINE_MAX)
		(void)snprintf(text + length, (size_t)(PROGRESS_LINE_MAX - length),
		    "  slowest link %s", link);
}
