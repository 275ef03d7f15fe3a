//! A receive queue's notification is its worker's, whoever else polls the queue. That of a guest
//! that sends comes behind its frames.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use softnet::mem::PacketList;
use softnet::stats::DropCounters;
use softnet::time::Time;
use softnet_engine::rx::{Receive, RxQueue};
use softnet_io::vhost_user::VhostUserRx;
use softnet_tests::guest::{feature, open_port};

use super::*;

/// Frames of one poll, by the queue's worker or another.
fn receive_some(queue: &mut VhostUserRx, by_owner: bool) -> usize {
    let (mut packets, drops) = (PacketList::new(), DropCounters::new());
    let mut rx = Receive::new(64, Time::ZERO, &mut packets, &drops);
    rx.by_owner = by_owner;
    queue.poll(&mut rx);
    assert_eq!(drops.nonzero(), []);
    packets.len()
}

/// True if the queue's worker would be woken.
fn is_notified(queue: &VhostUserRx) -> bool {
    let file = queue.fd().expect("a file");
    let mut files = [PollFd::new(&file, PollFlags::IN)];
    poll(&mut files, Some(&Timespec::default())).expect("polled") == 1
}

/// The owner of an armed queue sleeps; another worker polls the queue between a frame and its
/// kick, and once more after the kick. The guest kicks once for each time that the queue is armed,
/// so that kick must reach the owner.
fn a_kick_is_left_to_the_owner(packed: bool) {
    let kind = if packed { "packed" } else { "split" };
    let (path, mut port, _) = open_port(&format!("kick-{kind}"));
    let mut guest = Guest::new(GuestConfig {
        event_index: true,
        packed,
        ..PAIR
    });
    let features = feature::EVENT_IDX | if packed { RING_PACKED } else { 0 };
    let front_end = connect(&path, &guest, features);
    let queue = &mut port.rx[0];
    // The front end's last request is acknowledged after the ring was set up.
    assert_eq!(receive_some(queue, true), 0);
    assert!(queue.arm() && !is_notified(queue));

    let before = guest.ring(1).place();
    assert!(guest.ring(1).send([0; HEADER], &frame(1, 1), false));
    assert!(guest.ring(1).must_kick(before), "the queue is armed");
    assert_eq!(receive_some(queue, false), 1);
    guest.kick(1);
    assert_eq!(receive_some(queue, false), 0);
    let before = guest.ring(1).place();
    assert!(guest.ring(1).send([0; HEADER], &frame(1, 2), false));
    assert!(!guest.ring(1).must_kick(before), "it has kicked");
    assert!(is_notified(queue), "nobody comes for the second frame");

    // The owner comes. It takes the notification along: there is no more to come for.
    assert_eq!(receive_some(queue, true), 1);
    assert!(queue.arm() && !is_notified(queue));
    // Called for nothing, it takes the notification, too.
    guest.kick(1);
    assert!(is_notified(queue));
    assert_eq!(receive_some(queue, true), 0);
    assert!(!is_notified(queue));
    drop(front_end);
}

#[test]
fn a_kick_is_left_to_the_owner_of_a_split_ring() {
    a_kick_is_left_to_the_owner(false);
}

#[test]
fn a_kick_is_left_to_the_owner_of_a_packed_ring() {
    a_kick_is_left_to_the_owner(true);
}

/// A guest is told of the buffers of its frames when those are on their way: by the owner's next
/// look or poll, or as it arms the queue. At once where there is more, or another worker polls.
#[test]
fn a_sender_is_told_behind_its_frames() {
    let (path, mut port, _) = open_port("told");
    let mut guest = Guest::new(PAIR);
    let front_end = connect(&path, &guest, 0);
    let queue = &mut port.rx[0];
    assert_eq!(receive_some(queue, true), 0);
    let is_told = |guest: &Guest| told(guest.call_file(1));
    assert!(is_told(&guest), "when its ring starts");
    let looks: [fn(&mut VhostUserRx); 3] = [
        |queue| assert!(!queue.peek()),
        |queue| assert_eq!(receive_some(queue, true), 0),
        |queue| assert!(queue.arm()),
    ];
    for look in looks {
        assert!(guest.ring(1).send([0; HEADER], &frame(1, 1), false));
        assert_eq!(receive_some(queue, true), 1);
        assert!(!is_told(&guest), "its frame has yet to go on");
        look(queue);
        assert!(is_told(&guest));
        look(queue);
        assert!(!is_told(&guest), "once is enough");
    }
    assert!(guest.ring(1).send([0; HEADER], &frame(1, 2), false));
    assert_eq!(receive_some(queue, false), 1);
    assert!(is_told(&guest), "the owner sleeps");
    for mark in 3..5 {
        assert!(guest.ring(1).send([0; HEADER], &frame(1, mark), false));
    }
    let (mut packets, drops) = (PacketList::new(), DropCounters::new());
    let mut rx = Receive::new(1, Time::ZERO, &mut packets, &drops);
    assert!(queue.poll(&mut rx).more && is_told(&guest));
    drop(front_end);
}
