//! Case `senders`: threads that send packets of 64 bytes, one a call, into one queue of a guest
//! that only receives. All of them are on one CPU, the guest is on the other. A `pfifo_fast` is in
//! the path, and a helper thread serves what bounded runs leave.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustix::event::{Timespec, epoll};
use serde_json::json;
use softnet::mem::{PacketList, Pool};
use softnet::time::{Clock, Time};
use softnet::tx::{RingFile, RingWaker, Sender, Sent, TxRing, Xmit};
use softnet_engine::Device;
use softnet_io::{Buffers, VhostUserTx};
use softnet_tc::QdiscSpec;
use softnet_testbed::threads::joined;

use super::testpmd::{self, Rates, Testpmd};
use super::{QUEUE, START, WARM_UP, address, device_options};
use crate::buffers::pinned::{self, Cpus};
use crate::error::{BenchError, failed};
use crate::hosts::Directory;
use crate::interleave::{self, Turn, in_any_order};
use crate::options::Options;
use crate::report::{Collector, Field, OURS, Param};

/// Name of these rows for `--only case=`.
const CASE: &str = "senders";
const RING: &str = "split";
const THREADS: [usize; 2] = [1, 64];
const FRAME: usize = 64;
/// Packets in the guest's pool.
const PACKETS: usize = 8192;
/// Interval at which the thread that watches the ring looks whether it is to end.
const LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 20_000_000,
};

/// A guest's ring that is watched without an engine.
struct Watched {
    ring: VhostUserTx,
    waker: Arc<OnceLock<RingWaker>>,
}

impl TxRing for Watched {
    fn xmit(&mut self, packets: &mut PacketList, sent: &mut Sent) -> Xmit {
        self.ring.xmit(packets, sent)
    }

    fn available(&mut self, now: Time) -> Option<u64> {
        self.ring.available(now)
    }

    fn restart(&mut self, now: Time) {
        self.ring.restart(now);
    }

    fn bind(&mut self, waker: RingWaker) {
        // Once.
        let _ = self.waker.set(waker.clone());
        self.ring.bind(waker);
    }
}

/// Wakes the queue when the guest says that it has buffers again.
fn watch(file: &RingFile, waker: &OnceLock<RingWaker>, stop: &AtomicBool) -> io::Result<()> {
    let ready = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
    epoll::add(&ready, &file.fd, epoll::EventData::new_u64(0), flags)?;
    let mut events = Vec::with_capacity(1);
    while !stop.load(Ordering::Relaxed) {
        match epoll::wait(
            &ready,
            rustix::buffer::spare_capacity(&mut events),
            Some(&LOOK),
        ) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if !events.is_empty()
            && let Some(waker) = waker.get()
        {
            waker.wake();
        }
        events.clear();
    }
    Ok(())
}

/// Sends until it is stopped; returns how many packets.
fn send(device: &Device<Watched>, pool: &Pool, clock: &Clock, stop: &AtomicBool) -> u64 {
    let mut frame = [0; FRAME];
    frame[..6].copy_from_slice(&[2, 0, 0, 0, 1, 0]);
    frame[6..14].copy_from_slice(&[2, 0, 0, 0, 2, 0, 8, 0]);
    let mut sent = 0;
    while !stop.load(Ordering::Relaxed) {
        let Ok(mut packet) = pool.alloc() else {
            std::thread::yield_now();
            continue;
        };
        let _ = packet.append(&frame);
        device.transmit(packet.into(), clock.now());
        sent += 1;
    }
    sent
}

fn params(threads: usize) -> Vec<Param> {
    vec![
        ("case", json!(CASE)),
        ("threads", json!(threads)),
        ("ring", json!(RING)),
    ]
}

fn measure(threads: usize, cpus: Cpus, time: Duration) -> Result<Vec<Field>, BenchError> {
    let directory = Directory::private()?;
    let path = directory.path().join("0.sock");
    let pool = crate::buffers::pool(32_768, 512)?;
    let buffers = Buffers {
        small: pool.clone(),
        large: None,
    };
    let mut port = super::softnet::open(&path, 1, &buffers)?;
    let Some(ring) = port.tx.pop() else {
        return Err(BenchError::Measure("the port has no queue".to_owned()));
    };
    let options = format!("mac={},{}", address(0), device_options(RING, QUEUE));
    let guest = [testpmd::front_end(0, &path, &options)];
    let mut guest = Testpmd::start(cpus.b, &guest, PACKETS, &["--forward-mode=rxonly"])?;
    guest.ask("start")?;
    // Threads have the CPU of the one that starts them.
    pinned::on_cpu(cpus.a, || {
        let file = ring
            .file()
            .map_err(|e| BenchError::io("asking for a file", e))?;
        let waker = Arc::new(OnceLock::new());
        let ring = Watched {
            ring,
            waker: waker.clone(),
        };
        let qdiscs = QdiscSpec::default().instances(1, &pool).map_err(failed)?;
        let clock = Clock::monotonic();
        let sender = Sender::builder().qdiscs(qdiscs).pool(&pool);
        let out = sender.clock(clock.clone()).start(ring).map_err(failed)?;
        let device = out.device();
        let stop = AtomicBool::new(false);
        let (rates, dropped, sent) = std::thread::scope(|scope| {
            let watching = file.as_ref().map(|file| {
                let (waker, stop) = (&waker, &stop);
                scope.spawn(move || watch(file, waker, stop))
            });
            let sender = |_| scope.spawn(|| send(device, &pool, &clock, &stop));
            let senders: Vec<_> = (0..threads).map(sender).collect();
            std::thread::sleep(WARM_UP.min(time));
            let before = device.stats().dropped();
            let rates = guest.rates(time);
            let dropped = device.stats().dropped() - before;
            stop.store(true, Ordering::Relaxed);
            let sent: u64 = senders.into_iter().map(joined).sum();
            let watched = watching.map_or(Ok(()), joined);
            watched.map_err(|e| BenchError::io("watching a ring", e))?;
            Ok::<_, BenchError>((rates?, dropped, sent))
        })?;
        let stats = device.stats();
        if sent < stats.tx_packets + stats.dropped() {
            return Err(BenchError::Measure(format!(
                "{sent} packets were sent, {stats:?}"
            )));
        }
        let rates = Rates::sum(&rates);
        Ok(vec![
            ("mpps", rates.received / 1e6),
            ("drops", dropped as f64),
        ])
    })
}

/// Measures.
pub(super) fn rows(options: &Options, results: &mut Collector) -> Result<(), BenchError> {
    let only = options.only()?;
    let (rounds, time) = super::turns(options);
    let cpus = Cpus::choose()?;
    let asked = |threads: &usize| {
        let wanted = options.threads.is_empty() || options.threads.contains(threads);
        wanted && only.allows(&params(*threads))
    };
    let chosen: Vec<usize> = THREADS.into_iter().filter(asked).collect();
    if chosen.is_empty() {
        return Ok(());
    }
    // All in one turn, as they are compared with each other.
    let measure = move |results: &mut Collector| {
        for (threads, fields) in in_any_order(&chosen, |threads| measure(threads, cpus, time))? {
            results.add(OURS, &params(threads), &fields);
        }
        Ok(())
    };
    let turn = Turn::new(OURS, &[("case", json!(CASE))], measure);
    let rounds = rounds.of(&turn.params, time);
    let rounds = rounds
        .of_several()
        .in_turns_of((time + START) * THREADS.len() as u32);
    interleave::measure(options, rounds, vec![turn], results)
}

/// The parameters of all rows.
#[cfg(test)]
pub(super) fn measured() -> Vec<Vec<Param>> {
    THREADS.map(params).into()
}
