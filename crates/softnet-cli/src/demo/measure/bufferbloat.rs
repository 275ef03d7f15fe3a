//! Bufferbloat: bulk TCP fills the queue in front of a slow link, and a ping waits behind all of
//! it. First with a long FIFO below the shaper, then with `fq_codel`, then with `cake`, which
//! shapes itself.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use softnet_tc::{
    CakeSpec, ClassSpec, FqCodelSpec, Handle, HtbClassSpec, HtbSpec, QdiscSpec, SpecError,
    TreeSpec,
};
use softnet_testbed::threads::joined;

use super::{Measurement, failed, megabits, watch};
use crate::demo::end::End;
use crate::demo::results::{Bloat, Bufferbloat};
use crate::demo::traffic::Arrived;
use crate::demo::traffic::ping::Pinger;
use crate::demo::traffic::tcp::Bulk;

/// The link: 50 Mb/s. Its burst lasts 5 ms, so that no rate is lost when a thread is late.
const RATE: u64 = 50_000_000 / 8;
const BURST: u64 = 32 << 10;
/// A FIFO of a device's `txqueuelen`. Full of frames of 1514 bytes, it takes 240 ms to empty; of
/// large ones, which count once as in the kernel, as long as TCP's send buffer (4 MB) lasts.
const LIMIT: u32 = 1000;
/// Time between two pings, if there are not too many.
const INTERVAL: Duration = Duration::from_millis(10);
const PINGS_MAX: u32 = 10_000;
/// Share of a phase that TCP has to fill the queue before pings count, in percent.
const SHARE_RAMP: u32 = 25;

impl Measurement<'_> {
    /// All phases, each of a third of the time.
    pub(super) fn bufferbloat(
        &self,
        pinger: &mut Pinger,
        length: Duration,
    ) -> Result<Bufferbloat, End> {
        let length = length / 3;
        let below = |qdisc| link(qdisc).map_err(|error| failed("cannot build the link", &error));
        let pfifo = below(QdiscSpec::Pfifo { limit: LIMIT })?;
        let fq_codel = below(QdiscSpec::FqCodel(FqCodelSpec::default()))?;
        let cake = QdiscSpec::Cake(CakeSpec {
            bandwidth: Some(RATE),
            ..CakeSpec::default()
        });
        Ok(Bufferbloat {
            rate: RATE,
            length,
            pfifo: self.bloat(pinger, length, "bufferbloat, pfifo", pfifo)?,
            fq_codel: self.bloat(pinger, length, "bufferbloat, fq_codel", fq_codel)?,
            cake: self.bloat(pinger, length, "bufferbloat, cake", cake)?,
        })
    }

    /// Bulk TCP and pings through a port that shapes so.
    fn bloat(
        &self,
        pinger: &mut Pinger,
        length: Duration,
        name: &'static str,
        tree: QdiscSpec,
    ) -> Result<Bloat, End> {
        let shaped = self.topology.shape(&tree);
        shaped.map_err(|error| failed("cannot shape the port", &error))?;
        let bulk =
            Bulk::open(&self.topology.a, &self.topology.b).map_err(End::io("cannot connect"))?;
        bulk.fill_queues()
            .map_err(End::io("cannot choose TCP's congestion control"))?;
        let arrived = Arrived::default();
        let until = self.until(length);
        let interval = INTERVAL.max(length / PINGS_MAX);
        let latest = AtomicU64::new(0);
        let result = thread::scope(|scope| {
            let send = scope.spawn(|| bulk.send(&until));
            let receive = scope.spawn(|| bulk.receive(&until, &arrived));
            let ping = scope.spawn(|| {
                pinger.trace(&until, interval, |time| {
                    latest.store(time.as_micros() as u64, Ordering::Relaxed);
                })
            });
            watch(&until, self.progress.phase(name), &arrived, |rate| {
                let ping = latest.load(Ordering::Relaxed) as f64 / 1e3;
                format!("ping {ping:.1} ms, TCP {}", megabits(rate))
            });
            joined(receive)?;
            joined(send)?;
            joined(ping)
        });
        drop(bulk);
        let trace = self.done(result, "traffic through the slow link failed")?;
        self.topology.settle(Duration::from_secs(2));
        Ok(Bloat {
            ping: trace.round_trips(length * SHARE_RAMP / 100),
            trace,
        })
    }
}

/// The link: an htb with one class, and a qdisc below it.
fn link(qdisc: QdiscSpec) -> Result<QdiscSpec, SpecError> {
    let (htb, class) = (Handle::new(1, 0), Handle::new(1, 1));
    let root = HtbSpec {
        default: class.minor(),
        ..HtbSpec::default()
    };
    let slow = HtbClassSpec {
        burst: BURST,
        cburst: BURST,
        ..HtbClassSpec::new(RATE)
    };
    let mut tree = TreeSpec::new();
    tree.add(Handle::ROOT, htb, QdiscSpec::Htb(root))?;
    tree.add_class(htb, class, ClassSpec::Htb(slow))?;
    tree.add(class, Handle::new(0x10, 0), qdisc)?;
    Ok(QdiscSpec::Tree(tree))
}
