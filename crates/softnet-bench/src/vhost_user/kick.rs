//! Path `kick`: the time from just before a guest offers a frame, and kicks if the switch asks for
//! it, until its peer runs that slept until it was called. The switch has a CPU, the guests share
//! the other. The guests are the tests' driver and front end, a thread each.

use std::io::ErrorKind;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::json;
use softnet_testbed::threads::joined;
use softnet_tests::guest::{FrontEnd, Guest, GuestConfig, HEADER, feature};

use super::ovs::Ovs;
use super::softnet::{Setup, Switch};
use super::{BackEnd, OVS, START, WARM_UP};
use crate::buffers::pinned::{self, Cpus};
use crate::error::{BenchError, chain};
use crate::hosts::Directory;
use crate::interleave::{self, Turn};
use crate::numbers::{percentile, percentiles};
use crate::options::{Options, SHORT};
use crate::report::{Collector, Field, OURS, Param};

/// The loads, and the pause after each frame; without one, the peer answers each at once.
const LOADS: [(&str, Option<Duration>); 2] = [
    ("paused", Some(Duration::from_millis(1))),
    ("back-to-back", None),
];
/// Time for a thousand frames with a pause each, and some more.
const PAUSED: Duration = Duration::from_millis(1300);
const FRAME: usize = 64;
/// Time in which what was sent should have come, and after which it never will.
const MOMENT: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_secs(10);
/// Stamps of frames that have no time: the first ones, and the last.
const GREETING: u64 = u64::MAX;
const END: u64 = 0;

/// A guest and the frame that it sends.
struct Machine {
    guest: Guest,
    /// Ends the connection with the value.
    _front_end: FrontEnd,
    frame: [u8; FRAME],
}

impl Machine {
    /// The machine 0 or 1.
    fn start(number: u8, mut front_end: FrontEnd) -> Result<Machine, BenchError> {
        let mut guest = Guest::new(GuestConfig {
            pairs: 1,
            size: 256,
            packed: false,
            event_index: false,
            features: feature::MRG_RXBUF,
        });
        // What was sent is taken back with the next frame.
        guest.ring(1).silence();
        let started = guest.start(&mut front_end);
        started.map_err(|e| BenchError::io("starting a guest", e))?;
        guest.offer(0, u16::MAX);
        let mut frame = [0; FRAME];
        frame[..6].copy_from_slice(&[2, 0, 0, 0, 3, 1 - number]);
        frame[6..14].copy_from_slice(&[2, 0, 0, 0, 3, number, 0x88, 0xb5]);
        Ok(Machine {
            guest,
            _front_end: front_end,
            frame,
        })
    }

    fn send(&mut self, stamp: u64) -> Result<(), BenchError> {
        self.frame[14..22].copy_from_slice(&stamp.to_be_bytes());
        if self.guest.send(1, &self.frame) {
            return Ok(());
        }
        Err(BenchError::Measure("the switch takes no frame".to_owned()))
    }

    /// The stamps of the frames that have come for it.
    fn take(&mut self) -> Vec<u64> {
        // Fails if it was not notified. What comes from here on notifies it again.
        let _ = rustix::io::read(self.guest.call_file(0), &mut [0; 8]);
        let mut stamps = Vec::new();
        while let Some(bytes) = self.guest.ring(0).receive() {
            let Some(frame) = bytes.get(HEADER..HEADER + FRAME) else {
                continue;
            };
            if frame[..6] == self.frame[6..12] && frame[12..14] == self.frame[12..14] {
                let stamp = frame[14..22].try_into().expect("eight bytes");
                stamps.push(u64::from_be_bytes(stamp));
            }
        }
        self.guest.offer(0, u16::MAX);
        stamps
    }

    /// Sleeps until it is notified of frames. Adds their times in nanoseconds; true if more come.
    fn wait(&mut self, clock: Instant, times: &mut Vec<f64>) -> Result<bool, BenchError> {
        let patience = Timespec {
            tv_sec: PATIENCE.as_secs() as i64,
            tv_nsec: 0,
        };
        loop {
            let call = self.guest.call_file(0);
            let ready = poll(&mut [PollFd::new(&call, PollFlags::IN)], Some(&patience));
            let now = nanos(clock);
            match ready {
                Ok(0) => return Err(BenchError::Measure("no frame comes".to_owned())),
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(BenchError::io("waiting for a call", error)),
            }
            let mut stamps = self.take();
            stamps.retain(|stamp| *stamp != GREETING);
            times.extend(waited(&stamps, now));
            if let Some(last) = stamps.last() {
                return Ok(*last != END);
            }
        }
    }

    /// Sends for some time, with a pause after each frame or an answer before the next. Returns the
    /// times of answers.
    fn ask(
        &mut self,
        clock: Instant,
        pause: Option<Duration>,
        time: Duration,
    ) -> Result<Vec<f64>, BenchError> {
        let mut times = Vec::new();
        loop {
            self.send(nanos(clock))?;
            match pause {
                Some(pause) => std::thread::sleep(pause),
                None => _ = self.wait(clock, &mut times)?,
            }
            if clock.elapsed() >= time {
                self.send(END)?;
                return Ok(times);
            }
        }
    }

    /// Receives until the end; returns the times.
    fn listen(&mut self, clock: Instant, answer: bool) -> Result<Vec<f64>, BenchError> {
        let mut times = Vec::new();
        while self.wait(clock, &mut times)? {
            if answer {
                self.send(nanos(clock))?;
            }
        }
        Ok(times)
    }
}

/// Times until now of the frames that were sent before. The others came while the first were taken:
/// for them nobody was called.
fn waited(stamps: &[u64], now: u64) -> impl Iterator<Item = f64> {
    let sent = stamps
        .iter()
        .filter(move |sent| **sent != END && **sent < now);
    sent.map(move |sent| (now - sent) as f64)
}

/// Nanoseconds since `clock`, at least one.
fn nanos(clock: Instant) -> u64 {
    (clock.elapsed().as_nanos() as u64).max(END + 1)
}

/// Lets the machines exchange frames; the nanoseconds from each offer to the wake-up.
fn exchange(
    [a, b]: &mut [Machine; 2],
    pause: Option<Duration>,
    time: Duration,
) -> Result<Vec<f64>, BenchError> {
    let clock = Instant::now();
    std::thread::scope(|scope| {
        let listening = scope.spawn(|| b.listen(clock, pause.is_none()));
        let asked = a.ask(clock, pause, time);
        let heard = joined(listening);
        Ok([asked?, heard?].concat())
    })
}

/// Waits for a switch that connects to a machine.
fn accept(listener: &UnixListener) -> std::io::Result<FrontEnd> {
    let start = Instant::now();
    loop {
        match FrontEnd::accept(listener) {
            Err(error) if error.kind() == ErrorKind::WouldBlock && start.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(2));
            }
            other => return other,
        }
    }
}

/// Two machines with these ends of connections to the switch, which knows where they are.
fn meet(
    front_end: impl Fn(usize) -> std::io::Result<FrontEnd>,
) -> Result<[Machine; 2], BenchError> {
    let connect = |n| front_end(n).map_err(|e| BenchError::io("connecting a guest", e));
    let mut machines = [
        Machine::start(0, connect(0)?)?,
        Machine::start(1, connect(1)?)?,
    ];
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        machines.iter_mut().try_for_each(|it| it.send(GREETING))?;
        std::thread::sleep(MOMENT);
        // Both take what is theirs, whatever the first has heard.
        let heard = machines.each_mut().map(|it| !it.take().is_empty());
        if heard == [true; 2] {
            return Ok(machines);
        }
    }
    Err(BenchError::Measure("the guests do not meet".to_owned()))
}

/// The switch on `cpu`, and machines that it joins.
fn start(
    variant: &str,
    directory: &Directory,
    cpu: usize,
) -> Result<(Box<dyn BackEnd>, [Machine; 2]), BenchError> {
    let sockets: [PathBuf; 2] = [0, 1].map(|n| directory.path().join(format!("{n}.sock")));
    if variant != OVS {
        let switch = Switch::start(&sockets, &Setup::on(cpu))?;
        let machines = meet(|n| FrontEnd::connect(&sockets[n]))?;
        return Ok((Box::new(switch), machines));
    }
    // Open vSwitch is the one that connects.
    let listen = |path: &PathBuf| {
        let listener = UnixListener::bind(path)?;
        listener.set_nonblocking(true)?;
        Ok::<_, std::io::Error>(listener)
    };
    let listeners: std::io::Result<Vec<_>> = sockets.iter().map(listen).collect();
    let listeners = listeners.map_err(|e| BenchError::io("making sockets", e))?;
    let switch = Ovs::start(directory, &sockets, cpu)?;
    let machines = meet(|n| accept(&listeners[n])).map_err(|error| {
        // It runs on without DPDK if that does not start.
        BenchError::Unavailable(format!("it does not connect: {}", chain(&error)))
    })?;
    Ok((Box::new(switch), machines))
}

/// The figures of each load.
fn measure(
    variant: &str,
    cpus: Cpus,
    times: [Duration; LOADS.len()],
) -> Result<Vec<Vec<Field>>, BenchError> {
    let directory = Directory::private()?;
    let (switch, mut machines) = start(variant, &directory, cpus.a)?;
    let mut loads = Vec::new();
    for ((_, pause), time) in LOADS.into_iter().zip(times) {
        let mut run = |time| pinned::on_cpu(cpus.b, || exchange(&mut machines, pause, time));
        run(WARM_UP.min(time))?;
        let (clock, before) = (Instant::now(), switch.cpu_s());
        let taken = run(time)?;
        let (elapsed, after) = (clock.elapsed().as_secs_f64(), switch.cpu_s());
        let at = |fraction| Some(percentile(&taken, fraction));
        let of = [("p50_ns", 0.5), ("p99_ns", 0.99)];
        let mut fields: Vec<Field> = percentiles(of, taken.len(), at).collect();
        if let (Some(before), Some(after)) = (before, after) {
            fields.push(("switch_cpu_share", (after - before) / elapsed));
        }
        loads.push(fields);
    }
    drop(machines);
    switch.stop()?;
    Ok(loads)
}

fn params(load: &str) -> Vec<Param> {
    vec![("path", json!("kick")), ("load", json!(load))]
}

/// Measures.
pub(super) fn rows(options: &Options, results: &mut Collector) -> Result<(), BenchError> {
    let only = options.only()?;
    let (rounds, time) = super::turns(options);
    let cpus = Cpus::choose()?;
    let asked = LOADS.iter().any(|(load, _)| only.allows(&params(load)));
    if !asked || !options.threads.is_empty() {
        return Ok(());
    }
    let times = LOADS.map(|(_, pause)| match pause {
        Some(_) if options.seconds >= SHORT => time.max(PAUSED),
        _ => time,
    });
    let common = [("path", json!("kick"))];
    let turn = |name| {
        // Both loads in one turn, as a switch takes long to start.
        let measure = move |results: &mut Collector| {
            let figures = measure(name, cpus, times)?;
            for (((load, _), time), fields) in LOADS.iter().zip(times).zip(figures) {
                results.lasting(time).add(name, &params(load), &fields);
            }
            Ok(())
        };
        Turn::new(name, &common, measure)
    };
    let all = [OURS, OVS].map(turn).into();
    let each = times.iter().sum::<Duration>() + 2 * WARM_UP + START;
    let rounds = rounds.of(&common, time).of_several().in_turns_of(each);
    interleave::measure(options, rounds, all, results)
}

/// The parameters of all rows.
#[cfg(test)]
pub(super) fn measured() -> Vec<Vec<Param>> {
    LOADS.map(|(load, _)| params(load)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_after_the_wake_up_did_not_wait_for_it() {
        let times: Vec<f64> = waited(&[3, 9, 10, 12, END], 10).collect();
        assert_eq!(times, [7.0, 1.0]);
    }

    #[test]
    fn a_guest_that_sleeps_is_called_for_frames_in_either_load() {
        let directory = Directory::private().expect("a directory");
        let cpus = Cpus::choose().expect("a process has a CPU");
        let (switch, mut machines) = start(OURS, &directory, cpus.a).expect("they meet");
        for (load, pause) in LOADS {
            let mut time = Duration::from_millis(20);
            let times = loop {
                let times = exchange(&mut machines, pause, time).expect("every frame comes");
                if !times.is_empty() {
                    break times;
                }
                // On a busy machine all may have come between a wake-up and what follows it.
                time *= 4;
                assert!(time < Duration::from_secs(10), "{load}");
            };
            // All read one clock.
            assert!(times.iter().all(|time| *time > 0.0), "{load}: {times:?}");
        }
        drop(machines);
        switch.stop().expect("no packet is lost");
    }
}
