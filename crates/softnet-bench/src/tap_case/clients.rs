//! Bulk transfer by many TCP senders with small segments over ports of several queues: by iperf
//! (version 2), and by more senders of little each.

use std::time::Duration;

use serde_json::json;
use softnet_testbed::threads::joined;

use crate::error::BenchError;
use crate::hosts::Topology;
use crate::report::{Field, Param};
use crate::traffic::window::{Seen, Window};
use crate::traffic::{iperf2, senders, sink};

/// Senders of iperf, and those that send little each.
const CLIENTS: usize = 200;
const SHORT_CLIENTS: usize = 1200;
/// Queues of each port, where the switch can have several.
pub(crate) const QUEUES: usize = 4;
const MSS: u16 = 400;

/// Parameters of the rows of [`many`].
pub(crate) fn many_params() -> Vec<Param> {
    params("iperf", CLIENTS)
}

/// Parameters of the rows of [`short`].
pub(crate) fn short_params() -> Vec<Param> {
    params("sockets", SHORT_CLIENTS)
}

fn params(generator: &str, clients: usize) -> Vec<Param> {
    vec![
        ("generator", json!(generator)),
        ("clients", json!(clients)),
        ("mss", json!(MSS)),
        ("queues", json!(QUEUES)),
    ]
}

/// As many senders as iperf carries.
///
/// # Errors
/// [`BenchError::Unavailable`] without iperf.
pub(crate) fn many(
    topology: &Topology,
    warm_up: Duration,
    time: Duration,
) -> Result<Vec<Field>, BenchError> {
    let sink = sink::Sink::listen(topology, MSS)?;
    let clients = iperf2::Clients::start(topology, CLIENTS, MSS, warm_up + time)?;
    let window = Window::after(warm_up, time);
    let (received, seen) = sink.count(topology, None, window, || clients.check())?;
    drop(clients);
    let mut fields = fields(received.bytes, window, &seen);
    fields.push(("connections_seen", received.connections as f64));
    Ok(fields)
}

/// Connections that end and are replaced.
pub(crate) fn short(
    topology: &Topology,
    warm_up: Duration,
    time: Duration,
) -> Result<Vec<Field>, BenchError> {
    let sink = sink::Sink::listen(topology, MSS)?;
    let window = Window::after(warm_up, time);
    let limit = Some(senders::EACH);
    let (received, seen, failed) = std::thread::scope(|scope| {
        let senders = scope.spawn(|| senders::run(topology, SHORT_CLIENTS, window));
        let counted = sink.count(topology, limit, window, || Ok(()));
        let failed = joined(senders)?;
        let (received, seen) = counted?;
        Ok::<_, BenchError>((received, seen, failed))
    })?;
    let finished = received.finished as f64;
    let mut fields = fields(received.bytes, window, &seen);
    fields.push(("connections_per_s", finished / window.seconds()));
    fields.push(("failed", failed as f64));
    Ok(fields)
}

fn fields(bytes: u64, window: Window, seen: &Seen) -> Vec<Field> {
    let gbit = bytes as f64 * 8.0 / 1e9;
    vec![
        ("gbps", gbit / window.seconds()),
        ("cpu_s_per_gbit", seen.busy_s / gbit.max(1e-9)),
        ("retransmits", seen.retransmits),
        ("device_drops", seen.device_drops),
    ]
}
