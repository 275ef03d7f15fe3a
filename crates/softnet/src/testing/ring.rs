//! A driver whose behaviour the test decides step by step: [`ScriptedRing`].

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::mem::{Packet, PacketList};
use crate::stats::DropReason;
use crate::time::Time;
use crate::tx::{Ingress, Sent, TxRing, Xmit};

/// One call of [`xmit`](TxRing::xmit).
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// Packets in the list.
    pub offered: usize,
    /// Packets that the ring took out of it.
    pub taken: usize,
}

type OnCall = Box<dyn FnMut() + Send>;
type Sink = Box<dyn FnMut(Packet) + Send>;

/// The behaviour of a [`ScriptedRing`], and a record of its calls.
pub struct Script {
    sent: Mutex<Vec<(u32, usize)>>,
    calls: Mutex<Vec<Call>>,
    restarts: Mutex<Vec<Time>>,
    in_flight: Mutex<VecDeque<u64>>,
    byte_limit: AtomicU64,
    capacity: AtomicUsize,
    refuse: AtomicUsize,
    restart_helps: AtomicBool,
    on_call: Mutex<Option<OnCall>>,
    sink: Mutex<Option<Sink>>,
}

impl Script {
    /// Packets that the ring takes before it is busy; without a call there is no limit.
    pub fn set_capacity(&self, packets: usize) {
        self.capacity.store(packets, Ordering::Relaxed);
    }

    /// Packets that the ring drops ([`DropReason::DriverRefused`]) before it sends again.
    pub fn refuse(&self, packets: usize) {
        self.refuse.store(packets, Ordering::Relaxed);
    }

    /// A restart ends the limit of the ring's capacity.
    pub fn restart_helps(&self) {
        self.restart_helps.store(true, Ordering::Relaxed);
    }

    /// Calls `f` at the start of every transmission.
    pub fn on_call(&self, f: impl FnMut() + Send + 'static) {
        *self.on_call.lock().unwrap() = Some(Box::new(f));
    }

    /// Calls `f` at the start of the next transmission.
    pub fn on_next_call(&self, f: impl FnOnce() + Send + 'static) {
        let mut f = Some(f);
        self.on_call(move || {
            if let Some(f) = f.take() {
                f();
            }
        });
    }

    /// Gives what the ring sends to `f`, which else is freed.
    pub fn set_sink(&self, f: impl FnMut(Packet) + Send + 'static) {
        *self.sink.lock().unwrap() = Some(Box::new(f));
    }

    /// The ring has its packets in flight until they are [completed](Script::complete), and takes
    /// none while they are more than `bytes`.
    pub fn set_byte_limit(&self, bytes: u64) {
        self.byte_limit.store(bytes, Ordering::Relaxed);
    }

    /// Completes the first `packets` packets that are in flight.
    pub fn complete(&self, packets: usize) {
        let mut in_flight = self.in_flight.lock().unwrap();
        let count = packets.min(in_flight.len());
        in_flight.drain(..count);
    }

    /// Bytes that the ring takes now, with the one that a packet may go over the limit.
    fn available(&self) -> Option<u64> {
        let limit = self.byte_limit.load(Ordering::Relaxed);
        (limit != u64::MAX).then(|| (limit + 1).saturating_sub(self.in_flight()))
    }

    /// Bytes that were sent and not completed.
    pub fn in_flight(&self) -> u64 {
        self.in_flight.lock().unwrap().iter().sum()
    }

    /// Marks and lengths of what was sent.
    pub fn sent(&self) -> MutexGuard<'_, Vec<(u32, usize)>> {
        self.sent.lock().unwrap()
    }

    /// The marks of what was sent.
    pub fn marks(&self) -> Vec<u32> {
        self.sent().iter().map(|s| s.0).collect()
    }

    /// The calls of the driver.
    pub fn calls(&self) -> MutexGuard<'_, Vec<Call>> {
        self.calls.lock().unwrap()
    }

    /// When the ring was restarted.
    pub fn restarts(&self) -> Vec<Time> {
        self.restarts.lock().unwrap().clone()
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sent = self.sent().len();
        write!(f, "Script({sent} sent, {} calls)", self.calls().len())
    }
}

/// Counts one down, unless it is zero already.
fn take_one(counter: &AtomicUsize) -> bool {
    let less = |n: usize| n.checked_sub(1);
    let taken = counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    taken.is_ok()
}

/// A transmit ring that follows its [`Script`], and notes there what it did.
#[derive(Debug)]
pub struct ScriptedRing {
    script: Arc<Script>,
    entered: AtomicBool,
    /// Takes what is sent, if it is connected.
    to: Option<To>,
}

struct To(Arc<dyn Ingress>);

impl fmt::Debug for To {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("To")
    }
}

impl ScriptedRing {
    /// A ring, and its script.
    pub fn new() -> (ScriptedRing, Arc<Script>) {
        let script = Arc::new(Script {
            sent: Mutex::default(),
            calls: Mutex::default(),
            restarts: Mutex::default(),
            in_flight: Mutex::default(),
            byte_limit: AtomicU64::new(u64::MAX),
            capacity: AtomicUsize::new(usize::MAX),
            refuse: AtomicUsize::new(0),
            restart_helps: AtomicBool::new(false),
            on_call: Mutex::default(),
            sink: Mutex::default(),
        });
        (ScriptedRing::following(&script), script)
    }

    /// `n` rings, each with a script.
    pub fn many(n: usize) -> (Vec<ScriptedRing>, Vec<Arc<Script>>) {
        (0..n).map(|_| ScriptedRing::new()).unzip()
    }

    /// Another ring with the same script.
    pub fn following(script: &Arc<Script>) -> ScriptedRing {
        ScriptedRing {
            script: script.clone(),
            entered: AtomicBool::new(false),
            to: None,
        }
    }
}

impl TxRing for ScriptedRing {
    fn xmit(&mut self, packets: &mut PacketList, sent: &mut Sent) -> Xmit {
        // An owner word that lets two threads in would alias `self`.
        let entered = self.entered.swap(true, Ordering::Relaxed);
        assert!(!entered, "two owners of one queue");
        let script = &self.script;
        if let Some(f) = &mut *script.on_call.lock().unwrap() {
            f();
        }
        let offered = packets.len();
        let mut outcome = Xmit::Complete;
        while !packets.is_empty() {
            if script.available() == Some(0) || !take_one(&script.capacity) {
                outcome = Xmit::Busy;
                break;
            }
            let packet = packets.pop_front().unwrap();
            if take_one(&script.refuse) {
                sent.drop(DropReason::DriverRefused, &packet);
                continue;
            }
            sent.count(&packet);
            script.sent().push((packet.mark(), packet.len()));
            let mut in_flight = script.in_flight.lock().unwrap();
            in_flight.push_back(packet.wire_len());
            drop(in_flight);
            if let Some(To(to)) = &self.to {
                let mut one = PacketList::from(packet);
                to.receive_later(&mut one);
                assert!(one.is_empty(), "the backlog has room");
            } else if let Some(sink) = &mut *script.sink.lock().unwrap() {
                sink(packet);
            }
        }
        let taken = offered - packets.len();
        script.calls().push(Call { offered, taken });
        self.entered.store(false, Ordering::Relaxed);
        outcome
    }

    fn connect(&mut self, to: Arc<dyn Ingress>) {
        self.to = Some(To(to));
    }

    fn available(&mut self, _now: Time) -> Option<u64> {
        self.script.available()
    }

    fn restart(&mut self, now: Time) {
        self.script.restarts.lock().unwrap().push(now);
        if self.script.restart_helps.load(Ordering::Relaxed) {
            self.script.set_capacity(usize::MAX);
        }
    }
}
