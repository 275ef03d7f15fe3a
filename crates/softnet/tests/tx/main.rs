//! The transmit path with every kind of qdisc, from outside: only what is public.

#![cfg(not(loom))]

mod basic;
mod bench;
mod bound;
#[cfg(not(miri))]
mod bug;
mod control;
#[cfg(not(miri))]
mod driver;
#[cfg(not(miri))]
mod large_frame;
#[cfg(not(miri))]
mod mq;
#[cfg(not(miri))]
mod quota;
#[cfg(not(miri))]
mod requeue;
mod standalone;
mod stress;
#[cfg(not(miri))]
mod transmit;

use std::sync::Arc;

use softnet::mem::Pool;
use softnet::time::Clock;
use softnet::tx::*;
use softnet_tc::{AnyQdisc, QdiscSpec, SetQdisc, SpecError};

type Device<R> = softnet::tx::Device<R, AnyQdisc>;
type Standalone<R> = softnet::tx::Standalone<R, AnyQdisc>;

/// A device; `workers` as for [`softnet::tx::Device::new`].
fn new_device<R: TxRing>(
    config: DeviceConfig,
    qdisc: QdiscSpec,
    rings: Vec<R>,
    pool: &Pool,
    workers: &[(Arc<Notifier>, usize)],
) -> Result<Device<R>, SpecError> {
    let qdiscs = qdisc.instances(rings.len(), pool)?;
    Ok(Device::new(config, rings, qdiscs, pool, workers))
}

/// A standalone device.
fn start<R: TxRing + 'static>(
    config: DeviceConfig,
    qdisc: QdiscSpec,
    rings: Vec<R>,
    pool: &Pool,
    clock: Clock,
) -> Standalone<R> {
    let qdiscs = qdisc.instances(rings.len(), pool).expect("a qdisc");
    Standalone::start(config, rings, qdiscs, pool, clock).expect("a thread")
}
