//! The goals: data, so that nobody chooses after the fact what they are judged by.

use crate::report::OURS;

/// What a figure is compared with.
#[derive(Debug, Clone, Copy)]
pub(super) enum Against {
    /// Another variant with the same parameters; the figure is the ratio.
    Variant(&'static str),
    /// In each round the one of these that has the least.
    Least(&'static [&'static str]),
    /// The same variant with other values of these parameters.
    Same(&'static [(&'static str, &'static str)]),
    /// Nothing: the figure itself, in this unit (name, size).
    Nothing(&'static str, f64),
    /// Another variant; the figure is how much less ours is.
    LessThan(&'static str, &'static str),
}

/// What the figure must be.
#[derive(Debug, Clone, Copy)]
pub(super) enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

/// A goal, for all cells at once.
#[derive(Debug)]
pub(super) struct Goal {
    pub(super) experiment: &'static str,
    pub(super) metric: &'static str,
    pub(super) against: Against,
    pub(super) bound: Bound,
    /// The cells: every combination of these values. `-` is a row without this parameter; of
    /// parameters that are not here, whatever rows have.
    pub(super) at: &'static [(&'static str, &'static [&'static str])],
    /// In words, if there is something to say.
    pub(super) note: &'static str,
}

/// Whose goals they are.
pub(super) const WHOSE: &str = OURS;

use Against::{Least, LessThan, Nothing, Same, Variant};
use Bound::{AtLeast, AtMost};

const QDISCS: (&str, &[&str]) = ("qdisc", &["pfifo", "fq"]);
const DRIVERS: (&str, &[&str]) = ("driver", &["null", "copy"]);
const ALL: (&str, &[&str]) = ("threads", &["1", "2", "8", "64", "240"]);
const FEW: (&str, &[&str]) = ("threads", &["2", "8"]);
const MANY: (&str, &[&str]) = ("threads", &["64", "240"]);
const SINGLE: (&str, &[&str]) = ("bulk", &["1"]);
const FULL: (&str, &[&str]) = ("load", &["-"]);
const ONE_QUEUE: (&str, &[&str]) = ("queues", &["-"]);
const ALLOCATORS: &[&str] = &["malloc", "jemalloc", "mimalloc", "snmalloc"];
const BULKS: (&str, &[&str]) = ("bulk", &["1", "2", "4", "8", "16", "32"]);
const WAYS: (&str, &[&str]) = ("path", &["one-way", "both-ways"]);
const FLOWS: (&str, &[&str]) = ("flows", &["1", "16", "200"]);
const WORK: (&str, &[&str]) = ("service_ns", &["0", "1000"]);

pub(super) const GOALS: &[Goal] = &[
    Goal {
        experiment: "tx-adopt",
        metric: "mpps",
        against: Variant("mutex"),
        bound: AtLeast(1.3),
        at: &[FEW, QDISCS, DRIVERS, SINGLE, ONE_QUEUE, FULL],
        note: "2 threads on 2 CPUs is the headline",
    },
    Goal {
        experiment: "tx-adopt",
        metric: "mpps",
        against: Variant("mutex"),
        bound: AtLeast(0.8),
        at: &[MANY, QDISCS, DRIVERS, SINGLE, ONE_QUEUE, FULL],
        note: "oversubscription: more threads than CPUs",
    },
    Goal {
        experiment: "tx-adopt",
        metric: "drops",
        against: Nothing("packets", 1.0),
        bound: AtMost(0.0),
        at: &[MANY, QDISCS, DRIVERS, SINGLE, ONE_QUEUE, FULL],
        note: "with the default burst limit",
    },
    Goal {
        experiment: "tx-adopt",
        metric: "sojourn_p999_ns",
        against: Nothing("µs", 1e3),
        bound: AtMost(50.0),
        at: &[FEW, QDISCS, DRIVERS, SINGLE, ONE_QUEUE, FULL],
        note: "from the push to the driver",
    },
    Goal {
        experiment: "tx-adopt",
        metric: "sojourn_p999_ns",
        against: Variant("mutex"),
        bound: AtMost(0.2),
        at: &[MANY, QDISCS, DRIVERS, SINGLE, ONE_QUEUE, FULL],
        note: "",
    },
    Goal {
        experiment: "tx-adopt",
        metric: "latency_p999_ns",
        against: Variant("mutex"),
        bound: AtMost(1.0),
        at: &[
            ALL,
            QDISCS,
            DRIVERS,
            SINGLE,
            ONE_QUEUE,
            ("load", &["50%", "80%"]),
        ],
        note: "from the time at which the packet was due; of what the slower of the two can do \
               flat out",
    },
    Goal {
        experiment: "tx-adopt",
        metric: "p999_ns",
        against: Variant("mutex"),
        bound: AtMost(1.0),
        at: &[
            ALL,
            QDISCS,
            DRIVERS,
            SINGLE,
            ONE_QUEUE,
            ("load", &["-", "50%", "80%"]),
        ],
        note: "of the transmit call",
    },
    Goal {
        experiment: "tx-adopt",
        metric: "mpps",
        against: Variant("busylock"),
        bound: AtLeast(1.0),
        at: &[ALL, QDISCS, DRIVERS, ("bulk", &["32"]), ONE_QUEUE, FULL],
        note: "chains of 32",
    },
    Goal {
        experiment: "tx-adopt",
        metric: "mpps",
        against: Variant("busylock"),
        bound: AtLeast(1.8),
        at: &[
            ("threads", &["60", "240"]),
            ("qdisc", &["fq"]),
            ("driver", &["copy"]),
            SINGLE,
            ("queues", &["30"]),
            FULL,
        ],
        note: "the shape of the report that the mechanism is known by: 30 queues, fq, a driver \
               that works (16 to 29 million packets/s there)",
    },
    Goal {
        experiment: "nolock-qdisc",
        metric: "mpps",
        against: Variant("locked"),
        bound: AtLeast(1.24),
        at: &[
            ("threads", &["1"]),
            ("qdisc", &["pfifo_fast"]),
            ("parent", &["root"]),
        ],
        note: "2.1 to 2.6 million packets/s in the report",
    },
    Goal {
        experiment: "nolock-qdisc",
        metric: "mpps",
        against: Variant("locked"),
        bound: AtLeast(3.0),
        at: &[
            ("threads", &["8"]),
            ("qdisc", &["pfifo_fast"]),
            ("parent", &["root"]),
        ],
        note: "",
    },
    Goal {
        experiment: "nolock-qdisc",
        metric: "mpps",
        against: Variant("locked"),
        bound: AtLeast(1.0),
        at: &[
            ("threads", &["1", "2", "8", "64"]),
            ("qdisc", &["pfifo_fast", "tbf", "prio"]),
            ("parent", &["root"]),
        ],
        note: "every qdisc, not only those that were written for it",
    },
    Goal {
        experiment: "nolock-qdisc",
        metric: "mpps",
        against: Variant("rings"),
        bound: AtLeast(1.0),
        at: &[
            ("threads", &["1", "2", "8", "64"]),
            ("qdisc", &["pfifo_fast"]),
            ("parent", &["root", "mq"]),
        ],
        note: "adoption took the place of the kernel's rings",
    },
    Goal {
        experiment: "nolock-qdisc",
        metric: "mpps",
        against: Same(&[("parent", "root"), ("queues", "1")]),
        bound: AtLeast(1.9),
        at: &[
            ("threads", &["2"]),
            ("qdisc", &["pfifo_fast"]),
            ("parent", &["mq"]),
            ("queues", &["2"]),
        ],
        note: "two queues below mq against one at the root, two threads",
    },
    Goal {
        experiment: "nolock-qdisc",
        metric: "rps",
        against: Variant("ovs"),
        bound: AtLeast(3.0),
        at: &[
            ("case", &["web"]),
            ("connections", &["16", "32", "64", "1024"]),
        ],
        note: "",
    },
    Goal {
        experiment: "nolock-qdisc",
        metric: "rps",
        against: Variant("kernel-bridge"),
        bound: AtLeast(0.7),
        at: &[
            ("case", &["web"]),
            ("connections", &["16", "32", "64", "1024"]),
        ],
        note: "",
    },
    Goal {
        experiment: "bulk-free",
        metric: "ns_per_packet",
        against: Variant("dpdk"),
        bound: AtMost(0.5),
        at: &[("path", &["-"]), ("bulk", &["1", "8", "32"])],
        note: "",
    },
    Goal {
        experiment: "bulk-free",
        metric: "ns_per_packet",
        against: LessThan("per-packet", "ns"),
        bound: AtLeast(11.0),
        at: &[("path", &["forward"]), ("bulk", &["32"])],
        note: "what it gave in the report",
    },
    Goal {
        experiment: "defer-free",
        metric: "ns_per_packet",
        against: Variant("no-defer"),
        bound: AtMost(1.0),
        at: &[("path", &["one-way", "both-ways", "sleeping"])],
        note: "the same pool without it, where packets are freed elsewhere",
    },
    Goal {
        experiment: "defer-free",
        metric: "ns_per_packet",
        against: Variant("no-defer"),
        bound: AtMost(1.02),
        at: &[("path", &["one-cpu", "one-thread"])],
        note: "where it has nothing to do",
    },
    Goal {
        experiment: "defer-free",
        metric: "ns_per_packet",
        against: Variant("dpdk"),
        bound: AtMost(0.5),
        at: &[WAYS, ("threads", &["2"]), BULKS],
        note: "",
    },
    Goal {
        experiment: "defer-free",
        metric: "ns_per_packet",
        against: Least(ALLOCATORS),
        bound: AtMost(0.33),
        at: &[WAYS, ("threads", &["2"]), BULKS],
        note: "the best general allocator",
    },
    Goal {
        experiment: "defer-free",
        metric: "ns_per_packet",
        against: Variant("depot"),
        bound: AtMost(0.5),
        at: &[("path", &["one-way"]), ("threads", &["2"]), BULKS],
        note: "",
    },
    Goal {
        experiment: "defer-free",
        metric: "wakes_per_packet",
        against: Nothing("a packet", 1.0),
        bound: AtMost(1.0 / 64.0),
        at: &[("path", &["sleeping"])],
        note: "no storm of wake-ups",
    },
    Goal {
        experiment: "backlog",
        metric: "wakes_per_ktrans",
        against: Variant("snapshot"),
        bound: AtMost(0.75),
        at: &[("case", &["rr"]), FLOWS, WORK],
        note: "the older loop with the same busy polling",
    },
    Goal {
        experiment: "backlog",
        metric: "wakes_per_ktrans",
        against: Variant("snapshot-no-poll"),
        bound: AtMost(0.75),
        at: &[("case", &["rr"]), FLOWS, WORK],
        note: "with busy polling against without: what that gives",
    },
    Goal {
        experiment: "backlog",
        metric: "tps",
        against: Variant("snapshot"),
        bound: AtLeast(1.016),
        at: &[("case", &["rr"]), FLOWS, WORK],
        note: "1.468 to 1.492 million transactions/s in the report",
    },
    Goal {
        experiment: "backlog",
        metric: "p99_ns",
        against: Variant("snapshot"),
        bound: AtMost(1.0),
        at: &[("case", &["rr"]), FLOWS, WORK],
        note: "",
    },
    Goal {
        experiment: "backlog",
        metric: "mpps",
        against: Variant("crossbeam"),
        bound: AtLeast(2.0),
        at: &[
            ("case", &["flood"]),
            ("bulk", &["1", "32"]),
            ("cpus", &["any", "apart"]),
            ("threads", &["8"]),
        ],
        note: "the best channel",
    },
    Goal {
        experiment: "backlog",
        metric: "cpu_share",
        against: Nothing("of a CPU", 1.0),
        bound: AtMost(0.01),
        at: &[("case", &["idle"])],
        note: "an idle worker",
    },
    Goal {
        experiment: "backlog",
        metric: "stack_p99_us",
        against: Nothing("µs", 1.0),
        bound: AtMost(60.0),
        at: &[("case", &["wake-latency"])],
        note: "a packet that arrives at a sleeping worker, TAP to TAP",
    },
    Goal {
        experiment: "switch",
        metric: "tcp_gbps",
        against: Variant("ovs-tso"),
        bound: AtLeast(0.95),
        at: &[("mss", &["-", "400"])],
        note: "one connection: level",
    },
    Goal {
        experiment: "switch",
        metric: "udp_pps",
        against: Variant("ovs"),
        bound: AtLeast(1.8),
        at: &[("generator", &["iperf3", "sendmmsg"]), ("payload", &["64"])],
        note: "",
    },
    Goal {
        experiment: "switch",
        metric: "ping_mean_us",
        against: Variant("ovs"),
        bound: AtMost(0.8),
        at: &[],
        note: "idle",
    },
    Goal {
        experiment: "switch",
        metric: "gbps",
        against: Variant("ovs-tso"),
        bound: AtLeast(1.0),
        at: &[("case", &["many-clients"])],
        note: "200 senders",
    },
    Goal {
        experiment: "switch",
        metric: "start_ms",
        against: Variant("ovs"),
        bound: AtMost(0.2),
        at: &[],
        note: "",
    },
];

#[cfg(test)]
mod tests {
    use super::super::results::Results;
    use super::super::verdict::Verdict;
    use super::*;
    use crate::nolock_qdisc;
    use crate::report::Collector;

    /// A goal asked for one queue below `mq`, which no variant has: it was never met, whatever was
    /// measured.
    #[test]
    fn every_cell_that_nolock_goals_are_about_is_measured() {
        let mut results = Collector::default();
        for params in nolock_qdisc::measured() {
            for variant in [WHOSE, "locked", "rings"] {
                results.add(variant, &params, &[("mpps", 1.0)]);
            }
        }
        let results = Results::parse(&results.report("nolock-qdisc", &[])).expect("a report");
        let own = |goal: &&Goal| goal.experiment == "nolock-qdisc" && goal.metric == "mpps";
        for goal in GOALS.iter().filter(own) {
            let verdict = Verdict::of(goal, &results);
            let figures = verdict.cells.iter().map(|cell| &cell.figure);
            figures.for_each(|figure| assert!(figure.is_ok(), "{}: {figure:?}", goal.note));
        }
    }
}
