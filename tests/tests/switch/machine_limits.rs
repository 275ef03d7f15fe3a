//! Limits of virtual machines' ports that share one, over all of their queues. The rate is so low
//! that nothing is earned in a test: what passes is what the bucket held, and the rest when the
//! limit is gone.

use std::path::{Path, PathBuf};
use std::time::Duration;

use softnet_io::vhost_user::SocketSpec;
use softnet_tc::rate::{GroupSpec, RateSpec};
use softnet_tests::guest::{BUFFER, FrontEnd, Guest, GuestConfig, HEADER, feature};
use softnet_tests::{Lan, LanConfig, wait_for};

const LEN: usize = 100;
/// Queue pairs of a machine.
const PAIRS: usize = 2;
/// Frames that the bucket holds, and what the queues of two machines may have in their pots
/// beside, and send before they pay.
const BURST: usize = 10;
const BEYOND: usize = 2 * PAIRS * 2;
/// Frames on each queue, each way, of each of two machines.
const EACH: u32 = 20;
const ALL: usize = 2 * PAIRS * EACH as usize;

fn limits() -> GroupSpec {
    GroupSpec {
        bytes: Some(RateSpec {
            rate: 1,
            burst: (BURST * LEN) as u64,
            unit: LEN as u64,
        }),
        packets: None,
    }
}

/// Machine 0 has no limit, 1 and 2 share one. Each knows where the others are.
struct Machines {
    lan: Lan,
    folder: PathBuf,
    ports: Vec<u32>,
    guests: Vec<Guest>,
    front_ends: Vec<FrontEnd>,
    /// The marks that machines have received on each queue.
    received: Vec<[Vec<u32>; PAIRS]>,
}

fn socket(folder: &Path, machine: usize) -> PathBuf {
    folder.join(format!("{machine}.sock"))
}

/// The flow is the upper half of the mark.
fn frame(to: usize, from: usize, mark: u32) -> [u8; LEN] {
    let mut frame = [0; LEN];
    frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, to as u8]);
    frame[6..14].copy_from_slice(&[2, 0, 0, 0, (mark >> 16) as u8, from as u8, 0x88, 0xb5]);
    frame[14..18].copy_from_slice(&mark.to_be_bytes());
    frame
}

impl Machines {
    fn build(name: &str, packed: bool) -> Option<Machines> {
        let lan = Lan::build(LanConfig {
            hosts: Vec::new(),
            workers: 2,
            ..LanConfig::default()
        })?;
        let folder = format!("softnet-{name}-{}-{packed}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        std::fs::create_dir(&folder).expect("a folder");
        let add = |machine| {
            let spec = SocketSpec {
                path: socket(&folder, machine),
                server: true,
                mode: 0o600,
                group: None,
            };
            lan.add_machine(&format!("vm{machine}"), &spec, PAIRS)
        };
        let ports: Vec<u32> = (0..3).map(add).collect();
        let guest = |_| {
            Guest::new(GuestConfig {
                pairs: PAIRS,
                size: 256,
                packed,
                event_index: packed,
                features: feature::MRG_RXBUF,
            })
        };
        let mut machines = Machines {
            guests: ports.iter().map(guest).collect(),
            received: ports.iter().map(|_| Default::default()).collect(),
            lan,
            folder,
            ports,
            front_ends: Vec::new(),
        };
        for machine in 0..3 {
            let front_end = machines.connect(machine);
            machines.front_ends.push(front_end);
            for pair in 0..PAIRS {
                machines.guests[machine].offer(2 * pair, u16::MAX);
            }
        }
        (0..3).for_each(|machine| machines.wait_up(machine, true));
        for machine in 0..3 {
            // It is known from now on.
            machines.send(machine, 0, frame(0xfe, machine, 0));
            wait_for("a frame at the others", || {
                machines.receive();
                let count = |marks: &[Vec<u32>; PAIRS]| marks.iter().map(Vec::len).sum::<usize>();
                machines.received.iter().map(count).sum::<usize>() == 2 * (machine + 1)
            });
        }
        machines
            .received
            .iter_mut()
            .for_each(|it| *it = Default::default());
        Some(machines)
    }

    fn connect(&mut self, machine: usize) -> FrontEnd {
        let path = socket(&self.folder, machine);
        let mut front_end = FrontEnd::connect(&path).expect("a port");
        self.guests[machine].start(&mut front_end).expect("it runs");
        front_end
    }

    fn wait_up(&self, machine: usize, up: bool) {
        wait_for("the link", || {
            let stats = self.lan.engine.port_stats(self.ports[machine]);
            stats.expect("a port").link.up == up
        });
    }

    fn limit(&self, limits: Option<GroupSpec>) {
        let engine = &self.lan.engine;
        if let Some(limits) = limits {
            engine.set_rate_group("group", limits).unwrap();
        }
        let name = limits.map(|_| "group".to_owned());
        for &port in &self.ports[1..] {
            let set = engine.set_options(port, |port| port.rate_group.clone_from(&name));
            set.expect("a port");
        }
        if limits.is_none() {
            // The next one starts with a full bucket.
            engine.delete_rate_group("group").expect("a group");
        }
    }

    fn send(&mut self, machine: usize, pair: usize, frame: [u8; LEN]) {
        let sent = self.guests[machine].send(2 * pair + 1, &frame);
        assert!(sent, "fewer frames than the ring holds");
    }

    /// On every queue of the machine, a flow each.
    fn send_all(&mut self, to: usize, from: usize) {
        for mark in 1..=EACH {
            for pair in 0..PAIRS {
                self.send(from, pair, frame(to, from, (pair as u32) << 16 | mark));
            }
        }
    }

    /// Takes what has come.
    fn receive(&mut self) {
        for (guest, received) in self.guests.iter_mut().zip(&mut self.received) {
            for (pair, marks) in received.iter_mut().enumerate() {
                guest.with(2 * pair, |ring| {
                    while let Some(bytes) = ring.receive() {
                        let mark = &bytes[HEADER + 14..HEADER + 18];
                        marks.push(u32::from_be_bytes(mark.try_into().expect("four bytes")));
                    }
                    ring.fill(u16::MAX, BUFFER);
                });
            }
        }
    }

    /// Frames that have come to these machines.
    fn came(&mut self, machines: &[usize]) -> usize {
        self.receive();
        let marks = machines.iter().flat_map(|&machine| &self.received[machine]);
        marks.map(Vec::len).sum()
    }

    /// The bucket is used up, and no more than it held has passed. The longer this waits, the more
    /// it would see; it need not.
    fn only_the_burst(&mut self, machines: &[usize]) {
        wait_for("what may pass", || self.came(machines) >= BURST);
        std::thread::sleep(Duration::from_millis(50));
        let came = self.came(machines);
        assert!(came <= BURST + BEYOND, "{came}");
    }

    /// The group has a limit, and has sent its burst and no more of what it sends.
    fn waiting(tag: &str, packed: bool) -> Option<Machines> {
        let mut machines = Machines::build(tag, packed)?;
        machines.limit(Some(limits()));
        machines.send_all(0, 1);
        machines.send_all(0, 2);
        machines.only_the_burst(&[0]);
        Some(machines)
    }

    fn wait_all(&mut self, machines: &[usize]) {
        wait_for("the rest", || self.came(machines) >= ALL);
        assert_eq!(self.came(machines), ALL);
    }

    /// Nothing is lost: neither packets nor buffers.
    fn stop(self) {
        drop(self.front_ends);
        assert_eq!(self.lan.stop().conservation().dropped, 0);
        std::fs::remove_dir(&self.folder).expect("the sockets are gone");
    }
}

#[test]
fn packets_to_a_group_of_machines_wait_in_its_qdiscs() {
    for packed in [false, true] {
        let Some(mut machines) = Machines::build("to-group", packed) else {
            return;
        };
        machines.limit(Some(limits()));
        machines.send_all(1, 0);
        machines.send_all(2, 0);
        machines.only_the_burst(&[1, 2]);
        wait_for("the rest to be queued", || {
            let queued = machines.lan.engine.stats().conservation().queued;
            machines.came(&[1, 2]) + queued as usize == ALL
        });
        machines.limit(None);
        machines.wait_all(&[1, 2]);
        for received in &machines.received[1..] {
            for flow in 0..PAIRS as u32 {
                let of = |marks: &Vec<u32>| -> Vec<u32> {
                    let of = marks.iter().filter(|&&mark| mark >> 16 == flow);
                    of.map(|mark| mark & 0xffff).collect()
                };
                // In order on each queue, and each once.
                let all: Vec<Vec<u32>> = received.iter().map(of).collect();
                assert!(all.iter().all(|marks| marks.is_sorted()), "{all:?}");
                let mut marks = all.concat();
                marks.sort_unstable();
                assert!(marks.iter().copied().eq(1..=EACH), "{marks:?}");
            }
        }
        machines.stop();
    }
}

#[test]
fn packets_from_a_group_of_machines_wait_in_their_rings() {
    for packed in [false, true] {
        let Some(mut machines) = Machines::waiting("from-group", packed) else {
            return;
        };
        let waiting: usize = (1..3)
            .flat_map(|machine| (0..PAIRS).map(move |pair| (machine, 2 * pair + 1)))
            .map(|(machine, ring)| machines.guests[machine].in_flight(ring))
            .sum();
        assert!(waiting >= ALL - BURST - BEYOND, "{waiting}");
        machines.limit(None);
        machines.wait_all(&[0]);
        machines.stop();
    }
}

/// The front end of a machine that must wait goes, and comes again: its link is down meanwhile,
/// and what waits in its rings comes when it may.
#[test]
fn a_front_end_goes_while_its_machine_must_wait() {
    for packed in [false, true] {
        let Some(mut machines) = Machines::waiting("goes", packed) else {
            return;
        };
        machines.front_ends[1].close();
        machines.wait_up(1, false);
        let came = machines.came(&[0]);
        assert!(came <= BURST + BEYOND, "{came}");
        machines.front_ends[1] = machines.connect(1);
        machines.wait_up(1, true);
        machines.only_the_burst(&[0]);
        machines.limit(None);
        machines.wait_all(&[0]);
        // It goes for good while it must wait.
        machines.limit(Some(limits()));
        machines.send_all(0, 2);
        wait_for("what may pass", || machines.came(&[0]) >= ALL + BURST);
        machines.front_ends[2].close();
        machines.wait_up(2, false);
        machines.stop();
    }
}
