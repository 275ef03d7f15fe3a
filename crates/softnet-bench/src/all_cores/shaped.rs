//! Rates that limit, with a sender at each of two queues whose flows always have packets waiting.
//!
//! - Case `rate`: how far the bytes that leave in a second are from the rate.
//!   `rate_error_beyond_frame_percent` is what of it is more than one frame.
//!   `cake` is one over both queues; it has no bucket.
//! - Case `skew`: one of the queues has all the traffic; the part of the rate that it reaches.
//! - Case `sparse`: the same, but the other queue has a packet of 60 bytes every 100 µs or so.
//! - Case `on-off`: one of the senders, or both, are on for 1 to 50 ms at a time.
//! - Case `fair`: how far the flows of one class are from their equal shares, those of both queues
//!   together. `flows` are those of each queue.
//!
//! The bucket holds what passes in 10 ms, so that a thread that gets its CPU late makes up for it;
//! it is empty when the measured second begins. Frames have 1514 bytes; at 40 and 100 Gb/s they
//! are large ones, of 44 segments, counted as on the wire.

use std::time::Duration;

use serde_json::json;
use softnet::time::Clock;
use softnet_tc::{
    AqmSpec, CakeSpec, ClassSpec, FqCodelSpec, FqSpec, Handle, HtbClassSpec, HtbSpec, QdiscSpec,
    SpecError, TbfSpec, TreeSpec,
};

use super::device::{self, Meter, qdiscs};
use super::load::{Frame, Load, Reading, Senders};
use super::{ADOPT, CAKE_MQ_KERNEL, PRIVATE, QUEUES, Share, divided};
use crate::error::{BenchError, failed};
use crate::htb_tree::priority;
use crate::interleave::{self, Turn};
use crate::options::{Options, SHORT};
use crate::report::{Collector, Field, OURS, Param};

/// Megabits per second, and the frames that they are measured with.
const RATES: [(u64, Frame); 6] = [
    (10, Frame::Full),
    (100, Frame::Full),
    (1000, Frame::Full),
    (10_000, Frame::Full),
    (40_000, Frame::Large),
    (100_000, Frame::Large),
];
/// The rate that is skewed.
const MIDDLE: (u64, Frame) = RATES[2];
/// The rate that flows share: some packets for each of a thousand of them.
const SHARED: (u64, Frame) = (2000, Frame::Full);
/// Time that the bucket is filled in, as a part of a second.
const BUCKET: u64 = 100;
/// Classes of the `htb` that flows use in turn, where they do not share one.
const CLASSES: u16 = 2;
/// Before and while it is measured.
const WARM_UP: Duration = Duration::from_millis(200);
const TIME: Duration = Duration::from_secs(1);
const HTB: Handle = Handle::new(1, 0);
const LEAF: Handle = Handle::new(2, 0);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Qdisc {
    Tbf,
    Htb,
    Cake,
}

/// The qdisc of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leaf {
    Fifo,
    Fq,
    FqCodel,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Aim {
    Rate,
    Skew,
    Sparse,
    OnOff,
    Fair,
}

impl Aim {
    fn case(self) -> &'static str {
        match self {
            Aim::Rate => "rate",
            Aim::Skew => "skew",
            Aim::Sparse => "sparse",
            Aim::OnOff => "on-off",
            Aim::Fair => "fair",
        }
    }
}

/// The parameters of one row.
#[derive(Debug, Clone, Copy)]
struct Case {
    aim: Aim,
    qdisc: Qdisc,
    leaf: Leaf,
    rate: (u64, Frame),
    /// Flows of each queue.
    flows: [usize; QUEUES],
}

impl Case {
    /// All of them.
    fn all() -> Vec<Case> {
        let case = |aim, qdisc, rate, flows| Case {
            aim,
            qdisc,
            leaf: Leaf::Fifo,
            rate,
            flows,
        };
        let mut cases = Vec::new();
        for rate in RATES {
            cases.extend(
                [Qdisc::Tbf, Qdisc::Htb].map(|qdisc| case(Aim::Rate, qdisc, rate, [2, 2])),
            );
        }
        let skew = [2, 0];
        for (aim, flows) in [(Aim::Skew, skew), (Aim::OnOff, [2, 2])] {
            cases.extend([Qdisc::Tbf, Qdisc::Htb].map(|qdisc| case(aim, qdisc, MIDDLE, flows)));
        }
        cases.push(case(Aim::Rate, Qdisc::Cake, MIDDLE, [2, 2]));
        cases.push(case(Aim::Skew, Qdisc::Cake, MIDDLE, skew));
        cases.push(case(Aim::Sparse, Qdisc::Cake, MIDDLE, [2, 1]));
        for flows in [[7, 1], [1000, 10]] {
            for (qdisc, leaf) in [
                (Qdisc::Tbf, Leaf::Fq),
                (Qdisc::Tbf, Leaf::FqCodel),
                (Qdisc::Htb, Leaf::Fq),
                (Qdisc::Htb, Leaf::FqCodel),
            ] {
                let fair = case(Aim::Fair, qdisc, SHARED, flows);
                cases.push(Case { leaf, ..fair });
            }
        }
        cases
    }

    fn classes(&self) -> u16 {
        match (self.qdisc, self.leaf) {
            (Qdisc::Tbf | Qdisc::Cake, _) => 0,
            (Qdisc::Htb, Leaf::Fifo) => CLASSES,
            (Qdisc::Htb, _) => 1,
        }
    }

    fn params(&self) -> Vec<Param> {
        let qdisc = match self.qdisc {
            Qdisc::Tbf => "tbf",
            Qdisc::Htb => "htb",
            Qdisc::Cake => "cake",
        };
        let mut params = vec![
            ("case", json!(self.aim.case())),
            (
                "threads",
                json!(self.flows.iter().filter(|n| **n > 0).count()),
            ),
            ("queues", json!(QUEUES)),
            ("qdisc", json!(qdisc)),
        ];
        let classes = self.classes();
        params.extend((classes > 0).then(|| ("classes", json!(classes))));
        let leaf = match self.leaf {
            Leaf::Fifo => None,
            Leaf::Fq => Some("fq"),
            Leaf::FqCodel => Some("fq_codel"),
        };
        params.extend(leaf.map(|leaf| ("leaf", json!(leaf))));
        if self.aim == Aim::Fair {
            let [first, second] = self.flows;
            params.push(("flows", json!(format!("{first}:{second}"))));
        }
        params.push(("rate_mbps", json!(self.rate.0)));
        params
    }

    fn variants(&self) -> &'static [&'static str] {
        match self.aim {
            Aim::Rate => &[OURS],
            Aim::Skew | Aim::OnOff => &[OURS, ADOPT, PRIVATE],
            Aim::Sparse => &[OURS, CAKE_MQ_KERNEL],
            Aim::Fair => &[OURS, PRIVATE],
        }
    }

    /// Bytes per second.
    fn bytes(&self) -> u64 {
        self.rate.0 * 1_000_000 / 8
    }

    /// Bytes in the bucket of a tree with this rate.
    fn burst(&self, rate: u64) -> u64 {
        rate / BUCKET + QUEUES as u64 * self.rate.1.wire_len()
    }

    /// The qdisc of a class, with a limit that is never reached.
    fn leaf(&self) -> QdiscSpec {
        let limit = 1 << 20;
        match self.leaf {
            Leaf::Fifo => QdiscSpec::Pfifo { limit },
            Leaf::Fq => QdiscSpec::Fq(FqSpec {
                limit,
                flow_limit: limit,
                // Each flow has a queue of its own.
                orphan_mask: u32::MAX,
                ..FqSpec::default()
            }),
            // It is to share, not to drop.
            Leaf::FqCodel => QdiscSpec::FqCodel(FqCodelSpec {
                limit,
                memory_limit: u32::MAX,
                aqm: AqmSpec {
                    target: Duration::from_secs(60),
                    ..AqmSpec::default()
                },
                ..FqCodelSpec::default()
            }),
        }
    }

    /// The tree for this many bytes per second.
    fn spec(&self, rate: u64) -> Result<QdiscSpec, SpecError> {
        if self.qdisc == Qdisc::Cake {
            return Ok(QdiscSpec::Cake(cake(rate)));
        }
        let burst = self.burst(rate);
        let mut tree = TreeSpec::new();
        if self.qdisc == Qdisc::Tbf {
            let spec = TbfSpec {
                rate,
                burst,
                limit: 1 << 30,
                ..TbfSpec::default()
            };
            tree.add(Handle::ROOT, HTB, QdiscSpec::Tbf(spec))?;
            tree.add(HTB.class(1), LEAF, self.leaf())?;
            return Ok(QdiscSpec::Tree(tree));
        }
        let spec = HtbSpec {
            default: 1,
            ..HtbSpec::default()
        };
        tree.add(Handle::ROOT, HTB, QdiscSpec::Htb(spec))?;
        let above = HTB.class(0xFFFE);
        let class = |part| HtbClassSpec {
            rate: rate / part,
            burst: burst / part,
            cburst: burst,
            ..HtbClassSpec::new(rate)
        };
        tree.add_class(HTB, above, ClassSpec::Htb(class(1)))?;
        let classes = self.classes();
        for minor in 1..=classes {
            tree.add_class(
                above,
                HTB.class(minor),
                ClassSpec::Htb(class(classes.into())),
            )?;
            tree.add(HTB.class(minor), Handle::new(1 + minor, 0), self.leaf())?;
        }
        Ok(QdiscSpec::Tree(tree))
    }

    fn load(&self, warm_up: Duration, time: Duration) -> Load {
        Load {
            rate: self.bytes(),
            frame: self.rate.1,
            flows: self.flows,
            senders: match self.aim {
                Aim::OnOff => Senders::OnOff,
                Aim::Sparse => Senders::Sparse,
                _ => Senders::Always,
            },
            priority: match (self.qdisc, self.leaf) {
                (_, Leaf::FqCodel) => |flow| LEAF.class(flow + 1).raw(),
                (Qdisc::Htb, _) => |flow| priority(flow % CLASSES),
                _ => |_| 0,
            },
            warm_up,
            time,
        }
    }

    /// One turn in this process.
    fn measure(
        &self,
        name: &str,
        (warm_up, time): (Duration, Duration),
    ) -> Result<Reading, BenchError> {
        let load = self.load(warm_up, time);
        let pool = load.pool()?;
        let (share, queues, rate) = match name {
            ADOPT => (Share::Instance, 1, self.bytes()),
            PRIVATE => (Share::Nothing, QUEUES, self.bytes() / QUEUES as u64),
            _ => (Share::Rates, QUEUES, self.bytes()),
        };
        let qdiscs = match name {
            CAKE_MQ_KERNEL => divided::qdiscs(&cake(rate), queues, &pool)?,
            _ => qdiscs(&self.spec(rate).map_err(failed)?, share, queues, &pool)?,
        };
        let meter = Meter::new(queues, load.flow_count());
        let clock = Clock::monotonic();
        let device = device::start(qdiscs, &meter, &pool, &clock)?;
        load.measure(&device, &meter, &pool, &clock)
    }

    fn fields(&self, reading: &Reading) -> Vec<Field> {
        let (bytes, seconds) = (reading.bytes as f64, reading.time.as_secs_f64());
        let due = self.bytes() as f64 * seconds;
        let percent = |part: f64| 100.0 * part / due;
        let mut fields = vec![("gbps", bytes * 8.0 / seconds / 1e9)];
        let off = (bytes - due).abs();
        match self.aim {
            Aim::Rate => fields.extend([
                ("rate_error_percent", percent(off)),
                (
                    "rate_error_beyond_frame_percent",
                    percent((off - self.rate.1.wire_len() as f64).max(0.0)),
                ),
            ]),
            Aim::Skew | Aim::Sparse => fields.push(("skew_percent", percent(bytes))),
            Aim::OnOff => fields.push(("rate_percent", percent(bytes))),
            Aim::Fair => fields.push(("fairness_percent", apart(&reading.packets))),
        }
        fields
    }

    fn turn(self, name: &'static str, times: (Duration, Duration)) -> Turn {
        let measure = move |results: &mut Collector| {
            let reading = self.measure(name, times)?;
            results.add(name, &self.params(), &self.fields(&reading));
            Ok(())
        };
        Turn::new(name, &self.params(), measure)
    }
}

/// A `cake` of this many bytes per second.
pub(super) fn cake(rate: u64) -> CakeSpec {
    CakeSpec {
        bandwidth: Some(rate),
        // It is to share, not to drop.
        target: Some(Duration::from_secs(60)),
        rtt: Duration::from_secs(1200),
        ..CakeSpec::default()
    }
}

/// Greatest distance of a count from the mean, in percent.
pub(super) fn apart(counts: &[u64]) -> f64 {
    let mean = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
    let off = |count: &u64| (*count as f64 / mean - 1.0).abs() * 100.0;
    counts.iter().map(off).fold(0.0, f64::max)
}

/// Measures.
pub(super) fn rows(options: &Options, results: &mut Collector) -> Result<(), BenchError> {
    let only = options.only()?;
    let times = match options.seconds < SHORT {
        true => (WARM_UP / 4, TIME / 20),
        false => (WARM_UP, TIME),
    };
    for case in Case::all() {
        let threads = case.flows.iter().filter(|n| **n > 0).count();
        let wanted = options.threads.is_empty() || options.threads.contains(&threads);
        if wanted && only.allows(&case.params()) {
            let turn = |name: &&'static str| case.turn(name, times);
            let turns = case.variants().iter().map(turn).collect();
            let rounds = options.rounds().of(&case.params(), times.1);
            let rounds = rounds.in_turns_of(times.0 + times.1.mul_f64(1.1));
            interleave::measure(options, rounds, turns, results)?;
        }
    }
    Ok(())
}

/// The parameters of all rows.
#[cfg(test)]
pub(super) fn measured() -> Vec<Vec<Param>> {
    Case::all().iter().map(Case::params).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The measurement itself fails if a packet is lost, dropped or stuck.
    #[test]
    fn every_flow_leaves_through_every_variant() {
        let times = (Duration::from_millis(5), Duration::from_millis(5));
        for case in Case::all() {
            for name in case.variants() {
                let measured = || case.measure(name, times);
                // Beside other work, little may happen in a few milliseconds.
                let flows = case.flows.iter().sum::<usize>();
                let reading = measured().unwrap_or_else(|e| panic!("{name} {case:?}: {e}"));
                assert_eq!(reading.packets.len(), flows, "{name} {case:?}");
            }
        }
    }

    #[test]
    fn an_error_within_a_frame_is_none_beyond_it() {
        let case = Case::all()[0];
        let of = |bytes| {
            let reading = Reading {
                time: Duration::from_secs(1),
                bytes,
                packets: Vec::new(),
            };
            case.fields(&reading)[1..]
                .iter()
                .map(|f| f.1)
                .collect::<Vec<_>>()
        };
        assert_eq!(of(1_250_000), [0.0, 0.0]);
        assert_eq!(of(1_250_000 - 1500), [0.12, 0.0]);
        assert_eq!(
            of(1_250_000 + 1514 + 1250),
            [100.0 * 2764.0 / 1_250_000.0, 0.1]
        );
        assert_eq!(apart(&[8, 10, 6]), 25.0);
    }
}
