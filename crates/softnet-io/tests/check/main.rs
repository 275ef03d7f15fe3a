//! Drivers and qdiscs that break their contracts, and those that keep them, under
//! [`Checked`](softnet_io::middleware::Checked). Each breach is reported with its author's name.

#[path = "../common/mod.rs"]
mod common;

mod qdisc;

use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use softnet::mem::{POISON, Packet, PacketList, Pool};
use softnet::qdisc::{Pfifo, Qdisc};
use softnet::stats::{DropCounters, DropReason};
use softnet::time::Time;
use softnet::tx::{Sent, TxRing, Xmit};
use softnet_engine::rx::{Polled, Receive, RxQueue};
use softnet_io::Null;
use softnet_io::middleware::{Checked, FaultInjector};

use common::{frames_of, pool_of, send_and_drain};

fn pool() -> Pool {
    pool_of(256)
}

/// Frames of 60 bytes.
fn frames(pool: &Pool, count: usize) -> PacketList {
    frames_of(pool, std::iter::repeat_n(60, count))
}

/// The message that `run` panics with.
fn breach(run: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(run)).expect_err("the breach is reported");
    *panic.downcast::<String>().expect("a message")
}

/// A second handle to a packet: the mistake of a driver with `unsafe` code.
fn second_handle(packet: &Packet) -> Packet {
    // SAFETY: none. The buffer outlives the test, and the pool is to find the second handle.
    unsafe { std::ptr::read(packet) }
}

/// The same for a list.
fn second_list(packets: &PacketList) -> PacketList {
    // SAFETY: as above.
    unsafe { std::ptr::read(packets) }
}

/// A transmit ring that does what its function does.
struct Toy<F>(F);

impl<F: FnMut(&mut PacketList, &mut Sent) -> Xmit + Send> TxRing for Toy<F> {
    fn xmit(&mut self, packets: &mut PacketList, sent: &mut Sent) -> Xmit {
        (self.0)(packets, sent)
    }
}

/// The report about a ring that is offered three packets, and may send one of them first.
fn breach_of_ring(
    xmit: impl FnMut(&mut PacketList, &mut Sent) -> Xmit + Send,
    slots: Option<usize>,
) -> String {
    let pool = pool();
    let mut packets = frames(&pool, 3);
    let report = breach(|| {
        let mut ring = Checked::driver("toy", Toy(xmit));
        if let Some(slots) = slots {
            ring = ring.slots(slots);
        }
        ring.xmit(&mut packets, &mut Sent::default());
    });
    // It may hold a packet that is free.
    std::mem::forget(packets);
    report
}

/// Sends the first packet: counts it and frees it.
fn send_one(packets: &mut PacketList, sent: &mut Sent) {
    sent.count(&packets.pop_front().unwrap());
}

#[test]
fn complete_with_packets_left_is_reported() {
    let report = breach_of_ring(
        |packets, sent| {
            send_one(packets, sent);
            Xmit::Complete
        },
        None,
    );
    assert_eq!(report, "driver toy: said Complete and left packets: 2");
}

#[test]
fn count_of_more_than_was_given_is_reported() {
    let report = breach_of_ring(
        |packets, sent| {
            send_one(packets, sent);
            sent.packets += 2;
            Xmit::Busy
        },
        None,
    );
    let expected = "driver toy: reports more wire packets sent or dropped than it took: 2";
    assert_eq!(report, expected);
}

#[test]
fn packets_taken_without_a_count_are_reported() {
    let report = breach_of_ring(
        |packets, sent| {
            drop(packets.pop_front());
            send_one(packets, sent);
            Xmit::Busy
        },
        None,
    );
    let expected = "driver toy: took wire packets that it reports neither sent nor dropped: 1";
    assert_eq!(report, expected);
}

#[test]
fn wrong_bytes_are_reported() {
    let report = breach_of_ring(
        |packets, sent| {
            send_one(packets, sent);
            sent.bytes += 4;
            Xmit::Busy
        },
        None,
    );
    let expected = "driver toy: reports other bytes than those of what it took";
    assert_eq!(report, expected);
}

#[test]
fn freed_packet_left_in_the_list_is_reported() {
    let report = breach_of_ring(
        |packets, _| {
            drop(second_handle(packets.front().unwrap()));
            Xmit::Busy
        },
        None,
    );
    assert_eq!(report, "driver toy: left a freed packet in a list");
}

#[test]
fn wrong_count_of_a_list_is_reported() {
    let report = breach_of_ring(
        |packets, _| {
            let mut second = second_list(packets);
            let first = second.pop_front().unwrap();
            std::mem::forget(second);
            // Its own list: the packet's link to the others is cut.
            std::mem::forget(PacketList::from(first));
            Xmit::Busy
        },
        None,
    );
    assert_eq!(report, "driver toy: left a list with a wrong count");
}

#[test]
fn changed_order_is_reported() {
    let report = breach_of_ring(
        |packets, _| {
            let first = packets.pop_front().unwrap();
            packets.push_back(first);
            Xmit::Busy
        },
        None,
    );
    let expected = "driver toy: left other packets than the last that it was offered, in order";
    assert_eq!(report, expected);
}

#[test]
fn packet_of_another_pool_handed_back_is_reported() {
    let other = pool();
    let report = breach_of_ring(
        |packets, _| {
            drop(packets.pop_front());
            packets.push_front(frames(&other, 1).pop_front().unwrap());
            Xmit::Busy
        },
        None,
    );
    let expected = "driver toy: left other packets than the last that it was offered, in order";
    assert_eq!(report, expected);
}

#[test]
fn packet_freed_twice_is_reported() {
    let report = breach_of_ring(
        |packets, sent| {
            drop(second_handle(packets.front().unwrap()));
            send_one(packets, sent);
            Xmit::Busy
        },
        None,
    );
    assert_eq!(report, "driver toy: freed a packet twice");
}

#[test]
fn packets_kept_past_completion_are_reported() {
    let mut kept = Vec::new();
    let report = breach_of_ring(
        |packets, sent| {
            while let Some(packet) = packets.pop_front() {
                sent.count(&packet);
                kept.push(packet);
            }
            Xmit::Complete
        },
        Some(1),
    );
    let expected = "driver toy: kept packets past their completion: 2";
    assert_eq!(report, expected);
}

#[test]
fn packets_held_at_the_end_are_reported() {
    let report = breach_of_ring(
        |packets, sent| {
            let packet = packets.pop_front().unwrap();
            sent.count(&packet);
            std::mem::forget(packet);
            Xmit::Busy
        },
        None,
    );
    assert_eq!(report, "driver toy: ended and holds packets: 1");
}

/// A driver that goes on using a buffer after it freed the packet: reads find the pattern, and a
/// write is found when the buffer is allocated again.
#[test]
fn use_after_return_finds_the_pattern_and_a_write_is_reported() {
    let pool = pool();
    let mut packets = frames(&pool, 1);
    let address = packets.front().unwrap().data().as_ptr().cast_mut();
    let mut ring = Checked::driver(
        "late",
        Toy(|packets: &mut PacketList, sent: &mut Sent| {
            send_one(packets, sent);
            Xmit::Complete
        }),
    );
    ring.xmit(&mut packets, &mut Sent::default());
    // SAFETY: none for the pool's contract; the memory is mapped as long as the pool lives, and
    // this thread is the only one.
    let read = unsafe { address.read() };
    assert_eq!(read, POISON);
    // SAFETY: as above.
    unsafe { address.write(7) };
    let report = breach(|| drop(frames(&pool, 256)));
    let expected = "driver late: wrote byte 256 of a buffer after its return";
    assert_eq!(report, expected);
}

/// A receive queue that does what its function does.
struct ToyRx<F>(F, Vec<Pool>);

impl<F: FnMut(&mut Receive<'_>) + Send> RxQueue for ToyRx<F> {
    fn poll(&mut self, rx: &mut Receive<'_>) -> Polled {
        (self.0)(rx);
        Polled::default()
    }

    fn pools(&self) -> Vec<&Pool> {
        self.1.iter().collect()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

#[test]
fn breaches_of_a_receive_queue_are_reported() {
    let (own, other) = (pool(), pool());
    let poll = |poll: &mut (dyn FnMut(&mut Receive<'_>) + Send)| {
        let (mut packets, drops) = (PacketList::new(), DropCounters::new());
        let mut queue = Checked::driver("toy", ToyRx(poll, vec![own.clone()]));
        let report = breach(|| {
            queue.poll(&mut Receive::new(2, Time(1), &mut packets, &drops));
        });
        // The list may hold a packet that is free.
        std::mem::forget((packets, queue));
        report
    };
    let report = poll(&mut |rx| rx.extend(frames(&own, 3)));
    let expected = "driver toy: pushed packets after its budget was used up";
    assert_eq!(report, expected);
    let report = poll(&mut |rx| rx.push(own.alloc().unwrap()));
    let expected = "driver toy: pushed a frame shorter than an Ethernet header";
    assert_eq!(report, expected);
    let report = poll(&mut |rx| rx.extend(frames(&other, 1)));
    let expected = "driver toy: pushed a packet of a pool that it does not name";
    assert_eq!(report, expected);
    let report = poll(&mut |rx| {
        let packets = frames(&own, 1);
        drop(second_handle(packets.front().unwrap()));
        rx.extend(packets);
    });
    assert_eq!(report, "driver toy: left a freed packet in a list");
}

#[test]
fn null_driver_keeps_the_contract() {
    let pool = pool();
    let mut null = Null::open(1, 1500).unwrap();
    let mut ring = Checked::driver("null", null.tx.remove(0)).slots(0);
    let mut sent = Sent::default();
    for _ in 0..10 {
        ring.xmit(&mut frames(&pool, 20), &mut sent);
    }
    assert_eq!(sent.packets, 200);
}

/// A device of a checked driver and a checked qdisc works as without: a full ring, drops, and
/// queued packets that leave later.
#[test]
fn device_of_checked_parts_sends_and_counts() {
    let pool = pool();
    let null = Null::open(1, 1500).unwrap().tx.remove(0);
    let (mut ring, faults) = FaultInjector::new(null, 5);
    (ring.refuse_one_in, ring.stall_one_in) = (10, 20);
    let ring = Checked::driver("faulty", ring).slots(0);
    let qdisc = Checked::qdisc("pfifo", Pfifo::new(100));
    let lists = (0..40).map(|_| frames(&pool, 5));
    let stats = send_and_drain((ring, &faults), qdisc, &pool, lists);
    assert_eq!(stats.tx_packets + stats.dropped(), 200);
}

/// A driver whose own thread frees the packets: what it still holds when the ring goes is no
/// breach.
#[test]
fn packets_freed_soon_after_the_end_are_no_breach() {
    let pool = pool();
    let (slots, hardware) = std::sync::mpsc::channel::<Packet>();
    let freeing = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        hardware.into_iter().for_each(drop);
    });
    let mut ring = Checked::driver(
        "threaded",
        Toy(move |packets: &mut PacketList, sent: &mut Sent| {
            while let Some(packet) = packets.pop_front() {
                sent.count(&packet);
                slots.send(packet).unwrap();
            }
            Xmit::Complete
        }),
    );
    let mut sent = Sent::default();
    ring.xmit(&mut frames(&pool, 5), &mut sent);
    sent.drop(DropReason::DriverRefused, frames(&pool, 1).front().unwrap());
    ring.xmit(&mut frames(&pool, 5), &mut sent);
    drop(ring);
    freeing.join().unwrap();
    assert_eq!((sent.packets, pool.stats().free), (10, 256));
}
