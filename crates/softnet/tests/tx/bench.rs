//! A device whose worker is the test.

use std::sync::{Arc, Mutex};

use super::*;
use softnet::mem::{Packet, PacketList, Pool};
use softnet::testing::{NoWake, RecordingRing, frame, pool};
use softnet::time::Time;
use softnet_tc::QdiscSpec;

/// Packets of the pool.
pub(crate) const BUFFERS: usize = 4096;

/// A device whose worker is the test.
pub(crate) struct Bench<R> {
    pub(crate) device: Arc<Device<R>>,
    pub(crate) notifier: Arc<Notifier>,
    pub(crate) pool: Pool,
}

impl<R: TxRing> Bench<R> {
    pub(crate) fn new(qdisc: QdiscSpec, rings: Vec<R>) -> Bench<R> {
        Bench::with(qdisc, rings, TxPolicy::default())
    }

    pub(crate) fn with(qdisc: QdiscSpec, rings: Vec<R>, policy: TxPolicy) -> Bench<R> {
        Bench::make(qdisc, rings, Features::default(), policy)
    }

    pub(crate) fn with_features(qdisc: QdiscSpec, rings: Vec<R>, features: Features) -> Bench<R> {
        Bench::make(qdisc, rings, features, TxPolicy::default())
    }

    fn make(qdisc: QdiscSpec, rings: Vec<R>, features: Features, policy: TxPolicy) -> Bench<R> {
        let pool = pool(BUFFERS);
        let notifier = Arc::new(Notifier::new(rings.len() + 1, Arc::new(NoWake)));
        let homes: Vec<_> = (1..=rings.len()).map(|t| (notifier.clone(), t)).collect();
        let config = DeviceConfig {
            name: "bench".into(),
            features,
            policy,
        };
        let device = Arc::new(new_device(config, qdisc, rings, &pool, &homes).unwrap());
        Bench {
            device,
            notifier,
            pool,
        }
    }

    /// A packet of 100 bytes for a ring.
    pub(crate) fn packet(&self, ring: u16, mark: u32) -> Packet {
        let mut packet = frame(&self.pool, 1, 2, 100, mark);
        packet.set_queue(Some(ring));
        packet
    }

    /// Sends packets with these marks in one call, each for the ring that `ring` says.
    pub(crate) fn send(
        &self,
        marks: std::ops::Range<u32>,
        ring: impl Fn(u32) -> u16,
        now: Time,
    ) -> XmitResult {
        let list: PacketList = marks.map(|m| self.packet(ring(m), m)).collect();
        self.device.transmit(list, now)
    }

    /// Runs queues as long as a bell rings; returns how often that was.
    pub(crate) fn work(&self, now: Time) -> u64 {
        let mut runs = 0;
        loop {
            let mut bells = Vec::new();
            if !self.notifier.take(|bell| bells.push(bell)) {
                return runs;
            }
            for bell in bells {
                runs += 1;
                assert!(runs < 1_000_000, "asked to run for ever");
                let _ = self.device.run_from_worker(bell - 1, RUN_QUOTA, now);
            }
        }
    }

    /// INV-TX-1 and INV-TX-6 at rest: all of `offered` is accounted for, and lengths are those of what is queued: packets of 100 bytes.
    pub(crate) fn check(&self, offered: u64) {
        let stats = self.device.stats();
        let total = stats.qdisc();
        assert_eq!(
            offered,
            stats.tx_packets + stats.dropped() + stats.queued,
            "{stats:?}"
        );
        assert_eq!(total.backlog, 100 * total.qlen);
        assert_eq!(self.pool.stats().free as u64 + total.qlen, BUFFERS as u64);
        assert_eq!(self.device.is_empty(), total.qlen == 0);
    }
}

/// What a driver does in the middle of a run.
pub(crate) type Hook = Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>;

/// Calls back from its first transmission.
pub(crate) struct HookedRing {
    pub(crate) ring: RecordingRing,
    pub(crate) hook: Hook,
}

impl TxRing for HookedRing {
    fn xmit(&mut self, packets: &mut PacketList, sent: &mut Sent) -> Xmit {
        let hook = self.hook.lock().unwrap().take();
        hook.into_iter().for_each(|hook| hook());
        self.ring.xmit(packets, sent)
    }
}
