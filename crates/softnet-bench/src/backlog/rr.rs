//! Request and response: flows between two workers, each with one transaction under way, as
//! `netperf -t TCP_RR` has.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use softnet::mem::{Packet, PacketList, Pool};
use softnet::stats::Counts;
use softnet::time::Time;
use softnet_testbed::threads::joined;

use super::inbox;
use super::worker::{sleeps, work};
use crate::buffers::pinned::{Cpus, pin};
use crate::error::BenchError;
use crate::tx_adopt::Ticks;
use crate::tx_adopt::load::cpu;

/// The load that is measured.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    pub(super) flows: usize,
    /// Time that each side spends on a packet, as a protocol stack would, besides reading and
    /// turning its headers.
    pub(super) service: Duration,
    pub(super) time: Duration,
}

/// The result.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) transactions: u64,
    pub(super) time: Duration,
    pub(super) latency: Counts<4>,
    /// Wake-ups of both workers, if they are counted.
    pub(super) wakes: Option<u64>,
    pub(super) sleeps: u64,
    pub(super) cpu: Duration,
}

const WARM_UP: u8 = 0;
const MEASURE: u8 = 1;
const STOP: u8 = 2;

/// An Ethernet frame with IPv4, UDP and 18 bytes.
fn request(pool: &Pool, flow: u16) -> Option<Packet> {
    let mut frame = [0; 60];
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14..34].copy_from_slice(&[
        0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ]);
    frame[34..36].copy_from_slice(&flow.to_be_bytes());
    frame[36..42].copy_from_slice(&[0, 7, 0, 26, 0, 0]);
    let mut packet = pool.alloc().ok()?;
    packet.append(&frame).then_some(packet)
}

/// Turns a packet around, and takes the time that a stack would.
fn turn(packet: &mut Packet, ticks: &Ticks, service: u64) -> bool {
    let Ok(headers) = packet.parse() else {
        return false;
    };
    let hash = headers.flow_hash(packet.data());
    packet.set_flow_hash(hash);
    let (network, transport) = (
        usize::from(headers.network_offset),
        usize::from(headers.transport_offset),
    );
    let data = packet.data_mut();
    let mut swap = |at: usize, len: usize| {
        let (a, b) = data[at..at + 2 * len].split_at_mut(len);
        a.swap_with_slice(b);
    };
    swap(0, 6);
    swap(network + 12, 4);
    swap(transport, 2);
    if service > 0 {
        let end = ticks.nanos() + service;
        while ticks.nanos() < end {
            std::hint::spin_loop();
        }
    }
    true
}

/// Measures the variant `name`.
pub(super) fn measure(
    name: &str,
    cpus: Cpus,
    ticks: &Ticks,
    plan: Plan,
) -> Result<Outcome, BenchError> {
    let pool = crate::buffers::pool(plan.flows + 256, 2048)?;
    let (client, mut client_owner) = inbox::make(name)?;
    let (server, mut server_owner) = inbox::make(name)?;
    let mut first = PacketList::new();
    for flow in 0..plan.flows {
        let Some(mut packet) = request(&pool, flow as u16) else {
            return Err(BenchError::Measure("the pool is too small".into()));
        };
        packet.set_timestamp(ticks.now());
        first.push_back(packet);
    }
    let service = plan.service.as_nanos() as u64;
    let (phase, stop) = (AtomicU8::new(WARM_UP), AtomicBool::new(false));
    let (transactions, slept) = (AtomicU64::new(0), AtomicU64::new(0));
    let (mut time, mut used, mut wakes) = (Duration::ZERO, Duration::ZERO, None);
    let (mut latency, mut broken) = (Counts::<4>::default(), 0);
    let both = || Some(client.wakes()? + server.wakes()?);
    std::thread::scope(|scope| -> Result<(), BenchError> {
        let (phase, stop, slept, transactions) = (&phase, &stop, &slept, &transactions);
        let (client, server) = (&client, &server);
        let serve = scope.spawn(move || {
            let pinned = pin(cpus.b);
            let (mut broken, before) = (0, sleeps());
            broken += work(&mut *server_owner, Some(client), stop, |packets| {
                packets.for_each_mut(|packet| {
                    broken += usize::from(!turn(packet, ticks, service));
                });
            });
            slept.fetch_add(sleeps() - before, Ordering::Relaxed);
            pinned.map(|()| broken)
        });
        let ask = scope.spawn(move || {
            let pinned = pin(cpus.a);
            let (mut latency, mut broken, before) = (Counts::<4>::default(), 0, sleeps());
            broken += work(&mut *client_owner, Some(server), stop, |packets| {
                let now = phase.load(Ordering::Relaxed);
                if now == STOP {
                    drop(packets.take());
                    return;
                }
                let mut done = 0;
                packets.for_each_mut(|packet| {
                    broken += usize::from(!turn(packet, ticks, service));
                    let arrived = ticks.nanos();
                    if now == MEASURE {
                        latency.record(arrived.saturating_sub(packet.timestamp().nanos()));
                    }
                    packet.set_timestamp(Time(arrived));
                    done += 1;
                });
                // The only writer.
                let sum = transactions.load(Ordering::Relaxed) + done;
                transactions.store(sum, Ordering::Relaxed);
            });
            slept.fetch_add(sleeps() - before, Ordering::Relaxed);
            pinned.map(|()| (latency, broken))
        });
        broken += server.push(first);
        server.kick();
        std::thread::sleep((plan.time / 8).max(Duration::from_millis(10)));
        let (start, cpu_before, wakes_before, done) = (
            Instant::now(),
            cpu(),
            both(),
            transactions.load(Ordering::Relaxed),
        );
        phase.store(MEASURE, Ordering::Relaxed);
        std::thread::sleep(plan.time);
        let counted = transactions.load(Ordering::Relaxed) - done;
        (time, used) = (start.elapsed(), cpu().saturating_sub(cpu_before));
        wakes = both()
            .zip(wakes_before)
            .map(|(after, before)| after - before);
        phase.store(STOP, Ordering::Relaxed);
        // The client swallows the answers; when all packets are back in their pool, both workers
        // sleep.
        let deadline = Instant::now() + Duration::from_secs(10);
        while pool.stats().free != pool.stats().buffers && Instant::now() < deadline {
            std::thread::sleep(Duration::from_micros(200));
        }
        stop.store(true, Ordering::Release);
        client.stop();
        server.stop();
        let served = joined(serve);
        let asked = joined(ask);
        broken += served?;
        let (counts, more) = asked?;
        latency = counts;
        broken += more;
        transactions.store(counted, Ordering::Relaxed);
        Ok(())
    })?;
    let left = pool.stats().buffers - pool.stats().free;
    if broken > 0 || left > 0 {
        return Err(BenchError::Measure(format!(
            "{name}: {broken} packets were refused or damaged, {left} got lost"
        )));
    }
    Ok(Outcome {
        transactions: transactions.into_inner(),
        time,
        latency,
        wakes,
        sleeps: slept.into_inner(),
        cpu: used,
    })
}
