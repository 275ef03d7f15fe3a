//! A flood: many threads hand packets to one worker as fast as they are let. Each has a bounded
//! number under way, so that nothing is dropped and the figure is what the hand-off can do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use softnet::mem::PacketList;
use softnet_testbed::threads::joined;

use super::inbox::{self, Inbox};
use super::worker::{sleeps, work};
use crate::buffers::pinned::{Cpus, pin, pin_others};
use crate::error::BenchError;
use crate::tx_adopt::load::cpu;

/// Packets of a sender under way: of eight, fewer than a backlog takes.
const CREDIT: u64 = 96;
const BUFFERS: usize = 8192;

/// The load that is measured.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    pub(super) senders: usize,
    pub(super) bulk: usize,
    /// CPUs of the senders and of the worker; without, all go where the system puts them.
    pub(super) cpus: Option<Cpus>,
    pub(super) time: Duration,
}

/// The result.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) packets: u64,
    pub(super) time: Duration,
    pub(super) wakes: Option<u64>,
    pub(super) sleeps: u64,
    pub(super) cpu: Duration,
    pub(super) refused: u64,
}

/// Ends the worker when it is dropped.
struct End<'a> {
    inbox: &'a Arc<dyn Inbox>,
    finish: &'a AtomicBool,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.finish.store(true, Ordering::Release);
        self.inbox.stop();
    }
}

/// Measures the variant `name`.
pub(super) fn measure(name: &str, plan: Plan) -> Result<Outcome, BenchError> {
    let pool = crate::buffers::pool(BUFFERS, 2048)?;
    let (inbox, mut owner) = inbox::make(name)?;
    let stop = AtomicBool::new(false);
    let finish = AtomicBool::new(false);
    let returned: Vec<CachePadded<AtomicU64>> =
        (0..plan.senders).map(|_| CachePadded::default()).collect();
    let received = || -> u64 { returned.iter().map(|r| r.load(Ordering::Relaxed)).sum() };
    std::thread::scope(|scope| {
        let (pool, inbox, stop, finish, returned) = (&pool, &inbox, &stop, &finish, &returned);
        // Also if a sender fails: the worker would never end.
        let end = End { inbox, finish };
        let worker = scope.spawn(move || {
            let pinned = plan.cpus.map_or(Ok(()), |cpus| pin(cpus.b));
            let (mut next, mut disorder) = (vec![0_u32; plan.senders], 0_u64);
            let before = sleeps();
            let mut seen = vec![0_u64; plan.senders];
            work(&mut *owner, None, finish, |packets| {
                for packet in packets.iter() {
                    let sender = usize::from(packet.port());
                    // Refused packets leave gaps.
                    disorder += u64::from((packet.mark().wrapping_sub(next[sender]) as i32) < 0);
                    next[sender] = packet.mark().wrapping_add(1);
                    seen[sender] += 1;
                }
                drop(packets.take());
                // Not for every packet: senders look at these lines.
                for (seen, count) in seen.iter().zip(returned) {
                    if count.load(Ordering::Relaxed) != *seen {
                        count.store(*seen, Ordering::Relaxed);
                    }
                }
            });
            pinned.map(|()| (disorder, sleeps() - before))
        });
        let senders: Vec<_> = (0..plan.senders)
            .map(|number| {
                scope.spawn(move || {
                    let pinned = plan.cpus.map_or(Ok(()), |cpus| pin_others(cpus.b));
                    let (mut sent, mut refused) = (0_u64, 0_u64);
                    while !stop.load(Ordering::Relaxed) {
                        let back = returned[number].load(Ordering::Relaxed) + refused;
                        if sent + plan.bulk as u64 - back > CREDIT {
                            std::thread::yield_now();
                            continue;
                        }
                        let mut packets = PacketList::new();
                        pool.alloc_bulk(plan.bulk, &mut packets);
                        packets.for_each_mut(|packet| {
                            packet.extend(60);
                            packet.set_port(number as u16);
                            packet.set_mark(sent as u32);
                            sent += 1;
                        });
                        if packets.is_empty() {
                            std::thread::yield_now();
                            continue;
                        }
                        refused += inbox.push(packets) as u64;
                        inbox.kick();
                    }
                    pinned.map(|()| (sent, refused))
                })
            })
            .collect();
        std::thread::sleep((plan.time / 8).max(Duration::from_millis(10)));
        let (start, cpu_before, wakes, packets) =
            (Instant::now(), cpu(), inbox.wakes(), received());
        std::thread::sleep(plan.time);
        let (time, used) = (start.elapsed(), cpu().saturating_sub(cpu_before));
        let packets = received() - packets;
        let wakes = inbox
            .wakes()
            .zip(wakes)
            .map(|(after, before)| after - before);
        stop.store(true, Ordering::Relaxed);
        let (mut sent, mut refused) = (0, 0);
        for sender in senders {
            let (s, r) = joined(sender)?;
            (sent, refused) = (sent + s, refused + r);
        }
        let deadline = Instant::now() + Duration::from_secs(10);
        while received() + refused < sent && Instant::now() < deadline {
            std::thread::sleep(Duration::from_micros(200));
        }
        drop(end);
        let (disorder, sleeps) = joined(worker)?;
        let got = received();
        if disorder > 0 || got + refused != sent {
            return Err(BenchError::Measure(format!(
                "{name}: of {sent} packets {got} arrived and {refused} were refused; {disorder} \
                 out of order"
            )));
        }
        Ok(Outcome {
            packets,
            time,
            wakes,
            sleeps,
            cpu: used,
            refused,
        })
    })
}
