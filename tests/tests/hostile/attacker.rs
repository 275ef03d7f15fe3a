//! Sends one frame at a time and decides its fate by a probe that follows.

use softnet::stats::DropReason;
use softnet::wire::VnetHeader;
use softnet_tests::raw::{ALL, PacketSocket};
use softnet_tests::{Lan, PATIENCE, wait_for};

/// IEEE 802 local experimental EtherType: no host's business.
pub(crate) const PROBE: [u8; 2] = [0x88, 0xb5];
/// Bytes that mark our frames' source addresses, whatever their first byte.
pub(crate) const MARK: [u8; 3] = [0x66, 0, 0];

/// The fate of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The sending kernel did not take it or dropped it before the device, or the receiving one
    /// dropped it before anybody saw it.
    Kernel,
    /// Softnet dropped it: the reason, and the wire packets counted.
    Dropped(DropReason, u64),
    /// It arrived, as these frames.
    Arrived(Vec<Vec<u8>>),
}

/// The fate that a frame must have.
#[derive(Clone, Debug)]
pub(crate) enum Expect {
    /// It arrives as it was sent.
    Unharmed,
    /// Softnet drops it as so many wire packets.
    Drop(DropReason, u64),
    /// Softnet drops it for one of these reasons, if the kernel has not done so.
    Bad(&'static [DropReason]),
    /// It is not for Softnet to judge: anything but to vanish.
    Any,
}

/// Reasons for which offload metadata that lies is dropped.
pub(crate) const LIES: &[DropReason] = &[
    DropReason::BadGso,
    DropReason::BadChecksumOffload,
    DropReason::BadHeader,
    DropReason::GsoSize,
];

/// A frame and what must become of it.
#[derive(Clone, Debug)]
pub(crate) struct Attack {
    pub(crate) name: String,
    pub(crate) header: VnetHeader,
    pub(crate) frame: Vec<u8>,
    pub(crate) expect: Expect,
}

/// Sends frames from host 0 and sees what reaches host 1.
pub(crate) struct Attacker<'a> {
    lan: &'a Lan,
    socket: PacketSocket,
    capture: PacketSocket,
    sent: u16,
}

impl Attacker<'_> {
    pub(crate) fn new(lan: &Lan) -> Attacker<'_> {
        Attacker {
            lan,
            socket: PacketSocket::open(&lan.hosts[0], 0),
            capture: PacketSocket::open(&lan.hosts[1], ALL),
            sent: 0,
        }
    }

    /// A fresh source address with this first byte.
    pub(crate) fn source(&mut self, first: u8) -> [u8; 6] {
        self.sent += 1;
        let [hi, lo] = self.sent.to_be_bytes();
        [first, MARK[0], MARK[1], MARK[2], hi, lo]
    }

    pub(crate) fn drops(&self) -> Vec<(DropReason, u64)> {
        self.lan.engine.stats().drops()
    }

    /// Sends the frame, and a probe behind it; looks what arrives before the probe.
    pub(crate) fn fate(&mut self, header: VnetHeader, frame: &[u8]) -> Fate {
        let before = self.drops();
        if self.socket.send(header, frame).is_err() {
            return Fate::Kernel;
        }
        let source = self.source(2);
        let mut probe = [&self.lan.hosts[1].mac[..], &source, &PROBE].concat();
        probe.resize(60, 0);
        self.socket
            .send(VnetHeader::default(), &probe)
            .expect("sending a probe");
        let mut arrived = Vec::new();
        loop {
            let (_, seen) = self.capture.receive(PATIENCE).expect("the probe");
            if seen == probe {
                break;
            }
            if frame.len() >= 14 && seen.get(6..12) == Some(&frame[6..12]) {
                arrived.push(seen);
            }
        }
        // The probe was read behind the frame, so the frame counts among the reads. Without this,
        // the counters might hold as they were before both.
        self.lan.all_reads_counted();
        wait_for("every packet to be accounted for", || {
            self.lan.engine.stats().conservation().holds()
        });
        let after = self.drops();
        let new: Vec<_> = after
            .into_iter()
            .map(|(reason, n)| {
                let old = before.iter().find(|d| d.0 == reason);
                (reason, n - old.map_or(0, |d| d.1))
            })
            .filter(|&(_, n)| n > 0)
            .collect();
        match (&new[..], arrived.is_empty()) {
            ([], true) => Fate::Kernel,
            ([], false) => Fate::Arrived(arrived),
            (&[(reason, n)], true) => Fate::Dropped(reason, n),
            _ => panic!("arrived as {} frames and dropped: {new:?}", arrived.len()),
        }
    }

    /// Sends one frame and checks what becomes of it.
    pub(crate) fn attack(&mut self, attack: &Attack) {
        let Attack {
            name,
            header,
            frame,
            expect,
        } = attack;
        let mut frame = frame.clone();
        if frame.get(6..12) == Some(&[0xee; 6]) {
            let source = self.source(2);
            frame[6..12].copy_from_slice(&source);
        }
        let fate = self.fate(*header, &frame);
        let shown = match &fate {
            Fate::Arrived(frames) => {
                let lengths: Vec<usize> = frames.iter().take(3).map(Vec::len).collect();
                format!("arrived, {} frames: {lengths:?}…", frames.len())
            }
            other => format!("{other:?}"),
        };
        println!("{name} ({} bytes): {shown}", frame.len());
        use Expect::{Any, Bad, Drop, Unharmed};
        match (expect, &fate) {
            (Unharmed, Fate::Arrived(frames)) => {
                assert_eq!(frames.len(), 1, "{name}");
                // The receiving kernel has taken the outer VLAN tag off.
                let untagged = [&frame[..12], frame.get(16..).unwrap_or_default()].concat();
                let tagged = frame.get(12..14) == Some(&[0x81, 0]) && frames[0] == untagged;
                assert!(frames[0] == frame || tagged, "{name}: {:02x?}", frames[0]);
            }
            (Drop(reason, n), Fate::Dropped(r, m)) => assert_eq!((r, m), (reason, n), "{name}"),
            (Bad(reasons), Fate::Dropped(reason, _)) => {
                assert!(reasons.contains(reason), "{name}: {reason}");
            }
            (Bad(_), Fate::Kernel) | (Any, _) => {}
            _ => panic!("{name}: {expect:?} expected, {shown}"),
        }
    }
}
