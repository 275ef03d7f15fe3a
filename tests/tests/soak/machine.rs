//! A machine of the soak: traffic on all of its queues, and what machines and their front ends do.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use softnet_tests::guest::{FrontEnd, Guest, GuestConfig, feature, message, of_ring, request};
use softnet_tests::random::Random;
use softnet_tests::wait_for;

use crate::frames::{self, BROADCAST, Mac};

/// Counts of what has happened, by name.
pub(crate) type Faults = BTreeMap<&'static str, u64>;

/// A machine, connected but while its thread connects it again.
pub(crate) struct Machine {
    pub(crate) name: String,
    pub(crate) mac: Mac,
    path: PathBuf,
    /// The front end's own socket, if the port is a client.
    listener: Option<UnixListener>,
    /// Queue pairs of the port.
    pairs: usize,
    /// It never loses what was given to it, so that it can count.
    pub(crate) steady: bool,
    random: Random,
    guest: Guest,
    front_end: FrontEnd,
    number: u32,
    /// Buffers of a frame that are still to come, by ring.
    rest: Vec<u16>,
    /// Frames.
    pub(crate) received: u64,
    pub(crate) faults: Faults,
}

/// The settings of a machine.
pub(crate) struct MachineConfig {
    pub(crate) number: u8,
    pub(crate) path: PathBuf,
    pub(crate) server: bool,
    pub(crate) pairs: usize,
    pub(crate) steady: bool,
}

impl Machine {
    /// Makes the front end's socket, if it is to be its own. The port is opened then.
    pub(crate) fn listen(config: &MachineConfig) -> Option<UnixListener> {
        (!config.server).then(|| {
            let listener = UnixListener::bind(&config.path).expect("a socket");
            listener.set_nonblocking(true).expect("it does not block");
            listener
        })
    }

    /// Connects to its port.
    pub(crate) fn new(
        config: MachineConfig,
        listener: Option<UnixListener>,
        seed: u64,
    ) -> Machine {
        let MachineConfig {
            number,
            path,
            pairs,
            steady,
            ..
        } = config;
        let mut random = Random::new(seed);
        // The first of all are split, the others packed.
        let kind = GuestConfig {
            pairs,
            size: 256,
            packed: number % 2 == 1,
            event_index: number % 4 < 2,
            features: feature::MRG_RXBUF,
        };
        let kind = if steady {
            kind
        } else {
            any(&mut random, pairs)
        };
        let (guest, front_end) = connect(&path, listener.as_ref(), kind);
        let rest = vec![0; 2 * pairs];
        Machine {
            name: format!("vm{number}"),
            mac: frames::mac(number),
            path,
            listener,
            pairs,
            steady,
            random,
            guest,
            front_end,
            number: 0,
            rest,
            received: 0,
            faults: Faults::new(),
        }
    }

    /// The machine's life until `stop`; it is in good order at the end.
    pub(crate) fn run(&mut self, stations: &[Mac], stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            for _ in 0..self.random.below(60) {
                self.traffic(stations);
                sleep(Duration::from_micros(self.random.below(1500)));
            }
            if self.front_end.is_closed() {
                // The port was removed, or its connection had ended otherwise.
                assert!(!self.steady, "{} lost its connection", self.name);
                self.note("port gone");
                self.reconnect();
            } else if let Err(error) = self.fault(stations) {
                assert!(!self.steady, "{}: {error}", self.name);
                self.reconnect();
            }
        }
        if self.front_end.is_closed() {
            assert!(!self.steady, "{} lost its connection", self.name);
            self.reconnect();
        }
    }

    fn note(&mut self, what: &'static str) {
        *self.faults.entry(what).or_default() += 1;
    }

    /// A new machine in the place of this one.
    fn reconnect(&mut self) {
        let kind = any(&mut self.random, self.pairs);
        self.replace(kind);
    }

    fn replace(&mut self, kind: GuestConfig) {
        // A port talks to one front end at a time.
        self.front_end.close();
        let connected = connect(&self.path, self.listener.as_ref(), kind);
        (self.guest, self.front_end) = connected;
        self.rest.fill(0);
    }

    /// Receives, offers buffers, and sends a few frames to any station.
    pub(crate) fn traffic(&mut self, stations: &[Mac]) {
        for pair in 0..self.pairs {
            self.drain(2 * pair);
            let ring = 2 * pair + 1;
            self.guest.ring(ring).complete();
            let burst = if stations.is_empty() {
                0
            } else {
                self.random.below(33)
            };
            for _ in 0..burst {
                let to = match self.random.below(64) {
                    0 => BROADCAST,
                    _ => *self.random.pick(stations),
                };
                self.number += 1;
                let offload = self.guest.config().features & feature::HOST_TSO4 != 0;
                let (header, frame) = if offload && self.random.one_in(16) {
                    let payload = 1 + self.random.below(60_000) as usize;
                    frames::large(to, self.mac, payload)
                } else {
                    let len = *self.random.pick(&[60, 60, 60, 300, 1000, 1514]);
                    ([0; 12], frames::frame(to, self.mac, self.number, len))
                };
                let cut = self.random.one_in(8);
                if !self.guest.with(ring, |ring| ring.send(header, &frame, cut)) {
                    break;
                }
            }
        }
    }

    /// Takes what was received, and offers all buffers. Returns the numbers of the frames.
    pub(crate) fn drain(&mut self, ring: usize) -> Vec<u32> {
        let mut numbers = Vec::new();
        while let Some(buffer) = self.guest.ring(ring).receive() {
            if self.rest[ring] > 0 {
                self.rest[ring] -= 1;
                continue;
            }
            let buffers = u16::from_le_bytes([buffer[10], buffer[11]]);
            self.rest[ring] = buffers - 1;
            self.received += 1;
            if buffers == 1 {
                numbers.extend(frames::number(&buffer[12..]));
            }
        }
        self.guest.offer(ring, u16::MAX);
        numbers
    }

    /// Queue pairs.
    pub(crate) fn queues(&self) -> usize {
        self.pairs
    }

    /// Sends a frame of this number on its first queue.
    pub(crate) fn send(&mut self, to: Mac, number: u32) {
        let frame = frames::frame(to, self.mac, number, 100);
        wait_for("a place in the ring", || self.guest.send(1, &frame));
    }

    /// Waits for a frame of this number.
    pub(crate) fn await_number(&mut self, number: u32) {
        wait_for(&format!("frame {number:#x} at {}", self.name), || {
            (0..self.pairs).any(|pair| self.drain(2 * pair).contains(&number))
        });
    }

    /// Chains that the port has taken and given back, of those that it was sent on.
    pub(crate) fn sent(&mut self) -> u64 {
        let rings = (0..self.pairs).map(|pair| 2 * pair + 1);
        let mut done = 0;
        for ring in rings {
            self.guest.ring(ring).complete();
            done += self.guest.ring(ring).done;
        }
        done
    }

    /// Buffers that it has sent and the port did not take.
    pub(crate) fn in_flight(&mut self) -> usize {
        let rings = (0..self.pairs).map(|pair| 2 * pair + 1);
        rings.map(|ring| self.guest.ring(ring).in_flight()).sum()
    }

    /// One thing that happens to machines. An error: the port is gone.
    fn fault(&mut self, stations: &[Mac]) -> io::Result<()> {
        let ring = self.random.below(2 * self.pairs as u64) as usize;
        // The first few keep what is in the rings.
        let gentle = 6;
        let all = if self.steady { gentle } else { 16 };
        match self.random.below(all) {
            0 => {
                self.note("stall");
                sleep(Duration::from_millis(self.random.below(200)));
            }
            1 => {
                self.note("ring disabled");
                let front_end = &mut self.front_end;
                front_end.request(request::SET_VRING_ENABLE, &of_ring(ring, 0), &[])?;
                self.traffic(stations);
                let front_end = &mut self.front_end;
                front_end.request(request::SET_VRING_ENABLE, &of_ring(ring, 1), &[])?;
            }
            2 => {
                self.note("other queue pairs");
                // At least one stays.
                let used = self.random.below(self.pairs as u64) as usize;
                for enabled in [0, 1] {
                    for ring in (0..2 * self.pairs).filter(|ring| ring / 2 != used) {
                        let payload = of_ring(ring, enabled);
                        let front_end = &mut self.front_end;
                        front_end.request(request::SET_VRING_ENABLE, &payload, &[])?;
                    }
                    (0..4).for_each(|_| self.traffic(stations));
                }
            }
            3 => {
                self.note("ring stopped");
                let base = self.guest.stop_ring(&mut self.front_end, ring)?;
                self.traffic(stations);
                self.guest.start_ring(&mut self.front_end, ring, base)?;
            }
            4 => {
                self.note("memory table");
                for _ in 0..self.random.below(20) {
                    self.guest.set_memory(&mut self.front_end)?;
                    self.traffic(stations);
                }
            }
            5 => {
                self.note("region added");
                self.guest.add_region(&mut self.front_end)?;
                self.traffic(stations);
                self.guest.remove_region(&mut self.front_end)?;
            }
            6 | 7 => {
                self.note("killed");
                self.reconnect();
            }
            8 => {
                self.note("same guest again");
                let kind = self.guest.config();
                self.replace(kind);
            }
            9 => {
                self.note("memory truncated");
                let len = self.random.below(2) * self.pairs as u64 * 0x10_0000;
                self.guest.truncate(len);
                self.await_end();
            }
            10 => {
                self.note("ring broken");
                self.guest.ring(2 * (ring / 2) + 1).run_on();
                self.await_end();
            }
            11 => {
                self.note("bad message");
                let bad = [
                    message(0, 1, &[]),
                    message(request::SET_VRING_NUM, 1, &of_ring(ring, 0)),
                    message(request::SET_VRING_ENABLE, 1, &of_ring(1 << 20, 1)),
                    vec![0xff; 64],
                ];
                let bytes = self.random.pick(&bad).clone();
                self.front_end.bytes(&bytes, &[])?;
                self.await_end();
            }
            12 => {
                self.note("half a message");
                let bytes = message(request::SET_VRING_NUM, 1, &of_ring(ring, 0));
                let len = 1 + self.random.below(bytes.len() as u64 - 1) as usize;
                self.front_end.bytes(&bytes[..len], &[])?;
                self.reconnect();
            }
            13 => {
                self.note("reset");
                self.guest.reset(&mut self.front_end)?;
                self.rest.fill(0);
            }
            14 => {
                self.note("MTU");
                let mtu = *self.random.pick(&[68_u64, 1280, 1500, 9000]);
                let mtu = mtu.to_ne_bytes();
                self.front_end.request(request::NET_SET_MTU, &mtu, &[])?;
                self.traffic(stations);
                let mtu = 1500_u64.to_ne_bytes();
                self.front_end.request(request::NET_SET_MTU, &mtu, &[])?;
            }
            _ => {
                self.note("many messages");
                for n in 0..200 {
                    let payload = of_ring(ring, n % 2);
                    self.front_end
                        .send(request::SET_VRING_ENABLE, &payload, &[])?;
                }
                self.traffic(stations);
            }
        }
        Ok(())
    }

    /// Waits until the port ends the connection for what the guest has done, if it comes to see
    /// it: it may be down or wait for its rate. Connects again.
    fn await_end(&mut self) {
        let end = Instant::now() + Duration::from_secs(1);
        while !self.front_end.is_closed() && Instant::now() < end {
            (0..self.pairs).for_each(|pair| self.guest.kick(2 * pair + 1));
            sleep(Duration::from_millis(1));
        }
        if self.front_end.is_closed() {
            self.note("ended by the port");
        }
        self.reconnect();
    }
}

/// Any machine for a port with so many queues.
fn any(random: &mut Random, pairs: usize) -> GuestConfig {
    use feature::*;
    let offload = *random.pick(&[0, CSUM, CSUM | HOST_TSO4, CSUM | HOST_TSO4 | GUEST_CSUM]);
    let features = match offload & GUEST_CSUM {
        0 => offload | *random.pick(&[0, MRG_RXBUF]),
        _ => offload | *random.pick(&[MRG_RXBUF, MRG_RXBUF | GUEST_TSO4]),
    };
    GuestConfig {
        pairs,
        size: *random.pick(&[64, 128, 256]),
        packed: random.one_in(2),
        event_index: random.one_in(2),
        features,
    }
}

/// A new machine, connected. The port may be away for a while.
fn connect(
    path: &std::path::Path,
    listener: Option<&UnixListener>,
    kind: GuestConfig,
) -> (Guest, FrontEnd) {
    let mut connected = None;
    wait_for("a connection", || {
        let front_end = match listener {
            None => FrontEnd::connect(path),
            Some(listener) => FrontEnd::accept(listener),
        };
        let started = front_end.and_then(|mut front_end| {
            let mut guest = Guest::new(kind);
            guest.start(&mut front_end)?;
            Ok((guest, front_end))
        });
        connected = started.ok();
        connected.is_some()
    });
    connected.expect("it waited for that")
}
