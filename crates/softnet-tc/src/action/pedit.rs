//! `pedit`: words of a frame (tc-pedit(8), the kernel's `act_pedit.c`). Offsets count as if the
//! first VLAN tag were not there, because the kernel keeps it beside the packet. A word that is not
//! in the first segment stays as it is, which counts as `overlimits`.

use std::fmt;

use softnet::wire::L4;

use super::words::{Words, WordsError, number};
use super::{Control, Run, Tally, edit};

/// Parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pedit {
    /// The words, in the order in which they are changed; one at least.
    pub keys: Vec<PeditKey>,
    /// True if it was told in which header they are (tc's `ex`).
    pub extended: bool,
}

/// A change of a word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeditKey {
    /// The header that offsets count from.
    pub header: PeditHeader,
    /// True: the value is added; false: it is put there.
    pub adds: bool,
    /// Bits of the word that stay, in the frame's byte order.
    pub mask: u32,
    /// The value, in the frame's byte order.
    pub value: u32,
    /// Bytes from the start of the header, a multiple of 4.
    pub offset: i32,
    /// Byte from the start of the header whose value is added to the offset, under the mask
    /// `offmask` and shifted right.
    pub at: i32,
    /// See `at`; 0: nothing is added.
    pub offmask: u32,
    /// See `at`.
    pub shift: u8,
}

/// A header (`enum pedit_header_type`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PeditHeader {
    /// The network header.
    #[default]
    Network,
    /// The Ethernet header.
    Eth,
    /// That of IPv4.
    Ip4,
    /// That of IPv6.
    Ip6,
    /// That of TCP.
    Tcp,
    /// That of UDP.
    Udp,
}

impl PeditHeader {
    /// All, in the order of their numbers.
    pub const ALL: [PeditHeader; 6] = [
        PeditHeader::Network,
        PeditHeader::Eth,
        PeditHeader::Ip4,
        PeditHeader::Ip6,
        PeditHeader::Tcp,
        PeditHeader::Udp,
    ];
    const NAMES: [&str; 6] = ["network", "eth", "ip", "ip6", "tcp", "udp"];
}

impl Pedit {
    pub(super) fn run(&self, control: Control, run: &mut Run<'_>) -> Control {
        // Above all that is looked at, so that shared data is copied once.
        if !edit::make_writable(run.packet, run.cx, edit::ETHERNET)
            || self.keys.iter().any(|key| key.run(run).is_none())
        {
            run.tally.add(Tally::OVERLIMITS, 1);
        }
        control
    }

    pub(super) fn check(&self) -> Result<(), WordsError> {
        let refuse = |text: &str| Err(WordsError::new(text));
        if self.keys.is_empty() || self.keys.len() > 255 {
            return refuse("pedit needs 1 to 255 keys");
        }
        for key in &self.keys {
            if key.offmask != 0 && key.shift > 31 {
                return refuse("the shift of an offset is 31 at most");
            }
            if key.offset % 4 != 0 {
                return refuse("Offsets must be on 32bit boundaries");
            }
        }
        Ok(())
    }

    pub(super) fn read(words: &mut Words<'_>) -> Result<Pedit, WordsError> {
        let mut pedit = Pedit {
            extended: words.accept("ex"),
            ..Pedit::default()
        };
        while words.accept("munge") {
            pedit.keys.push(PeditKey::read(words)?);
        }
        if pedit
            .keys
            .iter()
            .any(|key| key.header != PeditHeader::Network || key.adds)
        {
            pedit.extended = true;
        }
        Ok(pedit)
    }

    pub(super) fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.extended { "pedit ex" } else { "pedit" })?;
        self.keys.iter().try_for_each(|key| write!(f, "{key}"))
    }
}

impl PeditKey {
    /// Changes the word. `None`: it is not there.
    fn run(&self, run: &mut Run<'_>) -> Option<()> {
        let base = self.base(run)?;
        let mut offset = i64::from(self.offset);
        if self.offmask != 0 {
            let byte = *run
                .packet
                .data()
                .get(place(run, base + i64::from(self.at))?)?;
            // The kernel reads it as a signed number.
            let byte = i32::from(byte.cast_signed()).cast_unsigned();
            let more = (byte & self.offmask).checked_shr(self.shift.into())?;
            offset += i64::from(more.cast_signed());
            if offset % 4 != 0 {
                return None;
            }
        }
        let first = base + offset;
        // A word may begin in the space in front of the frame.
        if first <= -4 {
            return None;
        }
        let mut places = [None; 4];
        for (byte, at) in (first..).zip(&mut places) {
            if byte >= 0 {
                *at = Some(place(run, byte)?);
            }
        }
        let data = run.packet.data_mut();
        let mut word = [0; 4];
        for (byte, at) in word.iter_mut().zip(places) {
            if let Some(at) = at {
                *byte = *data.get(at)?;
            }
        }
        let number = u32::from_be_bytes(word);
        let value = match self.adds {
            // The kernel adds as the machine has the bytes.
            true => {
                let sum = u32::from_ne_bytes(word)
                    .wrapping_add(u32::from_ne_bytes(self.value.to_be_bytes()));
                u32::from_be_bytes(sum.to_ne_bytes()) & !self.mask
            }
            false => self.value,
        };
        let word = (number & self.mask ^ value).to_be_bytes();
        for (byte, at) in word.into_iter().zip(places) {
            if let Some(at) = at {
                data[at] = byte;
            }
        }
        Some(())
    }

    /// Start of the header, as if the first tag were not there.
    fn base(&self, run: &Run<'_>) -> Option<i64> {
        let network = edit::ETHERNET as i64;
        let headers = || run.headers();
        match self.header {
            PeditHeader::Eth => Some(0),
            PeditHeader::Network | PeditHeader::Ip4 | PeditHeader::Ip6 => Some(network),
            PeditHeader::Tcp | PeditHeader::Udp => {
                let headers = headers()?;
                let is = match headers.transport {
                    L4::Tcp { .. } => PeditHeader::Tcp,
                    L4::Udp { .. } => PeditHeader::Udp,
                    _ => return None,
                };
                let tag = edit::ethertype_offset(run.packet) - edit::ADDRESSES;
                let start = usize::from(headers.transport_offset) - tag;
                (is == self.header).then_some(start as i64)
            }
        }
    }

    fn read(words: &mut Words<'_>) -> Result<PeditKey, WordsError> {
        let mut key = PeditKey::default();
        match words.next() {
            Some("offset") => {}
            Some(name) => {
                let at = PeditHeader::NAMES.iter().position(|of| *of == name);
                let header = at.and_then(|at| PeditHeader::ALL.get(at).copied());
                let unknown = || WordsError::new(format!("pedit knows no header {name:?}"));
                key.header = header.ok_or_else(unknown)?;
                if !words.accept("offset") {
                    return Err(WordsError::new("pedit needs an offset"));
                }
            }
            None => return Err(WordsError::new("munge needs an offset")),
        }
        key.offset = words.value("offset", |word| word.parse().ok())?;
        if words.accept("at") {
            key.at = words.value("at", |word| word.parse().ok())?;
            key.offmask = words.number("at")?;
            key.shift = words.number("at")?;
        }
        key.adds = match words.next() {
            Some("set") => false,
            Some("add") => true,
            _ => {
                return Err(WordsError::new(
                    "a key of pedit is set or add, and a number",
                ));
            }
        };
        (key.value, key.mask) = words.value("pedit", |word| {
            let (value, mask) = word.split_once('/')?;
            Some((number(value)?, number(mask)?))
        })?;
        Ok(key)
    }
}

impl fmt::Display for PeditKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = PeditHeader::NAMES[self.header as usize];
        write!(f, " munge {name} offset {}", self.offset)?;
        if self.offmask != 0 {
            write!(f, " at {} {:#x} {}", self.at, self.offmask, self.shift)?;
        }
        let verb = if self.adds { "add" } else { "set" };
        write!(f, " {verb} {:#010x}/{:#010x}", self.value, self.mask)
    }
}

/// Where the byte is in the frame.
fn place(run: &Run<'_>, at: i64) -> Option<usize> {
    let at = usize::try_from(at).ok()?;
    let tag = edit::ethertype_offset(run.packet) - edit::ADDRESSES;
    Some(if at < edit::ADDRESSES { at } else { at + tag })
}
