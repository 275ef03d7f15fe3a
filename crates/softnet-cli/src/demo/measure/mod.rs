//! The sequence of measurements. Each opens its sockets, runs for its share of the time on threads
//! of its own, and closes them.

mod bufferbloat;

use std::error::Error;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use softnet_tc::{QdiscSpec, TbfSpec};
use softnet_testbed::threads::joined;

use crate::demo::end::End;
use crate::demo::progress::{Phase, Progress, REFRESH};
use crate::demo::results::{Measured, Shaped, UdpResult};
use crate::demo::topology::Topology;
use crate::demo::traffic::ping::{Pinger, RoundTrips};
use crate::demo::traffic::tcp::{Bulk, Transfer};
use crate::demo::traffic::udp::Stream;
use crate::demo::traffic::{Arrived, Until};
use crate::failure::{Exit, Failure};
use crate::signals::Stop;

/// The shaped port: tc's `tbf rate 100mbit burst 128k latency 50ms`.
const RATE: u64 = 100_000_000 / 8;
const BURST: u64 = 128 << 10;
const LATENCY_MS: u64 = 50;

/// Rest between two pings: long enough for the workers to fall asleep, and under load not a load
/// of its own.
const IDLE_PINGS: Duration = Duration::from_millis(1);
const LOADED_PINGS: Duration = Duration::from_millis(5);
/// Time in which the first ping is answered.
const FIRST: Duration = Duration::from_secs(20);
/// The paced sender offers this share of what came through flat out.
const PACED_SHARE: f64 = 0.5;
/// A receiver waits so long for the last packets.
const LATE: Duration = Duration::from_millis(100);
/// Shares of the measuring time, in percent. Together 100.
const SHARE_PING: u32 = 6;
const SHARE_TCP: u32 = 16;
const SHARE_FLAT: u32 = 9;
const SHARE_PACED: u32 = 9;
const SHARE_SHAPED: u32 = 20;
const SHARE_BLOAT: u32 = 40;
/// Share of the shaped time that TCP has to find the rate before it is measured.
const SHARE_RAMP: u32 = 20;

/// The demo on its way.
pub(super) struct Measurement<'a> {
    pub(super) topology: &'a Topology,
    pub(super) stop: &'a Stop,
    pub(super) progress: &'a Progress,
}

impl Measurement<'_> {
    /// All measurements.
    pub(super) fn run(&self, seconds: u64, started: Instant) -> Result<Measured, End> {
        let total = Duration::from_secs(seconds);
        let share = |percent: u32| total * percent / 100;
        let mut pinger = Pinger::open(&self.topology.a, &self.topology.b)
            .map_err(End::io("cannot open a ping socket"))?;
        let start = self.first_ping(&mut pinger, started)?;
        let ping = self.idle_ping(&mut pinger, share(SHARE_PING))?;
        let (tcp, ping_under_tcp) = self.tcp(&mut pinger, share(SHARE_TCP))?;
        let flat = self.udp("UDP 64 B, flat out", share(SHARE_FLAT), None)?;
        let pps = (flat.count.pps() * PACED_SHARE).max(1000.0);
        let paced = self.udp("UDP 64 B, paced", share(SHARE_PACED), Some(pps.round()))?;
        let shaped = self.shaped(&mut pinger, share(SHARE_SHAPED))?;
        let bufferbloat = self.bufferbloat(&mut pinger, share(SHARE_BLOAT))?;
        Ok(Measured {
            seconds,
            workers: self.topology.workers,
            start,
            via: pinger.via(),
            ping,
            ping_under_tcp,
            tcp,
            flat,
            paced,
            shaped,
            bufferbloat,
        })
    }

    /// The time from the start of the process to the first answer.
    fn first_ping(&self, pinger: &mut Pinger, started: Instant) -> Result<Duration, End> {
        let until = self.until(FIRST);
        while !until.is_over() {
            if pinger
                .once(&until)
                .map_err(End::io("cannot ping"))?
                .is_some()
            {
                return Ok(started.elapsed());
            }
        }
        self.check()?;
        let text = "host B does not answer host A's pings through the switch";
        Err(End::Failed(Failure::new(Exit::Failure, text)))
    }

    fn idle_ping(&self, pinger: &mut Pinger, length: Duration) -> Result<RoundTrips, End> {
        let until = self.until(length);
        let mut phase = self.progress.phase("ping, idle");
        let mut shown = Instant::now();
        let trips = pinger.run(&until, IDLE_PINGS, |time| {
            if shown.elapsed() >= REFRESH {
                shown = Instant::now();
                phase.show(&format!("{} µs", time.as_micros()));
            }
        });
        self.done(trips, "cannot ping")
    }

    fn tcp(&self, pinger: &mut Pinger, length: Duration) -> Result<(Transfer, RoundTrips), End> {
        let bulk =
            Bulk::open(&self.topology.a, &self.topology.b).map_err(End::io("cannot connect"))?;
        let until = self.until(length);
        let arrived = Arrived::default();
        let result = thread::scope(|scope| {
            let send = scope.spawn(|| bulk.send(&until));
            let receive = scope.spawn(|| bulk.receive(&until, &arrived));
            let ping = scope.spawn(|| pinger.run(&until, LOADED_PINGS, |_| {}));
            watch(&until, self.progress.phase("TCP"), &arrived, gigabits);
            let received = joined(receive)?;
            joined(send)?;
            Ok((received, joined(ping)?))
        });
        self.done(result, "TCP traffic failed")
    }

    fn udp(
        &self,
        name: &'static str,
        length: Duration,
        asked_pps: Option<f64>,
    ) -> Result<UdpResult, End> {
        let stream = Stream::open(&self.topology.a, &self.topology.b)
            .map_err(End::io("cannot open UDP sockets"))?;
        let until = self.until(length);
        let late = until.plus(LATE);
        let arrived = Arrived::default();
        let result = thread::scope(|scope| {
            let receive = scope.spawn(|| stream.receive(&late, &arrived));
            let send = scope.spawn(|| stream.send(&until, asked_pps));
            watch(&until, self.progress.phase(name), &arrived, kilopackets);
            Ok(UdpResult {
                sent: joined(send)?,
                count: joined(receive)?,
                asked_pps,
            })
        });
        self.done(result, "UDP traffic failed")
    }

    /// TCP through a port with a rate limit, with pings beside it.
    fn shaped(&self, pinger: &mut Pinger, length: Duration) -> Result<Shaped, End> {
        self.topology.settle(Duration::from_secs(1));
        let limit = RATE * LATENCY_MS / 1000 + BURST;
        let tbf = TbfSpec {
            rate: RATE,
            burst: BURST,
            limit,
            peakrate: None,
            mtu: 0,
            link: Default::default(),
        };
        let shaped = self.topology.shape(&QdiscSpec::Tbf(tbf));
        shaped.map_err(|error| failed("cannot shape the port", &error))?;
        let bulk =
            Bulk::open(&self.topology.a, &self.topology.b).map_err(End::io("cannot connect"))?;
        let arrived = Arrived::default();
        let ramp = self.until(length * SHARE_RAMP / 100);
        let until = self.until(length);
        let result = thread::scope(|scope| {
            let send = scope.spawn(|| bulk.send(&until));
            let receive = scope.spawn(|| bulk.receive(&until, &arrived));
            watch(
                &ramp,
                self.progress.phase("TCP, shaped to 100 Mb/s"),
                &arrived,
                megabits,
            );
            let (start, before) = (Instant::now(), self.topology.bytes_to_b());
            let ping = scope.spawn(|| pinger.run(&until, LOADED_PINGS, |_| {}));
            watch(
                &until,
                self.progress.phase("TCP, shaped to 100 Mb/s"),
                &arrived,
                megabits,
            );
            let bytes = self.topology.bytes_to_b() - before;
            let elapsed = start.elapsed();
            joined(receive)?;
            joined(send)?;
            Ok(Shaped {
                asked: RATE,
                bytes,
                elapsed,
                ping: joined(ping)?,
            })
        });
        drop(bulk);
        let shaped = self.done(result, "shaped TCP traffic failed")?;
        self.topology.settle(Duration::from_secs(1));
        Ok(shaped)
    }

    fn until(&self, length: Duration) -> Until {
        Until::after(length, self.stop.flag())
    }

    /// An interruption goes before an error that it may have caused.
    fn done<T>(&self, result: io::Result<T>, what: &'static str) -> Result<T, End> {
        self.check()?;
        result.map_err(End::io(what))
    }

    fn check(&self) -> Result<(), End> {
        if self.stop.requested() {
            Err(End::Interrupted)
        } else {
            Ok(())
        }
    }
}

fn failed(what: &'static str, error: &dyn Error) -> End {
    End::Failed(Failure::because(Exit::Failure, what, error))
}

/// Shows what arrives in a second until it is time.
fn watch(until: &Until, mut phase: Phase<'_>, arrived: &Arrived, show: impl Fn(f64) -> String) {
    let (mut last, mut at) = (arrived.get(), Instant::now());
    while !until.is_over() {
        until.sleep(REFRESH);
        let (now, count) = (Instant::now(), arrived.get());
        let rate = (count - last) as f64 / (now - at).as_secs_f64().max(1e-9);
        phase.show(&show(rate));
        (last, at) = (count, now);
    }
}

fn gigabits(bytes: f64) -> String {
    format!("{:.2} Gb/s", bytes * 8.0 / 1e9)
}

fn megabits(bytes: f64) -> String {
    format!("{:.1} Mb/s", bytes * 8.0 / 1e6)
}

fn kilopackets(packets: f64) -> String {
    format!("{:.0} k packets/s", packets / 1e3)
}
