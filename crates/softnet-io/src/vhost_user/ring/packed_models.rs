//! Four descriptors of a packed ring at a time: the device takes what the driver offered, the
//! driver reaps what the device gave back, and neither sleeps on them.
//!
//! The same models are of drivers with `VIRTIO_F_IN_ORDER` and without: chains of a packed ring are
//! given back in order, each with its own identifier, whether or not that was negotiated.

use std::sync::atomic::Ordering;

use loom::model::Builder;
use loom::thread;

use super::cells::{Cells, Order, Shipped, Unfenced, areas};
use super::model::{Driver, Part, Used};
use super::tests::{DATA, config, memory};
use super::*;

/// Chains of a line.
const LINE: u64 = 4;

/// The twin whose flags of a line are loaded in no order.
enum UnorderedLine {}

impl Order for UnorderedLine {
    const LINE: Ordering = Ordering::Relaxed;
}

/// The twin whose flags of what it gives back are stored in no order.
enum UnorderedUsed {}

impl Order for UnorderedUsed {
    const GIVEN_BACK: Ordering = Ordering::Relaxed;
}

/// The buffer of a chain has the chain's token.
fn address(token: u64) -> u64 {
    DATA + 0x1000 * token
}

fn len(token: u64) -> u32 {
    100 + token as u32
}

fn written(token: u64) -> u32 {
    50 + token as u32
}

/// The device, which checks what it takes.
struct Device<'m, O> {
    ring: Packed<Cells<O>>,
    memory: &'m GuestMemory,
    /// The chain that it takes next.
    next: u64,
}

impl<O: Order> Device<'_, O> {
    /// Takes at most `max` chains and gives them back.
    fn poll(&mut self, max: usize) {
        let mut batch = Batch::default();
        self.ring
            .take(self.memory, true, max, &mut batch)
            .expect("chains that are possible");
        let n = batch.chains.len();
        for i in 0..n {
            let chain = batch.chains[i];
            let mut bytes = batch.spans(&chain)[0];
            let token = bytes.read_array().map(u64::from_le_bytes);
            let expected = (Some(self.next), len(self.next));
            assert_eq!((token, chain.len), expected, "a stale descriptor");
            batch.chains[i].written = written(self.next);
            self.next += 1;
        }
        self.ring.complete(&batch, n);
    }
}

/// The driver, which checks what it reaps.
struct Guest {
    driver: Driver<Cells>,
    /// The chain that it offers next.
    offered: u64,
    /// The chain that it reaps next.
    reaped: u64,
}

impl Guest {
    /// Offers chains, and publishes them together. Whether the device wants to be notified.
    fn offer(&mut self, chains: u64) -> bool {
        for _ in 0..chains {
            let token = self.offered;
            let part = Part::writable(address(token), len(token));
            assert!(self.driver.offer(token, &[part]), "the ring is full");
            self.offered += 1;
        }
        self.driver.publish()
    }

    /// Returns how many have come back.
    fn reap(&mut self) -> u64 {
        let all = self.driver.reap();
        for used in &all {
            let (token, len) = (self.reaped, written(self.reaped));
            assert_eq!(*used, Used { token, len }, "a stale element");
            self.reaped += 1;
        }
        all.len() as u64
    }
}

/// Both sides of a ring whose first four descriptors were used.
fn sides<O: Order>(config: RingConfig, memory: &GuestMemory) -> (Device<'_, O>, Guest) {
    let (ours, theirs) = areas(&config);
    let mut device = Device {
        ring: Packed::new(&config, ours).expect("nobody is just writing"),
        memory,
        next: 0,
    };
    let mut guest = Guest {
        driver: Driver::new(config, theirs),
        offered: 0,
        reaped: 0,
    };
    device.ring.disarm();
    guest.driver.disarm();
    guest.offer(LINE);
    device.poll(usize::MAX);
    device.ring.must_notify();
    assert_eq!(guest.reap(), LINE);
    (device, guest)
}

/// All interleavings of two preemptions: each side is run from any point of the other to any point.
fn explore(model: impl Fn(&GuestMemory) + Send + Sync + 'static) {
    let memory = memory();
    for token in 0..4 * LINE {
        let bytes = token.to_le_bytes();
        memory.write_from(address(token), &bytes).expect("a region");
    }
    let mut builder = Builder::new();
    builder.preemption_bound = Some(2);
    builder.max_branches = 3_000;
    builder.check(move || model(&memory));
}

/// A driver that publishes the descriptors of a line two at a time, in the second round of the
/// ring: what is taken is what it wrote.
fn a_line_arrives<O: Order>() {
    explore(|memory| {
        let (mut device, mut guest) = sides::<O>(config(true, LINE as u16), memory);
        let offers = thread::spawn(move || {
            guest.offer(LINE / 2);
            guest.offer(LINE / 2);
            guest
        });
        device.poll(usize::MAX);
        device.poll(usize::MAX);
        let mut guest = offers.join().unwrap();
        device.poll(usize::MAX);
        assert_eq!(device.next, guest.offered);
        assert_eq!(guest.reap(), LINE);
    });
}

/// A driver that reaps a line, and at once offers as many again, in the next round of the ring. It
/// sees all of the line or none.
fn a_line_comes_back<O: Order>() {
    explore(|memory| {
        let (mut device, mut guest) = sides::<O>(config(true, LINE as u16), memory);
        guest.offer(LINE);
        let reaps = thread::spawn(move || {
            let reaped = guest.reap();
            assert!(reaped == 0 || reaped == LINE, "a part of a batch");
            guest.offer(reaped);
            guest
        });
        device.poll(usize::MAX);
        device.poll(usize::MAX);
        let mut guest = reaps.join().unwrap();
        device.poll(usize::MAX);
        assert_eq!(device.next, guest.offered);
        guest.reap();
        assert_eq!(guest.reaped, guest.offered);
    });
}

/// A ring of two lines, whose first is used: the second is its last.
fn two_lines(event_index: bool) -> RingConfig {
    RingConfig {
        event_index,
        ..config(true, 2 * LINE as u16)
    }
}

/// The device polls, arms, and sleeps; the driver offers a line, and a chain behind it, where the
/// ring begins anew.
fn kick_behind_a_line<O: Order>(event_index: bool) {
    explore(move |memory| {
        let (mut device, mut guest) = sides::<O>(two_lines(event_index), memory);
        let offers = thread::spawn(move || {
            let kicks = [LINE, 1].map(|chains| guest.offer(chains));
            (guest, kicks.contains(&true))
        });
        device.poll(usize::MAX);
        let asleep = device.ring.arm();
        if !asleep {
            device.poll(usize::MAX);
        }
        let (guest, kicked) = offers.join().unwrap();
        if asleep && device.next < guest.offered {
            assert!(kicked, "asleep with {} chains", device.next);
        }
        device.poll(usize::MAX);
        assert_eq!(device.next, guest.offered);
    });
}

/// The device gives back a line, and a chain behind it, and asks, behind each (`at_once`) or both,
/// whether the driver wants to know; the driver reaps, arms, and sleeps.
fn call_behind_a_line<O: Order>(event_index: bool, at_once: bool) {
    explore(move |memory| {
        let (mut device, mut guest) = sides::<O>(two_lines(event_index), memory);
        guest.offer(LINE + 1);
        let reaps = thread::spawn(move || {
            guest.reap();
            let asleep = guest.driver.arm();
            if !asleep {
                guest.reap();
            }
            (guest, asleep)
        });
        device.poll(LINE as usize);
        let mut called = at_once && device.ring.must_notify();
        device.poll(LINE as usize);
        called |= device.ring.must_notify();
        let (mut guest, asleep) = reaps.join().unwrap();
        if asleep && guest.reaped < guest.offered {
            assert!(called, "asleep with {} chains", guest.reaped);
        }
        guest.reap();
        assert_eq!(guest.reaped, guest.offered);
    });
}

#[test]
fn a_line_arrives_as_it_was_written() {
    a_line_arrives::<Shipped>();
}

#[test]
#[should_panic(expected = "a stale descriptor")]
fn a_line_whose_flags_are_in_no_order_is_stale() {
    a_line_arrives::<UnorderedLine>();
}

#[test]
fn a_line_comes_back_whole() {
    a_line_comes_back::<Shipped>();
}

#[test]
#[should_panic(expected = "a stale element")]
fn a_line_that_is_given_back_in_no_order_is_stale() {
    a_line_comes_back::<UnorderedUsed>();
}

#[test]
fn no_kick_is_lost_behind_a_line() {
    for event_index in [false, true] {
        kick_behind_a_line::<Shipped>(event_index);
    }
}

#[test]
#[should_panic(expected = "asleep with")]
fn without_a_fence_a_kick_is_lost_behind_a_line() {
    kick_behind_a_line::<Unfenced>(true);
}

#[test]
fn no_call_is_lost_behind_a_line() {
    for event_index in [false, true] {
        for at_once in [false, true] {
            call_behind_a_line::<Shipped>(event_index, at_once);
        }
    }
}

#[test]
#[should_panic(expected = "asleep with")]
fn without_a_fence_a_call_is_lost_behind_a_line() {
    call_behind_a_line::<Unfenced>(true, false);
}
