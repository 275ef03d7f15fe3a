/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * DPDK's hierarchical scheduler on one core, measured as softnet-bench measures Softnet's htb: packets are allocated,
 * given their class, enqueued, dequeued and freed.
 *
 * Arguments: CPU CLASSES WAITING BULK FRAME RATE WARM_MS MS CACHE TC, then EAL's own after "--".
 *   CLASSES  pipes, each with one queue, which packets take in an order shuffled once
 *   WAITING  packets that each pipe has before a burst comes
 *   RATE     bytes per second of the port; each pipe has its share
 *   CACHE    packets in the core's cache
 *   TC       traffic class of the packets: 0 to 11 in strict order, 12 is best effort
 * Prints one line of JSON: {"packets": N, "drops": N, "ns": N, "bytes": N}, bytes being the scheduler's memory.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_sched.h>
#include <rte_version.h>

#define MAX_BULK 64
/* Packets that a queue holds; a power of two. */
#define QUEUE_SIZE 64
/* Bursts between two looks at the clock. */
#define STRIDE 256
/* Tries to get as many packets as were put in, before the rest is left for the next burst. */
#define TRIES 64

struct load {
	struct rte_sched_port *port;
	struct rte_mempool *pool;
	uint32_t *order;
	uint32_t classes, next, bulk, tc;
	uint16_t frame;
	uint64_t in, out, drops, bytes;
};

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline void put(struct load *l, uint32_t n)
{
	struct rte_mbuf *m[MAX_BULK];

	if (rte_pktmbuf_alloc_bulk(l->pool, m, n) != 0)
		rte_exit(EXIT_FAILURE, "the pool is exhausted\n");
	for (uint32_t i = 0; i < n; i++) {
		m[i]->data_len = l->frame;
		m[i]->pkt_len = l->frame;
		rte_sched_port_pkt_write(l->port, m[i], 0, l->order[l->next], l->tc, 0, RTE_COLOR_GREEN);
		if (++l->next == l->classes)
			l->next = 0;
	}
	l->drops += n - (uint32_t)rte_sched_port_enqueue(l->port, m, n);
	l->in += n;
}

static inline uint32_t take(struct load *l, uint32_t n)
{
	struct rte_mbuf *m[MAX_BULK];
	int got = rte_sched_port_dequeue(l->port, m, n);

	for (int i = 0; i < got; i++)
		l->bytes += m[i]->pkt_len;
	if (got > 0)
#if RTE_VERSION >= RTE_VERSION_NUM(25, 11, 0, 0)
		rte_mbuf_raw_free_bulk(l->pool, m, (unsigned int)got);
#else
		rte_mempool_put_bulk(l->pool, (void **)m, (unsigned int)got);
#endif
	l->out += (uint32_t)got;
	return (uint32_t)got;
}

static inline void burst(struct load *l)
{
	put(l, l->bulk);
	for (uint32_t left = l->bulk, tries = 0; left > 0 && tries < TRIES; tries++)
		left -= take(l, left);
}

static struct rte_sched_port *make_port(uint32_t classes, uint64_t rate, uint32_t tc, uint32_t *bytes)
{
	struct rte_sched_subport_profile_params profile = { .tb_rate = rate, .tb_size = 100000000, .tc_period = 10 };
	struct rte_sched_pipe_params pipe = { .tb_rate = rate / classes, .tb_size = 1600, .tc_period = 40 };
	struct rte_sched_subport_params subport = {
		.n_pipes_per_subport_enabled = rte_align32pow2(classes),
		.pipe_profiles = &pipe,
		.n_pipe_profiles = 1,
		.n_max_pipe_profiles = 1,
	};
	struct rte_sched_subport_params *subports[] = { &subport };
	struct rte_sched_port_params params = {
		.name = "port",
		.rate = rate,
		.mtu = 1500,
		.frame_overhead = 0,
		.n_subports_per_port = 1,
		.subport_profiles = &profile,
		.n_subport_profiles = 1,
		.n_max_subport_profiles = 1,
		.n_pipes_per_subport = rte_align32pow2(classes),
	};
	struct rte_sched_port *port;

	for (uint32_t i = 0; i < RTE_SCHED_TRAFFIC_CLASSES_PER_PIPE; i++) {
		/* Best effort has to be there. */
		bool used = i == tc || i == RTE_SCHED_TRAFFIC_CLASS_BE;

		profile.tc_rate[i] = rate;
		pipe.tc_rate[i] = used ? rate / classes : 0;
		subport.qsize[i] = used ? QUEUE_SIZE : 0;
	}
	for (int i = 0; i < RTE_SCHED_BE_QUEUES_PER_PIPE; i++)
		pipe.wrr_weights[i] = 1;
	pipe.tc_ov_weight = 1;
	port = rte_sched_port_config(&params);
	if (!port)
		rte_exit(EXIT_FAILURE, "rte_sched_port_config failed\n");
	if (rte_sched_subport_config(port, 0, &subport, 0) != 0)
		rte_exit(EXIT_FAILURE, "rte_sched_subport_config failed\n");
	for (uint32_t i = 0; i < classes; i++)
		if (rte_sched_pipe_config(port, 0, i, 0) != 0)
			rte_exit(EXIT_FAILURE, "rte_sched_pipe_config failed\n");
	*bytes = rte_sched_port_get_memory_footprint(&params, subports);
	return port;
}

int main(int argc, char **argv)
{
	uint64_t warm, ms, start, end, measured, rate, packets, drops;
	struct load l = { 0 };
	uint32_t waiting, cache, footprint;
	uint32_t seed = 1;
	char lcores[32];
	char *eal[32];
	int n = 0;

	if (argc < 11) {
		fprintf(stderr, "usage: dpdk_sched CPU CLASSES WAITING BULK FRAME RATE WARM_MS MS CACHE TC [-- EAL...]\n");
		return 2;
	}
	snprintf(lcores, sizeof(lcores), "0@%s", argv[1]);
	eal[n++] = argv[0];
	eal[n++] = "--lcores";
	eal[n++] = lcores;
	for (int i = 12; i < argc && n < 31; i++)
		eal[n++] = argv[i];
	eal[n] = NULL;
	l.classes = (uint32_t)atoi(argv[2]);
	waiting = (uint32_t)atoi(argv[3]);
	l.bulk = (uint32_t)atoi(argv[4]);
	l.frame = (uint16_t)atoi(argv[5]);
	rate = strtoull(argv[6], NULL, 10);
	warm = strtoull(argv[7], NULL, 10) * 1000000u;
	ms = strtoull(argv[8], NULL, 10) * 1000000u;
	cache = (uint32_t)atoi(argv[9]);
	l.tc = (uint32_t)atoi(argv[10]);
	if (l.classes < 1 || l.classes > 65536 || l.bulk < 1 || l.bulk > MAX_BULK || rate < l.classes ||
	    l.tc >= RTE_SCHED_TRAFFIC_CLASSES_PER_PIPE || waiting > QUEUE_SIZE / 2)
		return 2;
	if (rte_eal_init(n, eal) < 0)
		rte_exit(EXIT_FAILURE, "EAL: %s\n", rte_strerror(rte_errno));
	/* One less than a power of two is what a pool's memory is used best by. */
	l.pool = rte_pktmbuf_pool_create("pool", rte_align32pow2(l.classes * waiting + 4096) - 1, cache, 0,
					 RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
	if (!l.pool)
		rte_exit(EXIT_FAILURE, "mbuf pool: %s\n", rte_strerror(rte_errno));
	l.port = make_port(l.classes, rate, l.tc, &footprint);
	l.order = calloc(l.classes, sizeof(*l.order));
	if (!l.order)
		return 1;
	for (uint32_t i = 0; i < l.classes; i++) {
		uint32_t other;

		seed ^= seed << 13;
		seed ^= seed >> 17;
		seed ^= seed << 5;
		other = (uint32_t)(((uint64_t)seed * (i + 1)) >> 32);
		l.order[i] = l.order[other];
		l.order[other] = i;
	}
	for (uint32_t left = l.classes * waiting; left > 0;) {
		uint32_t some = left < l.bulk ? left : l.bulk;

		put(&l, some);
		left -= some;
	}
	for (start = now_ns(); now_ns() - start < warm;)
		for (int i = 0; i < STRIDE; i++)
			burst(&l);
	packets = l.out;
	drops = l.drops;
	start = now_ns();
	do {
		for (int i = 0; i < STRIDE; i++)
			burst(&l);
		end = now_ns();
	} while (end - start < ms);
	packets = l.out - packets;
	drops = l.drops - drops;
	measured = end - start;
	/* What is left comes out: nothing is lost. */
	for (start = now_ns(); l.out + l.drops < l.in && now_ns() - start < 5000000000u;)
		take(&l, l.bulk);
	if (l.out + l.drops != l.in)
		rte_exit(EXIT_FAILURE, "of %" PRIu64 " packets, %" PRIu64 " came out and %" PRIu64 " were dropped\n", l.in,
			 l.out, l.drops);
	printf("{\"packets\": %" PRIu64 ", \"drops\": %" PRIu64 ", \"ns\": %" PRIu64 ", \"bytes\": %u}\n", packets, drops,
	       measured, footprint);
	rte_sched_port_free(l.port);
	rte_eal_cleanup();
	return 0;
}
