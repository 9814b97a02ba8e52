/* Every queue, retry, frame, table and name has its limit here. */
#ifndef TR_COMMON_LIMITS_H
#define TR_COMMON_LIMITS_H

#define TR_NAME_MAX         64  /* bytes in a node, job or group name, NUL included */
#define TR_ADDRESS_MAX      128 /* bytes in "host:port", NUL included */
#define TR_GROUP_PEERS_MAX  256 /* members of one view; width of a contributor bitmap */
#define TR_NODES_MAX        1024
#define TR_PEER_LINKS_MAX   8    /* of a peer that memberd is told of: the slowest */
#define TR_NODE_WORKERS_MAX 1024 /* at once on one node: commands may be more than its slots */
#define TR_JOBS_MAX         4096 /* job records kept, finished ones included */
#define TR_JOB_EVENTS_MAX   256  /* newest events kept per job */
#define TR_ROUND_RECORDS_MAX \
	(1u << 16) /* newest committed rounds kept per group; of the others, the sums */
#define TR_ROUND_AHEAD_MAX \
	(1u << 20)            /* rounds that a record may be ahead of those that are known */
#define TR_ROUND_OPS_MAX 4096 /* collectives in one round that are not released */
#define TR_SEGMENT_BYTES \
	(1023u << 10) /* piece of a vector that is pipelined, repaired, hashed: a data frame with its header */
#define TR_OP_SEGMENTS_MAX (1u << 18)
#define TR_OP_SEGMENTS_LONG \
	120u /* of a group over long ways: dealt out evenly to 2, 3, 4, 5, 6 or 8 members; each costs little beside the way */
#define TR_OP_SEGMENTS_HOST \
	8u /* of a group on one host, of 128 to 256 KiB each; of large ops as elsewhere */
#define TR_SEGMENT_BYTES_LONG \
	(256u << 10)       /* there too: what lies on a slow connection of eight holds up the op */
#define TR_LONG_WAY_S 2e-3 /* one way, from which on a group is over long ways */
#define TR_OP_WINDOW_BYTES \
	(16u << 20) /* of one op on the way at a time: bounds staging and what a death costs */
#define TR_OP_WINDOW_BYTES_MIN (4u << 20) /* and keeps links busy */
#define TR_OP_WINDOW_BYTES_LONG \
	(256u << 10) /* over a long way of which it is known how little it carries */
#define TR_PREFAULT_BYTES_MOST \
	((size_t)256 << 20) /* of a worker's memory, mapped ahead of its first op (shm_prefault.h) */
#define TR_FRAME_CONTROL_MAX        (4u << 20) /* payload bytes of a control frame */
#define TR_FRAME_DATA_MAX           (1u << 20) /* payload bytes of a data frame, its header included */
#define TR_CONN_UNGREETED_MAX       512        /* connections that have not said hello yet */
#define TR_CONN_GREETING_TIMEOUT_MS 5000
#define TR_CONN_DIAL_TIMEOUT_MS     5000 /* to reach one address */
#define TR_CONN_SILENT_MS           10000 /* unanswered bytes are given up after this and RETRIES_MIN */
#define TR_CONN_RETRIES_MIN         4
#define TR_CONN_WATCHED_RETRIES_MIN 2    /* where something is sent every few 100 ms */
#define TR_CONN_FINISH_TIMEOUT_MS   2000 /* for the other end to read what was sent before a close */
#define TR_CONN_QUEUE_BYTES_MAX     (64u << 20) /* unsent bytes on a control connection */
#define TR_CHANNEL_RING             512  /* submissions on their way from a worker to its engine */
#define TR_CHANNEL_ANSWERS          16   /* answers on their way back */
#define TR_CHANNEL_ARENAS_MAX       1024 /* pieces of shared memory of one worker */
#define TR_CHANNEL_ARENA_BYTES      (4u << 20)  /* least size of one; sparse */
#define TR_CHANNEL_ARENA_BYTES_MOST (1u << 30)  /* unless one buffer alone needs more */
#define TR_CHANNEL_MESSAGE_MAX      (64u << 10) /* bytes of a message on the worker's socket */
#define TR_IN_TURN_BYTES_MAX \
	(4u << 20) /* of an input that workers of a node show each other, for each that reads it */
#define TR_IN_TURN_WORKERS_MAX 64u  /* of a node */
#define TR_SHM_PIECES_MAX      2048 /* pieces of memory that one peer shows to another of its host */
#define TR_SHM_BYTES_MAX       (1ull << 42) /* of address space, for them */
#define TR_SHM_IMPORTS_MAX     4  /* of one peer's, by lanes that are open or ended in this view */
#define TR_SHM_UNGREETED_MAX   64 /* connections of shared memory that have not said hello yet */
#define TR_STATE_TENSORS_MAX   4096
#define TR_STATE_NAME_MAX      128
#define TR_ROUND_LATER \
	UINT64_MAX /* contribute_from of who gets its state gradually and has not all of it */
#define TR_STATE_CHUNK_BYTES (256u << 10)
#define TR_STATE_WINDOW_BYTES \
	(256u << 10) /* of state queued on a connection at a time: segments that come wait for so much */
#define TR_STATE_DONORS_MAX  8          /* that send a joiner pieces of its state at a time */
#define TR_STATE_DONOR_BYTES (4u << 20) /* of state for each of them, at least */
#define TR_STATE_SILENT_MS \
	3000 /* nothing came of a donor for so long: others are asked for its rest */
#define TR_STATE_RECORDS_MAX 1024  /* records of rounds that go along with a state */
#define TR_STATE_STALL_MS    30000 /* nothing of it came for so long: it is asked for again */
#define TR_STATE_TURN_BYTES \
	(1u << 20) /* of it that are hashed or copied in one turn of the engine's loop */
#define TR_LEFTOVERS_MAX \
	16 /* memories of crashed workers that a node keeps, at most one of each rank */
#define TR_LEFTOVER_KEEP_MS \
	120000 /* for the worker that follows: by then the others are rounds ahead */
#define TR_TO_NODE_BYTES_MAX \
	(4u << 20) /* of what memberd says that an engine has not looked at: then no more is read */
#define TR_JOIN_TIMEOUT_MS 10000 /* for memberd to admit a process that joins a group */
/* Inputs that may be shown to all peers of a host at once: their bytes, to how many members, and how many of each may be shown and not be in a core. */
#define TR_SPREAD_BYTES_MAX  1024u
#define TR_SPREAD_PEERS_MAX  16u
#define TR_SPREAD_UNREAD_MAX 64u
#define TR_AHEAD_BYTES \
	(16u << 20) /* of frames that come before their op is submitted, of all other members together (core/ahead.c) */
#define TR_HELD_BYTES_MAX \
	(TR_AHEAD_BYTES + TR_FRAME_DATA_MAX) /* of such frames from one member that keeps to that */
#define TR_LANES_MAX    32                   /* connections of one link */
#define TR_HELD_VIEW_MS 60000 /* frames of a view that has not come are kept for so long */
#define TR_INBOUND_PEER_MAX \
	(2 * TR_LANES_MAX + 8)       /* connections of one peer to one of our members */
#define TR_INBOUND_MAX         16384 /* of all peers to all members of a process */
#define TR_INBOUND_LIFELESS_MS 60000 /* nothing came after the hello for so long: closed */
/* Connections whose peer is in no view of ours yet: before our first one all others of a group may be there. The first are for those with the token. */
#define TR_HELLOS_WAITING_PROVEN 128
#define TR_HELLOS_WAITING_MAX    (TR_GROUP_PEERS_MAX + TR_HELLOS_WAITING_PROVEN)
#define TR_HELLO_WAIT_MS         30000 /* so long they may wait for that */
#define TR_VIEWS_AHEAD_MAX \
	1024 /* of a frame's view beyond the newest that its receiver was asked about */
#define TR_RELAY_BUFFER_BYTES  (64u << 10) /* that a relay holds of each direction of a connection */
#define TR_RELAY_JOINED_MAX    512 /* connections that one daemon relays at once, two sockets each */
#define TR_RELAY_STRANGERS_MAX 64  /* that have not said what they want: the oldest goes */
#define TR_RELAY_ENDS_MAX      1024 /* that wait there or call, and have the token of a pair */
#define TR_RELAY_WAITS_MAX     4    /* of one pair: the oldest goes */
#define TR_RELAY_WAITING_MAX \
	4096 /* connections of one process that wait at relays: each is dialled */
#define TR_RELAY_CALL_MS       5000 /* for the other end to come */
#define TR_RELAY_WAIT_AGAIN_MS 250  /* before an end that was sent away waits there again */
#define TR_RELAY_KEEPALIVE_S   10   /* of a connection that waits, and of one that is relayed */
#define TR_RELAYED_PAIRS_MAX   1024 /* of one group, each of one direction */
#define TR_RELAY_TRIES_MAX     3    /* relays for one pair, before it is given up */
#define TR_PROBE_ROUND_TRIPS \
	32 /* of which the smallest counts, in TR_PROBE_TRIPS_US at most, but four in any case */
#define TR_PROBE_TRIPS_US    200000
#define TR_PROBE_RATE_US     1000000 /* of bytes, in each direction; over long ways more */
#define TR_PROBE_RATE_TRIPS  20      /* so many round trips, since windows open by these */
#define TR_PROBE_RATE_US_MAX 3000000
#define TR_PROBE_SETTLE_US \
	200000 /* it may end sooner, when the rate has settled, but not before that */
#define TR_PROBE_SETTLE_TRIPS 12           /* nor before so many round trips */
#define TR_PROBE_BYTES        (32u << 20)  /* in each direction */
#define TR_PROBE_UNSENT_BYTES (128u << 10) /* else a slow way has seconds of it in our own socket */
#define TR_PROBE_MS           20000        /* all of it; whoever is slower than that is named */
#define TR_PROBE_ANSWER_MS \
	(2 * TR_PROBE_MS) /* for a node to say what it measured: it may have to resolve a name first */
#define TR_PROBES_SERVED_MAX 4 /* that others make with us at a time */
#define TR_PROBES_MEASURED_MAX \
	4 /* that memberd wants of us at a time; it waits for one before the next */
#define TR_PROBE_HOSTS_MAX 128 /* whose links are measured: n - 1 turns */
#define TR_PROBE_SITES_MAX \
	8 /* whose cables are measured, a turn each, and as many of links alone */
#define TR_PROBE_BESIDE_US 3000000 /* of bytes, in each direction, while others measure */
#define TR_PROBE_BESIDE_AT_US \
	1000000 /* after this all who measure at the same time begin, and so long after their bytes with the other direction */
#define TR_PROBE_BESIDE_BYTES \
	(2u << 30)              /* and so many: none that ends sooner leaves the others more */
#define TR_PROBE_CALLERS_MAX 16 /* that wait for one measurement */
#define TR_LINK_KEPT_BYTES_MAX \
	(16u << 20)                     /* staging sent to a peer that has not said that it came */
#define TR_DOMAIN_MEMBERS_MAX        64 /* processes of one failure domain (collectives/domain.h) */
#define TR_DOMAIN_OPS_MAX            256 /* of a domain in one round */
#define TR_DOMAIN_HEARD_MAX          64  /* messages of one member, then others have a turn */
#define TR_DOMAIN_BUILDS_MAX         3   /* tries to build a communicator before the domain ends */
#define TR_BACKEND_CHUNK_BYTES       (4u << 20) /* piece that is staged between device and host */
#define TR_REDIAL_FIRST_MS           10
#define TR_REDIAL_LAST_MS            250
#define TR_RECORDS_BATCH             2048 /* round records in one message to memberd */
#define TR_RECORDS_INTERVAL_MS       200  /* between two of these messages, while rounds go on */
#define TR_RECORDS_AGAIN_MS          2000 /* sent, but memberd has not said that they are in its log */
#define TR_RECORDS_SENT_MAX          8192  /* sent, and not known to be logged */
#define TR_RECORDS_UNLOGGED_MAX      65536 /* kept until memberd says that they are in its log */
#define TR_LAST_WORDS_BYTES_MAX      (2u << 20) /* of the round records in them */
#define TR_REPORT_INTERVAL_MS        100
#define TR_REPORT_EVENTS_MAX         64 /* events of a worker that wait to be sent */
#define TR_HEARTBEAT_INTERVAL_MS     200
#define TR_HEARTBEAT_TIMEOUT_MS      1000
#define TR_PROGRESS_TIMEOUT_MS       20000 /* a worker that neither computes nor waits */
#define TR_RECONNECT_GRACE_MS        5000  /* nodes' time to come back after memberd restarts */
#define TR_WORKER_FAST_DEATHS_MAX    3
#define TR_WORKER_TERM_GRACE_MS      3000
#define TR_HALTED_MS_MAX             86400000    /* of traind's --stopped-timeout-ms */
#define TR_LOG_LIMIT_BURST           20          /* lines that strangers cause, of one kind */
#define TR_LOG_LIMIT_RATE            2           /* a second */
#define TR_LOG_FILE_BYTES_MAX        (16u << 20) /* a rank's log is rotated at this size */
#define TR_LOG_FILES_MAX             3
#define TR_LOG_JOBS_MAX              256        /* newest jobs whose output a node keeps */
#define TR_LOG_STREAMS_MAX           256        /* readers of output at once, per daemon */
#define TR_SAMPLE_REPORT_MAX         (32 << 10) /* bytes of generated text in a report */
#define TR_HEALTHZ_MAX               64         /* plain HTTP requests at once */
#define TR_SAFETENSORS_HEADER_MAX    (16u << 20)
#define TR_SAFETENSORS_TENSORS_MAX   65536u
#define TR_MODEL_NUMBERS_MAX         (1ull << 40) /* of one model, so that sizes are exact */
#define TR_BPE_FILE_MAX              (64 << 20)   /* vocab.json, merges.txt */
#define TR_BPE_WORD_MAX              (512 << 20)  /* of a text for a tokenizer */
#define TR_HF_FILES_MAX              1024         /* in which a model is imported */
#define TR_FILE_BLOCK_BYTES          (4u << 20)   /* of a checkpoint, that is written at once */
#define TR_DATA_TEXT_BYTES_MAX       ((size_t)16 << 30) /* all text files of a job, decompressed */
#define TR_GRPC_MESSAGE_MAX          (4u << 20)
#define TR_JOB_PATHS_MAX             256
#define TR_JOB_PATH_MAX              4096 /* bytes, NUL included */
#define TR_JOB_FILE_BYTES_MAX        (1 << 20)
#define TR_JOB_PROMPT_MAX            1024        /* bytes */
#define TR_JOB_PARAMETERS_MAX        4000000000u /* of a model, for each worker of tp x pp */
#define TR_JOB_COMMAND_BYTES_MAX     (256 << 10) /* arguments and environment of a command job */
#define TR_JOB_WATCH_INTERVAL_MS     100         /* between two messages to one watcher */
#define TR_HEALTH_WATCH_INTERVAL_MS  1000
#define TR_GRPC_CONNECTIONS_MAX      512 /* of one server; beyond it the longest idle one is closed */
#define TR_GRPC_CLIENT_LINKS_MAX     8 /* connections of one client, for more calls than one carries */
#define TR_GRPC_CLIENT_CALLS_MAX     4096  /* calls of one client that wait or are under way */
#define TR_GRPC_STREAMS_MAX          256   /* calls under way on one connection */
#define TR_GRPC_WINDOW_BYTES         65535 /* received and not yet asked for, per call */
#define TR_GRPC_REQUESTS_BYTES_MAX   (16u << 20) /* requests being received on one connection */
#define TR_GRPC_QUEUE_BYTES          (1u << 20) /* unsent bytes of a call from which its handler pauses */
#define TR_GRPC_UNSENT_BYTES_MAX     (64u << 20) /* of a connection; its new calls wait beyond it */
#define TR_GRPC_FRAMES_UNSENT_MAX    4096        /* a peer that asks and does not read is dropped */
#define TR_GRPC_CONTROL_BURST        1000 /* pings, settings, resets, empty data of one connection */
#define TR_GRPC_CONTROL_RATE         200  /* a second */
#define TR_GRPC_PINGS_DUE_MAX        4096 /* beside those: for frames that were sent */
#define TR_GRPC_HEADERS_BYTES_MAX    16384
#define TR_GRPC_PATH_MAX             256 /* bytes in a method's path, NUL included */
#define TR_GRPC_STATUS_TEXT_MAX      1024
#define TR_GRPC_KEEPALIVE_MS         20000 /* silence after which a connection with open calls is pinged */
#define TR_GRPC_KEEPALIVE_GRACE_MS   10000
#define TR_GRPC_DIAL_TIMEOUT_MS      5000
#define TR_GRPC_CLOSE_GRACE_MS       1000       /* for a closing server's last words */
#define TR_SCHEDULE_MICROBATCHES_MAX (1u << 14) /* of one step */
#define TR_SCHEDULE_CHUNKS_MAX       64         /* of layers, on one pipeline rank */

#endif
