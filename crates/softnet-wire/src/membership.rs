//! Group membership as a snooping bridge reads it (RFC 4541): IGMP (RFC 1112, RFC 2236, RFC 3376)
//! and MLD (RFC 2710, RFC 3810), and what only multicast routers send (PIM hello, RFC 7761 4.9.2;
//! router advertisement, RFC 4286).
//!
//! A frame is refused where `ip_mc_check_igmp` and `ipv6_mc_check_mld` of the kernel refuse it: an
//! IP header that is cut off, contradicts itself or has a wrong checksum, a message that is too
//! short or has a wrong checksum, or a query from or to where none may be. A report whose records
//! run past its end is refused, too.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use crate::parse::{MAX_EXTENSION_HEADERS, be16, ethertype, protocol};
use crate::{WireError, array, checksum, fold, pseudo_header, sum_bytes};

const ALL_HOSTS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
const ALL_PIM_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 13);
const ALL_SNOOPERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 106);
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_SNOOPERS_V6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x6a);

/// An IP packet to a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Multicast<'a> {
    /// Source address of the packet.
    pub source: IpAddr,
    /// Destination address of the packet.
    pub group: IpAddr,
    /// The message about membership, if it is one.
    pub message: Option<Membership<'a>>,
}

impl Multicast<'_> {
    /// The group is one that bridges do not snoop: 224.0.0.0/24 and `ff02::1` (RFC 4541 2.1.2 and
    /// 3).
    pub fn is_unsnooped(&self) -> bool {
        is_unsnooped(self.group)
    }
}

/// A group that every host is taken for a member of, whatever it reports (RFC 4541 2.1.2 and 3).
pub fn is_unsnooped(group: IpAddr) -> bool {
    match group {
        IpAddr::V4(group) => matches!(group.octets(), [224, 0, 0, _]),
        IpAddr::V6(group) => group == ALL_NODES,
    }
}

/// A message about membership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Membership<'a> {
    /// Who is a member?
    Query(GroupQuery),
    /// The sender is a member of this group, whatever the source (IGMPv1, IGMPv2, MLDv1).
    Report(IpAddr),
    /// The sender is a member of this group no more (IGMPv2, MLDv1).
    Leave(IpAddr),
    /// Groups and sources that the sender listens to (IGMPv3, MLDv2).
    Records(GroupRecords<'a>),
    /// The sender is a multicast router.
    Router,
}

/// A query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupQuery {
    /// Group asked for. None: all.
    pub group: Option<IpAddr>,
    /// Time in which members answer. Zero in a query of IGMPv1.
    pub max_response: Duration,
    /// The form is that of IGMPv3 or MLDv2.
    pub long: bool,
    /// Routers do not shorten their timers by it (RFC 3376 4.1.5).
    pub suppress: bool,
    /// It asks for some sources of the group only.
    pub sources: bool,
}

/// Kinds of records (RFC 3376 4.2.12, RFC 3810 5.2.12), in the order of their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// Listens to these sources only.
    IsInclude,
    /// Listens to all but these sources.
    IsExclude,
    /// Listens from now on to these sources only.
    ToInclude,
    /// Listens from now on to all but these sources.
    ToExclude,
    /// Listens to these sources, too.
    Allow,
    /// Does not listen to these sources any more.
    Block,
}

/// One record of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupRecord<'a> {
    /// The kind.
    pub kind: RecordKind,
    /// Group.
    pub group: IpAddr,
    /// The addresses of its sources, one behind the other.
    sources: &'a [u8],
}

impl<'a> GroupRecord<'a> {
    /// The sources.
    pub fn sources(&self) -> impl ExactSizeIterator<Item = IpAddr> + use<'a> {
        let len = address_len(self.group.is_ipv4());
        self.sources.chunks_exact(len).map(address)
    }
}

/// The records of a report, checked. Records of unknown kinds are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupRecords<'a> {
    ipv4: bool,
    left: u16,
    data: &'a [u8],
}

impl<'a> GroupRecords<'a> {
    fn read(ipv4: bool, message: &'a [u8]) -> Option<GroupRecords<'a>> {
        let left = be16(*array(message, 6)?);
        let data = message.get(8..)?;
        let records = GroupRecords { ipv4, left, data };
        let mut walk = records;
        while walk.left > 0 {
            walk.record()?;
        }
        Some(records)
    }

    /// The next record, `None` if it runs past the end; its kind, group and sources.
    fn record(&mut self) -> Option<(u8, IpAddr, &'a [u8])> {
        let len = address_len(self.ipv4);
        let (header, behind) = self.data.split_at_checked(4 + len)?;
        let sources = usize::from(be16(*array(header, 2)?)) * len;
        // The kernel does not skip auxiliary data either: there is none (RFC 3376 4.2.6).
        let (sources, behind) = behind.split_at_checked(sources)?;
        self.data = behind;
        self.left = self.left.checked_sub(1)?;
        Some((*header.first()?, address(header.get(4..)?), sources))
    }
}

impl<'a> Iterator for GroupRecords<'a> {
    type Item = GroupRecord<'a>;

    fn next(&mut self) -> Option<GroupRecord<'a>> {
        while self.left > 0 {
            let (kind, group, sources) = self.record()?;
            let kind = match kind {
                1 => RecordKind::IsInclude,
                2 => RecordKind::IsExclude,
                3 => RecordKind::ToInclude,
                4 => RecordKind::ToExclude,
                5 => RecordKind::Allow,
                6 => RecordKind::Block,
                _ => continue,
            };
            return Some(GroupRecord {
                kind,
                group,
                sources,
            });
        }
        None
    }
}

const fn address_len(ipv4: bool) -> usize {
    if ipv4 { 4 } else { 16 }
}

/// An address of 4 or 16 bytes.
fn address(bytes: &[u8]) -> IpAddr {
    match <[u8; 4]>::try_from(bytes) {
        Ok(bytes) => bytes.into(),
        Err(_) => IpAddr::from(array::<16>(bytes, 0).copied().unwrap_or_default()),
    }
}

/// Reads a frame of `len` bytes to a group address of Ethernet; `data` is its first segment. One
/// VLAN tag (IEEE 802.1Q) is passed over. None: it is not IP. With `trusted`, the checksum of a
/// message is not looked at: it is still to be made.
///
/// A message that does not lie in the first segment as a whole is not read.
///
/// # Errors
/// [`WireError::Runt`], or [`WireError::BadHeader`]; see the module.
pub fn multicast(
    data: &[u8],
    len: usize,
    trusted: bool,
) -> Result<Option<Multicast<'_>>, WireError> {
    let kind = |at| array::<2>(data, at).map(|&kind| be16(kind));
    let (ethertype, at) = match kind(12).ok_or(WireError::Runt)? {
        ethertype::VLAN => (kind(16).ok_or(WireError::BadHeader)?, 18),
        other => (other, 14),
    };
    let read = match ethertype {
        ethertype::IPV4 => ipv4(data, at, len, trusted),
        ethertype::IPV6 => ipv6(data, at, len, trusted),
        _ => return Ok(None),
    };
    read.map(Some).ok_or(WireError::BadHeader)
}

fn ipv4(data: &[u8], at: usize, len: usize, trusted: bool) -> Option<Multicast<'_>> {
    let header: &[u8; 20] = array(data, at)?;
    let header_len = usize::from(header[0] & 0x0f) * 4;
    let end = at + usize::from(be16([header[2], header[3]]));
    let body = at + header_len;
    if header[0] >> 4 != 4 || header_len < 20 || end > len || end < body {
        return None;
    }
    if checksum(data.get(at..body)?) != 0 {
        return None;
    }
    let [source, group] = [12, 16].map(|at| address(&header[at..at + 4]));
    let mut read = Multicast {
        source,
        group,
        message: None,
    };
    if header[9] == protocol::PIM && group == ALL_PIM_ROUTERS {
        // Version 2, hello.
        let hello = data.get(body) == Some(&0x20) && body < end;
        read.message = hello.then_some(Membership::Router);
    } else if header[9] == protocol::IGMP && end <= data.len() {
        let message = data.get(body..end)?;
        if message.len() < 8 || !trusted && checksum(message) != 0 {
            return None;
        }
        read.message = igmp(message, group)?;
    }
    Some(read)
}

/// `None`: refused. `Some(None)`: of another kind.
fn igmp(message: &[u8], to: IpAddr) -> Option<Option<Membership<'_>>> {
    const QUERY: u8 = 0x11;
    const REPORT_V1: u8 = 0x12;
    const REPORT_V2: u8 = 0x16;
    const LEAVE: u8 = 0x17;
    const REPORT_V3: u8 = 0x22;
    const ROUTER: u8 = 0x30;
    let group = Ipv4Addr::from(*array::<4>(message, 4)?);
    Some(Some(match *message.first()? {
        REPORT_V1 | REPORT_V2 => Membership::Report(group.into()),
        LEAVE => Membership::Leave(group.into()),
        REPORT_V3 => Membership::Records(GroupRecords::read(true, message)?),
        ROUTER if to == ALL_SNOOPERS => Membership::Router,
        QUERY => {
            let long = message.len() != 8;
            if long && message.len() < 12 || group.is_unspecified() && to != ALL_HOSTS {
                return None;
            }
            let code = u32::from(*message.get(1)?);
            let tenths = if long { response_code(code, 4) } else { code };
            let sources = long && be16(*array(message, 10)?) != 0;
            Membership::Query(GroupQuery {
                group: (!group.is_unspecified()).then_some(group.into()),
                max_response: Duration::from_millis(100) * tenths,
                long,
                suppress: long && message.get(8)? & 8 != 0,
                sources,
            })
        }
        _ => return Some(None),
    }))
}

/// A time whose code is a number of `8 << bits` at most, or else a mantissa of that many bits and
/// an exponent of 3 (RFC 3376 4.1.1, RFC 3810 5.1.3).
fn response_code(code: u32, bits: u32) -> u32 {
    let exponential = 8 << bits;
    if code < exponential {
        return code;
    }
    let mantissa = code & ((1 << bits) - 1) | 1 << bits;
    mantissa << ((code >> bits & 7) + 3)
}

fn ipv6(data: &[u8], at: usize, len: usize, trusted: bool) -> Option<Multicast<'_>> {
    let header: &[u8; 40] = array(data, at)?;
    let end = at + 40 + usize::from(be16([header[4], header[5]]));
    if header[0] >> 4 != 6 || end > len {
        return None;
    }
    let [source, group] = [8, 24].map(|at| address(&header[at..at + 16]));
    let mut read = Multicast {
        source,
        group,
        message: None,
    };
    // Such messages are behind a router alert (RFC 2710 3, RFC 3810 5).
    if header[6] != protocol::HOP_BY_HOP || end > data.len() {
        return Some(read);
    }
    let packet = &data[..end];
    let (mut kind, mut body) = (header[6], at + 40);
    let mut headers = 0;
    while protocol::is_extension_header(kind) {
        if headers > MAX_EXTENSION_HEADERS {
            return None;
        }
        headers += 1;
        let [next, units]: [u8; 2] = *array(packet, body)?;
        kind = next;
        body += 8 + 8 * usize::from(units);
    }
    if kind != protocol::ICMPV6 {
        return Some(read);
    }
    let message = packet.get(body..)?;
    let length = u32::try_from(message.len()).ok()?;
    let pseudo = pseudo_header(&header[8..24], &header[24..40], kind, length);
    if message.len() < 8 || !trusted && fold(pseudo + sum_bytes(message)) != 0xffff {
        return None;
    }
    read.message = mld(message, source, group)?;
    Some(read)
}

/// As [`igmp`].
fn mld(message: &[u8], from: IpAddr, to: IpAddr) -> Option<Option<Membership<'_>>> {
    const QUERY: u8 = 130;
    const REPORT: u8 = 131;
    const DONE: u8 = 132;
    const REPORT_V2: u8 = 143;
    const ROUTER: u8 = 151;
    let kind = *message.first()?;
    if kind == ROUTER && to == ALL_SNOOPERS_V6 {
        return Some(Some(Membership::Router));
    }
    let Some(group) = array::<16>(message, 8) else {
        // A report without records is one, too, and says nothing.
        return Some(None);
    };
    let group = Ipv6Addr::from(*group);
    Some(Some(match kind {
        REPORT => Membership::Report(group.into()),
        DONE => Membership::Leave(group.into()),
        REPORT_V2 => Membership::Records(GroupRecords::read(false, message)?),
        QUERY => {
            let long = message.len() != 24;
            let local = matches!(from, IpAddr::V6(from) if from.is_unicast_link_local());
            let short = long && message.len() < 28;
            if short || !local || group.is_unspecified() && to != ALL_NODES {
                return None;
            }
            let code = u32::from(be16(*array(message, 4)?));
            let millis = if long { response_code(code, 12) } else { code };
            let sources = long && be16(*array(message, 26)?) != 0;
            Membership::Query(GroupQuery {
                group: (!group.is_unspecified()).then_some(group.into()),
                max_response: Duration::from_millis(millis.into()),
                long,
                suppress: long && message.get(24)? & 8 != 0,
                sources,
            })
        }
        _ => return Some(None),
    }))
}

#[cfg(test)]
mod tests;
