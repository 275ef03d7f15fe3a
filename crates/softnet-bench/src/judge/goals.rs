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
    /// Another variant; the figure is how much less ours is.
    LessThan(&'static str, &'static str),
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

use Against::{Least, LessThan, MoreThan, Nothing, Same, Variant};
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
const BULKS: (&str, &[&str]) = ("bulk", &["1", "8", "32"]);
const WAYS: (&str, &[&str]) = ("path", &["one-way", "both-ways"]);
const FLOWS: (&str, &[&str]) = ("flows", &["1", "16", "200"]);
const PFIFO_FAST: (&str, &[&str]) = ("qdisc", &["pfifo_fast"]);
const BURNERS: &[(&str, &[&str])] = &[("case", &["busy-host"]), ("load", &["burners"])];
const BURNERS_TCP: &[(&str, &[&str])] = &[
    ("case", &["busy-host"]),
    ("load", &["burners"]),
    ("mss", &["-", "400"]),
];
const LOADED: &[(&str, &[&str])] = &[("case", &["load"])];
const BATCH: &[(&str, &[&str])] = &[("case", &["batch"]), ("classes", &["10000"])];
const ROOT: (&str, &[&str]) = ("parent", &["root"]);
#[rustfmt::skip]
const ELSEWHERE: (&str, &[&str]) = (
    "path,threads,bulk",
    &[
        "one-way,2,1", "one-way,2,8", "one-way,2,32", "one-way,8,1", "one-way,8,32",
        "one-way,64,1", "both-ways,2,1", "both-ways,2,8", "both-ways,2,32", "both-ways,8,1",
        "both-ways,8,32", "both-ways,64,1", "sleeping,2,1", "sleeping,2,8", "sleeping,2,32",
        "sleeping,8,1",
    ],
);
#[rustfmt::skip]
const SLEEPING: (&str, &[&str]) = (
    "path,threads,bulk",
    &["sleeping,2,1", "sleeping,2,8", "sleeping,2,32", "sleeping,8,1"],
);
const HERE: (&str, &[&str]) = ("path,threads", &["one-cpu,2", "one-thread,1"]);
const RR: (&str, &[&str]) = ("case", &["rr"]);
const CONNECTIONS: (&str, &[&str]) = ("connections", &["16", "64", "1024"]);
const WEB: (&str, &[&str]) = ("case", &["web"]);
const TO_8: (&str, &[&str]) = ("threads", &["1", "2", "8"]);
const LOADED_THREADS: (&str, &[&str]) = ("threads", &["1", "2", "8", "240"]);
const LOADS: (&str, &[&str]) = ("load", &["50%", "80%"]);
const COPYING: (&str, &[&str]) = ("driver", &["copy"]);
const EIGHT: (&str, &[&str]) = ("threads", &["8"]);
const TWO: (&str, &[&str]) = ("threads", &["2"]);
const HTB: (&str, &[&str]) = ("qdisc", &["htb"]);
const ONE_CORE: (&str, &[&str]) = ("case", &["one-core"]);
const WAITING: (&str, &[&str]) = ("waiting", &["0", "2"]);
const COPY: (&str, &[&str]) = ("case", &["copy"]);
const SHAPE: (&str, &[&str]) = ("threads", &["2", "60", "240"]);
const WORK: (&str, &[&str]) = ("service_ns", &["0", "1000"]);
const SHAPERS: (&str, &[&str]) = ("qdisc", &["tbf", "htb"]);
const UNLIMITED: (&str, &[&str]) = ("case", &["unlimited"]);
const UNLOADED: &[(&str, &[&str])] = &[UNLIMITED, ("threads", &["1"]), SHAPERS];
const RINGS: (&str, &[&str]) = ("ring", &["split", "packed"]);
const REFLECT: (&str, &[&str]) = ("path", &["reflect"]);
const SWITCH: (&str, &[&str]) = ("path", &["switch"]);
const PING: (&str, &[&str]) = ("path", &["ping"]);
const HOSTILE: (&str, &[&str]) = ("path", &["hostile"]);
#[rustfmt::skip]
const ATTACKS: (&str, &[&str]) = (
    "attack",
    &[
        "loop", "index-runs", "long-chains", "kicks", "broadcasts", "tiny-buffers", "link-flaps",
        "reconnects",
    ],
);
const TWO_VMS: (&str, &[&str]) = ("path", &["two-vms"]);
const PATHS: (&str, &[&str]) = ("path", &["reflect", "switch", "two-vms"]);
const PFIFO: &[(&str, &str)] = &[("qdisc", "pfifo"), ("classes", "-")];

/// A goal of [`GOALS`].
const fn goal(
    experiment: &'static str,
    metric: &'static str,
    against: Against,
    bound: Bound,
    at: &'static [(&'static str, &'static [&'static str])],
    note: &'static str,
) -> Goal {
    Goal {
        experiment,
        metric,
        against,
        bound,
        at,
        note,
    }
}

#[rustfmt::skip] // A table.
pub(super) const GOALS: &[Goal] = &[
    // tx-adopt
    goal("tx-adopt", "mpps", Variant("mutex"), AtLeast(1.3),
        &[FEW, QDISCS, DRIVERS, SINGLE, ONE_QUEUE, FULL], "2 threads on 2 CPUs is the headline"),
    goal("tx-adopt", "mpps", Variant("mutex"), AtLeast(0.8),
        &[MANY, QDISCS, DRIVERS, SINGLE, ONE_QUEUE, FULL],
        "oversubscription: more threads than CPUs"),
    goal("tx-adopt", "drops", Nothing("packets", 1.0), AtMost(0.0),
        &[MANY, QDISCS, DRIVERS, SINGLE, ONE_QUEUE, FULL], "with the default burst limit"),
    goal("tx-adopt", "sojourn_p999_ns", Nothing("µs", 1e3), AtMost(50.0),
        &[FEW, QDISCS, DRIVERS, SINGLE, ONE_QUEUE, FULL], "from the push to the driver"),
    goal("tx-adopt", "sojourn_p999_ns", Variant("mutex"), AtMost(0.2),
        &[MANY, QDISCS, DRIVERS, SINGLE, ONE_QUEUE, FULL], ""),
    goal("tx-adopt", "latency_p999_ns", Variant("mutex"), AtMost(1.0),
        &[LOADED_THREADS, QDISCS, COPYING, SINGLE, ONE_QUEUE, LOADS],
        "from the time at which the packet was due; of what the slower of the two can do flat \
         out"),
    goal("tx-adopt", "p999_ns", Variant("mutex"), AtMost(1.0),
        &[ALL, QDISCS, DRIVERS, SINGLE, ONE_QUEUE, FULL], "of the transmit call"),
    goal("tx-adopt", "p999_ns", Variant("mutex"), AtMost(1.0),
        &[LOADED_THREADS, QDISCS, COPYING, SINGLE, ONE_QUEUE, LOADS], "of the transmit call"),
    goal("tx-adopt", "mpps", Variant("busylock"), AtLeast(1.0),
        &[TO_8, QDISCS, DRIVERS, ("bulk", &["32"]), ONE_QUEUE, FULL],
        "chains of 32; with more threads it stands still"),
    // nolock-qdisc
    goal("nolock-qdisc", "mpps", Variant("locked"), AtLeast(1.24),
        &[("threads", &["1"]), PFIFO_FAST, ROOT],
        "2.1 to 2.6 million packets/s in the report"),
    goal("nolock-qdisc", "mpps", Variant("locked"), AtLeast(3.0),
        &[EIGHT, PFIFO_FAST, ROOT], ""),
    goal("nolock-qdisc", "mpps", Variant("locked"), AtLeast(1.0),
        &[TO_8, ("qdisc", &["pfifo_fast", "tbf", "prio", "fq", "fq_codel"]), ROOT],
        "every qdisc, not only those that were written for it"),
    goal("nolock-qdisc", "mpps", Variant("locked"), AtLeast(1.0),
        &[("threads", &["64"]), ("qdisc", &["pfifo_fast", "fq_codel"]), ROOT],
        "more threads than CPUs"),
    goal("nolock-qdisc", "mpps", Variant("rings"), AtLeast(1.0),
        &[TO_8, PFIFO_FAST, ("parent,queues", &["root,1", "mq,2"])],
        "adoption took the place of the kernel's rings"),
    goal("nolock-qdisc", "mpps", Same(&[("parent", "root"), ("queues", "1")]), AtLeast(1.9),
        &[TWO, PFIFO_FAST, ("parent", &["mq"]), ("queues", &["2"])],
        "two queues below mq against one at the root, two threads"),
    goal("nolock-qdisc", "mpps", Nothing("million packets/s", 1.0), AtLeast(15.0),
        &[("case", &["flows"]), ("qdisc", &["fq"]), ("flows", &["100"])], "one core"),
    goal("nolock-qdisc", "mpps", Same(&[("flows", "100"), ("active", "100")]), AtLeast(0.5),
        &[("case", &["flows"]), ("qdisc", &["fq"]), ("flows", &["100000"])],
        "10,000 of 100,000 flows against 100"),
    goal("nolock-qdisc", "mpps", Nothing("million packets/s", 1.0), AtLeast(15.0),
        &[("case", &["flows"]), ("qdisc", &["fq_codel"]), ("flows", &["1024"])], "one core"),
    goal("nolock-qdisc", "mpps", Variant("dpdk-sched"), AtLeast(1.5),
        &[ONE_CORE, HTB, ("classes", &["1024"]), WAITING], "1024 classes against 1024 pipes"),
    goal("nolock-qdisc", "mpps", Variant("dpdk-sched"), AtLeast(2.0),
        &[ONE_CORE, HTB, ("classes", &["10"]), WAITING], "10 classes against 10 pipes"),
    goal("nolock-qdisc", "mpps", Variant("mutex"), AtLeast(1.5),
        &[("case", &["htb"]), TWO, HTB, ("classes", &["10", "1024"]), ("bulk", &["1", "32"])],
        "two senders into one queue"),
    goal("nolock-qdisc", "mpps", Variant("busylock"), AtLeast(1.8), &[COPY, SHAPE],
        "16 to 29 million packets/s in the report"),
    goal("nolock-qdisc", "p50_ns", Variant("busylock"), AtMost(1.0 / 16.0), &[COPY, SHAPE],
        "of the call; 8 to 16 µs, then 256 to 512 ns in the report"),
    goal("nolock-qdisc", "p999_ns", Variant("busylock"), AtMost(0.5), &[COPY, SHAPE],
        "of the call"),
    goal("nolock-qdisc", "rps", Variant("ovs"), AtLeast(3.0),
        &[WEB, CONNECTIONS], ""),
    goal("nolock-qdisc", "rps", Variant("kernel-bridge"), AtLeast(0.7),
        &[WEB, CONNECTIONS], ""),
    // bulk-free
    goal("bulk-free", "ns_per_packet", Variant("dpdk"), AtMost(0.5),
        &[("path", &["-"]), ("bulk", &["1", "8", "32"])], ""),
    goal("bulk-free", "ns_per_packet", LessThan("per-packet", "ns"), AtLeast(11.0),
        &[("path", &["forward"]), ("bulk", &["32"])], "what it gave in the report"),
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
    goal("backlog", "wakes_per_ktrans", Variant("snapshot-no-poll"), AtMost(0.75),
        &[RR, FLOWS, WORK], "with busy polling against without: what that gives"),
    goal("backlog", "tps", Variant("snapshot"), AtLeast(1.016), &[RR, FLOWS, WORK],
        "1.468 to 1.492 million transactions/s in the report"),
    goal("backlog", "p99_ns", Variant("snapshot"), AtMost(1.0), &[RR, FLOWS, WORK],
        ""),
    goal("backlog", "mpps", Variant("crossbeam"), AtLeast(2.0),
        &[("case", &["flood"]), ("bulk", &["1", "32"]), ("cpus", &["any", "apart"]), EIGHT],
        "the best channel"),
    goal("backlog", "cpu_share", Nothing("of a CPU", 1.0), AtMost(0.01), &[("case", &["idle"])],
        "an idle worker"),
    goal("backlog", "stack_p99_us", Nothing("µs", 1.0), AtMost(60.0),
        &[("case", &["wake-latency"])], "a packet that arrives at a sleeping worker, TAP to TAP"),
    // switch
    goal("switch", "tcp_gbps", Variant("ovs-tso"), AtLeast(0.95),
        &[("case", &["-"]), ("mss", &["-", "400"])], "one connection: level"),
    goal("switch", "udp_pps", Variant("ovs"), AtLeast(1.8),
        &[("generator", &["iperf3", "sendmmsg"]), ("payload", &["64"])], ""),
    goal("switch", "ping_mean_us", Variant("ovs"), AtMost(0.8), &[("case", &["-"])], "idle"),
    goal("switch", "gbps", Variant("ovs-tso"), AtLeast(5.0), &[("case", &["many-clients"])],
        "200 senders"),
    goal("switch", "gbps", Variant("kernel-bridge"), AtLeast(0.55),
        &[("case", &["many-clients"])], "200 senders"),
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
    // all-cores
    goal("all-cores", "mpps", Same(&[("threads", "1"), ("queues", "1")]), AtLeast(1.8),
        &[UNLIMITED, TWO, SHAPERS], "two queues and threads against one of each"),
    goal("all-cores", "mpps", Variant("private"), AtLeast(0.9), &[UNLIMITED, TWO, SHAPERS],
        "shared rates against rates of each queue"),
    goal("all-cores", "rate_error_beyond_frame_percent", Nothing("%", 1.0), AtMost(0.2),
        &[("case", &["rate"]), SHAPERS,
            ("rate_mbps", &["10", "100", "1000", "10000", "40000", "100000"])],
        "over 1 s after the burst"),
    goal("all-cores", "skew_percent", Nothing("%", 1.0), AtLeast(99.0),
        &[("case", &["skew"]), SHAPERS], "all traffic on one of the queues"),
    goal("all-cores", "rate_percent", Nothing("%", 1.0), AtLeast(97.0),
        &[("case", &["on-off"]), SHAPERS], "on and off every 1 to 50 ms"),
    goal("all-cores", "fairness_percent", Nothing("%", 1.0), AtMost(5.0),
        &[("case", &["fair"]), SHAPERS,
            ("leaf", &["fq", "fq_codel"]), ("flows", &["7:1", "1000:10"])],
        "over 1 s"),
    goal("all-cores", "sojourn_p50_ns", MoreThan(PFIFO, "ns"), AtMost(1000.0), UNLOADED,
        "an unloaded shaper against pfifo"),
    goal("all-cores", "sojourn_p99_ns", MoreThan(PFIFO, "ns"), AtMost(1000.0), UNLOADED,
        "an unloaded shaper against pfifo"),
    // vhost-user
    goal("vhost-user", "mpps", Variant("dpdk-vhost"), AtLeast(1.3), &[REFLECT, RINGS],
        "the driver alone, against DPDK's own back end"),
    goal("vhost-user", "mpps", Variant("dpdk-vhost"), AtLeast(1.0), &[SWITCH, RINGS],
        "a bridge and a qdisc, against reflecting"),
    goal("vhost-user", "mpps", Variant("dpdk-vhost"), AtLeast(1.0), &[TWO_VMS, RINGS],
        "a bridge and a qdisc, against forwarding between two ports"),
    goal("vhost-user", "mpps", Same(&[("ring", "split")]), AtLeast(1.0),
        &[PATHS, ("ring", &["packed"])], "packed rings against split ones"),
    goal("vhost-user", "ping_mean_us", Variant("ovs"), AtMost(1.0), &[PING],
        "between two guests in QEMU, against Open vSwitch as it comes"),
    goal("vhost-user", "ping_mean_us", Variant("ovs-sleep"), AtMost(1.0), &[PING],
        "against Open vSwitch whose thread sleeps"),
    goal("vhost-user", "mpps", Variant("equal-load"), AtLeast(0.95), &[HOSTILE, ATTACKS],
        "what others get beside each attack, against an equal load"),
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
    use crate::report::{Collector, OURS, Param};
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
            "ovs-sleep",
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
        let fields = ["mpps", "p50_ns", "p999_ns"];
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
        ];
        every_cell_is_measured("all-cores", &all_cores::measured(), &fields);
    }

    #[test]
    fn every_cell_that_goals_of_vhost_user_are_about_is_measured() {
        every_cell_is_measured(
            "vhost-user",
            &vhost_user::measured(),
            &["mpps", "ping_mean_us"],
        );
    }
}
