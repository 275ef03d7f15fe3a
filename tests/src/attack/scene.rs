//! Where attacks happen: a switch with one worker, two machines that have nothing to do with the
//! attacker, and the ports of the attacker.

use std::path::PathBuf;

use softnet_engine::forward::{PortSecurity, StormLimits};
use softnet_engine::{EngineStats, PortStats};
use softnet_io::vhost_user::SocketSpec;

use super::{Attack, Attacker, Mac, Seen};
use crate::guest::{BUFFER, FrontEnd, Guest, GuestConfig, HEADER, feature};
use crate::{Lan, LanConfig};

const NAMES: [&str; 4] = ["victim0", "victim1", "attacker", "accomplice"];
const VICTIMS: [Mac; 2] = [[2, 0, 0, 0, 1, 0], [2, 0, 0, 0, 1, 1]];
/// Frames that a victim has under way at most: fewer than a ring or a queue holds.
const WINDOW: u32 = 64;
/// Floods a second that each of the attacker's ports may send.
const STORM: Option<u32> = Some(100);

/// The switch.
#[derive(Debug)]
pub struct Scene {
    lan: Lan,
    folder: Folder,
    attacked: u32,
}

#[derive(Debug)]
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // Of no use to anybody, if it stays.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Scene {
    /// With the worker on this CPU, or any. `None`, and the reason printed, where there can be
    /// none.
    pub fn build(cpu: Option<usize>) -> Option<Scene> {
        let lan = Lan::build(LanConfig {
            hosts: Vec::new(),
            cpu,
            ..LanConfig::default()
        })?;
        let folder = format!("softnet-attack-{}", std::process::id());
        let folder = Folder(std::env::temp_dir().join(folder));
        std::fs::create_dir(&folder.0).expect("a folder");
        let add = |name: &str| {
            let socket = SocketSpec {
                path: folder.0.join(name),
                server: true,
                mode: 0o600,
                group: None,
            };
            lan.add_machine(name, &socket, 1)
        };
        let [_, _, attacked, accomplice] = NAMES.map(add);
        // What is flooded takes the place of other frames in everybody's queue.
        let security = PortSecurity {
            storm: StormLimits {
                broadcast: STORM,
                multicast: STORM,
                unknown_unicast: STORM,
            },
            ..PortSecurity::default()
        };
        for port in [attacked, accomplice] {
            let set = lan
                .engine
                .set_options(port, |port| port.security = security.clone());
            set.expect("limits");
        }
        Some(Scene {
            lan,
            folder,
            attacked,
        })
    }

    fn path(&self, place: usize) -> PathBuf {
        self.folder.0.join(NAMES[place])
    }

    /// The attacker, of whom nothing is seen yet.
    pub fn attacker(&self, packed: bool) -> Attacker {
        Attacker::new([self.path(2), self.path(3)], packed)
    }

    /// The port that is attacked.
    pub fn attacked(&self) -> PortStats {
        let stats = self.lan.engine.port_stats(self.attacked);
        stats.expect("a port")
    }

    /// True if the port has reported the attack, after `before`.
    pub fn has_seen(&self, attack: &Attack, before: &PortStats) -> bool {
        let now = self.attacked();
        match attack.seen {
            Seen::Nothing => true,
            Seen::Said(why) => now.status.is_some_and(|status| status.contains(why)),
            Seen::Dropped(reason) => {
                let count = |stats: &PortStats| {
                    let drops = stats.device.drops.iter();
                    let of_reason = drops.filter(|drop| drop.0 == reason);
                    of_reason.map(|drop| drop.1).sum::<u64>()
                };
                count(&now) > count(before)
            }
        }
    }

    /// Stops the switch, which must have lost nothing. The first two ports are the victims'.
    pub fn stop(self) -> EngineStats {
        self.lan.stop()
    }
}

/// Two machines that send each other frames.
#[derive(Debug)]
pub struct Victims {
    guests: [Guest; 2],
    _front_ends: [FrontEnd; 2],
    sent: [u32; 2],
    received: [u32; 2],
}

impl Victims {
    /// Connects them: one with split rings, the other with packed ones.
    pub fn connect(scene: &Scene) -> Victims {
        let config = |packed| GuestConfig {
            pairs: 1,
            size: 256,
            packed,
            event_index: packed,
            features: feature::MRG_RXBUF,
        };
        let mut guests = [false, true].map(|packed| Guest::new(config(packed)));
        let mut start = |n: usize| {
            let mut front_end = FrontEnd::connect(&scene.path(n)).expect("a port");
            guests[n].start(&mut front_end).expect("it runs");
            guests[n].with(0, |ring| ring.fill(u16::MAX, BUFFER));
            front_end
        };
        Victims {
            _front_ends: [start(0), start(1)],
            guests,
            sent: [0; 2],
            received: [0; 2],
        }
    }

    /// Frames that have come.
    pub fn received(&self) -> u32 {
        self.received.iter().sum()
    }

    /// Frames that were sent and have not come.
    pub fn under_way(&self) -> u32 {
        self.sent.iter().sum::<u32>() - self.received()
    }

    /// Each takes what has come, every frame once and in order, and sends as many as may be under
    /// way, if it is to send.
    pub fn turn(&mut self, send: bool) {
        for (from, to) in [(0, 1), (1, 0)] {
            let (sent, received) = (&mut self.sent[from], &mut self.received[to]);
            self.guests[from].with(1, |ring| {
                ring.complete();
                while send && *sent - *received < WINDOW {
                    let mut frame = [0; 60];
                    frame[..6].copy_from_slice(&VICTIMS[to]);
                    frame[6..12].copy_from_slice(&VICTIMS[from]);
                    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
                    frame[14..18].copy_from_slice(&sent.to_be_bytes());
                    let taken = ring.send([0; HEADER], &frame, false);
                    assert!(taken, "the window is shorter than the ring");
                    *sent += 1;
                }
            });
            self.guests[to].with(0, |ring| {
                while let Some(bytes) = ring.receive() {
                    let frame = &bytes[HEADER..];
                    // The attacker's floods, as far as they pass, come too.
                    if frame[6..12] == VICTIMS[from] {
                        assert_eq!(frame[14..18], received.to_be_bytes(), "a frame is lost");
                        *received += 1;
                    }
                }
                ring.fill(u16::MAX, BUFFER);
            });
        }
    }
}
