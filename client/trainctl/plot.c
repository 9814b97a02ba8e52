#include "client/trainctl/plot.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "common/utf8.h"

#define PANEL_WIDTH  460
#define PANEL_HEIGHT 300
#define LEFT         56
#define TOP          48
#define GAP          72
#define BOTTOM       56
#define LEGEND_ROW   20
#define TICKS        5

static const char *const colors[PLOT_RUNS_MAX] = { "#1f6feb", "#d1570a", "#1a7f37", "#8250df",
	"#bf3989", "#0a7d8c", "#9a6700", "#57606a" };

enum axis { AXIS_STEP, AXIS_SENT };

struct range {
	double low, high;
};

struct panel {
	FILE *stream;
	enum axis axis;
	double left; /* of its drawing area */
	struct range x, y;
};

static double place(const struct metrics_point *point, enum axis axis)
{
	return axis == AXIS_STEP ? (double)point->step : point->sent_bytes;
}

static void widen(struct range *range, double value)
{
	range->low = fmin(range->low, value);
	range->high = fmax(range->high, value);
}

/* False: there is nothing to draw. */
static bool find_ranges(struct panel *panel, const struct plot_run *runs, size_t count)
{
	size_t drawn = 0;
	panel->x = panel->y = (struct range){ INFINITY, -INFINITY };
	for (size_t i = 0; i < count; i++) {
		for (size_t k = 0; k < runs[i].metrics->count; k++) {
			const struct metrics_point *point = &runs[i].metrics->points[k];
			if (!isfinite(place(point, panel->axis)) || !isfinite(point->loss))
				continue;
			widen(&panel->x, place(point, panel->axis));
			widen(&panel->y, point->loss);
			if (isfinite(point->val_loss))
				widen(&panel->y, point->val_loss);
			drawn++;
		}
	}
	if (drawn == 0)
		return false;
	panel->x.low = 0;
	double margin = fmax(0.05 * (panel->y.high - panel->y.low),
	    1e-3 * fmax(1e-3, fabs(panel->y.high)));
	panel->y.low = fmax(panel->y.low - margin, 0);
	panel->y.high = fmin(panel->y.high + margin, DBL_MAX);
	return drawn > 1 && panel->x.high > 0;
}

/* Shares of a range come first: numbers may be as large as there are. */
static double at_x(const struct panel *panel, double value)
{
	return panel->left +
	    PANEL_WIDTH * ((value - panel->x.low) / (panel->x.high - panel->x.low));
}

static double at_y(const struct panel *panel, double value)
{
	return TOP + PANEL_HEIGHT * ((panel->y.high - value) / (panel->y.high - panel->y.low));
}

/* 1, 2 or 5 times a power of ten, so that about TICKS fit. */
static double tick_of(const struct range *range)
{
	double raw = (range->high - range->low) / TICKS, power = pow(10, floor(log10(raw)));
	double digit = raw / power;
	return power * (digit < 1.5 ? 1 : digit < 3.5 ? 2 : digit < 7.5 ? 5 : 10);
}

/* The divisor that makes figures short, and its unit. */
static double unit_of(double high, enum axis axis, const char **unit)
{
	static const char *const bytes[] = { "bytes", "kB", "MB", "GB", "TB" };
	size_t at = 0;
	double divisor = 1;
	*unit = "steps";
	if (axis == AXIS_STEP)
		return 1;
	for (; at < 4 && high / divisor >= 1000; at++)
		divisor *= 1000;
	*unit = bytes[at];
	return divisor;
}

/* A line across, or up, and its figure. */
static void draw_grid(const struct panel *panel, double divisor)
{
	struct range shown = { panel->x.low / divisor, panel->x.high / divisor };
	double step = tick_of(&shown), bottom = TOP + PANEL_HEIGHT;
	for (int i = 0; i <= shown.high / step * (1 + 1e-9); i++) {
		double x = at_x(panel, i * step * divisor);
		(void)fprintf(panel->stream,
		    "<line class=\"grid\" x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%.1f\"/>"
		    "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%g</text>\n",
		    x, TOP, x, bottom, x, bottom + 18, i * step);
	}
	step = tick_of(&panel->y);
	for (int i = (int)ceil(panel->y.low / step); i * step <= panel->y.high; i++) {
		double y = at_y(panel, i * step);
		(void)fprintf(panel->stream,
		    "<line class=\"grid\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>"
		    "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n",
		    panel->left, y, panel->left + PANEL_WIDTH, y, panel->left - 8, y + 4, i * step);
	}
}

static void draw_frame(const struct panel *panel)
{
	const char *unit;
	draw_grid(panel, unit_of(panel->x.high, panel->axis, &unit));
	(void)fprintf(panel->stream,
	    "<text class=\"title\" x=\"%.1f\" y=\"%d\">loss over %s</text>"
	    "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n",
	    panel->left, TOP - 14, panel->axis == AXIS_STEP ? "steps" : "what all workers sent",
	    panel->left + PANEL_WIDTH / 2.0, TOP + PANEL_HEIGHT + 38, unit);
}

static void draw_training(const struct panel *panel, const struct metrics_file *metrics,
    const char *color)
{
	size_t per_point = metrics->count / PLOT_POINTS_MAX + 1;
	(void)fprintf(panel->stream, "<polyline class=\"train\" stroke=\"%s\" points=\"", color);
	for (size_t from = 0; from < metrics->count; from += per_point) {
		double x = 0, y = 0;
		unsigned counted = 0;
		for (size_t k = from; k < from + per_point && k < metrics->count; k++) {
			const struct metrics_point *point = &metrics->points[k];
			if (!isfinite(place(point, panel->axis)) || !isfinite(point->loss))
				continue;
			counted++; /* means, not sums, which might have no number */
			x += place(point, panel->axis) / counted - x / counted;
			y += point->loss / counted - y / counted;
		}
		if (counted > 0)
			(void)fprintf(panel->stream, "%.1f,%.1f ", at_x(panel, x), at_y(panel, y));
	}
	(void)fprintf(panel->stream, "\"/>\n");
}

static bool has_validation(const struct panel *panel, const struct metrics_point *point)
{
	return isfinite(point->val_loss) && isfinite(place(point, panel->axis));
}

static void draw_validation(const struct panel *panel, const struct metrics_file *metrics,
    const char *color)
{
	(void)fprintf(panel->stream, "<polyline class=\"val\" stroke=\"%s\" points=\"", color);
	for (size_t k = 0; k < metrics->count; k++)
		if (has_validation(panel, &metrics->points[k]))
			(void)fprintf(panel->stream, "%.1f,%.1f ",
			    at_x(panel, place(&metrics->points[k], panel->axis)),
			    at_y(panel, metrics->points[k].val_loss));
	(void)fprintf(panel->stream, "\"/>\n");
	for (size_t k = 0; k < metrics->count; k++)
		if (has_validation(panel, &metrics->points[k]))
			(void)fprintf(panel->stream,
			    "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\" fill=\"%s\"/>\n",
			    at_x(panel, place(&metrics->points[k], panel->axis)),
			    at_y(panel, metrics->points[k].val_loss), color);
}

/* Names come from job files and paths. */
static void write_text(FILE *stream, const char *text)
{
	for (size_t left = strlen(text), bytes; left > 0; text += bytes, left -= bytes) {
		bytes = utf8_length((const unsigned char *)text, left);
		bool known = bytes > 0 && strncmp(text, "\xef\xbf\xbe", 3) != 0 &&
		    strncmp(text, "\xef\xbf\xbf", 3) != 0; /* no characters of XML */
		bytes += bytes == 0;
		if (!known)
			(void)fputs("\xef\xbf\xbd", stream);
		else if (*text == '<')
			(void)fputs("&lt;", stream);
		else if (*text == '>')
			(void)fputs("&gt;", stream);
		else if (*text == '&')
			(void)fputs("&amp;", stream);
		else if ((unsigned char)*text >= ' ')
			(void)fwrite(text, 1, bytes, stream);
	}
}

static void draw_legend(FILE *stream, const struct plot_run *runs, size_t count)
{
	int y = TOP + PANEL_HEIGHT + BOTTOM + 12;
	for (size_t i = 0; i < count; i++, y += LEGEND_ROW) {
		(void)fprintf(stream,
		    "<line x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" stroke=\"%s\" "
		    "stroke-width=\"3\"/>"
		    "<text x=\"%d\" y=\"%d\">",
		    LEFT, y - 4, LEFT + 24, y - 4, colors[i], LEFT + 32, y);
		write_text(stream, runs[i].name);
		(void)fprintf(stream, "</text>\n");
	}
	(void)fprintf(stream,
	    "<text x=\"%d\" y=\"%d\" class=\"note\">thin: training; thick: validation</text>\n",
	    LEFT, y);
}

bool plot_write(FILE *stream, const struct plot_run *runs, size_t count)
{
	struct panel panels[] = { { .stream = stream, .axis = AXIS_STEP },
		{ .stream = stream, .axis = AXIS_SENT } };
	size_t drawn = 0;
	for (size_t i = 0; i < 2; i++) {
		if (!find_ranges(&panels[i], runs, count))
			continue;
		panels[i].left = LEFT + (double)drawn * (PANEL_WIDTH + GAP);
		panels[drawn++] = panels[i];
	}
	double width = LEFT + (double)(drawn > 0 ? drawn : 1) * (PANEL_WIDTH + GAP) - GAP / 2.0,
	       height = TOP + PANEL_HEIGHT + BOTTOM + LEGEND_ROW * (double)(count + 1) + 8;
	(void)fprintf(stream,
	    "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" "
	    "height=\"%.0f\">\n<style>text{font:12px sans-serif;fill:#24292f}"
	    ".title{font-size:14px;font-weight:bold}.note{fill:#57606a}.grid{stroke:#d0d7de}"
	    "polyline{fill:none;stroke-linejoin:round}.train{stroke-width:1;opacity:.55}"
	    ".val{stroke-width:2.5}</style>\n<rect width=\"100%%\" height=\"100%%\" "
	    "fill=\"#ffffff\"/>\n",
	    width, height, width, height);
	for (size_t i = 0; i < drawn; i++) {
		draw_frame(&panels[i]);
		for (size_t k = 0; k < count; k++) {
			draw_training(&panels[i], runs[k].metrics, colors[k]);
			draw_validation(&panels[i], runs[k].metrics, colors[k]);
		}
	}
	draw_legend(stream, runs, count);
	(void)fprintf(stream, "</svg>\n");
	return fflush(stream) == 0 && !ferror(stream);
}
