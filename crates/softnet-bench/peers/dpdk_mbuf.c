/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * DPDK's mbuf pool, measured as softnet-bench measures Softnet's.
 *
 * Reads one command a line on stdin, and answers each with one line of JSON on stdout: {"packets": N, "ns": N}.
 *   cache N                use the pool of the N-th cache size from now on; no answer
 *   same BULK MS           allocate and free on one thread, as an application frees
 *   fast BULK MS           the same, as a driver with MBUF_FAST_FREE frees
 *   forward BATCH MS       allocate a batch, keep it in a transmit ring of 256 descriptors, free the oldest batch
 *   local BULK MS          the same, through a ring
 *   cross PAIRS BULK MS    A allocates, rte_ring, B frees; A on the first CPU, B on the second
 *   both PAIRS BULK MS     each thread of a pair allocates for the other and frees what that one allocated
 *   onecpu PAIRS BULK MS   as cross, with both threads on the first CPU
 *
 * Arguments: CPU_A CPU_B POOL_SIZE CACHE_SIZES, then EAL's own after "--". There is one pool for each of the
 * cache sizes, which commas separate.
 *
 * All packets come from one pool, have one segment and one owner: what MBUF_FAST_FREE lets a driver rely on. So they are
 * freed as a driver with that offload frees them, but for `same`.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_mbuf_pool_ops.h>
#include <rte_pause.h>
#include <rte_ring.h>
#include <rte_version.h>

#define MAX_THREADS 64
#define MAX_CACHES 8
#define MAX_BULK 64
#define RING_SIZE 512
#define DESCRIPTORS 256
/* Tries with a pause before the CPU is given away. */
#define SPINS 64

enum mode { SAME, FAST, FORWARD, LOCAL, CROSS, BOTH };

struct worker {
	/* What this thread has done: packets freed. */
	_Atomic uint64_t freed __rte_cache_aligned;
	struct rte_ring *in __rte_cache_aligned;
	struct rte_ring *out;
	enum mode mode;
	unsigned int bulk;
	/* So that reading a packet is not optimised away. */
	uint64_t bytes;
};

static struct rte_mempool *pool, *pools[MAX_CACHES];
static struct worker workers[MAX_THREADS];
static atomic_bool stop;
/* Producers that may still enqueue. */
static atomic_int producing;

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void backoff(unsigned int *tries)
{
	if (++*tries < SPINS) {
		rte_pause();
	} else {
		*tries = 0;
		sched_yield();
	}
}

static inline bool alloc_bulk(struct rte_mbuf **m, unsigned int n)
{
	if (n == 1)
		return (m[0] = rte_pktmbuf_alloc(pool)) != NULL;
	return rte_pktmbuf_alloc_bulk(pool, m, n) == 0;
}

static inline void free_bulk(struct rte_mbuf **m, unsigned int n)
{
	if (n == 1)
		rte_mbuf_raw_free(m[0]);
	else
#if RTE_VERSION >= RTE_VERSION_NUM(25, 11, 0, 0)
		rte_mbuf_raw_free_bulk(pool, m, n);
#else
		rte_mempool_put_bulk(pool, (void **)m, n);
#endif
}

static inline void count(struct worker *w, unsigned int n)
{
	uint64_t freed = atomic_load_explicit(&w->freed, memory_order_relaxed);

	atomic_store_explicit(&w->freed, freed + n, memory_order_relaxed);
}

/* Passes a burst on, a new one unless `m` holds one already; false if there was no packet or no room. */
static inline bool produce(struct worker *w, struct rte_mbuf **m, bool *holds)
{
	if (!*holds && !alloc_bulk(m, w->bulk))
		return false;
	*holds = rte_ring_sp_enqueue_bulk(w->out, (void **)m, w->bulk, NULL) == 0;
	return !*holds;
}

static void forward(struct worker *w)
{
	static struct rte_mbuf *ring[DESCRIPTORS];
	struct rte_mbuf *m[MAX_BULK];
	unsigned int head = 0;

	memset(ring, 0, sizeof(ring));
	while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
		if (ring[head])
			free_bulk(&ring[head], w->bulk);
		if (!alloc_bulk(m, w->bulk))
			abort();
		for (unsigned int i = 0; i < w->bulk; i++) {
			w->bytes += m[i]->pkt_len;
			ring[head + i] = m[i];
		}
		head = (head + w->bulk) % DESCRIPTORS;
		count(w, w->bulk);
	}
	for (unsigned int i = 0; i < DESCRIPTORS; i++)
		if (ring[i])
			rte_pktmbuf_free(ring[i]);
}

static inline unsigned int consume(struct worker *w, struct rte_mbuf **m)
{
	unsigned int n = rte_ring_sc_dequeue_burst(w->in, (void **)m, w->bulk, NULL);

	if (n == 0)
		return 0;
	for (unsigned int i = 0; i < n; i++)
		w->bytes += m[i]->pkt_len;
	free_bulk(m, n);
	count(w, n);
	return n;
}

static int work(void *arg)
{
	struct worker *w = arg;
	struct rte_mbuf *m[MAX_BULK], *sending[MAX_BULK];
	unsigned int tries = 0;
	bool holds = false;

	if (w->mode == FORWARD) {
		forward(w);
		return 0;
	}
	if (w->mode == SAME) {
		while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
			if (!alloc_bulk(m, w->bulk))
				abort();
			if (w->bulk == 1)
				rte_pktmbuf_free(m[0]);
			else
				rte_pktmbuf_free_bulk(m, w->bulk);
			count(w, w->bulk);
		}
		return 0;
	}
	if (w->mode == FAST) {
		while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
			if (!alloc_bulk(m, w->bulk))
				abort();
			free_bulk(m, w->bulk);
			count(w, w->bulk);
		}
		return 0;
	}
	while (w->out && !atomic_load_explicit(&stop, memory_order_relaxed)) {
		bool made = produce(w, sending, &holds);
		unsigned int got = w->in ? consume(w, m) : 0;

		if (made || got > 0)
			tries = 0;
		else
			backoff(&tries);
	}
	if (holds)
		free_bulk(sending, w->bulk);
	if (w->out)
		atomic_fetch_sub(&producing, 1);
	while (w->in) {
		/* Read before the ring is looked at: what was enqueued before is seen. */
		bool last = atomic_load(&producing) == 0;

		if (consume(w, m) > 0)
			tries = 0;
		else if (last)
			break;
		else
			backoff(&tries);
	}
	return 0;
}

static uint64_t freed(unsigned int threads)
{
	uint64_t sum = 0;

	for (unsigned int i = 0; i < threads; i++)
		sum += atomic_load_explicit(&workers[i].freed, memory_order_relaxed);
	return sum;
}

static void sleep_ns(uint64_t ns)
{
	struct timespec t = { .tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u) };

	nanosleep(&t, NULL);
}

/* Starts `threads` workers, lets them warm up, and counts for `ms` milliseconds. */
static void measure(const unsigned int *lcores, unsigned int threads, uint64_t ms)
{
	uint64_t ns = ms * 1000000u, packets, start, end;

	atomic_store(&stop, false);
	atomic_store(&producing, 0);
	for (unsigned int i = 0; i < threads; i++) {
		atomic_store(&workers[i].freed, 0);
		if (workers[i].out)
			atomic_fetch_add(&producing, 1);
	}
	for (unsigned int i = 0; i < threads; i++)
		if (rte_eal_remote_launch(work, &workers[i], lcores[i]) != 0)
			rte_exit(EXIT_FAILURE, "cannot launch on lcore %u\n", lcores[i]);
	sleep_ns(ns / 4);
	packets = freed(threads);
	start = now_ns();
	sleep_ns(ns);
	packets = freed(threads) - packets;
	end = now_ns();
	atomic_store(&stop, true);
	for (unsigned int i = 0; i < threads; i++)
		rte_eal_wait_lcore(lcores[i]);
	printf("{\"packets\": %" PRIu64 ", \"ns\": %" PRIu64 "}\n", packets, end - start);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	static struct rte_ring *rings[MAX_THREADS];
	unsigned int caches = 0;
	char lcores[MAX_THREADS * 16 + 32] = "", main_lcore[16];
	char *eal[32];
	int n = 0;
	char line[128];

	if (argc < 5) {
		fprintf(stderr, "usage: dpdk_mbuf CPU_A CPU_B POOL_SIZE CACHE_SIZES [-- EAL...]\n");
		return 2;
	}
	/* Even lcores on the first CPU, odd ones on the second; the main thread floats. */
	for (int i = 0; i < MAX_THREADS; i++)
		snprintf(lcores + strlen(lcores), sizeof(lcores) - strlen(lcores), "%d@%s,", i, argv[1 + i % 2]);
	snprintf(lcores + strlen(lcores), sizeof(lcores) - strlen(lcores), "%d@(%s,%s)", MAX_THREADS, argv[1], argv[2]);
	snprintf(main_lcore, sizeof(main_lcore), "%d", MAX_THREADS);
	eal[n++] = argv[0];
	eal[n++] = "--lcores";
	eal[n++] = lcores;
	eal[n++] = "--main-lcore";
	eal[n++] = main_lcore;
	for (int i = 6; i < argc && n < 31; i++)
		eal[n++] = argv[i];
	eal[n] = NULL;
	if (rte_eal_init(n, eal) < 0)
		rte_exit(EXIT_FAILURE, "EAL: %s\n", rte_strerror(rte_errno));
	for (char *size = strtok(argv[4], ","); size && caches < MAX_CACHES; size = strtok(NULL, ",")) {
		char name[32];

		snprintf(name, sizeof(name), "pool%u", caches);
		pool = rte_pktmbuf_pool_create_by_ops(name, (unsigned int)atoi(argv[3]), (unsigned int)atoi(size), 0,
						      RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY, "ring_mp_mc");
		if (!pool)
			rte_exit(EXIT_FAILURE, "mbuf pool: %s\n", rte_strerror(rte_errno));
		pools[caches++] = pool;
	}
	if (caches == 0)
		rte_exit(EXIT_FAILURE, "no cache size\n");
	for (int i = 0; i < MAX_THREADS; i++) {
		char name[32];

		snprintf(name, sizeof(name), "ring%d", i);
		rings[i] = rte_ring_create(name, RING_SIZE, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ | RING_F_EXACT_SZ);
		if (!rings[i])
			rte_exit(EXIT_FAILURE, "ring: %s\n", rte_strerror(rte_errno));
	}
	printf("{\"version\": \"%s\"}\n", rte_version());
	fflush(stdout);

	while (fgets(line, sizeof(line), stdin)) {
		unsigned int on[MAX_THREADS], pairs = 1, bulk = 0, threads;
		uint64_t ms = 0;
		char word[16] = "";
		enum mode mode;
		bool one_cpu, alone;

		if (sscanf(line, "cache %u", &bulk) == 1 && bulk < caches) {
			pool = pools[bulk];
			continue;
		}
		if (sscanf(line, "same %u %" SCNu64, &bulk, &ms) == 2) {
			strcpy(word, "same");
		} else if (sscanf(line, "fast %u %" SCNu64, &bulk, &ms) == 2) {
			strcpy(word, "fast");
		} else if (sscanf(line, "forward %u %" SCNu64, &bulk, &ms) == 2) {
			/* Batches fill the descriptors exactly. */
			strcpy(word, bulk > 0 && DESCRIPTORS % bulk == 0 ? "forward" : "");
		} else if (sscanf(line, "local %u %" SCNu64, &bulk, &ms) == 2) {
			strcpy(word, "local");
		} else if (sscanf(line, "%15s %u %u %" SCNu64, word, &pairs, &bulk, &ms) != 4) {
			word[0] = 0;
		}
		mode = !strcmp(word, "same") ? SAME : !strcmp(word, "fast") ? FAST :
		       !strcmp(word, "forward") ? FORWARD : !strcmp(word, "local") ? LOCAL :
		       !strcmp(word, "both") ? BOTH : CROSS;
		one_cpu = !strcmp(word, "onecpu");
		if ((mode == CROSS && !one_cpu && strcmp(word, "cross")) || bulk < 1 || bulk > MAX_BULK || ms < 1 ||
		    pairs < 1 || pairs > MAX_THREADS / 2 || (one_cpu && pairs > MAX_THREADS / 4)) {
			printf("{\"error\": \"no such command\"}\n");
			fflush(stdout);
			continue;
		}
		alone = mode == SAME || mode == FAST || mode == FORWARD || mode == LOCAL;
		threads = alone ? 1 : 2 * pairs;
		memset(workers, 0, sizeof(workers));
		for (unsigned int i = 0; i < threads; i++) {
			struct rte_ring *mine = rings[i], *other = rings[i ^ 1];

			workers[i].mode = mode;
			workers[i].bulk = bulk;
			on[i] = one_cpu ? 2 * i : i;
			if (mode == BOTH) {
				workers[i].out = mine;
				workers[i].in = other;
			} else if (mode == LOCAL) {
				workers[i].out = workers[i].in = mine;
			} else if (!alone && i % 2 == 0) {
				workers[i].out = mine;
			} else if (!alone) {
				workers[i].in = other;
			}
		}
		if (alone)
			on[0] = 1;
		measure(on, threads, ms);
	}
	rte_eal_cleanup();
	return 0;
}
