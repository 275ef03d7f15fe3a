//! The polls of a round: receive queues, the backlog, and the queue where the reply to a lone
//! packet arrives.

use std::sync::Arc;
use std::time::Duration;

use super::line::Flow;
use super::token::Token;
use super::{ROUND, Slot, Worker};
use crate::forward::Pending;
use crate::rx::command::{COMMANDS, Event};
use crate::rx::napi::Work;
use crate::rx::{BUDGET, NextPoll, RxQueue, Sleep, WEIGHT};
use softnet::mem::{Packet, PacketList, Turn};
use softnet::time::Time;
use softnet::tx::TxRing;

/// Frames of a poll after which the reply may be polled for.
const FEW: usize = 2;
/// Copies of frames that a round floods, and a turn of those who wait for that: each is a call of
/// a device, of some 5 µs where a host's stack runs in it, so that a turn takes as long as a
/// round.
pub(super) const FLOOD: usize = 32;
/// Where so many queues hold packets that wait, the others are polled for fewer: the pool is for
/// all.
const MANY: usize = 16;
/// As few as this.
const FEWER: usize = 8;
/// Unarmed queues that are all looked at in every round: some tens of nanoseconds for each. Their
/// next packets are seen at once.
const LOOKS: usize = 16;
/// Time without packets after which one of more is armed while its worker is awake. By then looks
/// have cost about as much as what follows: a system call to arm, and the notification of the next
/// packet.
const SILENT: Duration = Duration::from_millis(1);

impl<Q: RxQueue, R: TxRing, S: Sleep> Worker<Q, R, S> {
    /// NAPI: polls scheduled queues until none is left or the budget is used up, and wakes the
    /// workers that packets were steered to. Returns the time at the end.
    pub(super) fn poll_round(&mut self, start: Time) -> Time {
        let mut done = 0;
        let mut now = start;
        self.copies = if self.floods.is_empty() { FLOOD } else { 0 };
        loop {
            if !self.backlog_scheduled && !self.backlog.is_empty() {
                self.backlog_scheduled = true;
                self.line.push(Token::Backlog, Flow::BACKLOG);
            }
            let Some((token, flow)) = self.line.pop() else {
                break;
            };
            let (token, flooder) = match token {
                Token::Floods => {
                    self.floods_scheduled = false;
                    self.copies = FLOOD;
                    self.floods.pop().unzip()
                }
                token => (Some(token), None),
            };
            let few = self.floods.len() >= MANY;
            let weight = if few { FEWER } else { WEIGHT };
            let budget = weight.min(BUDGET - done);
            let packets = match token.unwrap_or(Token::Floods) {
                Token::Backlog => {
                    self.backlog_scheduled = false;
                    let packets = self.poll_backlog(budget, now);
                    if self.backlog_begun.is_some() {
                        self.backlog_scheduled = true;
                        self.wait_to_flood(Token::Backlog, Flow::BACKLOG);
                    }
                    Some(packets)
                }
                Token::Ring(event) => {
                    self.in_line[event] = false;
                    self.run_queue(event, now);
                    Some(0)
                }
                Token::Queue(index) => self.poll_queue(index, budget, now),
                Token::Link(index) => {
                    self.look_at_link(index);
                    Some(0)
                }
                Token::Floods => Some(0),
            };
            let begun = std::mem::replace(&mut now, self.clock.now());
            if let Some(packets) = packets {
                self.line.charge(flow, now.since(begun));
                // One frame may stand for more than is left.
                done = (done + packets).min(BUDGET);
            }
            if let Some(flooder) = flooder {
                // Its floods are a part of its port's time.
                self.line.charge(flooder, now.since(begun));
                self.floods.charge(flooder, now.since(begun));
                self.schedule_floods();
            }
            let many = packets.is_some_and(|packets| packets >= WEIGHT / 2);
            if many {
                // Workers that are to be woken must not wait for the threads that run now.
                self.hand_off.kick();
            }
            if packets.is_none() {
                // The other worker may wait for this CPU: it is ahead only in the same class.
                self.lower();
                self.sleeper.yield_cpu();
                now = self.clock.now();
            }
            if self.line.is_empty() && self.backlog.is_empty() {
                break;
            }
            if done >= BUDGET || now.since(start) >= ROUND {
                // INV-RX-7: only with work left.
                self.own.time_squeeze += 1;
                break;
            }
        }
        self.hand_off.kick();
        now
    }

    /// One poll of a receive queue; returns the wire packets. None: another worker is at it, which
    /// is to have the CPU if it waits for that.
    fn poll_queue(&mut self, index: usize, budget: usize, now: Time) -> Option<usize> {
        let Some(slot) = self.napis.get_mut(index).and_then(Option::as_mut) else {
            return Some(0);
        };
        slot.scheduled = false;
        let napi = slot.napi.clone();
        let Some(mut claim) = napi.claim() else {
            // Another worker polls it, once; it may leave packets, which nothing tells of again.
            self.schedule(index);
            return None;
        };
        let mut pending = std::mem::take(claim.rest());
        let waited = !pending.packets.is_empty();
        let mut work = match waited {
            true => Work::rest(),
            false => claim.poll(budget, now, &mut pending.packets),
        };
        if let Some(time) = work.held {
            let again = claim.end();
            self.hold(index, time);
            if again {
                self.schedule(index);
            }
            return Some(0);
        }
        let mut frames = work.frames;
        if !waited && let Some(steering) = claim.steering() {
            let before = pending.packets.len();
            let drops = napi.device().drops();
            self.hand_off.steer(steering, &mut pending.packets, drops);
            frames -= before - pending.packets.len();
        }
        self.own.processed += frames as u64;
        if !waited {
            let forwarder = &self.view.forwarder;
            forwarder.arrive(napi.port(), &mut pending.packets, now);
        }
        let (mut to, mut waits) = (None, false);
        if !pending.packets.is_empty() {
            let (forwarder, copies) = (&self.view.forwarder, &mut self.copies);
            to = forwarder.forward(napi.device(), napi.port(), &mut pending, copies, now);
            waits = !pending.packets.is_empty();
            *claim.rest() = pending;
        }
        let unarmed = work.next == NextPoll::Unarmed;
        // The driver is asked only where its answer counts: it may take a lock for it.
        work.more = work.more || unarmed && claim.peek();
        work.more |= claim.end();
        if let Some(Some(slot)) = self.napis.get_mut(index) {
            slot.next = match work.next {
                NextPoll::At(time) => time,
                NextPoll::Armed | NextPoll::Unarmed => Time::ZERO,
            };
            slot.polled = now;
            if slot.held {
                self.release(index);
            }
        }
        if work.gone {
            self.remove(index);
            // It fails only if the engine is being dropped.
            let _ = self.reports.send(Event::Gone {
                port: napi.port(),
                opened: napi.opened(),
            });
        } else if waits {
            if let Some(Some(slot)) = self.napis.get_mut(index) {
                slot.scheduled = true;
            }
            self.wait_to_flood(Token::Queue(index), Flow::port(napi.port()));
        } else if work.more {
            self.schedule(index);
        } else if unarmed && !self.unarmed.contains(&index) {
            self.unarmed.push(index);
        }
        if self.rested
            && work.frames <= FEW
            && let Some(to) = to
        {
            self.poll_reply(to, now);
        }
        Some(work.packets)
    }

    /// Something has to wait until it may be flooded; it is not polled for more until then.
    fn wait_to_flood(&mut self, token: Token, flow: Flow) {
        self.floods.push(token, flow);
        self.schedule_floods();
    }

    fn schedule_floods(&mut self) {
        if self.floods.is_empty() {
            self.floods.rest();
            return;
        }
        // Who waits goes first.
        self.copies = 0;
        if !std::mem::replace(&mut self.floods_scheduled, true) {
            self.line.push(Token::Floods, Flow::FLOODS);
        }
    }

    /// Schedules queues that have no file, if their time has come, and unarmed ones that have
    /// packets; arms those that have had none for long.
    pub(super) fn look(&mut self, now: Time) {
        for at in 0..self.unwatched.len() {
            let index = self.unwatched[at];
            if next_poll(&self.napis, index) <= now {
                self.schedule(index);
            }
        }
        let mut silent = None;
        for at in 0..self.unarmed.len() {
            let index = self.unarmed[at];
            if has_packets(&self.napis, index) {
                self.schedule(index);
            } else if silent.is_none() && self.is_silent(index, now) {
                silent = Some(at);
            }
        }
        // One a round: a thousand that fall silent together hold up nobody.
        if let Some(at) = silent.filter(|_| self.unarmed.len() > LOOKS)
            && self.arm_queue(self.unarmed[at])
        {
            self.unarmed.swap_remove(at);
        }
    }

    /// An unarmed queue has been found empty since it was polled, which is long ago.
    fn is_silent(&self, index: usize, now: Time) -> bool {
        let slot = self.napis.get(index).and_then(Option::as_ref);
        slot.is_some_and(|slot| !slot.scheduled && now.since(slot.polled) >= SILENT)
    }

    /// Asks unarmed queues for notifications. False: one has packets.
    pub(super) fn arm(&mut self) -> bool {
        let mut idle = true;
        for index in std::mem::take(&mut self.unarmed) {
            idle &= self.arm_queue(index);
        }
        idle
    }

    /// Asks an unarmed queue for notifications. False: it has packets, and is scheduled.
    fn arm_queue(&mut self, index: usize) -> bool {
        let slot = self.napis.get(index).and_then(Option::as_ref);
        let claim = slot.and_then(|slot| slot.napi.try_claim());
        let armed = claim.is_some_and(|mut claim| {
            let armed = claim.arm();
            armed && !claim.end()
        });
        if !armed {
            self.schedule(index);
        }
        armed
    }

    /// Processes the backlog, and what arrives there meanwhile, until it is empty or the quota of
    /// wire packets is used up (INV-RX-6; the kernel's `process_backlog`). Returns the wire
    /// packets.
    pub(super) fn poll_backlog(&mut self, quota: usize, now: Time) -> usize {
        // Others do not wait for this worker's own work.
        self.hand_off.kick();
        let mut done = 0;
        while done < quota {
            let mut packets = PacketList::new();
            done += self.backlog.poll(quota - done, &mut packets);
            if packets.is_empty() {
                break;
            }
            let rest = self.forward_from_backlog(packets, now);
            if !rest.is_empty() {
                self.backlog.put_back(rest);
                break;
            }
        }
        self.backlog.done();
        done
    }

    /// Forwards packets of any ports; consecutive ones of one port stay one list. Returns what has
    /// to wait, as so much would have to be flooded.
    fn forward_from_backlog(&mut self, mut packets: PacketList, now: Time) -> PacketList {
        while let Some(first) = packets.front() {
            let (port, turn) = (first.port(), first.turn());
            let alike = |packet: &&Packet| packet.port() == port && packet.turn() == turn;
            let of_port = packets.iter().take_while(alike);
            let mut pending = Pending::default();
            packets.split_front(of_port.count(), &mut pending.packets);
            pending.begun = self.backlog_begun.take();
            let run = &mut pending.packets;
            let (frames, wire_packets) = (run.len(), run.wire_packets());
            let (forwarder, copies) = (&self.view.forwarder, &mut self.copies);
            if turn == Turn::None || !forwarder.go_on(port, turn, run, now) {
                forwarder.arrive(port, run, now);
            }
            match forwarder.device(port) {
                Some(device) => drop(forwarder.forward(device, port, &mut pending, copies, now)),
                None => forwarder.drop_orphans(pending.packets.take()),
            }
            let mut run = pending.packets;
            self.own.processed += (frames - run.len()) as u64;
            let taken_over = wire_packets - run.wire_packets();
            self.own.taken_over = self.own.taken_over.wrapping_add(taken_over);
            if !run.is_empty() {
                self.backlog_begun = pending.begun;
                // They are behind the port's hook.
                run.for_each_mut(|packet| packet.set_turn(Turn::Ingress));
                run.append(&mut packets);
                return run;
            }
        }
        packets
    }

    /// A TAP device's stack may have replied within the write, and the worker of that port is
    /// woken late if it takes a wake-up from another CPU: if it sleeps, this worker polls the
    /// queue, once. Only when traffic is sparse, and only where the reply has one queue to arrive
    /// at. The queue stays armed: what comes later, or is left, is for its worker, which the
    /// notification wakes.
    fn poll_reply(&mut self, port: u16, now: Time) {
        let view = self.view.clone();
        let Some([napi]) = view.peers.get(usize::from(port)).map(|napis| &napis[..]) else {
            return;
        };
        if Arc::ptr_eq(napi.notifier(), &self.shared.notifier) || !napi.notifier().is_asleep() {
            return;
        }
        let Some(mut claim) = napi.try_claim() else {
            return;
        };
        // Steered queues are their owner's alone; see `Steering`. What waits is so much that its
        // owner is at it.
        if claim.steering().is_none() && claim.rest().packets.is_empty() {
            let mut pending = Pending::default();
            let work = claim.poll(FEW, now, &mut pending.packets);
            self.own.looked_ahead += 1;
            self.own.processed += work.frames as u64;
            // Nobody tells the owner of what would wait.
            let (forwarder, mut copies) = (&view.forwarder, usize::MAX);
            forwarder.arrive(napi.port(), &mut pending.packets, now);
            forwarder.forward(napi.device(), napi.port(), &mut pending, &mut copies, now);
        }
        if claim.end() {
            // The owner was turned away meanwhile: it comes again.
            napi.notifier().notify(COMMANDS);
        }
    }
}

/// When a queue without a file is to be polled.
pub(super) fn next_poll<Q: RxQueue, R: TxRing>(
    napis: &[Option<Slot<Q, R>>],
    index: usize,
) -> Time {
    let slot = napis.get(index).and_then(Option::as_ref);
    slot.map_or(Time::MAX, |slot| slot.next)
}

/// An unarmed queue has packets.
pub(super) fn has_packets<Q: RxQueue, R: TxRing>(
    napis: &[Option<Slot<Q, R>>],
    index: usize,
) -> bool {
    let slot = napis.get(index).and_then(Option::as_ref);
    let claim = slot.and_then(|slot| slot.napi.try_claim());
    claim.is_some_and(|mut claim| {
        let more = claim.peek();
        claim.end() || more
    })
}
