//! `skbmod`: Ethernet headers, and the ECN mark (tc-skbmod(8), the kernel's `act_skbmod.c`).

use std::fmt;

use softnet::wire::Network;

use super::words::{Mac, Words, WordsError, mac, protocol};
use super::{Control, Run, Tally, edit};
use crate::qdisc::mark_ce;

/// Parameters, of which there is one at least.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skbmod {
    /// Destination address.
    pub dmac: Option<[u8; 6]>,
    /// Source address.
    pub smac: Option<[u8; 6]>,
    /// EtherType.
    pub etype: Option<u16>,
    /// Source and destination change places, and nothing else happens.
    pub swap: bool,
    /// Packets of ECN-capable transports are marked, and nothing else happens.
    pub ecn: bool,
}

impl Skbmod {
    pub(super) fn run(&self, control: Control, run: &mut Run<'_>) -> Control {
        if !edit::make_writable(run.packet, run.cx, edit::ETHERNET) {
            run.tally.add(Tally::OVERLIMITS, 1);
            return Control::Drop;
        }
        if control == Control::Drop {
            return control;
        }
        if self.ecn {
            if run.headers().is_some_and(|h| h.network != Network::Other) {
                mark_ce(run.packet, &run.cx.pool);
            }
            return control;
        }
        let untagged = edit::ethertype_offset(run.packet);
        let data = run.packet.data_mut();
        if let Some(mac) = self.dmac {
            data[..6].copy_from_slice(&mac);
        }
        if let Some(mac) = self.smac {
            data[6..12].copy_from_slice(&mac);
        }
        if let Some(etype) = self.etype
            && let Some(place) = data.get_mut(untagged..untagged + 2)
        {
            place.copy_from_slice(&etype.to_be_bytes());
        }
        if self.swap {
            let (destination, source) = data[..12].split_at_mut(6);
            destination.swap_with_slice(source);
        }
        control
    }

    pub(super) fn check(&self) -> Result<(), WordsError> {
        match *self == Skbmod::default() {
            true => Err(WordsError::new("skbmod needs something to change")),
            false => Ok(()),
        }
    }

    pub(super) fn read(words: &mut Words<'_>) -> Result<Skbmod, WordsError> {
        let mut skbmod = Skbmod::default();
        loop {
            match words.peek() {
                Some("set") => {
                    words.next();
                    match words.next() {
                        Some("dmac") => skbmod.dmac = Some(words.value("dmac", mac)?),
                        Some("smac") => skbmod.smac = Some(words.value("smac", mac)?),
                        Some("etype") => skbmod.etype = Some(words.value("etype", protocol)?),
                        _ => return Err(WordsError::new("skbmod sets dmac, smac or etype")),
                    }
                }
                Some("swap") => {
                    words.next();
                    if !words.accept("mac") {
                        return Err(WordsError::new("skbmod swaps mac"));
                    }
                    skbmod.swap = true;
                }
                Some("ecn") => {
                    words.next();
                    skbmod.ecn = true;
                }
                _ => return Ok(skbmod),
            }
        }
    }

    pub(super) fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("skbmod")?;
        for (name, mac) in [("dmac", self.dmac), ("smac", self.smac)] {
            if let Some(mac) = mac {
                write!(f, " set {name} {}", Mac(mac))?;
            }
        }
        if let Some(etype) = self.etype {
            write!(f, " set etype {etype:#06x}")?;
        }
        if self.swap {
            f.write_str(" swap mac")?;
        }
        match self.ecn {
            true => f.write_str(" ecn"),
            false => Ok(()),
        }
    }
}
