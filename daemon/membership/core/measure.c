/* Links between hosts, measured turn by turn; see measuring.h. What is decided follows from the state: a node that goes, or says nothing, ends
 * its pair at the next look. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/membership/core/state.h"
#include "daemon/membership/core/tournament.h"

static bool can_measure(const struct node *node)
{
	return !node->lost && node->soft.conn != 0 && node->hello->slots > 0;
}

static bool share_host(const struct node *a, const struct node *b)
{
	return a == b || (a->hello->host[0] != '\0' && strcmp(a->hello->host, b->hello->host) == 0);
}

/* The first node of its host, which measures for all of them; NULL: none can. */
static const struct node *measurer_of(const struct membership *m, const struct node *node)
{
	for (size_t i = 0; i < m->nodes.count; i++) {
		const struct node *other = m->nodes.items[i];
		if (can_measure(other) && share_host(other, node))
			return other;
	}
	return NULL;
}

static bool find_hosts(struct membership *m)
{
	struct measuring *now = &m->measuring;
	now->host_count = 0;
	for (size_t i = 0; i < m->nodes.count; i++) {
		const struct node *node = m->nodes.items[i];
		if (!can_measure(node) || measurer_of(m, node) != node)
			continue;
		if (now->host_count == TR_PROBE_HOSTS_MAX)
			return false;
		now->hosts[now->host_count++] = node->id;
	}
	return true;
}

/* ---- results ---- */

static struct measured_link *find_row(const struct membership *m, uint64_t from, uint64_t to)
{
	for (size_t i = 0; i < m->measured.count; i++) {
		struct measured_link *row = m->measured.items[i];
		if (row->from == from && row->to == to)
			return row;
	}
	return NULL;
}

/* Is there a row of each link between the hosts, each way? */
static bool knows_links(const struct membership *m)
{
	const struct measuring *now = &m->measuring;
	for (uint32_t i = 0; i < now->host_count * now->host_count; i++)
		if (find_row(m, now->hosts[i / now->host_count], now->hosts[i % now->host_count]) ==
		    NULL)
			return false;
	return true;
}

static struct measured_link *row_of(struct membership *m, uint64_t from, uint64_t to)
{
	struct measured_link *row = find_row(m, from, to);
	if (row != NULL)
		return row;
	row = state_alloc(m, sizeof(*row));
	if (row == NULL)
		return NULL;
	row->from = from;
	row->to = to;
	if (list_add(m, &m->measured, row))
		return row;
	free(row);
	return NULL;
}

static void note(struct membership *m, uint64_t from, uint64_t to, double latency_s,
    double bytes_per_s, const char *error)
{
	struct measured_link *row = row_of(m, from, to);
	if (row == NULL)
		return;
	row->latency_s = latency_s;
	row->bandwidth_bytes_per_s = bytes_per_s;
	row->layer_s = 0;
	row->at_ms = m->now_ms;
	row->session = m->measuring.session;
	copy_text(row->error, sizeof(row->error), error);
}

static void note_layer(struct membership *m, uint64_t node, double layer_s)
{
	struct measured_link *row = row_of(m, node, node);
	if (row != NULL)
		row->layer_s = layer_s;
}

static const char *name_of(const struct membership *m, uint64_t id)
{
	const struct node *node = state_node(m, id);
	return node != NULL ? node->hello->name : "?";
}

/* What a pair told before stays, where it was to tell more. */
static void pair_failed(struct membership *m, struct measuring_pair *pair, const char *words)
{
	bool first = m->measuring.step <= MEASURE_PAIRS;
	char text[MEASURED_WORDS_MAX];
	copy_text(text, sizeof(text), words);
	if (pair->turned)
		(void)snprintf(text, sizeof(text), "%.155s; %.155s", pair->error, words);
	if (first)
		note(m, pair->from, pair->to, 0, 0, text);
	if (first && pair->from != pair->to)
		note(m, pair->to, pair->from, 0, 0, text);
	m->measuring.together_failed = true;
	action_log(m, true, "the way between %s and %s could not be measured: %.300s",
	    name_of(m, pair->from), name_of(m, pair->to), text);
	pair->number = 0;
}

static uint32_t host_of(const struct measuring *now, uint64_t node)
{
	uint32_t host = 0;
	while (host < now->host_count && now->hosts[host] != node)
		host++;
	return host;
}

/* Measured once more: alone it is what a stream has, with others it is a part of what they have. */
static void measured_again(struct measuring *now, const struct measuring_pair *pair,
    const Traind__Peer__LinkMeasured *said)
{
	uint32_t from = host_of(now, pair->from), to = host_of(now, pair->to);
	if (now->step == MEASURE_ALONE) {
		sites_relink(now->sites, from, to, said->there_bytes_per_s);
		sites_relink(now->sites, to, from, said->back_bytes_per_s);
	} else {
		bool out = now->sites->of[from] == now->turn;
		now->together_out += out ? said->there_bytes_per_s : said->back_bytes_per_s;
		now->together_in += out ? said->back_bytes_per_s : said->there_bytes_per_s;
	}
}

static void pair_measured(struct membership *m, struct measuring_pair *pair,
    const Traind__Peer__LinkMeasured *said)
{
	double latency_s = said->round_trip_s / 2;
	if (m->measuring.step >= MEASURE_ALONE)
		measured_again(&m->measuring, pair, said);
	if (said->layer_error[0] != '\0')
		action_log(m, true, "on %s: %.300s", name_of(m, pair->from), said->layer_error);
	if (m->measuring.step != MEASURE_TOGETHER) {
		note(m, pair->from, pair->to, latency_s, said->there_bytes_per_s, "");
		if (pair->from != pair->to)
			note(m, pair->to, pair->from, latency_s, said->back_bytes_per_s, "");
	}
	if (pair->from == pair->to)
		note_layer(m, pair->from, said->layer_s);
	pair->number = 0;
}

/* ---- asking ---- */

/* Somebody works there, or on another node of its host: a layer would be slower than it is, and so would the work. */
static bool works(const struct membership *m, const struct node *node)
{
	for (size_t i = 0; i < m->jobs.count; i++) {
		const struct job *job = m->jobs.items[i];
		for (size_t k = 0; k < job->peers.count; k++) {
			const struct peer *peer = job->peers.items[k];
			const struct node *where = state_node(m, peer->node);
			if (peer_holds_slot(m, peer) && where != NULL && share_host(where, node))
				return true;
		}
	}
	return false;
}

static void ask(struct membership *m, struct measuring_pair *pair)
{
	Traind__Peer__ToNode message = TRAIND__PEER__TO_NODE__INIT;
	Traind__Peer__MeasureLink measure = TRAIND__PEER__MEASURE_LINK__INIT;
	const struct node *from = state_node(m, pair->from), *to = state_node(m, pair->to);
	if (from == NULL || to == NULL)
		return; /* the next look says so */
	pair->number = ++m->measuring.number;
	pair->deadline_ms = m->now_ms + TR_PROBE_ANSWER_MS;
	measure.measurement = pair->number;
	if (from != to)
		measure.address = to->hello->address;
	else if (m->measuring.wish != NULL && m->measuring.wish->job != NULL && !works(m, from)) {
		measure.job = m->measuring.wish->job;
		measure.threads = m->measuring.wish->threads;
	}
	measure.token_low = to->hello->probe_token_low;
	measure.token_high = to->hello->probe_token_high;
	measure.beside = m->measuring.step == MEASURE_TOGETHER;
	message.body_case = TRAIND__PEER__TO_NODE__BODY_MEASURE_LINK;
	message.measure_link = &measure;
	action_send(m, from->soft.conn, &message);
}

/* ---- turns ---- */

static uint32_t turns_of(const struct measuring *now)
{
	uint32_t sites = now->sites != NULL && now->sites->count > 1 ? now->sites->count : 0;
	switch (now->step) {
	case MEASURE_HOSTS:
		return 1;
	case MEASURE_PAIRS:
		return tournament_turns(now->host_count);
	case MEASURE_ALONE:
		return tournament_turns(sites);
	default:
		return sites;
	}
}

static uint32_t pairs_of(const struct measuring *now, struct tournament_pair *pairs)
{
	switch (now->step) {
	case MEASURE_HOSTS:
		for (uint32_t i = 0; i < now->host_count; i++)
			pairs[i] = (struct tournament_pair){ i, i };
		return now->host_count;
	case MEASURE_PAIRS:
		return tournament_pairs(now->host_count, now->turn, pairs);
	case MEASURE_ALONE:
		return sites_alone(now->sites, now->turn, pairs);
	default:
		return sites_together(now->sites, now->turn, pairs);
	}
}

static void begin_turn(struct membership *m)
{
	struct measuring *now = &m->measuring;
	struct tournament_pair met[TR_PROBE_HOSTS_MAX] = { { 0, 0 } };
	now->pair_count = pairs_of(now, met);
	now->together_out = now->together_in = 0;
	now->together_failed = false;
	for (uint32_t i = 0; i < now->pair_count; i++) {
		now->pairs[i] = (struct measuring_pair){ .from = now->hosts[met[i].low],
			.to = now->hosts[met[i].high] };
		ask(m, &now->pairs[i]);
	}
}

static void find_sites(struct membership *m)
{
	struct measuring *now = &m->measuring;
	size_t links = (size_t)now->host_count * now->host_count;
	free(now->sites);
	now->sites = state_alloc(m, sizeof(*now->sites) + links * sizeof(now->sites->links[0]));
	if (now->sites == NULL)
		return;
	now->sites->hosts = now->host_count;
	for (size_t i = 0; i < links; i++) {
		const struct measured_link *row = find_row(m, now->hosts[i / now->host_count],
		    now->hosts[i % now->host_count]);
		if (row != NULL && row->error[0] == '\0')
			now->sites->links[i] = (struct flow_link){ row->latency_s,
				row->bandwidth_bytes_per_s };
	}
	sites_find(now->sites);
}

/* False: that was the last one. */
static bool next_turn(struct membership *m)
{
	struct measuring *now = &m->measuring;
	if (now->step == MEASURE_TOGETHER && now->pair_count > 0 && !now->together_failed)
		sites_take(now->sites, now->turn, now->together_out, now->together_in);
	now->turn++;
	while (now->turn >= turns_of(now)) {
		if (now->step == MEASURE_TOGETHER || now->layers_only)
			return false;
		now->step++;
		now->turn = 0;
		if (now->step == MEASURE_ALONE)
			find_sites(m);
	}
	return true;
}

/* Links over a cable that is shared become those of one stream alone. */
static void keep_sites(struct membership *m)
{
	struct measuring *now = &m->measuring;
	const struct sites *sites = now->sites;
	now->known_count = 0;
	if (sites == NULL)
		return;
	for (uint32_t i = 0; i < sites->hosts * sites->hosts; i++) {
		uint32_t from = i / sites->hosts, to = i % sites->hosts;
		struct measured_link *row = find_row(m, now->hosts[from], now->hosts[to]);
		if (row != NULL && row->error[0] == '\0' && sites_crosses(sites, from, to))
			row->bandwidth_bytes_per_s = sites_lone(sites, from, to);
	}
	for (uint32_t site = 0; site < sites->count && sites->count > 1; site++) {
		struct measured_site *known = &now->known[now->known_count];
		*known = (struct measured_site){ .out_bytes_per_s = sites->cable_out[site],
			.in_bytes_per_s = sites->cable_in[site] };
		for (uint32_t host = 0; host < sites->hosts; host++)
			if (sites->of[host] == site)
				known->nodes[known->count++] = now->hosts[host];
		now->known_count += known->out_bytes_per_s > 0 || known->in_bytes_per_s > 0;
	}
	free(now->sites);
	now->sites = NULL;
}

/* What an earlier measurement found of hosts that this one had not. */
static void forget_older(struct membership *m)
{
	for (size_t i = m->measured.count; i-- > 0;) {
		struct measured_link *row = m->measured.items[i];
		if (row->session == m->measuring.session)
			continue;
		list_remove(&m->measured, i);
		free(row);
	}
}

static void answer_all(struct membership *m)
{
	struct measuring *now = &m->measuring;
	if (!now->layers_only) {
		forget_older(m);
		keep_sites(m);
	}
	for (uint32_t i = 0; i < now->request_count; i++)
		action_reply(m, now->requests[i], TR_OK, 0, false, "");
	now->request_count = 0;
	now->under_way = false;
	action_log(m, false,
	    now->layers_only ? "a layer was measured on %u hosts"
	                     : "links between %u hosts were measured",
	    now->host_count);
}

/* ---- what happens ---- */

static void take_wish(struct membership *m, const Traind__V1__MeasureLinksRequest *wish)
{
	struct measuring *now = &m->measuring;
	if (now->wish != NULL)
		traind__v1__measure_links_request__free_unpacked(now->wish, NULL);
	now->wish = copy_message(m, &wish->base);
}

static const char *fault_of(const Traind__V1__MeasureLinksRequest *wish)
{
	if (strlen(wish->layers_of) >= TR_ADDRESS_MAX || wish->threads > 1024)
		return "layers_of: at most 127 bytes, and 1024 threads";
	if (wish->job != NULL &&
	    (wish->job->train == NULL || wish->job->train->model == NULL ||
	        wish->job->train->optimizer == NULL || wish->threads == 0))
		return "job: one that trains a model, and how many threads";
	if (wish->layers_only && wish->job == NULL)
		return "layers_only: with a job";
	return NULL;
}

void measure_request(struct membership *m, uint64_t request,
    const Traind__V1__MeasureLinksRequest *wish)
{
	struct measuring *now = &m->measuring;
	if (fault_of(wish) != NULL) {
		action_reply(m, request, TR_EINVAL, 0, false, fault_of(wish));
		return;
	}
	if (now->request_count == TR_PROBE_CALLERS_MAX) {
		action_reply(m, request, TR_ELIMIT, 0, false,
		    "too many wait for links to be measured; try again later");
		return;
	}
	if (!now->under_way) {
		bool fit = find_hosts(m);
		if (!fit || now->host_count == 0) {
			action_reply(m, request, fit ? TR_EUNAVAILABLE : TR_ELIMIT, 0, false,
			    fit ? "no node that lives has slots: there is nothing to measure"
			        : "links of more than 128 hosts are not measured; describe them in "
			          "a file");
			return;
		}
		now->under_way = true;
		now->layers_only = wish->layers_only && knows_links(m);
		now->step = MEASURE_HOSTS;
		now->turn = 0;
		take_wish(m, wish);
		now->session++;
		now->number = m->random >> 1; /* an answer to an earlier memberd's is none to us */
		begin_turn(m);
	} else if (!wish->layers_only) {
		now->layers_only = false; /* the other turns follow */
	}
	now->requests[now->request_count++] = request;
	m->dirty = true;
}

void measure_answered(struct membership *m, const struct node *node,
    const Traind__Peer__LinkMeasured *said)
{
	struct measuring *now = &m->measuring;
	for (uint32_t i = 0; i < now->pair_count; i++) {
		struct measuring_pair *pair = &now->pairs[i];
		if (!now->under_way || pair->number == 0 || pair->number != said->measurement ||
		    pair->from != node->id)
			continue;
		m->dirty = true;
		if (said->error[0] == '\0') {
			pair_measured(m, pair, said);
		} else if (said->unreachable && !pair->turned && pair->from != pair->to) {
			uint64_t to = pair->from;
			copy_text(pair->error, sizeof(pair->error), said->error);
			pair->turned = true;
			pair->from = pair->to;
			pair->to = to;
			ask(m, pair);
		} else {
			pair_failed(m, pair, said->error);
		}
		return;
	}
}

/* Why nothing will come of it any more; false: something may. */
static bool pair_over(const struct membership *m, const struct measuring_pair *pair,
    char words[MEASURED_WORDS_MAX])
{
	const uint64_t ends[2] = { pair->from, pair->to };
	for (int i = 0; i < 2; i++) {
		const struct node *node = state_node(m, ends[i]);
		if (node != NULL && can_measure(node))
			continue;
		const char *why = node == NULL ? ""
		    : node->lost               ? node->reason
		                               : node->soft.closing;
		(void)snprintf(words, MEASURED_WORDS_MAX, "%s was lost in the middle of it%s%.200s",
		    name_of(m, ends[i]), why[0] != '\0' ? ": " : "", why);
		return true;
	}
	if (m->now_ms < pair->deadline_ms)
		return false;
	(void)snprintf(words, MEASURED_WORDS_MAX, "%s did not say in %u s what it measured",
	    name_of(m, pair->from), TR_PROBE_ANSWER_MS / 1000);
	return true;
}

static bool turn_over(struct membership *m)
{
	struct measuring *now = &m->measuring;
	char words[MEASURED_WORDS_MAX];
	bool over = true;
	for (uint32_t i = 0; i < now->pair_count; i++) {
		struct measuring_pair *pair = &now->pairs[i];
		if (pair->number != 0 && pair_over(m, pair, words))
			pair_failed(m, pair, words);
		over = over && pair->number == 0;
	}
	return over;
}

void measure_think(struct membership *m)
{
	struct measuring *now = &m->measuring;
	while (now->under_way && turn_over(m)) {
		if (next_turn(m))
			begin_turn(m);
		else
			answer_all(m);
	}
}

uint64_t measure_deadline_ms(const struct membership *m)
{
	const struct measuring *now = &m->measuring;
	uint64_t least = UINT64_MAX;
	for (uint32_t i = 0; now->under_way && i < now->pair_count; i++)
		if (now->pairs[i].number != 0 && now->pairs[i].deadline_ms < least)
			least = now->pairs[i].deadline_ms;
	return least;
}

/* ---- what the API shows ---- */

static void fill_link(const struct measured_link *row, uint64_t now_ms, Traind__V1__Link *link)
{
	traind__v1__link__init(link);
	link->from_node = row->from;
	link->to_node = row->to;
	link->latency_s = row->latency_s;
	link->bandwidth_bytes_per_s = row->bandwidth_bytes_per_s;
	link->age_s = now_ms > row->at_ms ? (double)(now_ms - row->at_ms) / 1000 : 0;
	link->layer_s = row->layer_s;
	link->error = (char *)(uintptr_t)row->error; /* copied by who asked */
}

/* The node that measured for its host, if it still may: another one of the host would have measured the same. */
static uint64_t measured_for(const struct membership *m, const struct node *node)
{
	for (size_t i = 0; i < m->measured.count; i++) {
		const struct measured_link *row = m->measured.items[i];
		const struct node *by = row->from == row->to ? state_node(m, row->from) : NULL;
		if (by != NULL && share_host(by, node))
			return by->id;
	}
	const struct node *by = measurer_of(m, node);
	return by != NULL ? by->id : node->id;
}

static size_t fill_sites(struct measuring *now, Traind__V1__LinkSite *rows,
    Traind__V1__LinkSite **list)
{
	for (uint32_t i = 0; i < now->known_count; i++) {
		traind__v1__link_site__init(&rows[i]);
		rows[i].nodes = now->known[i].nodes;
		rows[i].n_nodes = now->known[i].count;
		rows[i].out_bytes_per_s = now->known[i].out_bytes_per_s;
		rows[i].in_bytes_per_s = now->known[i].in_bytes_per_s;
		list[i] = &rows[i];
	}
	return now->known_count;
}

Traind__V1__Links *membership_links(const struct membership *membership, uint64_t now_ms)
{
	struct membership *m = (struct membership *)(uintptr_t)
	    membership; /* for copy_message's flag */
	Traind__V1__Links facts = TRAIND__V1__LINKS__INIT, *copy = NULL;
	Traind__V1__LinkSite sites[TR_PROBE_SITES_MAX], *site_rows[TR_PROBE_SITES_MAX];
	bool oom = m->oom;
	Traind__V1__Link *links = calloc(m->measured.count + 1, sizeof(*links));
	Traind__V1__Link **link_rows = calloc(m->measured.count + 1, sizeof(Traind__V1__Link *));
	Traind__V1__LinkHost *hosts = calloc(m->nodes.count + 1, sizeof(*hosts));
	Traind__V1__LinkHost **host_rows = calloc(m->nodes.count + 1,
	    sizeof(Traind__V1__LinkHost *));
	if (links == NULL || link_rows == NULL || hosts == NULL || host_rows == NULL)
		goto out;
	facts.links = link_rows;
	facts.hosts = host_rows;
	facts.sites = site_rows;
	facts.n_sites = fill_sites(&m->measuring, sites, site_rows);
	if (m->measuring.wish != NULL)
		facts.layers_of = m->measuring.wish->layers_of;
	for (size_t i = 0; i < m->measured.count; i++) {
		fill_link(m->measured.items[i], now_ms, &links[i]);
		link_rows[facts.n_links++] = &links[i];
	}
	for (size_t i = 0; i < m->nodes.count; i++) {
		const struct node *node = m->nodes.items[i];
		if (!can_measure(node))
			continue;
		Traind__V1__LinkHost *row = &hosts[facts.n_hosts];
		traind__v1__link_host__init(row);
		row->node = node->id;
		row->measured = measured_for(m, node);
		host_rows[facts.n_hosts++] = row;
	}
	copy = copy_message(m, &facts.base);
	m->oom = oom;
out:
	free(host_rows);
	free(hosts);
	free(link_rows);
	free(links);
	return copy;
}

void measure_clear(struct membership *m)
{
	if (m->measuring.wish != NULL)
		traind__v1__measure_links_request__free_unpacked(m->measuring.wish, NULL);
	for (size_t i = 0; i < m->measured.count; i++)
		free(m->measured.items[i]);
	free(m->measured.items);
	free(m->measuring.sites);
	m->measured = (struct list){ 0 };
	m->measuring = (struct measuring){ 0 };
}
