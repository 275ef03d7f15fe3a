//! Packets of captures as Ethernet frames.

/// Kinds of packets (`LINKTYPE_*` of tcpdump.org).
mod link_type {
    pub(super) const ETHERNET: u32 = 1;
    /// Raw IP of either version, also by the number that some systems give it.
    pub(super) const RAW: u32 = 101;
    pub(super) const RAW_BSD: u32 = 12;
    pub(super) const LINUX_SLL: u32 = 113;
    pub(super) const IPV4: u32 = 228;
    pub(super) const IPV6: u32 = 229;
    pub(super) const LINUX_SLL2: u32 = 276;
}

/// Addresses of frames whose capture has none: of nobody.
const TO: [u8; 6] = [2, 0, 0, 0, 0, 2];
const FROM: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// The header that a packet is missing, and where what follows it begins. `None`: a kind that is
/// no Ethernet.
pub(super) fn header(link_type: u32, data: &[u8]) -> Option<([u8; 14], usize)> {
    let with = |from: [u8; 6], protocol: [u8; 2], at| {
        let mut header = [0; 14];
        header[..6].copy_from_slice(&TO);
        header[6..12].copy_from_slice(&from);
        header[12..].copy_from_slice(&protocol);
        (header, at)
    };
    let ip = |version: Option<&u8>| match version.map(|byte| byte >> 4) {
        Some(4) => Some(with(FROM, [0x08, 0x00], 0)),
        Some(6) => Some(with(FROM, [0x86, 0xdd], 0)),
        _ => None,
    };
    // An address of six bytes, and the protocol.
    let cooked = |length: usize, address: usize, protocol: usize, at: usize| {
        let from = match data.get(address..)?.first_chunk::<6>() {
            Some(from) if length == 6 && from[0] & 1 == 0 => *from,
            _ => FROM,
        };
        let protocol = *data.get(protocol..)?.first_chunk::<2>()?;
        (data.len() >= at).then(|| with(from, protocol, at))
    };
    match link_type {
        link_type::RAW | link_type::RAW_BSD | link_type::IPV4 | link_type::IPV6 => {
            ip(data.first())
        }
        link_type::LINUX_SLL => {
            let length = u16::from_be_bytes(*data.get(4..)?.first_chunk()?);
            cooked(length.into(), 6, 14, 16)
        }
        link_type::LINUX_SLL2 => {
            let length = *data.get(11)?;
            cooked(length.into(), 12, 0, 20)
        }
        _ => None,
    }
}

/// True if packets of this kind are frames as they are.
pub(super) fn is_ethernet(link_type: u32) -> bool {
    link_type == link_type::ETHERNET
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_that_are_missing() {
        let of = |link_type, data: &[u8]| {
            header(link_type, data).map(|(header, at)| (header[6..].to_vec(), at))
        };
        let from = |from: [u8; 6], protocol: [u8; 2]| [&from[..], &protocol].concat();
        assert_eq!(of(101, &[0x45, 0]), Some((from(FROM, [8, 0]), 0)));
        assert_eq!(of(229, &[0x60, 0]), Some((from(FROM, [0x86, 0xdd]), 0)));
        assert_eq!(of(12, &[0x10]), None);
        assert_eq!(of(101, &[]), None);
        let mac = [2, 3, 4, 5, 6, 7];
        let sll = [&[0, 0, 0, 1, 0, 6][..], &mac, &[0, 0, 0x08, 0x06, 9]].concat();
        assert_eq!(of(113, &sll), Some((from(mac, [8, 6]), 16)));
        assert_eq!(of(113, &sll[..15]), None);
        let sll2 = [
            &[0x86, 0xdd, 0, 0, 0, 0, 0, 1, 0, 1, 0, 6][..],
            &mac,
            &[0, 0, 9],
        ]
        .concat();
        assert_eq!(of(276, &sll2), Some((from(mac, [0x86, 0xdd]), 20)));
        assert_eq!(of(276, &sll2[..19]), None);
        assert_eq!(of(147, &sll2), None);
    }
}
