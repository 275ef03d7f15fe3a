//! Fields that a `flower` filter may look at besides those that have a place of their own: each is
//! a number of up to 48 bits, compared under a mask.

use softnet::wire::{L4, Network};

use super::frame::Frame;

/// A field of a frame's headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FlowerField {
    /// Destination address of the frame.
    DstMac,
    /// Source address of the frame.
    SrcMac,
    /// Number of VLAN tags.
    NumOfVlans,
    /// VLAN of the second tag.
    CvlanId,
    /// Priority in the second tag.
    CvlanPrio,
    /// EtherType behind the second tag.
    CvlanEthtype,
    /// Session of PPPoE.
    PppoeSid,
    /// Protocol in PPP.
    PppProto,
    /// Label stack entry of MPLS of this depth, from 0 on, below 7.
    Mpls(u8),
    /// Time to live, or hop limit.
    IpTtl,
    /// 1: a fragment; 2: the first one.
    IpFlags,
    /// Flags of TCP.
    TcpFlags,
    /// Source port of TCP, UDP or SCTP, where only some bits count.
    SrcPort,
    /// Destination port of TCP, UDP or SCTP, where only some bits count.
    DstPort,
    /// Type of ICMP for IPv4 or IPv6.
    IcmpType,
    /// Code of ICMP for IPv4 or IPv6.
    IcmpCode,
    /// Operation of ARP for IPv4.
    ArpOp,
    /// Sender's IP address in ARP.
    ArpSip,
    /// Target's IP address in ARP.
    ArpTip,
    /// Sender's MAC address in ARP.
    ArpSha,
    /// Target's MAC address in ARP.
    ArpTha,
}

/// Value that a field must have: its number under a mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FieldMatch {
    /// The field.
    pub field: FlowerField,
    /// The number. Bits that the mask has not do not count; they are shown as they were given.
    pub value: u64,
    /// Which bits count.
    pub mask: u64,
}

impl FlowerField {
    /// Name in tc, and bits.
    const NAMES: [(FlowerField, &'static str, u32); 27] = [
        (FlowerField::DstMac, "dst_mac", 48),
        (FlowerField::SrcMac, "src_mac", 48),
        (FlowerField::NumOfVlans, "num_of_vlans", 8),
        (FlowerField::CvlanId, "cvlan_id", 12),
        (FlowerField::CvlanPrio, "cvlan_prio", 3),
        (FlowerField::CvlanEthtype, "cvlan_ethtype", 16),
        (FlowerField::PppoeSid, "pppoe_sid", 16),
        (FlowerField::PppProto, "ppp_proto", 16),
        (FlowerField::Mpls(0), "mpls_lse1", 32),
        (FlowerField::Mpls(1), "mpls_lse2", 32),
        (FlowerField::Mpls(2), "mpls_lse3", 32),
        (FlowerField::Mpls(3), "mpls_lse4", 32),
        (FlowerField::Mpls(4), "mpls_lse5", 32),
        (FlowerField::Mpls(5), "mpls_lse6", 32),
        (FlowerField::Mpls(6), "mpls_lse7", 32),
        (FlowerField::IpTtl, "ip_ttl", 8),
        (FlowerField::IpFlags, "ip_flags", 2),
        (FlowerField::TcpFlags, "tcp_flags", 12),
        (FlowerField::SrcPort, "src_port_masked", 16),
        (FlowerField::DstPort, "dst_port_masked", 16),
        (FlowerField::IcmpType, "icmp_type", 8),
        (FlowerField::IcmpCode, "icmp_code", 8),
        (FlowerField::ArpOp, "arp_op", 8),
        (FlowerField::ArpSip, "arp_sip", 32),
        (FlowerField::ArpTip, "arp_tip", 32),
        (FlowerField::ArpSha, "arp_sha", 48),
        (FlowerField::ArpTha, "arp_tha", 48),
    ];

    /// All fields.
    pub fn all() -> impl Iterator<Item = FlowerField> {
        FlowerField::NAMES.iter().map(|(field, ..)| *field)
    }

    fn row(self) -> Option<&'static (FlowerField, &'static str, u32)> {
        FlowerField::NAMES.iter().find(|(field, ..)| *field == self)
    }

    /// Key of a configuration file; tc's word where it has one.
    pub fn name(self) -> &'static str {
        self.row().map_or("", |(_, name, _)| name)
    }

    /// All bits that it has.
    pub fn ones(self) -> u64 {
        self.row().map_or(0, |(.., bits)| (1 << bits) - 1)
    }

    /// A match of `value` or `value/mask`: numbers, or MAC addresses.
    pub fn parse(self, text: &str) -> Option<FieldMatch> {
        let (value, mask) = match text.split_once('/') {
            Some((value, mask)) => (number(value)?, number(mask)?),
            None => (number(text)?, self.ones()),
        };
        let fits = value | mask <= self.ones() && mask != 0;
        fits.then(|| FieldMatch::new(self, value, mask))
    }
}

/// Decimal, hexadecimal, or six bytes with colons.
fn number(text: &str) -> Option<u64> {
    if let Some(digits) = text.strip_prefix("0x") {
        return u64::from_str_radix(digits, 16).ok();
    }
    if !text.contains(':') {
        return text.parse().ok();
    }
    let bytes = text
        .split(':')
        .map(|byte| u8::from_str_radix(byte, 16).ok());
    let bytes: Option<Vec<u8>> = bytes.collect();
    let bytes = bytes.filter(|bytes| bytes.len() == 6)?;
    Some(
        bytes
            .into_iter()
            .fold(0, |sum, byte| sum << 8 | u64::from(byte)),
    )
}

impl FieldMatch {
    /// The field's number under the mask is that of `value`.
    pub fn new(field: FlowerField, value: u64, mask: u64) -> FieldMatch {
        let mask = mask & field.ones();
        let kept = match field {
            // Made of parts, each of which counts or not.
            FlowerField::IpFlags | FlowerField::Mpls(_) => mask,
            _ => field.ones(),
        };
        FieldMatch {
            field,
            value: value & kept,
            mask,
        }
    }

    /// True if it is the same match.
    pub(super) fn is_same(&self, other: &FieldMatch) -> bool {
        let same_bits = (self.field, self.mask) == (other.field, other.mask);
        same_bits && (self.value ^ other.value) & self.mask == 0
    }
}

impl std::fmt::Display for FieldMatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#x}/{:#x}", self.value, self.mask)
    }
}

/// A number of bytes.
fn big<const N: usize>(bytes: [u8; N]) -> u64 {
    bytes
        .into_iter()
        .fold(0, |sum, byte| sum << 8 | u64::from(byte))
}

impl Frame<'_> {
    /// A field's number; `None`: the frame has none.
    pub(super) fn field(&self, field: FlowerField) -> Option<u64> {
        match field {
            FlowerField::DstMac => self.bytes::<6>(0).map(big),
            FlowerField::SrcMac => self.bytes::<6>(6).map(big),
            FlowerField::NumOfVlans => Some(self.headers()?.vlan_tags.into()),
            FlowerField::CvlanId => self.second_tag().map(|(tag, _)| tag & 0xfff),
            FlowerField::CvlanPrio => self.second_tag().map(|(tag, _)| tag >> 13),
            FlowerField::CvlanEthtype => self.second_tag().map(|(_, behind)| behind),
            FlowerField::PppoeSid => self.behind_link(&[0x8864], 2).map(big::<2>),
            FlowerField::PppProto => self.behind_link(&[0x8864], 6).map(big::<2>),
            FlowerField::Mpls(depth) => self.mpls(depth),
            FlowerField::ArpOp => self.arp(6).map(|op| big::<2>(op) & 0xff),
            FlowerField::ArpSha => self.arp(8).map(big::<6>),
            FlowerField::ArpSip => self.arp(14).map(big::<4>),
            FlowerField::ArpTha => self.arp(18).map(big::<6>),
            FlowerField::ArpTip => self.arp(24).map(big::<4>),
            FlowerField::IpTtl | FlowerField::IpFlags => self.of_ip(field),
            FlowerField::TcpFlags
            | FlowerField::SrcPort
            | FlowerField::DstPort
            | FlowerField::IcmpType
            | FlowerField::IcmpCode => self.of_transport(field),
        }
    }

    /// Contents of the second tag, and the EtherType behind it.
    fn second_tag(&self) -> Option<(u64, u64)> {
        if self.headers()?.vlan_tags < 2 {
            return None;
        }
        let [a, b, c, d] = self.bytes(18)?;
        Some((big([a, b]), big([c, d])))
    }

    /// Bytes behind the link's header, if one of these EtherTypes is there.
    fn behind_link<const N: usize>(&self, of: &[u16], at: usize) -> Option<[u8; N]> {
        let headers = self.headers()?;
        let is = of.contains(&headers.ethertype);
        let start = usize::from(headers.network_offset);
        self.bytes(start + at).filter(|_| is)
    }

    fn mpls(&self, depth: u8) -> Option<u64> {
        const MPLS: [u16; 2] = [0x8847, 0x8848];
        for above in 0..depth {
            let entry: u64 = big::<4>(self.behind_link(&MPLS, 4 * usize::from(above))?);
            // The bottom of the stack.
            if entry & 0x100 != 0 {
                return None;
            }
        }
        self.behind_link(&MPLS, 4 * usize::from(depth))
            .map(big::<4>)
    }

    /// Bytes of ARP or RARP for IPv4 over Ethernet (`__skb_flow_dissect_arp`).
    fn arp<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        const ARP: [u16; 2] = [0x0806, 0x8035];
        let fixed: [u8; 8] = self.behind_link(&ARP, 0)?;
        let is = fixed[..6] == [0, 1, 8, 0, 6, 4] && matches!(fixed[6..], [0, 1 | 2]);
        self.behind_link(&ARP, at).filter(|_| is)
    }

    fn of_ip(&self, field: FlowerField) -> Option<u64> {
        let headers = self.headers()?;
        let at = usize::from(headers.network_offset);
        let is_v4 = match headers.network {
            Network::V4 => true,
            Network::V6 => false,
            Network::Other => return None,
        };
        if field == FlowerField::IpTtl {
            let at = if is_v4 { at + 8 } else { at + 7 };
            return self.bytes::<1>(at).map(big);
        }
        if headers.transport != L4::Fragment {
            return Some(0);
        }
        let offset = match is_v4 {
            true => big::<2>(self.bytes(at + 6)?) & 0x1fff,
            false => {
                let header = usize::from(headers.transport_offset).checked_sub(8)?;
                big::<2>(self.bytes(header + 2)?) & 0xfff8
            }
        };
        Some(if offset == 0 { 3 } else { 1 })
    }

    fn of_transport(&self, field: FlowerField) -> Option<u64> {
        let headers = self.headers()?;
        let at = usize::from(headers.transport_offset);
        let is = match field {
            FlowerField::TcpFlags => matches!(headers.transport, L4::Tcp { .. }),
            FlowerField::IcmpType | FlowerField::IcmpCode => headers.transport == L4::Icmp,
            _ => {
                matches!(headers.transport, L4::Tcp { .. } | L4::Udp { .. })
                    || headers.transport == L4::Other && headers.protocol == 132
            }
        };
        if !is {
            return None;
        }
        match field {
            FlowerField::TcpFlags => self.bytes::<2>(at + 12).map(|flags| big(flags) & 0xfff),
            FlowerField::IcmpType => self.bytes::<1>(at).map(big),
            FlowerField::IcmpCode => self.bytes::<1>(at + 1).map(big),
            FlowerField::SrcPort => self.bytes::<2>(at).map(big),
            _ => self.bytes::<2>(at + 2).map(big),
        }
    }
}
