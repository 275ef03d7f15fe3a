//! `ioctl` requests about interfaces: those that read or set what a link of the daemon has are
//! asked of it, others are refused by name (`netdevice(7)`).

use super::answer::{Context, say};
use super::filter::{SIOC, TUNSETIFF};
use super::memory::Process;
use super::notification::Call;
use super::route;

const IFNAMSIZ: usize = 16;
/// Length of `struct ifreq`.
const IFREQ: usize = 40;

const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const RTM_SETLINK: u16 = 19;
const NLMSG_ERROR: u16 = 2;
const REQUEST: u16 = 1;
const ACK: u16 = 4;

const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_TXQLEN: u16 = 13;
const IFF_UP: u32 = 1;

const SIOCGIFNAME: u32 = 0x8910;
const SIOCGIFFLAGS: u32 = 0x8913;
const SIOCSIFFLAGS: u32 = 0x8914;
const SIOCGIFMTU: u32 = 0x8921;
const SIOCSIFMTU: u32 = 0x8922;
const SIOCSIFNAME: u32 = 0x8923;
const SIOCSIFHWADDR: u32 = 0x8924;
const SIOCGIFHWADDR: u32 = 0x8927;
const SIOCGIFINDEX: u32 = 0x8933;
const SIOCGIFTXQLEN: u32 = 0x8942;
const SIOCSIFTXQLEN: u32 = 0x8943;
const SIOCETHTOOL: u32 = 0x8946;

/// Requests that change the kernel's interfaces, or ask for what links of the daemon have not.
const REFUSED: &[(u32, &str)] = &[
    (TUNSETIFF, "TUNSETIFF"),
    (0x8916, "SIOCSIFADDR"),
    (0x8918, "SIOCSIFDSTADDR"),
    (0x891a, "SIOCSIFBRDADDR"),
    (0x891c, "SIOCSIFNETMASK"),
    (0x891e, "SIOCSIFMETRIC"),
    (0x8920, "SIOCSIFMEM"),
    (0x8925, "SIOCSIFENCAP"),
    (0x8930, "SIOCSIFSLAVE"),
    (0x8934, "SIOCSIFPFLAGS"),
    (0x8936, "SIOCDIFADDR"),
    (0x8937, "SIOCSIFHWBROADCAST"),
    (0x8941, "SIOCSIFBR"),
    (0x8971, "SIOCSIFMAP"),
    (0x89a0, "SIOCBRADDBR"),
    (0x89a1, "SIOCBRDELBR"),
    (0x89a2, "SIOCBRADDIF"),
    (0x89a3, "SIOCBRDELIF"),
];

/// The answer to a request; `None`: the kernel's.
pub(super) fn answer(context: &Context, process: Process, call: Call) -> Option<Result<i64, i32>> {
    let request = call.arguments[1] as u32;
    if !SIOC.contains(&request) && request != TUNSETIFF {
        return None;
    }
    if let Some((_, name)) = REFUSED.iter().find(|(number, _)| *number == request) {
        if context.keeps_host {
            return None;
        }
        say(&format!(
            "{name}: interfaces are Softnet's here: use `ip link` or its configuration, or \
             --host-network"
        ));
        return Some(Err(libc::EOPNOTSUPP));
    }
    let at = call.arguments[2];
    let answered = match request {
        SIOCGIFNAME | SIOCGIFINDEX | SIOCGIFFLAGS | SIOCGIFMTU | SIOCGIFHWADDR | SIOCGIFTXQLEN => {
            get(context, process, request, at)
        }
        SIOCSIFFLAGS | SIOCSIFMTU | SIOCSIFNAME | SIOCSIFHWADDR | SIOCSIFTXQLEN => {
            set(context, process, request, at)
        }
        // No link of the daemon has what it asks for.
        SIOCETHTOOL => named(process, at)
            .and_then(|(_, name)| Link::get(context, By::Name(&name)))
            .and(Err(libc::EOPNOTSUPP)),
        _ => return None,
    };
    Some(answered.map(|()| 0))
}

/// A request's structure, and the name in it.
fn named(process: Process, at: u64) -> Result<([u8; IFREQ], Vec<u8>), i32> {
    let request: [u8; IFREQ] = process.read(at)?;
    let name = request[..IFNAMSIZ - 1].iter().copied();
    let name: Vec<u8> = name.take_while(|byte| *byte != 0).collect();
    Ok((request, name))
}

fn get(context: &Context, process: Process, request: u32, at: u64) -> Result<(), i32> {
    let (mut answer, name) = named(process, at)?;
    let value = |answer: &mut [u8; IFREQ], bytes: &[u8]| {
        answer[IFNAMSIZ..IFNAMSIZ + bytes.len()].copy_from_slice(bytes);
    };
    if request == SIOCGIFNAME {
        let [a, b, c, d] = [answer[16], answer[17], answer[18], answer[19]];
        let index = u32::from_ne_bytes([a, b, c, d]);
        let link = Link::get(context, By::Index(index))?;
        let name = link.attribute(IFLA_IFNAME).ok_or(libc::EPROTO)?;
        let len = name.len().min(IFNAMSIZ);
        answer[..IFNAMSIZ].fill(0);
        answer[..len].copy_from_slice(&name[..len]);
        answer[IFNAMSIZ - 1] = 0;
        return process.write(at, &answer);
    }
    let link = Link::get(context, By::Name(&name))?;
    let number = |kind| -> Result<[u8; 4], i32> {
        let bytes = link.attribute(kind).and_then(|bytes| bytes.first_chunk());
        bytes.copied().ok_or(libc::EPROTO)
    };
    match request {
        SIOCGIFINDEX => value(&mut answer, &link.index.to_ne_bytes()),
        SIOCGIFFLAGS => value(&mut answer, &(link.flags as u16).to_ne_bytes()),
        SIOCGIFMTU => value(&mut answer, &number(IFLA_MTU)?),
        SIOCGIFTXQLEN => value(&mut answer, &number(IFLA_TXQLEN)?),
        _ => {
            let mut address = [0; 16];
            address[..2].copy_from_slice(&link.kind.to_ne_bytes());
            let bytes = link.attribute(IFLA_ADDRESS).unwrap_or_default();
            let len = bytes.len().min(14);
            address[2..2 + len].copy_from_slice(&bytes[..len]);
            value(&mut answer, &address);
        }
    }
    process.write(at, &answer)
}

fn set(context: &Context, process: Process, request: u32, at: u64) -> Result<(), i32> {
    let (asked, name) = named(process, at)?;
    let link = Link::get(context, By::Name(&name))?;
    let value = &asked[IFNAMSIZ..];
    let mut header = Header {
        index: link.index,
        ..Header::default()
    };
    let attribute = match request {
        SIOCSIFFLAGS => {
            let flags = u32::from(u16::from_ne_bytes([value[0], value[1]]));
            header.change = (flags ^ link.flags) & 0xffff;
            // Those that say what is are as the link has them.
            header.flags = flags & (IFF_UP | header.change);
            header.change |= IFF_UP;
            None
        }
        SIOCSIFNAME => Some((IFLA_IFNAME, &value[..IFNAMSIZ])),
        SIOCSIFHWADDR => Some((IFLA_ADDRESS, &value[2..8])),
        SIOCSIFTXQLEN => Some((IFLA_TXQLEN, &value[..4])),
        _ => Some((IFLA_MTU, &value[..4])),
    };
    let request = message(RTM_SETLINK, REQUEST | ACK, header, attribute);
    let mut answer = [0; ANSWER];
    let answer = ask(context, &request, &mut answer)?;
    match answer.get(16..20).and_then(|code| code.try_into().ok()) {
        Some(code) => match i32::from_ne_bytes(code) {
            0 => Ok(()),
            code => Err(code.saturating_neg()),
        },
        None => Err(libc::EPROTO),
    }
}

/// The start of an answer, as far as what is read of it; the rest is cut.
const ANSWER: usize = 2048;

enum By<'a> {
    Name(&'a [u8]),
    Index(u32),
}

#[derive(Clone, Copy, Default)]
struct Header {
    index: u32,
    flags: u32,
    change: u32,
}

/// A link as the daemon shows it.
struct Link {
    kind: u16,
    index: u32,
    flags: u32,
    attributes: Vec<u8>,
}

/// A request about a link.
fn message(kind: u16, flags: u16, header: Header, attribute: Option<(u16, &[u8])>) -> Vec<u8> {
    let mut message = vec![0; 32];
    message[4..6].copy_from_slice(&kind.to_ne_bytes());
    message[6..8].copy_from_slice(&flags.to_ne_bytes());
    message[20..24].copy_from_slice(&header.index.to_ne_bytes());
    message[24..28].copy_from_slice(&header.flags.to_ne_bytes());
    message[28..32].copy_from_slice(&header.change.to_ne_bytes());
    if let Some((kind, value)) = attribute {
        let len = 4 + value.len();
        message.extend_from_slice(&(len as u16).to_ne_bytes());
        message.extend_from_slice(&kind.to_ne_bytes());
        message.extend_from_slice(value);
        message.resize(message.len().next_multiple_of(4), 0);
    }
    let len = message.len() as u32;
    message[..4].copy_from_slice(&len.to_ne_bytes());
    message
}

/// The daemon's answer over a connection of the supervisor's own.
fn ask<'r>(context: &Context, request: &[u8], answer: &'r mut [u8]) -> Result<&'r [u8], i32> {
    let fd = route::connected(&context.daemon)?;
    route::ask(&fd, request, answer)
}

impl Link {
    fn get(context: &Context, by: By<'_>) -> Result<Link, i32> {
        let mut name;
        let (header, attribute) = match by {
            By::Name([]) => return Err(libc::ENODEV),
            By::Name(bytes) => {
                name = bytes.to_vec();
                name.push(0);
                (Header::default(), Some((IFLA_IFNAME, &name[..])))
            }
            By::Index(index) => {
                let header = Header {
                    index,
                    ..Header::default()
                };
                (header, None)
            }
        };
        let request = message(RTM_GETLINK, REQUEST, header, attribute);
        let mut answer = [0; ANSWER];
        let answer = ask(context, &request, &mut answer)?;
        let half = |at: usize| {
            let bytes = answer
                .get(at..at + 4)
                .and_then(|bytes| bytes.try_into().ok());
            bytes.map(u32::from_ne_bytes).ok_or(libc::EPROTO)
        };
        let short = |at: usize| {
            let bytes = answer
                .get(at..at + 2)
                .and_then(|bytes| bytes.try_into().ok());
            bytes.map(u16::from_ne_bytes).ok_or(libc::EPROTO)
        };
        match short(4)? {
            RTM_NEWLINK => {}
            NLMSG_ERROR => return Err((half(16)? as i32).saturating_neg()),
            _ => return Err(libc::EPROTO),
        }
        Ok(Link {
            kind: short(18)?,
            index: half(20)?,
            flags: half(24)?,
            attributes: answer.get(32..).unwrap_or_default().to_vec(),
        })
    }

    /// The value of an attribute.
    fn attribute(&self, wanted: u16) -> Option<&[u8]> {
        let mut rest = &self.attributes[..];
        while let [a, b, c, d, value @ ..] = rest {
            let len = usize::from(u16::from_ne_bytes([*a, *b])).checked_sub(4)?;
            let bytes = value.get(..len)?;
            if u16::from_ne_bytes([*c, *d]) == wanted {
                return Some(bytes);
            }
            rest = value.get(len.next_multiple_of(4)..).unwrap_or_default();
        }
        None
    }
}
