//! `mirred`: packets that leave a device are sent elsewhere instead (redirect), or copies of them
//! as well (mirror); tc-mirred(8), the kernel's `act_mirred`.
//!
//! *To egress*: they leave through another device, at once and on the sender's thread. *To
//! ingress*: they arrive at another device, through the backlog of its worker (CVE-2022-4269: to
//! receive them at once would recurse into locks that the sender holds).
//!
//! Loops (INV-TX-16, BUG-TX-15, BUG-TX-16). Each of these bounds ends in a drop with a reason, and
//! none needs a lock:
//! - a thread that is sending by mirred to a device, and would do so again while it does:
//!   [`DropReason::MirredLoop`], before the transmit;
//! - more than [`MIRRED_NEST_LIMIT`] such transmits within each other: [`DropReason::MirredNest`];
//! - a packet that went through a backlog [`MIRRED_DEFER_LIMIT`] times, where the thread has no
//!   memory of it, carries the count: [`DropReason::MirredDefer`].
//!
//! A mirror that would loop makes no copy, and the packet goes on; that counts as `overlimits`, as
//! everything refused here does. The memory of where a packet has been belongs to the thread, not
//! to the device: another sender's packets are never taken for a loop.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use super::forwarder::copy;
use crate::Device;
use softnet::mem::{PacketList, Turn};
use softnet::stats::DropReason;
use softnet::time::Time;
use softnet::tx::{Egress, TxRing, XmitResult};
use softnet_tc::AnyQdisc;

/// Transmits by mirred within each other (`MIRRED_NEST_LIMIT`).
pub const MIRRED_NEST_LIMIT: usize = 4;
/// Times a packet may go through a backlog by mirred (`MIRRED_DEFER_LIMIT`).
pub const MIRRED_DEFER_LIMIT: u8 = 3;

thread_local! {
    /// Devices that this thread is sending to by mirred.
    static TARGETS: [Cell<usize>; MIRRED_NEST_LIMIT] =
        const { [const { Cell::new(0) }; MIRRED_NEST_LIMIT] };
    static NEST: Cell<usize> = const { Cell::new(0) };
}

/// The packet itself goes elsewhere, or a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MirredMode {
    /// The packet goes elsewhere; later actions do not see it.
    Redirect,
    /// A copy goes elsewhere.
    Mirror,
}

/// The side of the target at which packets appear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MirredDir {
    /// They leave through it.
    Egress,
    /// They arrive at it.
    Ingress,
}

/// Numbers of one action.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ActionStats {
    /// Name of the action, in tc's words.
    pub action: String,
    /// Wire packets it was applied to.
    pub packets: u64,
    /// Wire packets that it could not send on: a loop, no buffer, no device.
    pub overlimits: u64,
}

/// One action.
#[derive(Debug)]
pub struct Mirred<R> {
    mode: MirredMode,
    dir: MirredDir,
    /// Number of the port that it is at.
    from: u16,
    /// Weak: two devices may name each other.
    target: Weak<Device<R>>,
    packets: AtomicU64,
    overlimits: AtomicU64,
}

impl<R> Mirred<R> {
    /// An action of the port of a number that sends to `target`.
    pub fn new(mode: MirredMode, dir: MirredDir, from: u16, target: Weak<Device<R>>) -> Self {
        Mirred {
            mode,
            dir,
            from,
            target,
            packets: AtomicU64::new(0),
            overlimits: AtomicU64::new(0),
        }
    }

    fn stats(&self) -> ActionStats
    where
        R: TxRing,
    {
        let gone = || "a device that is gone".to_owned();
        let name = self
            .target
            .upgrade()
            .map_or_else(gone, |d| d.name().to_string());
        let (dir, mode) = match (self.dir, self.mode) {
            (MirredDir::Egress, MirredMode::Redirect) => ("egress", "redirect"),
            (MirredDir::Egress, MirredMode::Mirror) => ("egress", "mirror"),
            (MirredDir::Ingress, MirredMode::Redirect) => ("ingress", "redirect"),
            (MirredDir::Ingress, MirredMode::Mirror) => ("ingress", "mirror"),
        };
        ActionStats {
            action: format!("mirred {dir} {mode} dev {name}"),
            packets: self.packets.load(Ordering::Relaxed),
            overlimits: self.overlimits.load(Ordering::Relaxed),
        }
    }
}

/// The actions of one device, applied in order.
#[derive(Debug)]
pub struct Actions<R>(Vec<Mirred<R>>);

impl<R> Default for Actions<R> {
    fn default() -> Self {
        Actions(Vec::new())
    }
}

impl<R> Actions<R> {
    /// No action.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// These actions, in this order.
    pub fn new(actions: Vec<Mirred<R>>) -> Self {
        Actions(actions)
    }

    /// The numbers of each action.
    pub(crate) fn stats(&self) -> Vec<ActionStats>
    where
        R: TxRing,
    {
        self.0.iter().map(Mirred::stats).collect()
    }
}

impl<R: TxRing> Egress<R, AnyQdisc> for Actions<R> {
    fn apply(&self, device: &Device<R>, packets: &mut PacketList, now: Time) -> XmitResult {
        for action in &self.0 {
            if packets.is_empty() {
                break;
            }
            action
                .packets
                .fetch_add(packets.wire_packets(), Ordering::Relaxed);
            match action.mode {
                MirredMode::Mirror => action.mirror(device, packets, now),
                MirredMode::Redirect => return action.redirect(device, packets.take(), now),
            }
        }
        XmitResult::Success
    }
}

/// A transmit by mirred that this thread is inside of, until this is dropped, on the thread that
/// made it.
struct Nested(std::marker::PhantomData<*const ()>);

impl Nested {
    /// Notes that packets go to `target`.
    fn enter<R>(target: &Device<R>) -> Result<Nested, DropReason> {
        let target = std::ptr::from_ref(target).addr();
        let nest = NEST.get();
        TARGETS.with(|targets| {
            if targets[..nest].iter().any(|t| t.get() == target) {
                return Err(DropReason::MirredLoop);
            }
            targets.get(nest).ok_or(DropReason::MirredNest)?.set(target);
            NEST.set(nest + 1);
            Ok(Nested(std::marker::PhantomData))
        })
    }
}

impl Drop for Nested {
    fn drop(&mut self) {
        NEST.set(NEST.get() - 1);
    }
}

impl<R: TxRing> Mirred<R> {
    fn over(&self, packets: u64) {
        self.overlimits.fetch_add(packets, Ordering::Relaxed);
    }

    fn redirect(&self, device: &Device<R>, mut packets: PacketList, now: Time) -> XmitResult {
        // For an `ifb`: the place to go on from.
        packets.for_each_mut(|packet| {
            packet.set_port(self.from);
            packet.set_turn(Turn::Egress);
        });
        match self.send(device, packets, now) {
            Ok(result) => result,
            Err((reason, packets)) => {
                self.over(packets.wire_packets());
                device.drops().lose(reason, &packets);
                XmitResult::Drop
            }
        }
    }

    /// Sends copies. Where they cannot go none are made.
    fn mirror(&self, device: &Device<R>, packets: &mut PacketList, now: Time) {
        let (target, _nested) = match self.target() {
            Ok(target) => target,
            Err(_) => return self.over(packets.wire_packets()),
        };
        let mut copies = PacketList::new();
        packets.for_each_mut(|packet| {
            let wire_packets = packet.wire_packets();
            if self.dir == MirredDir::Ingress && packet.deferred() >= MIRRED_DEFER_LIMIT {
                return self.over(wire_packets);
            }
            match copy(packet, device.pool()) {
                Some(copy) => {
                    device.count_copied(wire_packets);
                    copies.push_back(copy);
                }
                None => self.over(wire_packets),
            }
        });
        if !copies.is_empty() {
            self.deliver(device, &target, copies, now);
        }
    }

    /// The target, and the note that this thread sends to it, if it may.
    fn target(&self) -> Result<(Arc<Device<R>>, Option<Nested>), DropReason> {
        let target = self.target.upgrade().ok_or(DropReason::DeviceDown)?;
        let nested = match self.dir {
            MirredDir::Egress => Some(Nested::enter(&target)?),
            MirredDir::Ingress => None,
        };
        Ok((target, nested))
    }

    fn send(
        &self,
        device: &Device<R>,
        packets: PacketList,
        now: Time,
    ) -> Result<XmitResult, (DropReason, PacketList)> {
        match self.target() {
            Ok((target, _nested)) => Ok(self.deliver(device, &target, packets, now)),
            Err(reason) => Err((reason, packets)),
        }
    }

    fn deliver(
        &self,
        device: &Device<R>,
        target: &Device<R>,
        packets: PacketList,
        now: Time,
    ) -> XmitResult {
        if self.dir == MirredDir::Egress {
            return target.transmit(packets, now);
        }
        let offered = packets.wire_packets();
        let (accepted, over) = deferred(packets);
        if over > 0 {
            self.over(over);
            device.drops().add(DropReason::MirredDefer, over);
        }
        let lost = over + target.receive_later(accepted);
        match lost {
            0 => XmitResult::Success,
            n if n == offered => XmitResult::Drop,
            _ => XmitResult::Congestion,
        }
    }
}

/// Packets that may go through a backlog once more, and the wire packets of those that may not.
fn deferred(packets: PacketList) -> (PacketList, u64) {
    let mut over = 0;
    let mut accepted = PacketList::new();
    for mut packet in packets {
        let deferred = packet.deferred();
        if deferred >= MIRRED_DEFER_LIMIT {
            over += packet.wire_packets();
        } else {
            packet.set_deferred(deferred + 1);
            accepted.push_back(packet);
        }
    }
    (accepted, over)
}

/// Sends packets of actions of filters at `device` to `target`, within the bounds of loops. What
/// cannot be sent counts as dropped at `device`, or at `target` if that takes it no more.
pub(super) fn deliver_to<R: TxRing>(
    device: &Device<R>,
    target: &Device<R>,
    ingress: bool,
    packets: PacketList,
    now: Time,
) {
    let drops = device.drops();
    if ingress {
        let (accepted, over) = deferred(packets);
        if over > 0 {
            drops.add(DropReason::MirredDefer, over);
        }
        target.receive_later(accepted);
        return;
    }
    match Nested::enter(target) {
        Ok(_nested) => drop(target.transmit(packets, now)),
        Err(reason) => drops.lose(reason, &packets),
    }
}
