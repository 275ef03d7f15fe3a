//! Middleware around drivers: what is lost is counted, what is received is recorded.

use std::os::fd::BorrowedFd;

use softnet::mem::{PacketList, Pool};
use softnet::qdisc::Pfifo;
use softnet::stats::{DropCounters, DropReason};
use softnet::time::{Clock, Time};
use softnet_engine::rx::{NextPoll, Polled, Receive, RxQueue};
use softnet_io::Null;
use softnet_io::middleware::{Capture, FaultInjector, PcapWriter, Trace, Tracer};

use crate::common::{frames_of, pool_of, send_and_drain};

fn pool() -> Pool {
    pool_of(1024)
}

/// Frames of 60 bytes and more.
fn frames(pool: &Pool, count: usize) -> PacketList {
    frames_of(pool, (0..count).map(|n| 60 + n % 100))
}

/// A transmit ring that loses frames and stalls: every frame is sent or counted as refused, and
/// the end of a stall wakes the queue.
#[test]
fn a_faulty_ring_loses_no_count() {
    let pool = pool();
    let null = Null::open(1, 1500).unwrap().tx.remove(0);
    let (mut ring, faults) = FaultInjector::new(null, 7);
    (ring.refuse_one_in, ring.stall_one_in) = (10, 30);
    let lists = (0..50).map(|_| frames(&pool, 10));
    let stats = send_and_drain((ring, &faults), Pfifo::new(1000), &pool, lists);
    assert_eq!(stats.tx_packets + faults.refused(), 500);
    assert_eq!(stats.drops, [(DropReason::DriverRefused, faults.refused())]);
}

/// A queue that receives what it holds.
#[derive(Debug)]
struct Fed(PacketList);

impl RxQueue for Fed {
    fn poll(&mut self, rx: &mut Receive<'_>) -> Polled {
        let mut received = PacketList::new();
        self.0.split_wire_packets(rx.budget, &mut received);
        rx.extend(received);
        Polled {
            next: NextPoll::At(Time(5)),
            ..Polled::default()
        }
    }

    fn peek(&mut self) -> bool {
        !self.0.is_empty()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// A receive queue that loses frames, traced, and recorded in front of that: each frame is
/// received or counted as dropped, and the answer to the poll is the driver's.
#[test]
fn a_faulty_queue_is_traced_and_recorded() {
    let pool = pool();
    let mut file = Vec::new();
    let pcap = PcapWriter::new(&mut file, 0, 70).unwrap();
    let fed = Capture::new(Fed(frames(&pool, 200)), pcap, Clock::monotonic());
    let (mut faulty, faults) = FaultInjector::new(fed, 3);
    faulty.refuse_one_in = 4;
    let mut traced = 0;
    let mut queue = Tracer::new(faulty, |trace| {
        traced += usize::from(matches!(trace, Trace::Received(_)));
    });
    assert!(queue.peek());
    let (mut packets, drops) = (PacketList::new(), DropCounters::new());
    let polled = queue.poll(&mut Receive::new(150, Time(7), &mut packets, &drops));
    assert_eq!(polled.next, NextPoll::At(Time(5)));
    drop(queue);
    assert_eq!(traced, packets.len());
    assert!(packets.iter().all(|packet| packet.timestamp() == Time(7)));
    let lost = faults.refused();
    assert!(lost > 0);
    assert_eq!(drops.nonzero(), [(DropReason::DriverRefused, lost)]);
    assert_eq!(packets.len() as u64 + lost, 150);
    let recorded: usize = (0..150).map(|n: usize| 16 + (60 + n % 100).min(70)).sum();
    assert_eq!(file.len(), 24 + recorded);
}
