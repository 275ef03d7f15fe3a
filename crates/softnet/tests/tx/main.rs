//! The transmit path with every kind of qdisc, from outside: only what is public.

#![cfg(not(loom))]

mod basic;
mod bound;
#[cfg(not(miri))]
mod bug;
mod capacity;
mod control;
#[cfg(not(miri))]
mod driver;
#[cfg(not(miri))]
mod embed;
#[cfg(not(miri))]
mod large_frame;
#[cfg(not(miri))]
mod lost;
#[cfg(not(miri))]
mod mq;
#[cfg(not(miri))]
mod panic;
#[cfg(not(miri))]
mod parallel;
#[cfg(not(miri))]
mod quota;
#[cfg(not(miri))]
mod reinject;
#[cfg(not(miri))]
mod requeue;
mod sender;
mod stress;
#[cfg(not(miri))]
mod transmit;

use softnet::mem::{Packet, PacketList, Pool};
use softnet::qdisc::Cx;
use softnet::testing::{Script, ScriptedRing, config, frame, pool};
use softnet::time::{Clock, Time};
use softnet::tx::*;
use softnet::wire::{Gso, GsoKind};
use softnet_io::middleware::FaultInjector;
use softnet_tc::{AnyQdisc, QdiscSpec, SpecError, TbfSpec};

type Bench<R = ScriptedRing> = softnet::testing::Bench<AnyQdisc, R>;
type Sender<R> = softnet::tx::Sender<R, AnyQdisc>;

/// Packets of a bench's pool.
const BUFFERS: usize = if cfg!(miri) { 512 } else { 4096 };

/// A driver that gives what it sends to a function.
struct Sink<F>(F);

impl<F> std::fmt::Debug for Sink<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sink")
    }
}

impl<F: FnMut(Packet) + Send> TxRing for Sink<F> {
    fn xmit(&mut self, packets: &mut PacketList, sent: &mut Sent) -> Xmit {
        while let Some(packet) = packets.pop_front() {
            sent.count(&packet);
            (self.0)(packet);
        }
        Xmit::Complete
    }
}

/// A device with scripted rings.
fn scripted(qdisc: QdiscSpec, queues: usize) -> Bench {
    configured(config("bench"), qdisc, queues).expect("a qdisc")
}

fn configured(config: DeviceConfig, qdisc: QdiscSpec, queues: usize) -> Result<Bench, SpecError> {
    let pool = pool(BUFFERS);
    let qdiscs = qdisc.instances(queues, &pool)?;
    Ok(Bench::scripted(config, qdiscs, &pool))
}

/// A device with other rings.
fn with_rings<R: TxRing>(qdisc: QdiscSpec, rings: Vec<R>) -> Bench<R> {
    let pool = pool(BUFFERS);
    let qdiscs = qdisc.instances(rings.len(), &pool).expect("a qdisc");
    Bench::new(config("bench"), rings, qdiscs, &pool)
}

fn policy(policy: TxPolicy) -> DeviceConfig {
    DeviceConfig {
        policy,
        ..config("bench")
    }
}

fn features(features: Features) -> DeviceConfig {
    DeviceConfig {
        features,
        ..config("bench")
    }
}

/// Changes of a device in `tc`'s words.
trait SetQdisc {
    fn set_qdisc(&self, spec: &QdiscSpec, now: Time) -> Result<(), SpecError>;
    /// Changes the root of one queue.
    fn change_qdisc(&self, queue: usize, spec: &QdiscSpec) -> Result<(), SpecError>;
}

impl<R: TxRing> SetQdisc for Device<R, AnyQdisc> {
    fn set_qdisc(&self, spec: &QdiscSpec, now: Time) -> Result<(), SpecError> {
        self.set_qdiscs(
            spec.instances(self.queues().len(), self.pool())?,
            &Clock::virtual_at(now),
        )
        .unwrap();
        Ok(())
    }

    fn change_qdisc(&self, queue: usize, spec: &QdiscSpec) -> Result<(), SpecError> {
        let change = |qdisc: &mut AnyQdisc, cx: &mut Cx| qdisc.change(spec, cx);
        let result = self.with_qdisc(queue, &Clock::virtual_at(Time::ZERO), change);
        result.expect("a queue in use")
    }
}

/// Sets another root qdisc.
trait Set {
    fn set(&self, qdisc: &QdiscSpec);
}

impl<R: TxRing> Set for Bench<R> {
    fn set(&self, qdisc: &QdiscSpec) {
        self.device.set_qdisc(qdisc, Time::ZERO).expect("a qdisc");
    }
}

/// A device without an engine.
fn start<R: TxRing + 'static>(
    config: DeviceConfig,
    qdisc: QdiscSpec,
    rings: Vec<R>,
    pool: &Pool,
    clock: Clock,
) -> Sender<R> {
    let qdiscs = qdisc.instances(rings.len(), pool).expect("a qdisc");
    let sender = softnet::tx::Sender::builder().name(config.name);
    let sender = sender.features(config.features).policy(config.policy);
    let sender = sender.qdiscs(qdiscs).pool(pool).clock(clock);
    sender.start_all(rings).expect("a thread")
}

/// A token bucket.
fn shaped(rate: u64, burst: u64, limit: u64) -> QdiscSpec {
    QdiscSpec::Tbf(TbfSpec {
        rate,
        burst,
        limit,
        ..TbfSpec::default()
    })
}

/// A packet of 100 bytes of a flow.
fn flow(pool: &Pool, hash: u32, priority: u32, mark: u32) -> Packet {
    let mut packet = frame(pool, 1, 2, 100, mark);
    packet.set_flow_hash(hash);
    packet.set_priority(priority);
    packet
}

/// Packets of one flow each.
fn flows(pool: &Pool, marks: impl IntoIterator<Item = u32>) -> PacketList {
    let flow = |mark: u32| flow(pool, mark.wrapping_mul(0x9E37_79B9), 0, mark);
    marks.into_iter().map(flow).collect()
}

/// Metadata of a large TCP frame.
fn gso(size: u16, segments: u16, header_len: u16) -> Gso {
    Gso {
        kind: GsoKind::TcpV4,
        ecn: false,
        size,
        segments,
        header_len,
    }
}
