//! The goals: data, so that nobody chooses after the fact what they are judged by.

/// The reference of a figure.
#[derive(Debug, Clone, Copy)]
pub(super) enum Against {
    /// Another variant with the same parameters; the figure is the ratio.
    Variant(&'static str),
    /// In each round the one of these that has the least.
    Least(&'static [&'static str]),
    /// The same variant with other values of these parameters; `-`: without the parameter.
    Same(&'static [(&'static str, &'static str)]),
    /// Nothing: the figure itself, in this unit (name, size).
    Nothing(&'static str, f64),
    /// Another variant, each less what a third has, which is the generator's own: the ratio.
    Beyond(&'static str, &'static str),
    /// As [`Against::Same`]; the figure is how much more ours is, in this unit.
    MoreThan(&'static [(&'static str, &'static str)], &'static str),
}

/// The bound for the figure.
#[derive(Debug, Clone, Copy)]
pub(super) enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

/// A goal, for all cells at once.
#[derive(Debug)]
pub(super) struct Goal {
    pub(super) experiment: &'static str,
    /// The variant that is judged.
    pub(super) of: &'static str,
    pub(super) metric: &'static str,
    pub(super) against: Against,
    pub(super) bound: Bound,
    /// The cells: every combination of these values, each one cell. `-` is a row without this
    /// parameter; names and values with commas go together. More than these are measured in
    /// sweeps: all of these have to be in an hour.
    pub(super) at: &'static [(&'static str, &'static [&'static str])],
    /// In words, if there is something to say.
    pub(super) note: &'static str,
}

use Against::{Beyond, Least, MoreThan, Nothing, Same, Variant};
use Bound::{AtLeast, AtMost};

use crate::report::OURS;

type At = (&'static str, &'static [&'static str]);

const QDISCS: At = ("qdisc", &["pfifo", "fq"]);
const DRIVERS: At = ("driver", &["null", "copy"]);
const SINGLE: At = ("bulk", &["1"]);
const LISTS: At = ("bulk", &["32"]);
const FULL: At = ("load", &["-"]);
const LOADS: At = ("load", &["50%", "80%"]);
const ONE: At = ("threads", &["1"]);
const TWO: At = ("threads", &["2"]);
const EIGHT: At = ("threads", &["8"]);
const FEW: At = ("threads", &["2", "8"]);
const TO_8: At = ("threads", &["1", "2", "8"]);
const ALLOCATORS: &[&str] = &["malloc", "jemalloc", "mimalloc", "snmalloc"];
const BULKS: At = ("bulk", &["1", "8", "32"]);
const WAYS: At = ("path", &["one-way", "both-ways"]);
const FLOWS: At = ("flows", &["1", "16", "200"]);
const PFIFO_FAST: At = ("qdisc", &["pfifo_fast"]);
const BURNERS: &[At] = &[("case", &["busy-host"]), ("load", &["burners"])];
const BURNERS_TCP: &[At] = &[
    ("case", &["busy-host"]),
    ("load", &["burners"]),
    ("mss", &["-", "400"]),
];
const LOADED: &[At] = &[("case", &["load"])];
const BATCH: &[At] = &[("case", &["batch"]), ("classes", &["10000"])];
const ROOT: At = ("parent", &["root"]);
#[rustfmt::skip]
const ELSEWHERE: At = (
    "path,threads,bulk",
    &[
        "one-way,2,1", "one-way,2,8", "one-way,2,32", "one-way,8,1", "one-way,8,32",
        "both-ways,2,1", "both-ways,2,8", "both-ways,2,32", "both-ways,8,1", "both-ways,8,32",
        "sleeping,2,1", "sleeping,2,8", "sleeping,2,32", "sleeping,8,1",
    ],
);
#[rustfmt::skip]
const SLEEPING: At = (
    "path,threads,bulk",
    &["sleeping,2,1", "sleeping,2,8", "sleeping,2,32", "sleeping,8,1"],
);
const HERE: At = ("path,threads", &["one-cpu,2", "one-thread,1"]);
const RR: At = ("case", &["rr"]);
const TAP_RR: At = ("case", &["tap-rr"]);
const WEB: &[At] = &[("case", &["web"]), ("connections", &["16", "64", "1024"])];
const HTB: At = ("qdisc", &["htb"]);
const ONE_CORE: At = ("case", &["one-core"]);
const WAITING: At = ("waiting", &["0", "2"]);
const COPY: &[At] = &[("case", &["copy"]), ("threads", &["2", "8", "60"])];
const WORK: At = ("service_ns", &["0", "1000"]);
const KINDS: At = ("case", &["kinds"]);
const HOOKS: At = ("case", &["hooks"]);
const F: Against = Same(&[
    ("case", "kinds"),
    ("qdisc", "fq_codel"),
    ("filters", "-"),
    ("threads", "-"),
]);
const SHAPERS: At = ("qdisc", &["tbf", "htb"]);
const UNLIMITED: At = ("case", &["unlimited"]);
const UNLOADED: &[At] = &[UNLIMITED, ONE, SHAPERS];
const RINGS: At = ("ring", &["split", "packed"]);
const SPLIT: At = ("ring", &["split"]);
const PACKED: At = ("ring", &["packed"]);
const REFLECT: At = ("path", &["reflect"]);
const SWITCH: At = ("path", &["switch"]);
const TWO_VMS: At = ("path", &["two-vms"]);
#[rustfmt::skip]
const HOSTILE: &[At] = &[
    ("path", &["hostile"]),
    (
        "attack",
        &[
            "loop", "index-runs", "long-chains", "kicks", "broadcasts", "tiny-buffers",
            "link-flaps", "reconnects",
        ],
    ),
];
const PATHS: At = ("path", &["reflect", "switch", "two-vms"]);
const PFIFO: &[(&str, &str)] = &[("qdisc", "pfifo"), ("classes", "-")];
const EQUAL_LOAD: &[At] = &[("case", &["load"]), ("load", &["10%", "50%", "90%"])];
const VETH: &[At] = &[("case", &["veth"]), ("mss", &["-", "400"])];
const VETH_UDP: &[At] = &[("case", &["veth"]), ("payload", &["64"])];

/// A goal of [`GOALS`].
const fn goal(
    experiment: &'static str,
    metric: &'static str,
    against: Against,
    bound: Bound,
    at: &'static [At],
    note: &'static str,
) -> Goal {
    Goal {
        experiment,
        of: OURS,
        metric,
        against,
        bound,
        at,
        note,
    }
}

/// The same of another variant than `softnet`.
const fn of(variant: &'static str, goal: Goal) -> Goal {
    Goal {
        of: variant,
        ..goal
    }
}

#[rustfmt::skip] // A table.
pub(super) const GOALS: &[Goal] = &[
    // tx-adopt
    goal("tx-adopt", "mpps", Variant("mutex"), AtLeast(0.95),
        &[ONE, QDISCS, DRIVERS, ("bulk", &["1", "32"]), FULL], "one thread: nobody else is there"),
    goal("tx-adopt", "mpps", Variant("mutex"), AtLeast(1.3),
        &[FEW, QDISCS, DRIVERS, SINGLE, FULL], "2 threads on 2 CPUs is the headline"),
    goal("tx-adopt", "mpps", Variant("mutex"), AtLeast(1.1),
        &[TWO, QDISCS, ("driver", &["null"]), LISTS, FULL], "lists of 32"),
    goal("tx-adopt", "mpps", Variant("mutex"), AtLeast(0.95),
        &[TWO, QDISCS, ("driver", &["copy"]), LISTS, FULL], "lists of 32"),
    goal("tx-adopt", "mpps", Variant("mutex"), AtLeast(0.95),
        &[EIGHT, QDISCS, DRIVERS, LISTS, FULL], "lists of 32"),
    goal("tx-adopt", "sojourn_p999_ns", Variant("mutex"), AtMost(1.2),
        &[FEW, QDISCS, DRIVERS, SINGLE, FULL], "from the push to the driver, flat out"),
    goal("tx-adopt", "latency_p999_ns", Beyond("mutex", "private"), AtMost(1.2),
        &[TO_8, QDISCS, ("driver", &["copy"]), SINGLE, LOADS],
        "from the time at which the packet was due; of what the slower of the two can do flat \
         out; `private` is the generator's own floor"),
    goal("tx-adopt", "p999_ns", Beyond("mutex", "private"), AtMost(1.2),
        &[TO_8, QDISCS, ("driver", &["copy"]), SINGLE, LOADS], "of the transmit call"),
    goal("tx-adopt", "mpps", Variant("busylock"), AtLeast(1.0),
        &[TO_8, QDISCS, DRIVERS, LISTS, FULL], "lists of 32; with more threads it stands still"),
    goal("tx-adopt", "cpu_s_per_mpkt", Variant("busylock"), AtMost(0.5),
        &[EIGHT, QDISCS, DRIVERS, SINGLE, FULL], ""),
    goal("tx-adopt", "mpps", Variant("dpdk-hts"), AtLeast(2.0),
        &[EIGHT, ("qdisc", &["pfifo"]), DRIVERS, SINGLE, FULL], "it has no qdisc"),
    goal("tx-adopt", "mpps", Same(&[("bulk", "1")]), AtLeast(4.0),
        &[FEW, QDISCS, DRIVERS, LISTS, FULL], "lists of 32 against single packets"),
    goal("tx-adopt", "mpps", Variant("mutex"), AtLeast(1.0),
        &[FEW, ("driver", &["refuse"])], "a ring that refuses every 8th batch"),
    goal("tx-adopt", "mpps", Variant("busylock"), AtLeast(1.0),
        &[FEW, ("driver", &["refuse"])], "a ring that refuses every 8th batch"),
    // nolock-qdisc
    goal("nolock-qdisc", "mpps", Variant("locked"), AtLeast(1.0),
        &[TO_8, ("qdisc", &["pfifo_fast", "tbf", "prio", "fq", "fq_codel"]), ROOT],
        "every qdisc, not only those that were written for it"),
    goal("nolock-qdisc", "mpps", Variant("locked"), AtLeast(1.0),
        &[FEW, PFIFO_FAST, ("parent", &["mq"]), ("queues", &["2", "4", "8"])], "below mq"),
    goal("nolock-qdisc", "mpps", Variant("rings"), AtLeast(1.0),
        &[TO_8, PFIFO_FAST, ("parent,queues", &["root,1", "mq,2"])],
        "adoption took the place of the kernel's rings"),
    goal("nolock-qdisc", "mpps", Variant("locked"), AtLeast(1.0),
        &[("case", &["flows"]), ("qdisc,flows", &["fq,100", "fq,100000", "fq_codel,1024"])],
        "one thread"),
    goal("nolock-qdisc", "mpps", Same(&[("flows", "100"), ("active", "100")]), AtLeast(0.5),
        &[("case", &["flows"]), ("qdisc", &["fq"]), ("flows", &["100000"])],
        "10,000 of 100,000 flows against 100"),
    goal("nolock-qdisc", "ns_per_packet", Same(&[("qdisc", "fq_codel")]), AtMost(1.0 / 0.5),
        &[KINDS, ("qdisc", &["sfq", "drr", "ets", "red", "qfq", "pie"])], "1,024 flows"),
    goal("nolock-qdisc", "ns_per_packet", Same(&[("qdisc", "fq_codel")]), AtMost(1.0 / 0.35),
        &[KINDS, ("qdisc", &["fq_pie", "dualpi2", "hfsc"])], "1,024 flows"),
    goal("nolock-qdisc", "ns_per_packet", Same(&[("qdisc", "fq_codel")]), AtMost(1.0 / 0.3),
        &[KINDS, ("qdisc", &["netem"])], "10 ms of delay, 1 % of loss"),
    goal("nolock-qdisc", "ns_per_packet", Same(&[("qdisc", "fq_codel")]), AtMost(1.0 / 0.25),
        &[KINDS, ("qdisc", &["cake"])], "1,024 flows"),
    goal("nolock-qdisc", "ns_per_packet", F, AtMost(1.8),
        &[HOOKS, ("qdisc", &["flower"]), ("filters", &["100"])],
        "100 filters of one mask, by fq_codel's time a packet"),
    goal("nolock-qdisc", "ns_per_packet", F, AtMost(5.0),
        &[HOOKS, ("qdisc", &["flower"]), ("filters", &["10000"])],
        "10,000 filters of one mask, by fq_codel's time a packet"),
    goal("nolock-qdisc", "ns_per_packet", F, AtMost(0.9),
        &[HOOKS, ("qdisc", &["police"]), ONE], "by fq_codel's time a packet"),
    goal("nolock-qdisc", "mpps", Same(&[("threads", "1")]), AtLeast(1.8),
        &[HOOKS, ("qdisc", &["police"]), TWO], "two threads through one police"),
    goal("nolock-qdisc", "mpps", Variant("dpdk-sched"), AtLeast(1.5),
        &[ONE_CORE, HTB, ("classes", &["1024"]), WAITING], "1024 classes against 1024 pipes"),
    goal("nolock-qdisc", "mpps", Variant("dpdk-sched"), AtLeast(2.0),
        &[ONE_CORE, HTB, ("classes", &["10"]), WAITING], "10 classes against 10 pipes"),
    goal("nolock-qdisc", "mpps", Variant("mutex"), AtLeast(1.3),
        &[("case", &["htb"]), TWO, HTB, ("classes", &["10", "1024"]), ("bulk", &["1", "32"])],
        "two senders into one queue"),
    goal("nolock-qdisc", "mpps", Variant("mutex"), AtLeast(1.0), COPY, "30 queues"),
    goal("nolock-qdisc", "mpps", Variant("busylock"), AtLeast(1.8), COPY, "30 queues"),
    goal("nolock-qdisc", "mpps", Variant("spin-adopt"), AtLeast(1.0), COPY,
        "30 queues; the report's own algorithm"),
    goal("nolock-qdisc", "p999_ns", Variant("mutex"), AtMost(1.2), COPY, "of the call"),
    goal("nolock-qdisc", "rps", Variant("ovs-tso"), AtLeast(1.2), WEB, ""),
    goal("nolock-qdisc", "rps", Variant("kernel-bridge"), AtLeast(0.8), WEB, ""),
    of("lockless", goal("nolock-qdisc", "rps", Variant("locked"), AtLeast(1.0), WEB,
        "the same plain switch, whose threads share a port's queue by adoption or by a lock")),
    // bulk-free
    goal("bulk-free", "ns_per_packet", Variant("dpdk-fast-free"), AtMost(0.8),
        &[("path", &["-"]), ("bulk", &["1"])], "with its best cache"),
    goal("bulk-free", "ns_per_packet", Variant("dpdk-fast-free"), AtMost(0.9),
        &[("path", &["-"]), ("bulk", &["8"])], "with its best cache"),
    goal("bulk-free", "ns_per_packet", Variant("dpdk-fast-free"), AtMost(1.0),
        &[("path", &["-"]), ("bulk", &["32"])], "with its best cache"),
    goal("bulk-free", "ns_per_packet", Variant("dpdk"), AtMost(1.2),
        &[("path", &["forward"]), ("bulk", &["32"])], "the forwarding loop"),
    goal("bulk-free", "ns_per_packet", Variant("per-packet"), AtMost(1.0),
        &[("path", &["forward"]), ("bulk", &["32"])], "the same loop packet by packet"),
    // defer-free
    goal("defer-free", "ns_per_packet", Variant("no-defer"), AtMost(1.0),
        &[ELSEWHERE],
        "the same pool without it, where packets are freed elsewhere"),
    goal("defer-free", "ns_per_packet", Variant("no-defer"), AtMost(1.02),
        &[HERE, BULKS], "where it has nothing to do"),
    goal("defer-free", "ns_per_packet", Variant("dpdk"), AtMost(0.5),
        &[WAYS, TWO, BULKS], ""),
    goal("defer-free", "ns_per_packet", Least(ALLOCATORS), AtMost(0.33),
        &[WAYS, TWO, BULKS], "the best general allocator"),
    goal("defer-free", "ns_per_packet", Variant("depot"), AtMost(0.5),
        &[("path", &["one-way"]), TWO, BULKS], ""),
    goal("defer-free", "wakes_per_packet", Nothing("a packet", 1.0), AtMost(1.0 / 64.0),
        &[SLEEPING], "no storm of wake-ups"),
    // backlog
    goal("backlog", "wakes_per_ktrans", Variant("snapshot"), AtMost(0.75),
        &[RR, FLOWS, WORK], "the older loop with the same busy polling"),
    goal("backlog", "p99_ns", Variant("snapshot"), AtMost(1.0), &[RR, FLOWS, WORK],
        "the older loop with the same busy polling"),
    of("no-poll", goal("backlog", "wakes_per_ktrans", Variant("snapshot-no-poll"), AtMost(0.75),
        &[RR, FLOWS, WORK], "the report's change alone")),
    of("no-poll", goal("backlog", "tps", Variant("snapshot-no-poll"), AtLeast(1.016),
        &[RR, FLOWS, WORK], "the report's change alone: 1.468 to 1.492 million a second there")),
    of("no-poll", goal("backlog", "tps", Variant("snapshot-no-poll"), AtLeast(1.016),
        &[TAP_RR], "the report's change alone, between sockets")),
    of("no-poll", goal("backlog", "p99_us", Variant("snapshot-no-poll"), AtMost(1.0),
        &[TAP_RR], "the report's change alone, between sockets")),
    goal("backlog", "mpps", Variant("crossbeam"), AtLeast(1.0),
        &[("case", &["flood"]), ("bulk", &["1", "32"]), ("cpus", &["any", "apart"]), EIGHT],
        "the best channel"),
    // switch
    goal("switch", "tcp_gbps", Variant("ovs-tso"), AtLeast(1.0),
        &[("case", &["-"]), ("mss", &["-", "400"])], "one connection"),
    goal("switch", "tcp_gbps", Variant("ovs"), AtLeast(5.0),
        &[("case", &["-"]), ("mss", &["-"])], "one connection, against the stock build"),
    goal("switch", "udp_pps", Variant("ovs"), AtLeast(1.8),
        &[("generator", &["iperf3", "sendmmsg"]), ("payload", &["64"])], ""),
    goal("switch", "udp_pps", Variant("kernel-bridge"), AtLeast(1.0),
        &[("generator", &["sendmmsg"]), ("payload", &["64"])], ""),
    goal("switch", "ping_mean_us", Variant("ovs"), AtMost(0.8), &[("case", &["-"])], "idle"),
    goal("switch", "gbps", Variant("ovs-tso"), AtLeast(5.0), &[("case", &["many-clients"])],
        "200 senders"),
    goal("switch", "gbps", Variant("kernel-bridge"), AtLeast(0.55),
        &[("case", &["many-clients"])], "200 senders"),
    goal("switch", "connections_per_s", Variant("ovs-tso"), AtLeast(1.0),
        &[("case", &["churn"])], "short connections"),
    goal("switch", "connections_per_s", Variant("kernel-bridge"), AtLeast(1.0),
        &[("case", &["churn"])], "short connections"),
    goal("switch", "idle_cpu_share", Nothing("of a CPU", 1.0), AtMost(0.01),
        &[("case", &["many-ports"]), ("hosts", &["2", "50"])], "an idle daemon"),
    goal("switch", "rate_error_percent", Nothing("%", 1.0), AtMost(1.0),
        &[("case", &["policy"]), ("qdisc", &["tbf"]), ("rate", &["100mbit"])],
        "by the unmodified tc, over 1.5 s"),
    goal("switch", "cpu_s_per_mpkt", Variant("ovs-tso"), AtMost(1.0), EQUAL_LOAD,
        "the same datagrams offered to both"),
    goal("switch", "cpu_s_per_gbit", Variant("ovs-tso"), AtMost(1.0),
        &[("case", &["load"]), ("offered_gbps", &["1"])], "the same TCP offered to both"),
    goal("switch", "tcp_gbps", Variant("loop"), AtLeast(1.15), VETH, "af_packet"),
    goal("switch", "udp_pps", Variant("loop"), AtLeast(2.0), VETH_UDP, "af_packet"),
    goal("switch", "tcp_gbps", Variant("ovs-tso"), AtLeast(1.0), VETH, "af_packet"),
    goal("switch", "udp_pps", Variant("ovs-tso"), AtLeast(1.0), VETH_UDP, "af_packet"),
    goal("switch", "tcp_gbps", Variant("ovs-tso"), AtLeast(1.0), BURNERS_TCP, "beside burners"),
    goal("switch", "tcp_gbps", Variant("kernel-bridge"), AtLeast(0.85), BURNERS_TCP,
        "beside burners"),
    goal("switch", "udp_pps", Variant("ovs-tso"), AtLeast(1.0), BURNERS, "beside burners"),
    goal("switch", "udp_pps", Variant("kernel-bridge"), AtLeast(0.85), BURNERS,
        "beside burners"),
    goal("switch", "ping_p99_us", Nothing("µs", 1.0), AtMost(1000.0), BURNERS,
        "beside burners"),
    goal("switch", "ping_mean_us", Variant("ovs-tso"), AtMost(0.5),
        &[("case", &["busy-host"]), ("load", &["tcp"])], "beside one TCP stream"),
    goal("switch", "burner_share", Variant("kernel-bridge"), AtLeast(1.0),
        &[("case", &["busy-host"]), ("load", &["flood"])],
        "a program beside a flood of small packets"),
    goal("switch", "start_ms", Variant("ovs"), AtMost(0.2), &[("case", &["-"])], ""),
    // control
    goal("control", "lost", Nothing("packets", 1.0), AtMost(0.0), LOADED, ""),
    goal("control", "tcp_gbps", Variant("burn"), AtLeast(0.97), LOADED,
        "the same program beside as much CPU time burnt"),
    goal("control", "dumps_per_s", Nothing("a second", 1.0), AtLeast(99.0), LOADED, ""),
    goal("control", "changes_per_s", Nothing("a second", 1.0), AtLeast(990.0), LOADED, ""),
    goal("control", "batch_ms", Variant("kernel"), AtMost(2.0), BATCH, "10,000 htb classes"),
    goal("control", "show_ms", Nothing("ms", 1.0), AtMost(1000.0), BATCH, "shown"),
    goal("control", "qdisc_ms", Nothing("ms", 1.0), AtMost(20.0), BATCH, "`tc -s qdisc show`"),
    goal("control", "memory_mb", Nothing("MB", 1.0), AtMost(100.0),
        &[("case", &["memory"]), ("leaf", &["fq_codel"])],
        "10,000 classes with such a leaf each, on two queues, idle"),
    goal("control", "memory_mb", Nothing("MB", 1.0), AtMost(200.0),
        &[("case", &["memory"]), ("leaf", &["cake"])],
        "10,000 classes with such a leaf each, on two queues, idle"),
    // all-cores
    goal("all-cores", "mpps", Same(&[("threads", "1"), ("queues", "1")]), AtLeast(1.8),
        &[UNLIMITED, TWO, ("qdisc", &["tbf", "htb", "cake"])],
        "two queues and threads against one of each"),
    goal("all-cores", "mpps", Variant("private"), AtLeast(0.9), &[UNLIMITED, TWO, SHAPERS],
        "shared rates against rates of each queue"),
    goal("all-cores", "rate_error_beyond_frame_percent", Nothing("%", 1.0), AtMost(0.2),
        &[("case", &["rate"]), SHAPERS, ("rate_mbps", &["10", "1000", "100000"])],
        "over 1 s after the burst"),
    goal("all-cores", "rate_error_beyond_frame_percent", Nothing("%", 1.0), AtMost(0.2),
        &[("case", &["rate"]), ("qdisc", &["cake"]), ("rate_mbps", &["1000"])],
        "over 1 s after the burst"),
    goal("all-cores", "skew_percent", Nothing("%", 1.0), AtLeast(99.0),
        &[("case", &["skew"]), ("qdisc", &["tbf", "htb", "cake"])],
        "all traffic on one of the queues"),
    goal("all-cores", "rate_percent", Nothing("%", 1.0), AtLeast(97.0),
        &[("case", &["on-off"]), SHAPERS], "on and off every 1 to 50 ms"),
    goal("all-cores", "fairness_percent", Nothing("%", 1.0), AtMost(5.0),
        &[("case", &["fair"]), SHAPERS,
            ("leaf", &["fq", "fq_codel"]), ("flows", &["7:1", "1000:10"])],
        "over 1 s"),
    goal("all-cores", "fairness_percent", Nothing("%", 1.0), AtMost(5.0),
        &[("case", &["taps"]), ("rate_mbps", &["1000"])], "of TCP connections over 1 s"),
    goal("all-cores", "tcp_gbps", Variant("adopt"), AtLeast(1.0),
        &[("case", &["taps"]), ("rate_mbps", &["none"])], "two instances against one"),
    goal("all-cores", "sojourn_p50_ns", MoreThan(PFIFO, "ns"), AtMost(1000.0), UNLOADED,
        "an unloaded shaper against pfifo"),
    goal("all-cores", "sojourn_p99_ns", MoreThan(PFIFO, "ns"), AtMost(1000.0), UNLOADED,
        "an unloaded shaper against pfifo"),
    // vhost-user
    goal("vhost-user", "mpps", Variant("dpdk-vhost"), AtLeast(1.2), &[REFLECT, SPLIT],
        "the driver alone, against DPDK's own back end"),
    goal("vhost-user", "mpps", Variant("dpdk-vhost"), AtLeast(1.0), &[REFLECT, PACKED],
        "the driver alone, against DPDK's own back end"),
    goal("vhost-user", "mpps", Variant("dpdk-vhost"), AtLeast(1.0), &[SWITCH, RINGS],
        "a bridge and a qdisc, against reflecting"),
    goal("vhost-user", "mpps", Variant("dpdk-vhost"), AtLeast(1.1), &[TWO_VMS, SPLIT],
        "a bridge and a qdisc, against forwarding between two ports"),
    goal("vhost-user", "mpps", Variant("dpdk-vhost"), AtLeast(1.0), &[TWO_VMS, PACKED],
        "a bridge and a qdisc, against forwarding between two ports"),
    goal("vhost-user", "mpps", Variant("ovs"), AtLeast(1.0), &[TWO_VMS, RINGS],
        "a bridge each"),
    goal("vhost-user", "mpps", Same(&[("ring", "split")]), AtLeast(1.0), &[PATHS, PACKED],
        "packed rings against split ones"),
    goal("vhost-user", "mpps", Variant("equal-load"), AtLeast(0.95), HOSTILE,
        "what others get beside each attack, against an equal load"),
    goal("vhost-user", "mpps", Variant("unloaded"), AtLeast(0.567), HOSTILE,
        "against nobody: the attacker's port takes a third of the worker, as one of three, and a \
         tenth more"),
    goal("vhost-user", "mpps", Same(&[("threads", "1")]), AtLeast(0.8),
        &[("case", &["senders"]), ("threads", &["64"])],
        "64 senders into one virtual queue against one"),
    goal("vhost-user", "mpps", Variant("no-defer"), AtLeast(1.0),
        &[("case", &["vms"]), ("vms", &["2", "8"]), ("steering", &["none", "rps"])],
        "the same without deferral"),
];

#[cfg(test)]
mod tests {
    use super::super::results::Results;
    use super::super::verdict::Verdict;
    use super::*;
    use crate::report::{Collector, Param};
    use crate::{all_cores, nolock_qdisc, vhost_user};

    /// Judges all goals of an experiment with figures for every variant in every cell.
    fn every_cell_is_measured(experiment: &str, measured: &[Vec<Param>], fields: &[&'static str]) {
        let mut results = Collector::default();
        let variants = [
            OURS,
            "locked",
            "rings",
            "mutex",
            "busylock",
            "dpdk-sched",
            "private",
            "dpdk-vhost",
            "equal-load",
            "no-defer",
            "ovs",
            "ovs-tso",
            "kernel-bridge",
            "spin-adopt",
            "adopt",
            "unloaded",
        ];
        for params in measured {
            for variant in variants {
                let fields: Vec<_> = fields.iter().map(|name| (*name, 1.0)).collect();
                results.add(variant, params, &fields);
            }
        }
        let results = Results::parse(&results.report(experiment)).expect("a report");
        let own = |goal: &&Goal| goal.experiment == experiment && fields.contains(&goal.metric);
        assert!(GOALS.iter().any(|goal| own(&goal)));
        for goal in GOALS.iter().filter(own) {
            let verdict = Verdict::of(goal, &results);
            let figures = verdict.cells.iter().map(|cell| &cell.figure);
            figures.for_each(|figure| assert!(figure.is_ok(), "{}: {figure:?}", goal.note));
        }
    }

    /// A goal asked for one queue below `mq`, which no variant has: it was never met, whatever was
    /// measured.
    #[test]
    fn every_cell_that_nolock_goals_are_about_is_measured() {
        let fields = ["mpps", "p999_ns", "ns_per_packet"];
        every_cell_is_measured("nolock-qdisc", &nolock_qdisc::measured(), &fields);
    }

    #[test]
    fn every_cell_that_goals_of_all_cores_are_about_is_measured() {
        let fields = [
            "mpps",
            "sojourn_p50_ns",
            "sojourn_p99_ns",
            "rate_error_beyond_frame_percent",
            "skew_percent",
            "rate_percent",
            "fairness_percent",
            "tcp_gbps",
        ];
        every_cell_is_measured("all-cores", &all_cores::measured(), &fields);
    }

    #[test]
    fn every_cell_that_goals_of_vhost_user_are_about_is_measured() {
        every_cell_is_measured("vhost-user", &vhost_user::measured(), &["mpps"]);
    }
}
