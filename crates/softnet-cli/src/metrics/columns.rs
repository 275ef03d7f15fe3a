//! Metrics with a number for each port, class, queue, worker, pool or group, each described once.

use softnet::tx::QueueStats;
use softnet_engine::PortStats;
use softnet_engine::rx::WorkerStats;
use softnet_tc::ClassStats;
use softnet_tc::rate::GroupSpec;

/// A kind of metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Counter,
    Gauge,
    Histogram,
}

/// A number of each `T`.
pub(super) type Column<T> = (&'static str, Type, &'static str, fn(&T) -> f64);

pub(super) const PORT: &[Column<PortStats>] = &[
    ("port_up", Type::Gauge, "1 if the port's link is up.", |p| {
        f64::from(u8::from(p.link.up))
    }),
    (
        "port_receive_packets_total",
        Type::Counter,
        "Wire packets received.",
        |p| p.device.rx_packets as f64,
    ),
    (
        "port_receive_bytes_total",
        Type::Counter,
        "Bytes received.",
        |p| p.device.rx_bytes as f64,
    ),
    (
        "port_transmit_packets_total",
        Type::Counter,
        "Wire packets sent.",
        |p| p.device.tx_packets as f64,
    ),
    (
        "port_transmit_bytes_total",
        Type::Counter,
        "Bytes sent.",
        |p| p.device.tx_bytes as f64,
    ),
    (
        "port_queued_packets",
        Type::Gauge,
        "Wire packets that wait in transmit queues.",
        |p| p.device.queued as f64,
    ),
    (
        "port_transmit_timeouts_total",
        Type::Counter,
        "Queues restarted by the watchdog.",
        |p| p.device.tx_timeouts as f64,
    ),
];

pub(super) const CLASS: &[Column<ClassStats>] = &[
    (
        "class_packets_total",
        Type::Counter,
        "Wire packets that left a class.",
        |c| c.stats.packets as f64,
    ),
    (
        "class_bytes_total",
        Type::Counter,
        "Bytes that left a class.",
        |c| c.stats.bytes as f64,
    ),
    (
        "class_drops_total",
        Type::Counter,
        "Frames that a class refused or dropped.",
        |c| c.stats.drops as f64,
    ),
    (
        "class_overlimits_total",
        Type::Counter,
        "Times that a class waited for its rate.",
        |c| c.stats.overlimits as f64,
    ),
    (
        "class_queued_packets",
        Type::Gauge,
        "Frames that wait in a class.",
        |c| c.stats.qlen as f64,
    ),
    (
        "class_queued_bytes",
        Type::Gauge,
        "Bytes that wait in a class.",
        |c| c.stats.backlog as f64,
    ),
];

pub(super) const WORKER: &[Column<WorkerStats>] = &[
    (
        "worker_packets_total",
        Type::Counter,
        "Wire packets that a worker processed.",
        |w| w.processed as f64,
    ),
    (
        "worker_backlog_drops_total",
        Type::Counter,
        "Packets that found a backlog full.",
        |w| w.dropped as f64,
    ),
    (
        "worker_time_squeezes_total",
        Type::Counter,
        "Rounds that ended with work left.",
        |w| w.time_squeeze as f64,
    ),
    (
        "worker_backlog_packets",
        Type::Gauge,
        "Packets on a worker's backlog.",
        |w| w.backlog() as f64,
    ),
    (
        "worker_sleeps_total",
        Type::Counter,
        "Times that a worker slept.",
        |w| w.sleeps as f64,
    ),
    (
        "worker_wakes_total",
        Type::Counter,
        "Times that a worker was woken.",
        |w| w.wakes as f64,
    ),
    (
        "worker_wakes_sent_total",
        Type::Counter,
        "Wake-ups that a worker sent.",
        |w| w.wakes_sent as f64,
    ),
    (
        "worker_busy_seconds_total",
        Type::Counter,
        "Time in which a worker worked.",
        |w| w.uptime.saturating_sub(w.asleep + w.polling).as_secs_f64(),
    ),
    (
        "worker_polling_seconds_total",
        Type::Counter,
        "Time in which a worker polled.",
        |w| w.polling.as_secs_f64(),
    ),
    (
        "worker_asleep_seconds_total",
        Type::Counter,
        "Time in which a worker slept.",
        |w| w.asleep.as_secs_f64(),
    ),
];

pub(super) const POOL: &[Column<softnet::mem::PoolStats>] = &[
    ("pool_buffers", Type::Gauge, "Buffers of a pool.", |p| {
        p.buffers as f64
    }),
    (
        "pool_free_buffers",
        Type::Gauge,
        "Buffers of a pool that are free.",
        |p| p.free as f64,
    ),
    (
        "pool_allocations_total",
        Type::Counter,
        "Buffers allocated.",
        |p| p.allocated as f64,
    ),
    (
        "pool_exhausted_total",
        Type::Counter,
        "Allocations refused: nothing was free.",
        |p| p.exhausted as f64,
    ),
    (
        "pool_remote_frees_total",
        Type::Counter,
        "Buffers sent back to their owner.",
        |p| p.remote_freed as f64,
    ),
];

pub(super) const QUEUE: &[Column<QueueStats>] = &[
    (
        "queue_packets_total",
        Type::Counter,
        "Wire packets sent by a transmit queue.",
        |q| q.tx_packets as f64,
    ),
    (
        "queue_bytes_total",
        Type::Counter,
        "Bytes sent by a transmit queue.",
        |q| q.tx_bytes as f64,
    ),
    (
        "queue_drops_total",
        Type::Counter,
        "Frames that a transmit queue's qdisc refused or dropped.",
        |q| q.qdisc.drops as f64,
    ),
    (
        "queue_overlimits_total",
        Type::Counter,
        "Times that a transmit queue waited for its rate.",
        |q| q.qdisc.overlimits as f64,
    ),
    (
        "queue_requeues_total",
        Type::Counter,
        "Frames that the driver gave back.",
        |q| q.qdisc.requeues as f64,
    ),
    (
        "queue_queued_packets",
        Type::Gauge,
        "Frames that wait in a transmit queue.",
        |q| q.qdisc.qlen as f64,
    ),
    (
        "queue_queued_bytes",
        Type::Gauge,
        "Bytes that wait in a transmit queue.",
        |q| q.qdisc.backlog as f64,
    ),
];

/// Use of a group in one direction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Use {
    pub bytes: u64,
    pub packets: u64,
}

pub(super) const GROUP_USE: &[Column<Use>] = &[
    (
        "rate_group_bytes_total",
        Type::Counter,
        "Bytes sent to the ports of a group, and received from them.",
        |of| of.bytes as f64,
    ),
    (
        "rate_group_packets_total",
        Type::Counter,
        "Wire packets sent to the ports of a group, and received from them.",
        |of| of.packets as f64,
    ),
];

pub(super) const GROUP: &[Column<GroupSpec>] = &[
    (
        "rate_group_bytes_per_second",
        Type::Gauge,
        "Rate of a group; 0: none in bytes.",
        |g| g.bytes.map_or(0.0, |rate| rate.rate as f64),
    ),
    (
        "rate_group_packets_per_second",
        Type::Gauge,
        "Rate of a group; 0: none in packets.",
        |g| g.packets.map_or(0.0, |rate| rate.rate as f64),
    ),
];
