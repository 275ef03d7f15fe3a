//! Hostile guests: whatever one does to its port, two others on the same worker lose nothing, and
//! the port counts or says what it was.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use softnet_engine::forward::{PortSecurity, StormLimits};
use softnet_engine::{PortId, PortStats};
use softnet_io::vhost_user::SocketSpec;
use softnet_tests::attack::{ATTACKS, Attack, Attacker, Seen};
use softnet_tests::guest::{BUFFER, FrontEnd, Guest, GuestConfig, HEADER, feature};
use softnet_tests::{Lan, LanConfig, wait_for};

const VICTIMS: [[u8; 6]; 2] = [[2, 0, 0, 0, 1, 0], [2, 0, 0, 0, 1, 1]];
/// Frames each way, and how many are under way at most.
const FRAMES: u32 = 1000;
const WINDOW: u32 = 64;

/// Machines that the attacker has nothing to do with.
struct Victims {
    guests: [Guest; 2],
    _front_ends: [FrontEnd; 2],
}

impl Victims {
    fn connect(paths: [PathBuf; 2]) -> Victims {
        let config = |packed| GuestConfig {
            pairs: 1,
            size: 256,
            packed,
            event_index: packed,
            features: feature::MRG_RXBUF,
        };
        let mut guests = [false, true].map(|packed| Guest::new(config(packed)));
        let mut start = |n: usize| {
            let mut front_end = FrontEnd::connect(&paths[n]).expect("a port");
            guests[n].start(&mut front_end).expect("it runs");
            guests[n].with(0, |ring| ring.fill(u16::MAX, BUFFER));
            front_end
        };
        Victims {
            _front_ends: [start(0), start(1)],
            guests,
        }
    }

    /// Each sends the other so many frames, each of which must come, once and in order.
    fn exchange(&mut self, frames: u32) {
        let (mut sent, mut received) = ([0; 2], [0; 2]);
        wait_for("the victims' frames", || {
            for from in 0..2 {
                let to = 1 - from;
                self.guests[from].with(1, |ring| ring.complete());
                while sent[from] < frames && sent[from] - received[to] < WINDOW {
                    let mut frame = [&VICTIMS[to][..], &VICTIMS[from], &[0x88, 0xb5]].concat();
                    frame.extend(u32::to_be_bytes(sent[from]));
                    frame.resize(60, 0);
                    let taken =
                        self.guests[from].with(1, |ring| ring.send([0; HEADER], &frame, false));
                    assert!(taken, "the window is shorter than the ring");
                    sent[from] += 1;
                }
                while let Some(bytes) = self.guests[to].ring(0).receive() {
                    let frame = &bytes[HEADER..];
                    // The attacker's broadcasts, as far as they pass.
                    if frame[6..12] == VICTIMS[from] {
                        assert_eq!(frame[14..18], received[to].to_be_bytes());
                        received[to] += 1;
                    }
                }
                self.guests[to].with(0, |ring| ring.fill(u16::MAX, BUFFER));
            }
            received == [frames; 2]
        });
    }
}

struct Net {
    lan: Lan,
    folder: PathBuf,
    attacked: PortId,
}

impl Net {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn stats(&self) -> PortStats {
        self.lan.engine.port_stats(self.attacked).expect("a port")
    }

    /// Whether the port has reported the attack, after `before`.
    fn has_seen(&self, attack: &Attack, before: &PortStats) -> bool {
        let now = self.stats();
        match attack.seen {
            Seen::Nothing => true,
            Seen::Ended(why) => now.status.is_some_and(|status| status.contains(why)),
            Seen::Dropped(reason) => {
                let count = |stats: &PortStats| {
                    let drops = stats.device.drops.iter();
                    drops
                        .filter(|drop| drop.0 == reason)
                        .map(|drop| drop.1)
                        .sum::<u64>()
                };
                count(&now) > count(before)
            }
        }
    }
}

/// One worker, the victims, the attacker and its accomplice.
fn net() -> Option<Net> {
    let lan = Lan::build(LanConfig {
        hosts: Vec::new(),
        ..LanConfig::default()
    })?;
    let folder = format!("softnet-hostile-{}", std::process::id());
    let folder = std::env::temp_dir().join(folder);
    std::fs::create_dir(&folder).expect("a folder");
    let add = |name: &str| {
        let socket = SocketSpec {
            path: folder.join(name),
            server: true,
            mode: 0o600,
            group: None,
        };
        lan.add_machine(name, &socket, 1)
    };
    let [_, _, attacked, other] = ["victim0", "victim1", "attacker", "accomplice"].map(add);
    // What is flooded takes the place of other frames in everybody's queue.
    let security = PortSecurity {
        storm: StormLimits {
            broadcast: Some(100),
            multicast: Some(100),
            unknown_unicast: Some(100),
        },
        ..PortSecurity::default()
    };
    for port in [attacked, other] {
        let set = lan.engine.set_security(port, &security);
        set.expect("limits");
    }
    Some(Net {
        lan,
        folder,
        attacked,
    })
}

/// Says so when it is dropped, in a panic too.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One after the other, with each kind of ring.
#[test]
fn others_lose_nothing() {
    let Some(net) = net() else { return };
    let mut victims = Victims::connect(["victim0", "victim1"].map(|name| net.path(name)));
    victims.exchange(10);
    for packed in [false, true] {
        for attack in ATTACKS {
            println!("{} packed: {packed}", attack.name);
            let before = net.stats();
            let done = AtomicBool::new(false);
            let paths = ["attacker", "accomplice"].map(|name| net.path(name));
            thread::scope(|scope| {
                scope.spawn(|| {
                    let mut attacker = Attacker::new(paths, packed);
                    while !done.load(Ordering::Relaxed) {
                        attacker.step(attack);
                    }
                    attacker.end();
                });
                let _done = Ends(&done);
                victims.exchange(FRAMES);
                wait_for(attack.name, || net.has_seen(attack, &before));
            });
        }
    }
    victims.exchange(10);
    drop(victims);
    let stats = net.lan.stop();
    for port in &stats.ports[..2] {
        assert!(port.device.drops.is_empty(), "{port:?}");
    }
    std::fs::remove_dir_all(&net.folder).expect("the folder");
}
