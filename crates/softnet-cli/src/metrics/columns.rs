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

/// A table of columns, `KIND "name": "help" = value;`, of which the value is that of `$one`.
macro_rules! columns {
    (
        $table:ident: $of:ty, |$one:ident|
        $($kind:ident $name:literal: $help:literal = $value:expr;)+
    ) => {
        pub(super) const $table: &[Column<$of>] =
            &[$(($name, Type::$kind, $help, |$one| $value)),+];
    };
}

columns! { PORT: PortStats, |p|
    Gauge "port_up": "1 if the port's link is up." = f64::from(u8::from(p.link.up));
    Counter "port_receive_packets_total": "Wire packets received." = p.device.rx_packets as f64;
    Counter "port_receive_bytes_total": "Bytes received." = p.device.rx_bytes as f64;
    Counter "port_transmit_packets_total": "Wire packets sent." = p.device.tx_packets as f64;
    Counter "port_transmit_bytes_total": "Bytes sent." = p.device.tx_bytes as f64;
    Gauge "port_queued_packets":
        "Wire packets that wait in transmit queues." = p.device.queued as f64;
    Counter "port_transmit_timeouts_total":
        "Queues restarted by the watchdog." = p.device.tx_timeouts as f64;
}

columns! { CLASS: ClassStats, |c|
    Counter "class_packets_total": "Wire packets that left a class." = c.stats.packets as f64;
    Counter "class_bytes_total": "Bytes that left a class." = c.stats.bytes as f64;
    Counter "class_drops_total": "Frames that a class refused or dropped." = c.stats.drops as f64;
    Counter "class_overlimits_total":
        "Times that a class waited for its rate." = c.stats.overlimits as f64;
    Gauge "class_queued_packets": "Frames that wait in a class." = c.stats.qlen as f64;
    Gauge "class_queued_bytes": "Bytes that wait in a class." = c.stats.backlog as f64;
}

columns! { WORKER: WorkerStats, |w|
    Counter "worker_packets_total": "Wire packets that a worker processed." = w.processed as f64;
    Counter "worker_backlog_drops_total": "Packets that found a backlog full." = w.dropped as f64;
    Counter "worker_time_squeezes_total":
        "Rounds that ended with work left." = w.time_squeeze as f64;
    Gauge "worker_backlog_packets": "Packets on a worker's backlog." = w.backlog() as f64;
    Counter "worker_sleeps_total": "Times that a worker slept." = w.sleeps as f64;
    Counter "worker_wakes_total": "Times that a worker was woken." = w.wakes as f64;
    Counter "worker_wakes_sent_total": "Wake-ups that a worker sent." = w.wakes_sent as f64;
    Counter "worker_busy_seconds_total":
        "Time in which a worker worked."
            = w.uptime.saturating_sub(w.asleep + w.polling).as_secs_f64();
    Counter "worker_polling_seconds_total":
        "Time in which a worker polled." = w.polling.as_secs_f64();
    Counter "worker_asleep_seconds_total":
        "Time in which a worker slept." = w.asleep.as_secs_f64();
}

columns! { POOL: softnet::mem::PoolStats, |p|
    Gauge "pool_buffers": "Buffers of a pool." = p.buffers as f64;
    Gauge "pool_free_buffers": "Buffers of a pool that are free." = p.free as f64;
    Counter "pool_allocations_total": "Buffers allocated." = p.allocated as f64;
    Counter "pool_exhausted_total": "Allocations refused: nothing was free." = p.exhausted as f64;
    Counter "pool_remote_frees_total": "Buffers sent back to their owner." = p.remote_freed as f64;
}

columns! { QUEUE: QueueStats, |q|
    Counter "queue_packets_total": "Wire packets sent by a transmit queue." = q.tx_packets as f64;
    Counter "queue_bytes_total": "Bytes sent by a transmit queue." = q.tx_bytes as f64;
    Counter "queue_drops_total":
        "Frames that a transmit queue's qdisc refused or dropped." = q.qdisc.drops as f64;
    Counter "queue_overlimits_total":
        "Times that a transmit queue waited for its rate." = q.qdisc.overlimits as f64;
    Counter "queue_requeues_total": "Frames that the driver gave back." = q.qdisc.requeues as f64;
    Gauge "queue_queued_packets": "Frames that wait in a transmit queue." = q.qdisc.qlen as f64;
    Gauge "queue_queued_bytes": "Bytes that wait in a transmit queue." = q.qdisc.backlog as f64;
}

/// Use of a group in one direction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Use {
    pub bytes: u64,
    pub packets: u64,
}

columns! { GROUP_USE: Use, |of|
    Counter "rate_group_bytes_total":
        "Bytes sent to the ports of a group, and received from them." = of.bytes as f64;
    Counter "rate_group_packets_total":
        "Wire packets sent to the ports of a group, and received from them." = of.packets as f64;
}

columns! { GROUP: GroupSpec, |g|
    Gauge "rate_group_bytes_per_second":
        "Rate of a group; 0: none in bytes." = g.bytes.map_or(0.0, |rate| rate.rate as f64);
    Gauge "rate_group_packets_per_second":
        "Rate of a group; 0: none in packets." = g.packets.map_or(0.0, |rate| rate.rate as f64);
}
