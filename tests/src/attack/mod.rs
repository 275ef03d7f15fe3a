//! Attacks of a hostile guest, or of its front end, on its port.
//!
//! An [`Attacker`] has two ports: the one that it attacks from, and another to send from to the
//! first. It takes one step after the other, as fast as it is let; what the port's other users
//! notice of it is what tests and experiments look at.

mod list;
mod scene;

use std::io;
use std::path::PathBuf;

use softnet::stats::DropReason;

use crate::guest::{FrontEnd, Guest, GuestConfig, HEADER, Part, feature, of_ring, request};

pub use list::ATTACKS;
pub use scene::{Scene, Victims};

/// Never forwarded (IEEE 802.1D 7.12.6): a flood of frames to it costs what receiving costs.
const LINK_LOCAL: Mac = [0x01, 0x80, 0xc2, 0, 0, 0];
/// The addresses of the attacker's machines.
const ATTACKER: Mac = [2, 0, 0, 0, 2, 1];
const ACCOMPLICE: Mac = [2, 0, 0, 0, 2, 2];

type Mac = [u8; 6];

/// A way to be hostile.
#[derive(Clone, Copy, Debug)]
pub struct Attack {
    /// A description.
    pub name: &'static str,
    /// Traces of it at the port.
    pub seen: Seen,
    /// An honest load with the same work for CPUs.
    pub beside: Load,
    step: fn(&mut Attacker) -> io::Result<()>,
}

/// A port's report of an attack.
#[derive(Clone, Copy, Debug)]
pub enum Seen {
    /// The port's status says so; mostly it ends connections.
    Said(&'static str),
    /// It counts drops.
    Dropped(DropReason),
    /// It is nothing that is not allowed.
    Nothing,
}

/// The load that an attack is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// A thread that computes as long as the attacker's does.
    Spin,
    /// Frames that are dropped when they are received, as many as the port takes.
    Flood,
}

/// A machine of the attacker.
#[derive(Debug)]
struct Side {
    path: PathBuf,
    guest: Guest,
    front_end: Option<FrontEnd>,
}

/// Who attacks.
#[derive(Debug)]
pub struct Attacker {
    config: GuestConfig,
    /// The one that attacks, and an accomplice.
    sides: [Side; 2],
}

impl Attacker {
    /// Connects to its ports when it takes its first step.
    fn new(paths: [PathBuf; 2], packed: bool) -> Attacker {
        let config = GuestConfig {
            pairs: 1,
            size: 256,
            packed,
            event_index: false,
            features: feature::MRG_RXBUF,
        };
        let side = |path| Side {
            path,
            guest: Guest::new(config),
            front_end: None,
        };
        Attacker {
            config,
            sides: paths.map(side),
        }
    }

    /// One step of an attack, which takes a few milliseconds at most. What the port refuses is
    /// tried again in the next.
    pub fn step(&mut self, attack: &Attack) {
        if (attack.step)(self).is_err() {
            self.disconnect(0);
        }
    }

    /// Sends frames that are dropped when they are received, as many as the port takes.
    pub fn flood_honestly(&mut self) {
        // The port does not end it.
        let _ = self.flood(1, LINK_LOCAL, ACCOMPLICE);
    }

    /// Leaves the port that it attacks until its next step.
    pub fn rest(&mut self) {
        self.disconnect(0);
    }

    fn disconnect(&mut self, side: usize) {
        self.sides[side].front_end = None;
    }

    fn connect(&mut self, side: usize) -> io::Result<&mut FrontEnd> {
        let Side {
            path,
            guest,
            front_end,
        } = &mut self.sides[side];
        if front_end.as_ref().is_none_or(FrontEnd::is_closed) {
            *front_end = None;
            guest.clear();
            let mut new = FrontEnd::connect(path)?;
            guest.start(&mut new)?;
            *front_end = Some(new);
        }
        Ok(front_end.as_mut().expect("connected"))
    }

    /// Does something to the ring that it sends on, which ends the connection.
    fn broken(&mut self, f: impl FnOnce(&mut crate::guest::Ring)) -> io::Result<()> {
        self.connect(0)?;
        f(self.sides[0].guest.ring(1));
        self.sides[0].guest.kick(1);
        self.await_end()
    }

    /// Disables and enables a ring.
    fn enable_by_turns(&mut self, ring: usize) -> io::Result<()> {
        let front_end = self.connect(0)?;
        (0..64).try_for_each(|n| {
            let payload = of_ring(ring, n % 2);
            front_end.send(request::SET_VRING_ENABLE, &payload, &[])
        })
    }

    /// Sends a frame, so that the bridge knows where it is.
    fn greet(&mut self) -> io::Result<()> {
        self.connect(0)?;
        let mut frame = [&ACCOMPLICE[..], &ATTACKER, &[0x88, 0xb5]].concat();
        frame.resize(60, 0);
        self.sides[0].guest.with(1, |ring| {
            ring.complete();
            ring.send([0; HEADER], &frame, false)
        });
        Ok(())
    }

    /// Waits for the end of the connection.
    fn await_end(&mut self) -> io::Result<()> {
        if let Some(front_end) = self.sides[0].front_end.take() {
            front_end.wait_closed();
        }
        Ok(())
    }

    /// Fills the ring that it sends on with chains.
    fn flood_with(&mut self, offer: impl Fn(&mut crate::guest::Ring)) -> io::Result<()> {
        self.connect(0)?;
        self.fill(0, |ring| {
            offer(ring);
            true
        })
    }

    /// Fills it with frames of 63 KiB, whose header says that they are of this kind.
    fn flood_with_long(&mut self, gso_type: u8) -> io::Result<()> {
        self.connect(0)?;
        let ring = self.sides[0].guest.ring(1);
        let mut bytes = [0; 1024];
        bytes[1] = gso_type;
        bytes[HEADER..][..6].copy_from_slice(&LINK_LOCAL);
        bytes[HEADER + 6..][..6].copy_from_slice(&ATTACKER);
        let at = ring.write(&bytes);
        let table = ring.write_table(&[Part::new(at, 1024, 0); 63]);
        self.flood_with(|ring| ring.offer(&[table]))
    }

    /// Sends as many frames as the port takes.
    fn flood(&mut self, side: usize, to: Mac, from: Mac) -> io::Result<()> {
        self.connect(side)?;
        let mut frame = [&to[..], &from, &[0x88, 0xb5]].concat();
        frame.resize(60, 0);
        self.fill(side, |ring| ring.send([0; HEADER], &frame, false))
    }

    fn fill(
        &mut self,
        side: usize,
        offer: impl Fn(&mut crate::guest::Ring) -> bool,
    ) -> io::Result<()> {
        let guest = &mut self.sides[side].guest;
        guest.with(1, |ring| {
            ring.complete();
            while ring.free() > 0 && offer(ring) {}
        });
        // Another thread takes them.
        std::thread::yield_now();
        Ok(())
    }
}
