//! Actions on egress: where packets and copies go, and that every loop ends (INV-TX-16,
//! BUG-TX-15, BUG-TX-16).

use std::sync::Arc;

use super::hook::Departure;
use super::mirred::*;
use crate::engine::exchange::ToBacklog;
use crate::rx::{Backlog, BacklogOwner, MAX_BACKLOG};
use softnet::mem::{PacketList, Pool};
use softnet::stats::DropReason;
use softnet::testing::{Bench, NoWake, ScriptedRing, config, frame, pool};
use softnet::time::Time;
use softnet::tx::{DeviceStats, Notifier, RUN_QUOTA, XmitResult};
use softnet_tc::{AnyQdisc, QdiscSpec};

use MirredDir::{Egress, Ingress};
use MirredMode::{Mirror, Redirect};

/// Devices with one ring each.
struct Devices {
    devices: Vec<Bench<AnyQdisc>>,
    /// By device.
    actions: Vec<Arc<Actions<ScriptedRing>>>,
    pool: Pool,
}

impl Devices {
    fn new(devices: usize, buffers: usize) -> Devices {
        let pool = pool(buffers);
        let bench = |n| {
            let qdiscs = QdiscSpec::default().instances(1, &pool).unwrap();
            Bench::scripted(config(&format!("d{n}")), qdiscs, &pool)
        };
        Devices {
            devices: (0..devices).map(bench).collect(),
            actions: vec![Arc::default(); devices],
            pool,
        }
    }

    fn act(&mut self, device: usize, actions: &[(MirredMode, MirredDir, usize)]) {
        let actions = actions
            .iter()
            .map(|&(mode, dir, to)| {
                Mirred::new(mode, dir, 0, Arc::downgrade(&self.devices[to].device))
            })
            .collect();
        let actions = Arc::new(Actions::new(actions));
        self.actions[device] = actions.clone();
        let departure = Departure {
            hooks: None,
            actions,
        };
        (self.devices[device].device).set_egress(Some(Box::new(departure)));
    }

    /// Gives a device a worker's backlog, as an engine does.
    fn receives(&self, device: usize, port: u16) -> BacklogOwner {
        let (backlog, owner) = Backlog::new(MAX_BACKLOG);
        let notifier = Arc::new(Notifier::new(1, Arc::new(NoWake)));
        self.devices[device].device.set_ingress(Box::new(ToBacklog {
            port,
            backlog,
            notifier,
        }));
        owner
    }

    fn send(&self, device: usize, marks: std::ops::Range<u32>) -> XmitResult {
        let list: PacketList = marks.map(|m| frame(&self.pool, 1, 2, 300, m)).collect();
        self.devices[device].device.transmit(list, Time::ZERO)
    }

    fn stats(&self, device: usize) -> DeviceStats {
        self.devices[device].device.stats()
    }

    fn actions(&self, device: usize) -> Vec<ActionStats> {
        self.actions[device].stats()
    }

    /// Each device's sent packets; INV-TX-1 with copies: `offered + copied = sent + dropped` when
    /// nothing waits.
    fn settle(&self, offered: u64) -> Vec<u64> {
        for Bench { device, .. } in &self.devices {
            while !device.queues()[0].is_empty() {
                let _ = device.run_from_worker(0, RUN_QUOTA, Time::ZERO);
            }
        }
        let stats: Vec<_> = self.devices.iter().map(|d| d.device.stats()).collect();
        let copied: u64 = stats.iter().map(|s| s.copied).sum();
        let sent: Vec<u64> = stats.iter().map(|s| s.tx_packets).collect();
        let dropped: u64 = stats.iter().map(DeviceStats::dropped).sum();
        assert_eq!(
            offered + copied,
            sent.iter().sum::<u64>() + dropped,
            "{stats:?}"
        );
        assert_eq!(self.pool.stats().free, self.pool.stats().buffers);
        sent
    }
}

#[test]
fn a_redirect_sends_elsewhere_and_a_mirror_also() {
    let mut net = Devices::new(3, 256);
    net.act(
        0,
        &[
            (Mirror, Egress, 1),
            (Redirect, Egress, 2),
            (Mirror, Egress, 1),
        ],
    );
    assert_eq!(net.send(0, 0..10), XmitResult::Success);
    assert_eq!(
        net.settle(10),
        [0, 10, 10],
        "nothing comes after a redirect"
    );
    assert_eq!(net.devices[1].marks(0), (0..10).collect::<Vec<_>>());
    assert_eq!(net.devices[2].marks(0), (0..10).collect::<Vec<_>>());
    assert_eq!(net.stats(0).copied, 10);
    let actions = net.actions(0);
    assert_eq!(actions[0].action, "mirred egress mirror dev d1");
    assert_eq!(actions[1].action, "mirred egress redirect dev d2");
    assert_eq!([0, 1, 2].map(|i| actions[i].packets), [10, 10, 0]);
    net.devices[0].device.set_egress(None);
    net.send(0, 10..12);
    assert_eq!(net.settle(12), [2, 10, 10]);
}

/// BUG-TX-15: a device that sends to itself (a deadlock on the root lock, CVE-2024-27010), and two
/// that send to each other: the packet goes round once, and is dropped before it would again.
#[test]
fn bug_tx_15_loops_of_one_and_two_devices_end() {
    let mut net = Devices::new(2, 256);
    net.act(0, &[(Redirect, Egress, 0)]);
    assert_eq!(net.send(0, 0..3), XmitResult::Drop);
    assert_eq!(net.settle(3), [0, 0]);
    assert_eq!(net.stats(0).drops, [(DropReason::MirredLoop, 3)]);
    assert_eq!(net.actions(0)[0].overlimits, 3);

    let mut net = Devices::new(2, 256);
    net.act(0, &[(Redirect, Egress, 1)]);
    net.act(1, &[(Redirect, Egress, 0)]);
    net.send(0, 0..3);
    assert_eq!(net.settle(3), [0, 0]);
    assert_eq!(net.stats(0).drops, [(DropReason::MirredLoop, 3)]);
}

/// A mirror that would loop makes no copy; the packet itself goes on.
#[test]
fn bug_tx_15_mirrors_that_loop_make_no_more_copies() {
    let mut net = Devices::new(2, 256);
    net.act(0, &[(Mirror, Egress, 1)]);
    net.act(1, &[(Mirror, Egress, 0)]);
    assert_eq!(net.send(0, 0..4), XmitResult::Success);
    // 0 mirrors to 1, which mirrors to 0, where the loop is seen: each of the three packets is
    // sent.
    assert_eq!(net.settle(4), [8, 4]);
    let over: Vec<u64> = (0..2).map(|d| net.actions(d)[0].overlimits).collect();
    assert_eq!(over, [4, 0]);
    let mut net = Devices::new(1, 256);
    net.act(0, &[(Mirror, Egress, 0)]);
    net.send(0, 0..4);
    assert_eq!(net.settle(4), [8], "itself, and one copy");
}

/// INV-TX-16: devices in a row, each redirecting to the next: four transmits within each other,
/// not five.
#[test]
fn inv_tx_16_nesting_is_bounded() {
    let mut net = Devices::new(8, 256);
    (0..7).for_each(|n| net.act(n, &[(Redirect, Egress, n + 1)]));
    net.send(3, 0..2);
    assert_eq!(net.settle(2), [0, 0, 0, 0, 0, 0, 0, 2], "four are allowed");
    net.send(2, 0..2);
    assert_eq!(net.settle(4), [0, 0, 0, 0, 0, 0, 0, 2]);
    assert_eq!(net.stats(6).drops, [(DropReason::MirredNest, 2)]);
}

/// INV-TX-16: what other threads send at the same time is not taken for a loop. (With the kernel's
/// `q->owner` it was.)
#[test]
fn inv_tx_16_other_threads_packets_are_no_loop() {
    let each = if cfg!(miri) { 10 } else { 2_000 };
    let mut net = Devices::new(3, 4096);
    net.act(0, &[(Redirect, Egress, 2)]);
    net.act(1, &[(Redirect, Egress, 2)]);
    std::thread::scope(|scope| {
        for from in [0, 1, 2, 0] {
            let net = &net;
            scope.spawn(move || {
                for n in 0..each {
                    net.send(from, n..n + 1);
                    while net.devices[2].device.queues()[0].waiting() > 500 {
                        let _ = net.devices[2]
                            .device
                            .run_from_worker(0, RUN_QUOTA, Time::ZERO);
                    }
                }
            });
        }
    });
    assert_eq!(net.settle(4 * u64::from(each)), [0, 0, 4 * u64::from(each)]);
}

/// To ingress: packets wait for the target's worker, at most so many.
#[test]
fn a_backlog_is_bounded() {
    let mut net = Devices::new(2, 4096);
    net.act(0, &[(Redirect, Ingress, 1)]);
    net.send(0, 0..5);
    assert_eq!(
        net.stats(1).drops,
        [(DropReason::NoForward, 5)],
        "nobody receives there"
    );
    let mut owner = net.receives(1, 9);
    for n in 0..MAX_BACKLOG as u32 {
        assert_eq!(net.send(0, n..n + 1), XmitResult::Success);
    }
    assert_eq!(net.send(0, 0..3), XmitResult::Drop);
    let drops = net.stats(1).drops;
    assert_eq!(
        drops,
        [(DropReason::CpuBacklog, 3), (DropReason::NoForward, 5)]
    );
    let mut waiting = PacketList::new();
    owner.poll(usize::MAX, &mut waiting);
    assert_eq!(waiting.len(), MAX_BACKLOG);
    assert!(
        waiting
            .iter()
            .zip(0..)
            .all(|(p, n)| p.mark() == n && p.port() == 9)
    );
    // As if they were sent.
    let waited = waiting.len() as u64;
    drop(waiting);
    net.devices[1]
        .device
        .drops()
        .add(DropReason::QdiscReset, waited);
    net.settle(5 + waited + 3);
}

/// BUG-TX-16: the thread has no memory of a packet that went through a backlog; the packet has.
/// Mirrors and redirects end alike.
#[test]
fn bug_tx_16_a_packet_goes_through_backlogs_three_times() {
    for mode in [Redirect, Mirror] {
        let mut net = Devices::new(1, 64);
        let mut owner = net.receives(0, 0);
        net.act(0, &[(mode, Ingress, 0)]);
        net.send(0, 0..1);
        for _ in 0..3 {
            let mut list = PacketList::new();
            owner.poll(usize::MAX, &mut list);
            assert_eq!(list.len(), 1);
            net.devices[0].device.transmit(list, Time::ZERO);
        }
        assert!(owner.is_empty());
        let stats = net.stats(0);
        assert_eq!(net.actions(0)[0].overlimits, 1);
        if mode == Redirect {
            assert_eq!(stats.drops, [(DropReason::MirredDefer, 1)]);
            assert_eq!(net.settle(1), [0]);
        } else {
            assert_eq!((stats.dropped(), stats.copied), (0, 3));
            assert_eq!(net.settle(1), [4]);
        }
    }
}

/// CVE-2024-26739: an error on the way frees the packet once and says so. No target, no buffer.
#[test]
fn what_cannot_be_sent_on_is_dropped_once() {
    let mut net = Devices::new(3, 16);
    net.act(0, &[(Redirect, Egress, 2)]);
    net.act(1, &[(Mirror, Egress, 2)]);
    let gone = net.devices.pop().unwrap();
    drop(gone);
    assert_eq!(net.send(0, 0..2), XmitResult::Drop);
    assert_eq!(net.send(1, 0..2), XmitResult::Success);
    assert_eq!(net.settle(4), [0, 2]);
    assert_eq!(net.stats(0).drops, [(DropReason::DeviceDown, 2)]);
    assert_eq!(
        net.actions(0)[0].action,
        "mirred egress redirect dev a device that is gone"
    );
    net.act(1, &[(Mirror, Egress, 0)]);
    net.devices[0].device.set_egress(None);
    net.devices[1].set_capacity(0);
    // 12 packets and no more than 4 copies.
    net.send(1, 0..12);
    net.devices[1].set_capacity(usize::MAX);
    net.devices[1].device.queues()[0].wake();
    assert_eq!(net.settle(16), [4, 14]);
    assert_eq!((net.stats(1).copied, net.actions(1)[0].overlimits), (4, 8));
}
