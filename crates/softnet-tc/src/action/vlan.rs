//! `vlan`: tags and Ethernet headers, pushed, popped and changed (tc-vlan(8), the kernel's
//! `act_vlan.c`).

use std::fmt;

use super::words::{Mac, Words, WordsError, mac, protocol};
use super::{Control, Run, Tally, edit};

/// Parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vlan {
    /// The outermost tag goes, if there is one.
    Pop,
    /// A tag comes in front.
    Push(Tag),
    /// The outermost tag changes, if there is one.
    Modify(Tag),
    /// The Ethernet header goes (`skb_eth_pop`). A frame with a tag, without such a header, or with
    /// nothing behind it that could be another one, is dropped.
    PopEth,
    /// An Ethernet header comes in front of a packet that [`PopEth`](Vlan::PopEth) has left
    /// without one, with the EtherType of that one (`skb_eth_push`). A frame with a header is
    /// dropped.
    PushEth {
        /// Destination address.
        destination: [u8; 6],
        /// Source address.
        source: [u8; 6],
    },
}

/// A tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// VLAN, below 4095.
    pub id: u16,
    /// EtherType: 0x8100 or 0x88a8.
    pub protocol: u16,
    /// Priority, below 8; `None`: 0, or the one that was there.
    pub priority: Option<u8>,
}

impl Tag {
    fn bytes(self, tci: u16) -> [u8; 4] {
        let ([a, b], [c, d]) = (self.protocol.to_be_bytes(), tci.to_be_bytes());
        [a, b, c, d]
    }
}

impl Vlan {
    pub(super) fn run(&self, control: Control, run: &mut Run<'_>) -> Control {
        match self.edit(run) {
            Some(()) => control,
            None => {
                run.tally.add(Tally::DROPS, 1);
                run.dropped = true;
                Control::Drop
            }
        }
    }

    fn edit(&self, run: &mut Run<'_>) -> Option<()> {
        // Behind its header a packet has bytes of its own where a tag would be.
        let tag = edit::tag(run.packet).filter(|_| run.in_flight.bare.is_none());
        if tag.is_none() && matches!(self, Vlan::Pop | Vlan::Modify(_)) {
            return Some(());
        }
        edit::make_writable(run.packet, run.cx, edit::ETHERNET).then_some(())?;
        let priority = |tag: &Tag| u16::from(tag.priority.unwrap_or_default()) << 13;
        match self {
            Vlan::Pop => edit::remove(run.packet, edit::ADDRESSES, edit::TAG),
            Vlan::Push(tag) => {
                let bytes = tag.bytes(priority(tag) | tag.id);
                edit::insert(run.packet, edit::ADDRESSES, &bytes)?;
                run.in_flight.bare = None;
                Some(())
            }
            Vlan::Modify(to) => {
                let mut tci = tag? & 0xf000 | to.id;
                if to.priority.is_some() {
                    tci = tci & 0x1fff | priority(to);
                }
                let place = edit::ADDRESSES..edit::ADDRESSES + edit::TAG;
                let place = run.packet.data_mut().get_mut(place)?;
                place.copy_from_slice(&to.bytes(tci));
                Some(())
            }
            Vlan::PopEth => {
                let longer = run.packet.data().len() >= 2 * edit::ETHERNET;
                let has_header = tag.is_none() && run.in_flight.bare.is_none();
                (has_header && longer).then_some(())?;
                let ethertype = edit::ethertype(run.packet);
                edit::remove(run.packet, 0, edit::ETHERNET)?;
                run.in_flight.bare = ethertype;
                Some(())
            }
            Vlan::PushEth {
                destination,
                source,
            } => {
                let ethertype = run.in_flight.bare?;
                let mut header = [0; edit::ETHERNET];
                header[..6].copy_from_slice(destination);
                header[6..12].copy_from_slice(source);
                header[12..].copy_from_slice(&ethertype);
                edit::insert(run.packet, 0, &header)?;
                run.in_flight.bare = None;
                Some(())
            }
        }
    }

    pub(super) fn check(&self) -> Result<(), WordsError> {
        let (Vlan::Push(tag) | Vlan::Modify(tag)) = self else {
            return Ok(());
        };
        let known = matches!(tag.protocol, 0x8100 | 0x88a8);
        let fits = tag.id < 0xfff && tag.priority.unwrap_or_default() < 8;
        match known && fits {
            true => Ok(()),
            false => Err(WordsError::new(
                "a tag has an id below 4095, a priority below 8 and 802.1Q or 802.1ad",
            )),
        }
    }

    pub(super) fn read(words: &mut Words<'_>) -> Result<Vlan, WordsError> {
        let verb = words.next();
        match verb {
            Some("pop") => return Ok(Vlan::Pop),
            Some("pop_eth") => return Ok(Vlan::PopEth),
            Some("push_eth") => {
                let (mut destination, mut source) = (None, None);
                loop {
                    if words.accept("dst_mac") {
                        destination = Some(words.value("dst_mac", mac)?);
                    } else if words.accept("src_mac") {
                        source = Some(words.value("src_mac", mac)?);
                    } else {
                        break;
                    }
                }
                let (Some(destination), Some(source)) = (destination, source) else {
                    return Err(WordsError::new("push_eth needs dst_mac and src_mac"));
                };
                return Ok(Vlan::PushEth {
                    destination,
                    source,
                });
            }
            Some("push" | "modify") => {}
            _ => {
                let text = "vlan is pop, push, modify, pop_eth or push_eth";
                return Err(WordsError::new(text));
            }
        }
        let (mut id, mut tag_protocol, mut priority) = (None, 0x8100, None);
        loop {
            match words.peek() {
                Some("id") => {
                    words.next();
                    id = Some(words.number("id")?);
                }
                Some("protocol") => {
                    words.next();
                    tag_protocol = words.value("protocol", protocol)?;
                }
                Some("priority") => {
                    words.next();
                    priority = Some(words.number("priority")?);
                }
                _ => break,
            }
        }
        let tag = Tag {
            id: id.ok_or_else(|| WordsError::new("vlan needs an id"))?,
            protocol: tag_protocol,
            priority,
        };
        Ok(match verb {
            Some("push") => Vlan::Push(tag),
            _ => Vlan::Modify(tag),
        })
    }

    pub(super) fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (verb, tag) = match self {
            Vlan::Pop => return f.write_str("vlan pop"),
            Vlan::PopEth => return f.write_str("vlan pop_eth"),
            Vlan::PushEth {
                destination,
                source,
            } => {
                let (destination, source) = (Mac(*destination), Mac(*source));
                return write!(f, "vlan push_eth dst_mac {destination} src_mac {source}");
            }
            Vlan::Push(tag) => ("push", tag),
            Vlan::Modify(tag) => ("modify", tag),
        };
        write!(f, "vlan {verb} id {}", tag.id)?;
        if tag.protocol != 0x8100 {
            write!(f, " protocol {:#06x}", tag.protocol)?;
        }
        match tag.priority {
            Some(priority) => write!(f, " priority {priority}"),
            None => Ok(()),
        }
    }
}
