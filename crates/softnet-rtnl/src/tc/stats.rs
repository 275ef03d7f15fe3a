//! Statistics as every qdisc and class has them: `TCA_STATS2`, and `TCA_STATS` for older programs.
//!
//! Source: `net/core/gen_stats.c`.

use softnet::qdisc::QdiscStats;
use softnet_tc::Rate;
use zerocopy::{Immutable, IntoBytes};

use super::kinds::App;
use super::{TCA_STATS, TCA_STATS2, TCA_XSTATS, extras};
use crate::nl::Message;

const TCA_STATS_BASIC: u16 = 1;
const TCA_STATS_QUEUE: u16 = 3;
const TCA_STATS_APP: u16 = 4;
const TCA_STATS_PKT64: u16 = 8;

/// `struct gnet_stats_basic`.
#[derive(Immutable, IntoBytes)]
#[repr(C)]
struct Basic {
    bytes: u64,
    packets: u32,
    pad: u32,
}

/// `struct gnet_stats_queue`.
#[derive(Immutable, IntoBytes)]
#[repr(C)]
struct Queue {
    qlen: u32,
    backlog: u32,
    drops: u32,
    requeues: u32,
    overlimits: u32,
}

/// `struct tc_stats`.
#[derive(Default, Immutable, IntoBytes)]
#[repr(C)]
struct Old {
    bytes: u64,
    packets: u32,
    drops: u32,
    overlimits: u32,
    bps: u32,
    pps: u32,
    qlen: u32,
    backlog: u32,
    pad: u32,
}

impl Basic {
    fn put(stats: &QdiscStats, out: &mut Message<'_>) -> Basic {
        let basic = Basic {
            bytes: stats.bytes,
            packets: stats.packets as u32,
            pad: 0,
        };
        out.put(TCA_STATS_BASIC, &basic);
        if stats.packets > u32::MAX.into() {
            out.put_u64(TCA_STATS_PKT64, stats.packets);
        }
        basic
    }
}

impl Queue {
    fn put(stats: &QdiscStats, out: &mut Message<'_>) -> Queue {
        let queue = Queue {
            qlen: stats.qlen as u32,
            backlog: stats.backlog as u32,
            drops: stats.drops as u32,
            requeues: stats.requeues as u32,
            overlimits: stats.overlimits as u32,
        };
        out.put(TCA_STATS_QUEUE, &queue);
        queue
    }
}

/// Puts what an action has counted, and its rate if that is estimated (`tcf_action_copy_stats`).
pub(super) fn put_counts(stats: &QdiscStats, rate: Option<Rate>, out: &mut Message<'_>) {
    Basic::put(stats, out);
    if let Some(rate) = rate {
        extras::put_rate(&rate, out);
    }
    Queue::put(stats, out);
}

/// Puts what the action of a filter has counted as older programs read it (`TCA_OLD_COMPAT`).
pub(super) fn put_old(stats: &QdiscStats, rate: Option<Rate>, out: &mut Message<'_>) {
    let most = |rate| u32::try_from(rate).unwrap_or(u32::MAX);
    let old = Old {
        bytes: stats.bytes,
        packets: stats.packets as u32,
        drops: stats.drops as u32,
        overlimits: stats.overlimits as u32,
        bps: rate.map_or(0, |rate| most(rate.bytes)),
        pps: rate.map_or(0, |rate| most(rate.packets)),
        ..Old::default()
    };
    out.put(TCA_STATS, &old);
}

/// Puts the statistics of a qdisc or class, its rate if that is estimated, and what its kind counts
/// (`app`). No statistics: it counts nothing, which is not the same as to have counted nothing.
///
/// Counters of 32 bits come round, as the kernel's do; rates do not.
pub(super) fn put(
    stats: Option<&QdiscStats>,
    rate: Option<Rate>,
    app: Option<&App>,
    out: &mut Message<'_>,
) {
    let mut old = Old::default();
    out.nest(TCA_STATS2, |out| {
        if let Some(app) = app {
            out.put_bytes(TCA_STATS_APP, app.bytes());
        }
        let Some(stats) = stats else {
            return;
        };
        let basic = Basic::put(stats, out);
        let (mut bps, mut pps) = (0, 0);
        if let Some(rate) = rate {
            let most = |rate| u32::try_from(rate).unwrap_or(u32::MAX);
            (bps, pps) = (most(rate.bytes), most(rate.packets));
            extras::put_rate(&rate, out);
        }
        let queue = Queue::put(stats, out);
        old = Old {
            bytes: stats.bytes,
            packets: basic.packets,
            drops: queue.drops,
            overlimits: queue.overlimits,
            bps,
            pps,
            qlen: queue.qlen,
            backlog: queue.backlog,
            ..Old::default()
        };
    });
    out.put(TCA_STATS, &old);
    if let Some(App::Structure(app)) = app {
        out.put_bytes(TCA_XSTATS, app);
    }
}

/// Puts the statistics of a flow that is shown as a class: what waits there, and `app`.
pub(super) fn put_flow(stats: &QdiscStats, app: &App, out: &mut Message<'_>) {
    let mut old = Old::default();
    out.nest(TCA_STATS2, |out| {
        let queue = Queue::put(stats, out);
        out.put_bytes(TCA_STATS_APP, app.bytes());
        (old.qlen, old.backlog) = (queue.qlen, queue.backlog);
    });
    out.put(TCA_STATS, &old);
    out.put_bytes(TCA_XSTATS, app.bytes());
}
