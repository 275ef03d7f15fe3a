//! A queue whose claimer stands still, and the layout of a queue.

#[cfg(not(loom))]
mod claim {
    use std::sync::Arc;

    use crate::mem::Pool;
    use crate::qdisc::PfifoFast;
    use crate::stats::{DropCounters, DropReason};
    use crate::testing::{NoWake, ScriptedRing, config, frame, pool};
    use crate::time::Time;
    use crate::tx::device::DeviceConfig;
    use crate::tx::notifier::Notifier;
    use crate::tx::policy::{RUN_QUOTA, ServedBy, TxPolicy};
    use crate::tx::queue::TxQueue;
    use crate::tx::waker::RingWaker;
    use crate::tx::xmit_result::XmitResult;

    /// A queue of 4096 frames, and its drops.
    fn queue(
        ring: ScriptedRing,
        policy: TxPolicy,
        notifier: &Arc<Notifier>,
        pool: &Pool,
    ) -> (TxQueue<ScriptedRing, PfifoFast>, Arc<DropCounters>) {
        let config = DeviceConfig {
            policy,
            ..config("a")
        };
        let drops = Arc::new(DropCounters::new());
        let (shared, waker) = ((drops.clone(), pool), RingWaker::new(notifier.clone(), 0));
        let queue = TxQueue::new(vec![ring], PfifoFast::new(4096), &config, shared, waker);
        (queue, drops)
    }

    /// A thread of the control path that has claimed a queue and has no CPU costs no packet: a
    /// sender, or the worker, takes its turn before the list is full.
    #[test]
    fn a_claimer_that_stands_still_costs_no_packet() {
        let (packets, bursts): (u32, &[usize]) = if cfg!(miri) {
            (20, &[4])
        } else {
            (1000, &[1, 4, 300])
        };
        let pool = pool(packets as usize + 100);
        for served_by in [ServedBy::Senders, ServedBy::Worker] {
            for &max_burst in bursts {
                let (ring, script) = ScriptedRing::new();
                let notifier = Arc::new(Notifier::new(1, Arc::new(NoWake)));
                let policy = TxPolicy {
                    max_burst,
                    served_by,
                    ..TxPolicy::default()
                };
                let (queue, drops) = queue(ring, policy, &notifier, &pool);
                queue.list.claim();
                for mark in 0..packets {
                    let packet = frame(&pool, 1, 2, 100, mark);
                    let result = queue.transmit(packet.into(), Time::ZERO);
                    assert_eq!(
                        result,
                        XmitResult::Success,
                        "{served_by:?} {max_burst} {mark}"
                    );
                    if served_by == ServedBy::Worker {
                        queue.run_from_worker(RUN_QUOTA, Time::ZERO);
                    }
                }
                assert!(!script.sent().is_empty());
                // The claimer has the CPU again.
                drop(queue.control());
                while notifier.take(|_| ()) {
                    queue.run_from_worker(RUN_QUOTA, Time::ZERO);
                }
                assert!(script.marks().into_iter().eq(0..packets));
                assert_eq!(drops.nonzero(), []);
            }
        }
    }

    /// A sender that has seen the device up pushes beside a change of a queue that is down: its
    /// packets are dropped with a reason when the change ends, whether a worker comes or not.
    #[test]
    fn inv_tx_10_a_change_of_a_queue_that_is_down_leaves_no_packet() {
        let pool = pool(8);
        for served_by in [ServedBy::Senders, ServedBy::Worker] {
            let (ring, script) = ScriptedRing::new();
            let policy = TxPolicy {
                served_by,
                ..TxPolicy::default()
            };
            let notifier = Arc::new(Notifier::new(1, Arc::new(NoWake)));
            let (queue, drops) = queue(ring, policy, &notifier, &pool);
            queue.set_active(false);
            let change = queue.control();
            let packet = frame(&pool, 1, 2, 100, 7);
            queue.transmit(packet.into(), Time::ZERO);
            drop(change);
            assert!(queue.is_empty(), "{served_by:?}");
            assert_eq!(drops.nonzero(), [(DropReason::DeviceDown, 1)]);
            assert_eq!(script.marks(), []);
        }
    }
}

mod layout {
    use std::mem::{offset_of, size_of};

    use crossbeam_utils::CachePadded;

    use crate::mem::PacketList;
    use crate::sync::OwnedList;
    use crate::testing::ScriptedRing;
    use crate::tx::TxQueue;
    use crate::tx::queue::Cold;
    use crate::tx::state::QueueState;
    use crate::tx::status::Status;

    type Queue = TxQueue<ScriptedRing, crate::qdisc::PfifoFast>;

    /// The pair of lines that processors fetch together.
    fn line(offset: usize) -> usize {
        offset / size_of::<CachePadded<u8>>()
    }

    /// Fields that different threads write lie on different lines, those that every sender reads
    /// on lines that nobody writes.
    #[test]
    fn what_is_written_apart_lies_apart() {
        let state =
            size_of::<OwnedList<PacketList, QueueState<ScriptedRing, crate::qdisc::PfifoFast>>>();
        let written = [
            (offset_of!(Queue, list), state),
            (offset_of!(Queue, status), size_of::<Status>()),
            (offset_of!(Queue, cold), size_of::<CachePadded<Cold>>()),
        ]
        .map(|(start, size)| line(start)..line(start + size - 1) + 1);
        let read = [
            offset_of!(Queue, policy),
            offset_of!(Queue, drops),
            offset_of!(Queue, waker),
            offset_of!(Queue, quota),
            offset_of!(Queue, down),
            offset_of!(Queue, stamps),
        ];
        for (n, lines) in written.iter().enumerate() {
            assert!(read.iter().all(|&field| !lines.contains(&line(field))));
            let others = written[n + 1..].iter();
            others.for_each(|o| assert!(o.start >= lines.end || o.end <= lines.start));
        }
    }
}
