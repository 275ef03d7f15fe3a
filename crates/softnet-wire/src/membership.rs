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
mod tests {
    use super::*;

    /// A frame of these bytes behind the addresses.
    fn frame(kind: u16, body: &[u8]) -> Vec<u8> {
        [
            &[1, 0, 0x5e, 0, 0, 1, 2, 0, 0, 0, 0, 1][..],
            &kind.to_be_bytes(),
            body,
        ]
        .concat()
    }

    fn set_sum(bytes: &mut [u8], at: usize) {
        let sum = checksum(bytes);
        bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }

    /// An IGMP message to a group, with a router alert.
    fn igmp(to: [u8; 4], message: &[u8]) -> Vec<u8> {
        let mut message = message.to_vec();
        set_sum(&mut message, 2);
        let len = (24 + message.len()) as u8;
        let mut header = vec![0x46, 0, 0, len, 0, 0, 0, 0, 1, 2, 0, 0, 10, 0, 0, 1];
        header.extend(to);
        header.extend([0x94, 4, 0, 0]);
        set_sum(&mut header, 10);
        frame(0x0800, &[header, message].concat())
    }

    fn mld(from: Ipv6Addr, to: Ipv6Addr, message: &[u8]) -> Vec<u8> {
        let mut message = message.to_vec();
        let len = message.len() as u16;
        let (from, to) = (from.octets(), to.octets());
        let sum = pseudo_header(&from, &to, 58, len.into()) + sum_bytes(&message);
        message[2..4].copy_from_slice(&(!fold(sum)).to_be_bytes());
        let mut bytes = vec![0x60, 0, 0, 0];
        bytes.extend((len + 8).to_be_bytes());
        bytes.extend([0, 1]);
        bytes.extend(from);
        bytes.extend(to);
        bytes.extend([58, 0, 5, 2, 0, 0, 1, 0]);
        bytes.extend(message);
        frame(0x86dd, &bytes)
    }

    fn read(frame: &[u8]) -> Result<Option<Membership<'_>>, WireError> {
        let read = multicast(frame, frame.len(), false)?;
        Ok(read.expect("IP").message)
    }

    const LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);

    #[test]
    fn reports_and_leaves() {
        let group: IpAddr = [239, 1, 2, 3].into();
        let v2 = igmp([239, 1, 2, 3], &[0x16, 0, 0, 0, 239, 1, 2, 3]);
        assert_eq!(read(&v2), Ok(Some(Membership::Report(group))));
        let mut wrong = v2.clone();
        wrong[38] ^= 1;
        assert_eq!(read(&wrong), Err(WireError::BadHeader));
        let trusted = multicast(&wrong, wrong.len(), true).unwrap().unwrap();
        assert!(trusted.message.is_some());
        let leave = igmp([224, 0, 0, 2], &[0x17, 0, 0, 0, 239, 1, 2, 3]);
        assert_eq!(read(&leave), Ok(Some(Membership::Leave(group))));
        let six: Ipv6Addr = "ff02::1:ff00:1".parse().unwrap();
        let message = [&[131, 0, 0, 0, 0, 0, 0, 0][..], &six.octets()].concat();
        let report = mld(LOCAL, six, &message);
        assert_eq!(read(&report), Ok(Some(Membership::Report(six.into()))));
    }

    #[test]
    fn records() {
        let mut message = vec![0x22, 0, 0, 0, 0, 0, 0, 3];
        message.extend([1, 0, 0, 2, 239, 1, 2, 3, 10, 0, 0, 1, 10, 0, 0, 2]);
        message.extend([9, 0, 0, 0, 239, 1, 2, 4]);
        message.extend([4, 0, 0, 0, 239, 1, 2, 5]);
        let bytes = igmp([224, 0, 0, 22], &message);
        let Ok(Some(Membership::Records(records))) = read(&bytes) else {
            panic!("no records");
        };
        let all: Vec<_> = records
            .map(|r| (r.kind, r.group, r.sources().len()))
            .collect();
        let first = (RecordKind::IsInclude, [239, 1, 2, 3].into(), 2);
        assert_eq!(
            all,
            [first, (RecordKind::ToExclude, [239, 1, 2, 5].into(), 0)]
        );
        message[7] = 4;
        let bytes = igmp([224, 0, 0, 22], &message);
        assert_eq!(
            read(&bytes),
            Err(WireError::BadHeader),
            "one record is missing"
        );
    }

    #[test]
    fn queries() {
        let general = igmp([224, 0, 0, 1], &[0x11, 100, 0, 0, 0, 0, 0, 0]);
        let query = |bytes: &[u8]| match read(bytes) {
            Ok(Some(Membership::Query(query))) => query,
            other => panic!("{other:?}"),
        };
        let read_back = query(&general);
        assert_eq!((read_back.group, read_back.long), (None, false));
        assert_eq!(read_back.max_response, Duration::from_secs(10));
        let elsewhere = igmp([224, 0, 0, 2], &[0x11, 100, 0, 0, 0, 0, 0, 0]);
        assert_eq!(read(&elsewhere), Err(WireError::BadHeader));
        let v3 = igmp(
            [239, 1, 1, 1],
            &[0x11, 0x80, 0, 0, 239, 1, 1, 1, 8, 0, 0, 0],
        );
        let read_back = query(&v3);
        assert!(read_back.long && read_back.suppress && !read_back.sources);
        assert_eq!(read_back.max_response, Duration::from_millis(12_800));
        let message = [&[130, 0, 0, 0, 0x27, 0x10, 0, 0][..], &[0; 16]].concat();
        let six = mld(LOCAL, ALL_NODES, &message);
        assert_eq!(query(&six).max_response, Duration::from_secs(10));
        let global = mld("2001:db8::1".parse().unwrap(), ALL_NODES, &message);
        assert_eq!(read(&global), Err(WireError::BadHeader));
    }

    #[test]
    fn routers_and_others() {
        let adv = igmp([224, 0, 0, 106], &[0x30, 20, 0, 0, 0, 0, 0, 0]);
        assert_eq!(read(&adv), Ok(Some(Membership::Router)));
        let other = igmp([239, 0, 0, 106], &[0x30, 20, 0, 0, 0, 0, 0, 0]);
        assert_eq!(read(&other), Ok(None));
        let arp = frame(0x0806, &[0; 28]);
        assert_eq!(multicast(&arp, arp.len(), false), Ok(None));
        let tagged = [&adv[..12], &[0x81, 0, 0, 5][..], &adv[12..]].concat();
        assert_eq!(read(&tagged), Ok(Some(Membership::Router)));
    }

    /// However a frame is cut off, nothing is read behind its end.
    #[test]
    fn cut_off_anywhere() {
        let mut message = vec![143, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 1];
        message.extend([0xff; 32]);
        let six = mld(LOCAL, "ff02::16".parse().unwrap(), &message);
        let four = igmp([224, 0, 0, 1], &[0x11, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        for bytes in [six, four] {
            assert!(read(&bytes).is_ok_and(|message| message.is_some()));
            for len in 0..bytes.len() {
                assert!(multicast(&bytes[..len], len, true).is_err());
                // What lies in another segment is not read.
                let _ = multicast(&bytes[..len], bytes.len(), true);
            }
        }
    }
}
