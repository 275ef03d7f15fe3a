/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * DPDK's rte_ring as a transmit queue: many threads enqueue packets, one drains the ring and is the driver, as softnet-bench
 * measures Softnet.
 *
 * Arguments: THREADS BULK WARM_UP_MS MS DRIVER, then EAL's own after "--".
 * DRIVER: null or copy. Prints one line of JSON: packets sent and received in all, packets received and nanoseconds passed in the
 * measured time, CPU nanoseconds of the process in that time, and two histograms as pairs of bucket and count.
 *
 * Each thread has PACKETS packets of its own, which the drainer gives back through a ring with one producer and one consumer: cheaper
 * than a mempool, whose caches need registered threads.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_malloc.h>
#include <rte_pause.h>
#include <rte_ring.h>

#define MAX_THREADS 4096
#define MAX_BULK 64
#define PACKETS 256
#define FRAME 120
#define BURST 64
/* One call in so many is timed, on average. */
#define SAMPLE 16
/* Looks at an empty ring before the CPU is given away. */
#define SPINS 64
#define SLOTS 256

/* Buckets of at most 1/16 of their value, as in softnet-bench. */
#define FINE 4
#define BUCKETS (((64 - FINE) << FINE) + (1 << FINE))

enum phase { WARMING, MEASURING, STOP };

struct packet {
	/* When it was sent, if it is timed. */
	uint64_t stamp;
	uint32_t owner;
	char data[FRAME];
} __rte_cache_aligned;

struct sender {
	struct rte_ring *home;
	uint32_t number;
	uint64_t sent;
	uint64_t call[BUCKETS];
	struct packet *free[PACKETS];
	unsigned int nfree;
};

static struct rte_ring *ring;
static unsigned int bulk;
static bool copy;
static atomic_int phase;
static atomic_bool senders_done;
static struct sender **senders;
static _Atomic uint64_t received __rte_cache_aligned;
static uint64_t sojourn[BUCKETS];
static double ns_per_tick;

static unsigned int bucket(uint64_t v)
{
	unsigned int e;

	if (v < 1 << FINE)
		return v;
	e = 63 - __builtin_clzll(v);
	return ((e - FINE + 1) << FINE) + ((v >> (e - FINE)) & ((1 << FINE) - 1));
}

static uint64_t ticks_ns(uint64_t ticks)
{
	return (int64_t)ticks < 0 ? 0 : (uint64_t)(ticks * ns_per_tick);
}

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint32_t below(uint32_t *random, uint32_t n)
{
	*random ^= *random << 13;
	*random ^= *random >> 17;
	*random ^= *random << 5;
	return (uint64_t)*random * n >> 32;
}

static void *send(void *arg)
{
	struct sender *s = arg;
	uint32_t random = 0x9E3779B9u ^ (s->number + 1);
	uint32_t countdown = below(&random, 2 * SAMPLE);
	void *batch[MAX_BULK];
	int now;

	while ((now = atomic_load_explicit(&phase, memory_order_relaxed)) != STOP) {
		uint64_t start = 0;

		if (s->nfree < bulk)
			s->nfree += rte_ring_dequeue_burst(s->home, (void **)s->free + s->nfree,
							   PACKETS - s->nfree, NULL);
		if (s->nfree < bulk) {
			sched_yield();
			continue;
		}
		for (unsigned int i = 0; i < bulk; i++) {
			struct packet *p = s->free[--s->nfree];

			p->owner = s->number;
			p->stamp = 0;
			batch[i] = p;
		}
		if (countdown == 0) {
			countdown = below(&random, 2 * SAMPLE);
			start = rte_rdtsc();
			((struct packet *)batch[0])->stamp = start;
		} else {
			countdown--;
		}
		/* The ring has room for all packets there are. */
		if (rte_ring_enqueue_bulk(ring, batch, bulk, NULL) != bulk) {
			fprintf(stderr, "the ring is full\n");
			exit(1);
		}
		s->sent += bulk;
		if (start && now == MEASURING)
			s->call[bucket(ticks_ns(rte_rdtsc() - start))]++;
	}
	return NULL;
}

static void *drain(void *arg)
{
	static char frames[SLOTS][FRAME];
	unsigned int next = 0, empty = 0;
	void *burst[BURST];

	(void)arg;
	for (;;) {
		bool last = atomic_load(&senders_done);
		unsigned int n = rte_ring_dequeue_burst(ring, burst, BURST, NULL);
		bool timed = atomic_load_explicit(&phase, memory_order_relaxed) == MEASURING;

		if (n == 0) {
			if (last)
				return NULL;
			if (++empty < SPINS)
				rte_pause();
			else
				sched_yield();
			continue;
		}
		empty = 0;
		for (unsigned int i = 0; i < n; i++) {
			struct packet *p = burst[i];

			if (copy) {
				char *frame = frames[next++ % SLOTS];

				memcpy(frame, p->data, FRAME);
				__asm__ volatile("" : : "r"(frame) : "memory");
			}
			if (p->stamp && timed)
				sojourn[bucket(ticks_ns(rte_rdtsc() - p->stamp))]++;
		}
		for (unsigned int i = 0, run; i < n; i += run) {
			uint32_t owner = ((struct packet *)burst[i])->owner;

			for (run = 1; i + run < n && ((struct packet *)burst[i + run])->owner == owner; run++)
				;
			rte_ring_enqueue_bulk(senders[owner]->home, burst + i, run, NULL);
		}
		atomic_store_explicit(&received, atomic_load_explicit(&received, memory_order_relaxed) + n,
				      memory_order_relaxed);
	}
}

static void sleep_ms(long ms)
{
	struct timespec t = { ms / 1000, ms % 1000 * 1000000 };

	nanosleep(&t, NULL);
}

static void print_histogram(const char *name, const uint64_t *counts)
{
	const char *comma = "";

	printf(", \"%s\": [", name);
	for (unsigned int i = 0; i < BUCKETS; i++) {
		if (counts[i]) {
			printf("%s[%u, %" PRIu64 "]", comma, i, counts[i]);
			comma = ", ";
		}
	}
	printf("]");
}

static unsigned int power_of_two(unsigned int n)
{
	unsigned int p = 1;

	while (p < n)
		p *= 2;
	return p;
}

int main(int argc, char **argv)
{
	unsigned int threads;
	uint64_t start, cpu, before, delivered, ns, cpu_ns, sent = 0;
	static uint64_t call[BUCKETS];
	pthread_t drainer, *ids;
	pthread_attr_t attr;
	long warm_up, ms;

	if (argc < 7 || strcmp(argv[6], "--")) {
		fprintf(stderr, "usage: dpdk_ring THREADS BULK WARM_UP_MS MS null|copy -- EAL...\n");
		return 2;
	}
	threads = strtoul(argv[1], NULL, 10);
	bulk = strtoul(argv[2], NULL, 10);
	warm_up = strtol(argv[3], NULL, 10);
	ms = strtol(argv[4], NULL, 10);
	copy = !strcmp(argv[5], "copy");
	if (threads < 1 || threads > MAX_THREADS || bulk < 1 || bulk > MAX_BULK || ms < 1 || warm_up < 0) {
		fprintf(stderr, "a number is out of range\n");
		return 2;
	}
	argv[6] = argv[0];
	if (rte_eal_init(argc - 6, argv + 6) < 0) {
		fprintf(stderr, "rte_eal_init: %s\n", rte_strerror(rte_errno));
		return 1;
	}
	ns_per_tick = 1e9 / rte_get_tsc_hz();
	ring = rte_ring_create("queue", power_of_two(threads * PACKETS + 1), SOCKET_ID_ANY,
			       RING_F_MP_HTS_ENQ | RING_F_SC_DEQ);
	senders = calloc(threads, sizeof(*senders));
	ids = calloc(threads, sizeof(*ids));
	if (!ring || !senders || !ids) {
		fprintf(stderr, "no memory for the ring\n");
		return 1;
	}
	for (unsigned int i = 0; i < threads; i++) {
		struct sender *s = senders[i] = aligned_alloc(64, (sizeof(*s) + 63) / 64 * 64);
		struct packet *packets = rte_malloc(NULL, sizeof(*packets) * PACKETS, 64);
		char name[32];

		snprintf(name, sizeof(name), "home-%u", i);
		if (!s || !packets) {
			fprintf(stderr, "no memory for packets\n");
			return 1;
		}
		memset(s, 0, sizeof(*s));
		memset(packets, 0, sizeof(*packets) * PACKETS);
		s->number = i;
		s->home = rte_ring_create(name, 2 * PACKETS, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
		if (!s->home) {
			fprintf(stderr, "no memory for the ring of a sender: %s\n", rte_strerror(rte_errno));
			return 1;
		}
		for (unsigned int k = 0; k < PACKETS; k++)
			s->free[s->nfree++] = &packets[k];
	}
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 128 << 10);
	if (pthread_create(&drainer, &attr, drain, NULL)) {
		fprintf(stderr, "no thread for the drainer\n");
		return 1;
	}
	for (unsigned int i = 0; i < threads; i++) {
		if (pthread_create(&ids[i], &attr, send, senders[i])) {
			fprintf(stderr, "no thread for sender %u\n", i);
			return 1;
		}
	}
	sleep_ms(warm_up);
	start = clock_ns(CLOCK_MONOTONIC);
	cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
	before = atomic_load(&received);
	atomic_store(&phase, MEASURING);
	sleep_ms(ms);
	delivered = atomic_load(&received) - before;
	ns = clock_ns(CLOCK_MONOTONIC) - start;
	cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu;
	atomic_store(&phase, STOP);
	for (unsigned int i = 0; i < threads; i++) {
		pthread_join(ids[i], NULL);
		sent += senders[i]->sent;
		for (unsigned int b = 0; b < BUCKETS; b++)
			call[b] += senders[i]->call[b];
	}
	atomic_store(&senders_done, true);
	pthread_join(drainer, NULL);
	printf("{\"sent\": %" PRIu64 ", \"received\": %" PRIu64 ", \"delivered\": %" PRIu64 ", \"ns\": %" PRIu64
	       ", \"cpu_ns\": %" PRIu64, sent, atomic_load(&received), delivered, ns, cpu_ns);
	print_histogram("call", call);
	print_histogram("sojourn", sojourn);
	printf("}\n");
	return 0;
}
