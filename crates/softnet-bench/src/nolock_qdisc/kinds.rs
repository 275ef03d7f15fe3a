//! Cases `kinds`, `flows` and `hooks`: one thread, and what a packet costs in a qdisc of each kind
//! that has packets of 1,024 flows waiting, in one of `flows` flows, of which `active` have
//! packets, or in filters and actions alone. All take turns of a few milliseconds within one
//! window, so that their ratios do not depend on the machine's speed.
//!
//! 32 packets come and as many leave in a call, each for a flow drawn at random. `locked` is the
//! same qdisc behind a mutex, which is taken for each call. In `kinds`, those with classes have one
//! for each flow, `ets` has 16 bands; `netem` delays by 10 ms and loses 1 %. In `hooks`, a packet's
//! headers are looked at by `filters` of one mask, one of which is for it (`flower`), or by one
//! filter and a `police` that it does not exceed, on one thread or two, each on a CPU and with
//! filters of its own and both with one rate.

mod hooks;

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::json;
use softnet::mem::{Packet, PacketList, Pool};
use softnet::qdisc::{Cx, Qdisc as _};
use softnet::time::Time;
use softnet_tc::{
    AnyQdisc, ClassSpec, DrrClassSpec, EtsSpec, FqSpec, Handle, HfscClassSpec, HfscSpec,
    NetemSpec, QdiscEnv, QdiscKind, QdiscSpec, QfqClassSpec, RedCurve, RedSpec, ServiceCurve,
    SfqSpec, SpecError, TreeSpec,
};

use self::hooks::{FILTERS, Hook, hook_params, together};
use super::FRAME;
use crate::buffers::pool;
use crate::error::{BenchError, failed};
use crate::interleave::Turn;
use crate::qdiscs;
use crate::random::Random;
use crate::report::{Collector, OURS, Param};
use crate::tx_adopt::Ticks;
use crate::tx_adopt::variants::LOCKED;

/// Names of these rows for `--only case=`.
const KINDS: &str = "kinds";
const MANY: &str = "flows";
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
/// Qdiscs with a queue for each flow: flows that have sent something before, and those that have
/// packets now.
const MANY_FLOWS: [(&str, u32, u32); 3] = [
    ("fq", 100, 100),
    ("fq", 100_000, 10_000),
    ("fq_codel", 1024, 1024),
];

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
            flows: FLOWS.into(),
            divisor: 1 << 16,
            ..SfqSpec::default()
        })),
        "netem" => Ok(QdiscSpec::Netem(NetemSpec {
            limit: NETEM_LIMIT,
            delay: Duration::from_millis(10),
            loss: u32::MAX / 100,
            ..NetemSpec::default()
        })),
        "fq" => Ok(QdiscSpec::Fq(FqSpec {
            limit: 1 << 30,
            flow_limit: 1 << 30,
            // Each flow has a queue of its own.
            orphan_mask: u32::MAX,
            ..FqSpec::default()
        })),
        "fq_codel" | "htb" => return qdiscs::spec(name, FLOWS, 1 << 30),
        _ => {
            let kind = QdiscKind::find(name)
                .ok_or_else(|| BenchError::Measure(format!("no qdisc {name}")))?;
            Ok((kind.default)(&Default::default()))
        }
    };
    tree.map_err(failed)
}

/// Makes the packet one of this flow.
fn address(packet: &mut Packet, flow: u32, classes: Handle) {
    packet.set_flow_hash(flow.wrapping_mul(0x9E37_79B1));
    packet.set_priority(match classes == Handle::NONE {
        true => flow % 16,
        false => classes.class((flow as u16).wrapping_add(1)).raw(),
    });
}

/// A row.
#[derive(Debug, Clone, Copy)]
struct Row {
    case: &'static str,
    variant: &'static str,
    qdisc: &'static str,
    flows: u32,
    active: u32,
}

impl Row {
    fn all() -> impl Iterator<Item = Row> {
        let row = |case, variant, qdisc, flows, active| Row {
            case,
            variant,
            qdisc,
            flows,
            active,
        };
        let flows = u32::from(FLOWS);
        let kinds = NAMES.map(|name| row(KINDS, OURS, name, flows, flows));
        let many = MANY_FLOWS
            .into_iter()
            .flat_map(move |(name, flows, active)| {
                [OURS, LOCKED].map(|variant| row(MANY, variant, name, flows, active))
            });
        kinds.into_iter().chain(many)
    }

    fn params(&self) -> Vec<Param> {
        let mut params = vec![
            ("case", json!(self.case)),
            ("qdisc", json!(self.qdisc)),
            ("flows", json!(self.flows)),
        ];
        params.extend((self.case == MANY).then(|| ("active", json!(self.active))));
        params
    }
}

/// A qdisc with what goes through it.
struct Kind {
    qdisc: Mutex<AnyQdisc>,
    locked: bool,
    cx: Cx,
    /// Packets that have left, which come again.
    idle: PacketList,
    pool: Pool,
    random: Random,
    active: u32,
    classes: Handle,
    /// Packets that may leave in a call: as many as come, of a `netem` those that are late, too.
    most: usize,
    /// Nanoseconds that the others' turns took, and the end of its last own one: its clock stands
    /// then, so that what waits gets no older.
    away: u64,
    left_at: Time,
}

impl Kind {
    fn new(row: Row, ticks: &Ticks) -> Result<Kind, BenchError> {
        let standing = if row.qdisc == "netem" {
            DELAYED
        } else {
            row.flows as usize
        };
        let pool = pool(standing + 4096, BUFFER)?;
        let env = QdiscEnv::new(&pool);
        let mut kind = Kind {
            qdisc: Mutex::new(spec(row.qdisc)?.build(&env).map_err(failed)?),
            locked: row.variant == LOCKED,
            cx: Cx::new(&pool),
            idle: PacketList::new(),
            pool,
            random: Random::new(1),
            active: row.active,
            classes: if row.qdisc == "ets" {
                Handle::NONE
            } else {
                HANDLE
            },
            most: if row.qdisc == "netem" { 2 * BULK } else { BULK },
            away: 0,
            left_at: Time::ZERO,
        };
        // All become known, and leave; then those that stay.
        for flows in [row.flows, row.active] {
            let now = ticks.now();
            let qdisc = kind.qdisc.get_mut();
            qdisc.dequeue(usize::MAX >> 1, &mut kind.idle, kind.cx.at(now));
            kind.idle = PacketList::new();
            let mut standing: PacketList = (0..flows).filter_map(|_| kind.packet()).collect();
            let mut each = 0..flows;
            let classes = kind.classes;
            standing.for_each_mut(|packet| address(packet, each.next().unwrap_or(0), classes));
            kind.qdisc.get_mut().enqueue(&mut standing, kind.cx.at(now));
            kind.left_at = now;
        }
        Ok(kind)
    }

    fn with(&mut self, now: Time, call: impl FnOnce(&mut AnyQdisc, &mut Cx)) {
        // One call for both: they run the same code, and differ by the lock.
        let mut guard;
        let qdisc = match self.locked {
            true => {
                guard = self.qdisc.lock();
                &mut *guard
            }
            false => self.qdisc.get_mut(),
        };
        call(qdisc, self.cx.at(now));
    }

    fn packet(&self) -> Option<Packet> {
        let mut packet = self.pool.alloc().ok()?;
        packet.extend(FRAME);
        Some(packet)
    }

    /// Packets that left in some calls.
    fn calls(&mut self, ticks: &Ticks) -> u64 {
        let mut left = 0;
        self.away += ticks.now().nanos() - self.left_at.nanos();
        let most = self.most;
        for _ in 0..CALLS {
            let now = Time(ticks.now().nanos() - self.away);
            let mut packets = PacketList::new();
            self.idle.split_front(BULK, &mut packets);
            while packets.len() < BULK {
                match self.packet() {
                    Some(packet) => packets.push_back(packet),
                    None => break,
                }
            }
            let (classes, active, random) = (self.classes, self.active, &mut self.random);
            packets.for_each_mut(|packet| {
                let flow = random.below(active.into()) as u32;
                address(packet, flow, classes);
                packet.set_timestamp(now);
            });
            self.with(now, |qdisc, cx| _ = qdisc.enqueue(&mut packets, cx));
            let mut out = self.idle.take();
            let before = out.len();
            self.with(now, |qdisc, cx| _ = qdisc.dequeue(most, &mut out, cx));
            self.idle = out;
            left += (self.idle.len() - before) as u64;
        }
        self.left_at = ticks.now();
        left
    }
}

/// The parameters of all rows.
pub(super) fn measured() -> Vec<Vec<Param>> {
    let hooks = FILTERS.map(hook_params);
    Row::all().map(|row| row.params()).chain(hooks).collect()
}

/// The turn that measures all of them, each for `time`.
pub(super) fn turn(time: Duration, ticks: &Ticks) -> Turn {
    let ticks = ticks.clone();
    Turn::new(OURS, &[], move |results| measure(time, &ticks, results))
}

fn measure(time: Duration, ticks: &Ticks, results: &mut Collector) -> Result<(), BenchError> {
    let kinds: Result<Vec<_>, _> = Row::all().map(|row| Kind::new(row, ticks)).collect();
    let hooks = FILTERS.map(|(kind, filters, threads)| Hook::each(kind, filters, threads));
    let hooks: Result<Vec<_>, _> = hooks.into_iter().collect();
    let (mut kinds, mut hooks) = (kinds?, hooks?);
    let count = kinds.len();
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
                None => together(&mut hooks[at - count], ticks)?,
            };
            // The first round warms up.
            if rounds > 0 {
                sums[at] = (sums[at].0 + packets, sums[at].1 + spent);
            }
        }
        rounds += 1;
    }
    let variants = Row::all()
        .map(|row| row.variant)
        .chain(FILTERS.map(|_| OURS));
    for ((variant, params), (packets, spent)) in variants.zip(measured()).zip(sums) {
        if packets == 0 {
            return Err(BenchError::Measure(format!("no packet passed: {params:?}")));
        }
        let ns = spent.as_secs_f64() * 1e9 / packets as f64;
        results.add(
            variant,
            &params,
            &[("ns_per_packet", ns), ("mpps", 1e3 / ns)],
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As many packets leave as come while others wait, but of those that netem loses or holds.
    #[test]
    fn packets_pass_every_kind_and_every_hook() {
        let ticks = Ticks::new();
        for row in Row::all().filter(|row| row.qdisc != "netem") {
            let name = format!("{row:?}");
            let mut kind = Kind::new(row, &ticks).unwrap_or_else(|e| panic!("{name}: {e}"));
            let dropped = kind.cx.dropped.wire_packets();
            let queued = kind.qdisc.get_mut().stats().qlen;
            let offered = (4 * CALLS * BULK) as u64;
            let came = offered + queued + dropped;
            let left: u64 = (0..4).map(|_| kind.calls(&ticks)).sum();
            let dropped = kind.cx.dropped.wire_packets();
            let queued = kind.qdisc.get_mut().stats().qlen;
            assert_eq!(left + queued + dropped, came, "{name}");
            assert!(
                left * 10 > offered * 9 && queued > 0,
                "{name}: {left} of {offered} left, {dropped} dropped, {queued} wait"
            );
        }
        for (kind, filters, threads) in FILTERS {
            let mut hooks = Hook::each(kind, filters, threads).expect("filters are right");
            assert!(together(&mut hooks, &ticks).is_ok_and(|(packets, _)| packets > 0));
        }
    }
}
