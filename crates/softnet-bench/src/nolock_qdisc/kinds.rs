//! Cases `kinds` and `hooks`: one thread, and what a packet costs in a qdisc of each kind that has
//! packets of 1,024 flows waiting, or in filters and actions alone. All take turns of a few
//! milliseconds within one window, so that their ratios do not depend on the machine's speed.
//!
//! In `kinds`, 32 packets come and as many leave in a call; kinds with classes have one for each
//! flow, `ets` 16 bands. `netem` delays by 10 ms and loses 1 %. In `hooks`, a packet's headers are
//! looked at by `filters` of one mask, one of which is for it (`flower`), or by one filter and a
//! `police` that it does not exceed, on as many threads as there are, each with filters of its own
//! and all with one rate.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use serde_json::json;
use softnet::mem::{Packet, PacketList, Pool, PoolConfig};
use softnet::qdisc::{Cx, Qdisc as _};
use softnet::time::Time;
use softnet_tc::{
    Action, ActionKind, ActionList, ActionSpec, AnyQdisc, ClassSpec, DrrClassSpec, EtsSpec,
    FilterKind, FilterList, FilterOp, FilterSpec, Filters, Flower, Handle, HfscClassSpec,
    HfscSpec, NetemSpec, Police, QdiscEnv, QdiscKind, QdiscSpec, QfqClassSpec, RedCurve, RedSpec,
    ServiceCurve, SfqSpec, SpecError, TreeSpec,
};
use softnet_testbed::threads::joined;

use super::FRAME;
use crate::error::BenchError;
use crate::interleave::Turn;
use crate::qdiscs;
use crate::random::Random;
use crate::report::{Collector, OURS, Param};
use crate::tx_adopt::Ticks;

/// Names of these rows for `--only case=`.
const KINDS: &str = "kinds";
const HOOKS: &str = "hooks";
const FLOWS: u16 = 1024;
/// Packets in a call.
const BULK: usize = 32;
/// Calls of each before the next has its turn, and packets and frames that `netem` holds at most.
const CALLS: usize = 500;
const DELAYED: usize = 262_144;
const NETEM_LIMIT: u32 = 200_000;
const BUFFER: usize = 512;
const HANDLE: Handle = Handle::new(1, 0);
/// Bytes per second that are never reached.
const RATE: u32 = u32::MAX;

/// The kinds that are measured; `fq_codel` is what the others are compared with.
const NAMES: [&str; 14] = [
    "fq_codel", "fq", "sfq", "drr", "ets", "red", "qfq", "pie", "fq_pie", "dualpi2", "hfsc",
    "cake", "netem", "htb",
];
/// Filters and actions, filters, and threads.
const FILTERS: [(&str, u16, usize); 5] = [
    ("flower", 1, 1),
    ("flower", 100, 1),
    ("flower", 10_000, 1),
    ("police", 1, 1),
    ("police", 1, 2),
];

fn failed(error: impl std::fmt::Display) -> BenchError {
    BenchError::Measure(error.to_string())
}

/// A class for each flow.
fn classes(root: QdiscSpec, class: &ClassSpec) -> Result<QdiscSpec, SpecError> {
    let mut tree = TreeSpec::new();
    tree.add(Handle::ROOT, HANDLE, root)?;
    for minor in 1..=FLOWS {
        tree.add_class(HANDLE, HANDLE.class(minor), class.clone())?;
    }
    Ok(QdiscSpec::Tree(tree))
}

fn spec(name: &str) -> Result<QdiscSpec, BenchError> {
    let tree = match name {
        "drr" => classes(QdiscSpec::Drr, &ClassSpec::Drr(DrrClassSpec::default())),
        "qfq" => classes(QdiscSpec::Qfq, &ClassSpec::Qfq(QfqClassSpec::default())),
        "hfsc" => {
            let class = HfscClassSpec {
                rt: None,
                ls: Some(ServiceCurve::linear(RATE / u32::from(FLOWS))),
                ul: None,
            };
            classes(
                QdiscSpec::Hfsc(HfscSpec::default()),
                &ClassSpec::Hfsc(class),
            )
        }
        "ets" => Ok(QdiscSpec::Ets(
            EtsSpec {
                bands: 16,
                priomap: std::array::from_fn(|band| band as u8),
                ..EtsSpec::default()
            }
            .with_quanta(&[], &Default::default()),
        )),
        "red" => Ok(QdiscSpec::Red(RedSpec {
            limit: 1 << 24,
            curve: RedCurve {
                min: 1 << 20,
                max: 1 << 21,
                wlog: 9,
                plog: 20,
                cell_log: 10,
                ..RedCurve::default()
            },
            ..RedSpec::default()
        })),
        "sfq" => Ok(QdiscSpec::Sfq(SfqSpec {
            limit: Some(u32::from(FLOWS) * 4),
            ..SfqSpec::default()
        })),
        "netem" => Ok(QdiscSpec::Netem(NetemSpec {
            limit: NETEM_LIMIT,
            delay: Duration::from_millis(10),
            loss: u32::MAX / 100,
            ..NetemSpec::default()
        })),
        "fq_codel" | "fq" | "htb" => return qdiscs::spec(name, FLOWS, 1 << 30),
        _ => {
            let kind = QdiscKind::find(name).ok_or_else(|| failed(format!("no qdisc {name}")))?;
            Ok((kind.default)(&Default::default()))
        }
    };
    tree.map_err(failed)
}

/// Makes the packet one of this flow.
fn address(packet: &mut Packet, flow: u16, classes: Handle) {
    packet.set_flow_hash(u32::from(flow).wrapping_mul(0x9E37_79B1));
    packet.set_priority(match classes == Handle::NONE {
        true => u32::from(flow % 16),
        false => classes.class(flow + 1).raw(),
    });
}

/// A qdisc with what goes through it.
struct Kind {
    qdisc: AnyQdisc,
    cx: Cx,
    /// Packets that have left, which come again.
    idle: PacketList,
    pool: Pool,
    random: Random,
    classes: Handle,
}

impl Kind {
    fn new(name: &str, ticks: &Ticks) -> Result<Kind, BenchError> {
        let buffers = if name == "netem" { DELAYED } else { 4096 };
        let config = PoolConfig {
            buffers,
            buffer_size: BUFFER,
        };
        let pool = Pool::new(config).map_err(failed)?;
        let mut kind = Kind {
            qdisc: spec(name)?.build(&QdiscEnv::new(&pool)).map_err(failed)?,
            cx: Cx::new(&pool),
            idle: PacketList::new(),
            pool,
            random: Random::new(1),
            classes: if name == "ets" { Handle::NONE } else { HANDLE },
        };
        let mut standing: PacketList = (0..FLOWS).filter_map(|_| kind.packet()).collect();
        let mut flows = 0..FLOWS;
        standing.for_each_mut(|packet| address(packet, flows.next().unwrap_or(0), kind.classes));
        let now = ticks.now();
        kind.qdisc.enqueue(&mut standing, kind.cx.at(now));
        Ok(kind)
    }

    fn packet(&self) -> Option<Packet> {
        let mut packet = self.pool.alloc().ok()?;
        packet.extend(FRAME);
        Some(packet)
    }

    /// Packets that left in some calls.
    fn calls(&mut self, ticks: &Ticks) -> u64 {
        let mut left = 0;
        for _ in 0..CALLS {
            let now: Time = ticks.now();
            let mut packets = PacketList::new();
            self.idle.split_front(BULK, &mut packets);
            while packets.len() < BULK {
                match self.packet() {
                    Some(packet) => packets.push_back(packet),
                    None => break,
                }
            }
            let (classes, random) = (self.classes, &mut self.random);
            packets.for_each_mut(|packet| {
                let flow = random.below(FLOWS.into()) as u16;
                address(packet, flow, classes);
                packet.set_timestamp(now);
            });
            self.qdisc.enqueue(&mut packets, self.cx.at(now));
            let before = self.idle.len();
            self.qdisc
                .dequeue(2 * BULK, &mut self.idle, self.cx.at(now));
            left += (self.idle.len() - before) as u64;
        }
        left
    }
}

/// Filters as a receiving worker has them, and packets that it looks at.
struct Hook {
    filters: Filters,
    packets: Vec<Packet>,
    cx: Cx,
    next: usize,
}

impl Hook {
    /// One for each thread.
    fn each(kind: &str, filters: u16, threads: usize) -> Result<Vec<Hook>, BenchError> {
        let mut list = FilterList::default();
        for port in 1..=filters {
            let mut filter = match kind {
                "police" => FilterSpec::new(FilterKind::Matchall, HANDLE.class(1)),
                _ => {
                    let flower = Flower {
                        ip_proto: Some(17),
                        dst_port: Some(port..=port),
                        ..Flower::default()
                    };
                    FilterSpec::new(FilterKind::Flower(flower), HANDLE.class(1))
                }
            };
            (filter.prio, filter.protocol) = (1, softnet_tc::ETH_P_IP);
            if kind == "police" {
                let police = Police {
                    rate: 1 << 40,
                    burst: 1 << 30,
                    ..Police::default()
                };
                let action = Action::new(ActionSpec::new(ActionKind::Police(police)));
                filter.actions = ActionList::new([action]);
            }
            list.put(FilterOp::Add, filter).map_err(failed)?;
        }
        let pool = Pool::new(PoolConfig {
            buffers: 4096,
            buffer_size: BUFFER,
        })
        .map_err(failed)?;
        let mut random = Random::new(1);
        let hook = |_| {
            let mut packet = || {
                let port = 1 + random.below(filters.into()) as u16;
                let mut packet = pool.alloc().ok()?;
                packet.append(&datagram(port)).then_some(packet)
            };
            let packets: Option<Vec<_>> = (0..FLOWS).map(|_| packet()).collect();
            Ok(Hook {
                filters: list.counting_apart().filters(),
                packets: packets.ok_or_else(|| failed("the pool is too small"))?,
                cx: Cx::new(&pool),
                next: 0,
            })
        };
        (0..threads).map(hook).collect()
    }

    /// Packets that were looked at in some calls; an error if a filter missed one.
    fn calls(&mut self, ticks: &Ticks) -> Result<u64, BenchError> {
        for _ in 0..CALLS {
            let now = ticks.now();
            for _ in 0..BULK {
                let packet = &mut self.packets[self.next];
                self.next = (self.next + 1) % usize::from(FLOWS);
                let found = self.filters.classify(packet, self.cx.at(now));
                if found != softnet_tc::Classified::Class(HANDLE.class(1)) {
                    return Err(failed(format!("a filter decided on {found:?}")));
                }
            }
        }
        Ok((CALLS * BULK) as u64)
    }
}

/// A frame with IPv4 and UDP for this port.
fn datagram(port: u16) -> [u8; FRAME] {
    let mut frame = [0; FRAME];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]);
    frame[14..34].copy_from_slice(&[
        0x45, 0, 0, 50, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ]);
    frame[34..38].copy_from_slice(&[0, 7, (port >> 8) as u8, port as u8]);
    frame[38..40].copy_from_slice(&[0, 30]);
    frame
}

/// Nanoseconds a packet that `calls` take on several threads at once, of all together.
fn together(hooks: &mut [Hook], ticks: &Ticks) -> Result<(u64, Duration), BenchError> {
    if let [only] = hooks {
        let start = Instant::now();
        return Ok((only.calls(ticks)?, start.elapsed()));
    }
    let barrier = &Barrier::new(hooks.len());
    std::thread::scope(|scope| {
        let one = |hook| {
            scope.spawn(move || {
                barrier.wait();
                many(hook, ticks)
            })
        };
        let threads: Vec<_> = hooks.iter_mut().map(one).collect();
        threads
            .into_iter()
            .try_fold((0, Duration::ZERO), |sum, thread| {
                let (packets, time) = joined(thread)?;
                Ok((sum.0 + packets, sum.1.max(time)))
            })
    })
}

/// As many packets as take long beside the start of a thread.
fn many(hook: &mut Hook, ticks: &Ticks) -> Result<(u64, Duration), BenchError> {
    let (start, mut packets) = (Instant::now(), 0);
    for _ in 0..8 {
        packets += hook.calls(ticks)?;
    }
    Ok((packets, start.elapsed()))
}

fn kind_params(name: &str) -> Vec<Param> {
    vec![
        ("case", json!(KINDS)),
        ("qdisc", json!(name)),
        ("flows", json!(FLOWS)),
    ]
}

fn hook_params((kind, filters, threads): (&str, u16, usize)) -> Vec<Param> {
    vec![
        ("case", json!(HOOKS)),
        ("qdisc", json!(kind)),
        ("flows", json!(FLOWS)),
        ("filters", json!(filters)),
        ("threads", json!(threads)),
    ]
}

/// The parameters of all rows.
pub(super) fn measured() -> Vec<Vec<Param>> {
    let hooks = FILTERS.map(hook_params);
    NAMES.map(kind_params).into_iter().chain(hooks).collect()
}

/// The turn that measures all of them, each for `time`.
pub(super) fn turn(time: Duration, ticks: &Ticks) -> Turn {
    let ticks = ticks.clone();
    Turn::new(OURS, &[], move |results| measure(time, &ticks, results))
}

fn measure(time: Duration, ticks: &Ticks, results: &mut Collector) -> Result<(), BenchError> {
    let kinds: Result<Vec<_>, _> = NAMES.iter().map(|name| Kind::new(name, ticks)).collect();
    let hooks = FILTERS.map(|(kind, filters, threads)| Hook::each(kind, filters, threads));
    let hooks: Result<Vec<_>, _> = hooks.into_iter().collect();
    let (mut kinds, mut hooks) = (kinds?, hooks?);
    let mut sums = vec![(0, Duration::ZERO); kinds.len() + hooks.len()];
    let mut order: Vec<usize> = (0..sums.len()).collect();
    let mut random = Random::of_now();
    let mut rounds = 0;
    while sums.iter().any(|sum| sum.1 < time) {
        random.shuffle(&mut order);
        for &at in &order {
            let (packets, spent) = match kinds.get_mut(at) {
                Some(kind) => {
                    let start = Instant::now();
                    (kind.calls(ticks), start.elapsed())
                }
                None => together(&mut hooks[at - NAMES.len()], ticks)?,
            };
            // The first round warms up.
            if rounds > 0 {
                sums[at] = (sums[at].0 + packets, sums[at].1 + spent);
            }
        }
        rounds += 1;
    }
    for (params, (packets, spent)) in measured().into_iter().zip(sums) {
        if packets == 0 {
            return Err(failed(format!("no packet passed: {params:?}")));
        }
        let ns = spent.as_secs_f64() * 1e9 / packets as f64;
        results.add(OURS, &params, &[("ns_per_packet", ns), ("mpps", 1e3 / ns)]);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As many packets leave as come, but of those that netem loses or holds.
    #[test]
    fn packets_pass_every_kind_and_every_hook() {
        let ticks = Ticks::new();
        for name in NAMES.into_iter().filter(|name| *name != "netem") {
            let mut kind = Kind::new(name, &ticks).unwrap_or_else(|e| panic!("{name}: {e}"));
            let left: u64 = (0..4).map(|_| kind.calls(&ticks)).sum();
            let dropped = kind.cx.dropped.wire_packets();
            let queued = kind.qdisc.stats().qlen;
            let came = (4 * CALLS * BULK) as u64 + u64::from(FLOWS);
            assert_eq!(left + queued + dropped, came, "{name}");
            assert!(
                left * 10 > came * 9,
                "{name}: {left} of {came} left, {dropped} dropped"
            );
        }
        for (kind, filters, threads) in FILTERS {
            let mut hooks = Hook::each(kind, filters, threads).expect("filters are right");
            assert!(together(&mut hooks, &ticks).is_ok_and(|(packets, _)| packets > 0));
        }
    }
}
