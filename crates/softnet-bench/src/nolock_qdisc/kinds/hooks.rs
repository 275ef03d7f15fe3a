//! Filters and actions alone, on one thread or two.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use serde_json::json;
use softnet::mem::Packet;
use softnet::qdisc::Cx;
use softnet_tc::{
    Action, ActionKind, ActionList, ActionSpec, FilterKind, FilterList, FilterOp, FilterSpec,
    Filters, Flower, Police,
};
use softnet_testbed::threads::joined;

use super::{BUFFER, BULK, CALLS, FLOWS, HANDLE};
use crate::buffers::{pinned, pool};
use crate::error::{BenchError, failed};
use crate::nolock_qdisc::FRAME;
use crate::random::Random;
use crate::report::Param;
use crate::speed;
use crate::tx_adopt::Ticks;

/// Name of these rows for `--only case=`.
const HOOKS: &str = "hooks";
/// Filters and actions, filters, and threads.
pub(super) const FILTERS: [(&str, u16, usize); 5] = [
    ("flower", 1, 1),
    ("flower", 100, 1),
    ("flower", 10_000, 1),
    ("police", 1, 1),
    ("police", 1, 2),
];

/// Filters as a receiving worker has them, and packets that it looks at.
pub(super) struct Hook {
    filters: Filters,
    packets: Vec<Packet>,
    cx: Cx,
    next: usize,
}

impl Hook {
    /// One for each thread, which writes to no line of another's.
    pub(super) fn each(
        kind: &str,
        filters: u16,
        threads: usize,
    ) -> Result<Vec<CachePadded<Hook>>, BenchError> {
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
                // 100 Gbit/s, and what it lets pass in 84 us.
                let police = Police {
                    rate: 12_500_000_000,
                    burst: 1 << 20,
                    ..Police::default()
                };
                let action = Action::new(ActionSpec::new(ActionKind::Police(police)));
                filter.actions = ActionList::new([action]);
            }
            list.put(FilterOp::Add, filter).map_err(failed)?;
        }
        let pool = pool(4096, BUFFER)?;
        let mut random = Random::new(1);
        let hook = |_| {
            let mut packet = || {
                let port = 1 + random.below(filters.into()) as u16;
                let mut packet = pool.alloc().ok()?;
                packet.append(&datagram(port)).then_some(packet)
            };
            let packets: Option<Vec<_>> = (0..FLOWS).map(|_| packet()).collect();
            Ok(CachePadded::new(Hook {
                filters: list.counting_apart().filters(),
                packets: packets
                    .ok_or_else(|| BenchError::Measure("the pool is too small".into()))?,
                cx: Cx::new(&pool),
                next: 0,
            }))
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
                    return Err(BenchError::Measure(format!(
                        "a filter decided on {found:?}"
                    )));
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

/// Packets of `calls`, of all threads at once, and their time. Each of several threads has a CPU of
/// its own, as far as there are so many: else two may share one for most of the time.
pub(super) fn together(
    hooks: &mut [CachePadded<Hook>],
    ticks: &Ticks,
) -> Result<(u64, Duration), BenchError> {
    if let [only] = hooks {
        let start = Instant::now();
        return Ok((only.calls(ticks)?, start.elapsed()));
    }
    let cpus = speed::cpus()?;
    let barrier = &Barrier::new(hooks.len());
    std::thread::scope(|scope| {
        let threads: Vec<_> = hooks
            .iter_mut()
            .zip(cpus.into_iter().cycle())
            .map(|(hook, cpu)| {
                scope.spawn(move || {
                    let bound = pinned::pin(cpu);
                    barrier.wait();
                    bound?;
                    many(hook, ticks)
                })
            })
            .collect();
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

pub(super) fn hook_params((kind, filters, threads): (&str, u16, usize)) -> Vec<Param> {
    vec![
        ("case", json!(HOOKS)),
        ("qdisc", json!(kind)),
        ("flows", json!(FLOWS)),
        ("filters", json!(filters)),
        ("threads", json!(threads)),
    ]
}
