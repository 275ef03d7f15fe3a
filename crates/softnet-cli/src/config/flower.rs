//! `flower`: a filter by the headers' fields, in the words of tc-flower(8) where there is one;
//! besides them `dscp` and `mark`.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use softnet_engine::Settings;
use softnet_tc::{ETH_P_ALL, ETH_P_IP, ETH_P_IPV6, Flower, FlowerField, Indev, Prefix};

use super::table::Table;
use super::words::number;

pub(super) const KEYS: &[&str] = &[
    "vlan_id",
    "vlan_prio",
    "vlan_ethtype",
    "src_ip",
    "dst_ip",
    "ip_proto",
    "ip_tos",
    "dscp",
    "src_port",
    "dst_port",
    "mark",
    "indev",
    "dst_mac",
    "src_mac",
    "num_of_vlans",
    "cvlan_id",
    "cvlan_prio",
    "cvlan_ethtype",
    "pppoe_sid",
    "ppp_proto",
    "mpls_lse1",
    "mpls_lse2",
    "mpls_lse3",
    "mpls_lse4",
    "mpls_lse5",
    "mpls_lse6",
    "mpls_lse7",
    "ip_ttl",
    "ip_flags",
    "tcp_flags",
    "src_port_masked",
    "dst_port_masked",
    "icmp_type",
    "icmp_code",
    "arp_op",
    "arp_sip",
    "arp_tip",
    "arp_sha",
    "arp_tha",
];

/// Matches of a filter's table on headers of frames of a protocol.
pub(super) fn read(table: &Table<'_>, outer: u16) -> Option<Flower> {
    let flower = fields(table)?;
    check(table, outer, &flower).map(|()| flower)
}

/// Matches of a table on headers, whether or not there are frames that have them together.
pub(super) fn fields(table: &Table<'_>) -> Option<Flower> {
    let before = table.source.errors();
    let what = "an address or range like \"10.0.0.0/8\" or \"fd00::1\"";
    let address = |key| table.parsed(key, what, prefix);
    let port = |key| table.parsed(key, "a port or range like \"53\" or \"5000-5999\"", ports);
    let what = "an IP protocol; use tcp, udp, icmp, icmpv6 or a number";
    let ip_proto = table.parsed("ip_proto", what, |text| match text {
        "tcp" => Some(6),
        "udp" => Some(17),
        "icmp" => Some(1),
        "icmpv6" => Some(58),
        number => number.parse().ok(),
    });
    let up_to = |most| move |text: &str| number(text).filter(|&n| n <= most);
    let what = "a code point from 0 to 63";
    let dscp = table.parsed("dscp", what, up_to(63));
    let what = "a byte, or byte and mask, like \"0xb8/0xfc\"";
    let ip_tos = table.parsed("ip_tos", what, |text| {
        let (value, mask) = masked(text, 0xff)?;
        Some((value.try_into().ok()?, mask.try_into().ok()?))
    });
    if let (Some(_), Some(_)) = (dscp, ip_tos) {
        table.problem::<()>("dscp", "is the same field as ip_tos; remove one of them");
    }
    let vlan_id = table.parsed("vlan_id", "a VLAN from 0 to 4095", up_to(4095));
    let vlan_prio = table.parsed("vlan_prio", "a priority from 0 to 7", up_to(7));
    let field = |field: FlowerField| {
        let what = "a number like \"7\" or \"0x10/0xf0\", or a MAC address";
        table.parsed(field.name(), what, |text| field.parse(text))
    };
    let flower = Flower {
        indev: indev(table),
        vlan_id: vlan_id.map(|id| id as u16),
        vlan_prio: vlan_prio.map(|prio| prio as u8),
        vlan_ethtype: protocol(table, "vlan_ethtype"),
        src_ip: address("src_ip"),
        dst_ip: address("dst_ip"),
        ip_proto,
        ip_tos: dscp.map_or(ip_tos, |dscp| Some(((dscp as u8) << 2, 0xfc))),
        src_port: port("src_port"),
        dst_port: port("dst_port"),
        mark: mark(table),
        fields: FlowerField::all().filter_map(field).collect(),
    };
    (table.source.errors() == before).then_some(flower)
}

/// Refuses what no frame has together, as tc does.
fn check(table: &Table<'_>, outer: u16, flower: &Flower) -> Option<()> {
    let wrong = |key: &str, text: &str| table.problem(key, text);
    let given = |keys: &[&'static str]| {
        let mut given = keys.iter().filter(|key| table.has(key));
        given.next().copied()
    };
    if flower.vlan_ethtype == Some(ETH_P_ALL) {
        return wrong("vlan_ethtype", "cannot be all; remove it");
    }
    // Behind a tag there may be anything.
    let known = |e: &u16| ![ETH_P_ALL, 0x8100, 0x88a8, 0x9100].contains(e);
    let outer = Some(outer).filter(known);
    if let (Some(_), Some(key)) = (outer, given(&["vlan_id", "vlan_prio", "vlan_ethtype"])) {
        return wrong(key, "is of a VLAN tag; make protocol 802.1q or 802.1ad");
    }
    let network = outer.or_else(|| flower.vlan_ethtype.filter(known));
    let of_ip = [
        "src_ip", "dst_ip", "ip_proto", "ip_tos", "dscp", "src_port", "dst_port",
    ];
    let is_ip = |ethertype| [ETH_P_IP, ETH_P_IPV6].contains(&ethertype);
    if network.is_some_and(|network| !is_ip(network))
        && let Some(key) = given(&of_ip)
    {
        return wrong(key, "is of IP, and the protocol is not; remove one of them");
    }
    let mut is_ipv4 = network.map(|network| network == ETH_P_IP);
    for (key, prefix) in [("src_ip", flower.src_ip), ("dst_ip", flower.dst_ip)] {
        let Some(prefix) = prefix else { continue };
        match (prefix.is_ipv4(), is_ipv4) {
            (true, Some(false)) => return wrong(key, "is of IPv4 in a filter of IPv6"),
            (false, Some(true)) => return wrong(key, "is of IPv6 in a filter of IPv4"),
            (of, _) => is_ipv4 = Some(of),
        }
    }
    if flower.ip_proto.is_some_and(|p| p != 6 && p != 17)
        && let Some(key) = given(&["src_port", "dst_port"])
    {
        return wrong(key, "is of TCP and UDP; make ip_proto tcp or udp");
    }
    Some(())
}

pub(super) fn prefix(text: &str) -> Option<Prefix> {
    let (address, len) = match text.split_once('/') {
        Some((address, len)) => (address, Some(number(len)?)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().ok()?;
    let all = if address.is_ipv4() { 32 } else { 128 };
    Prefix::new(address, u8::try_from(len.unwrap_or(all)).ok()?)
}

fn ports(text: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let range = number(first)?.try_into().ok()?..=number(last)?.try_into().ok()?;
    (!range.is_empty()).then_some(range)
}

/// A value and a mask, which is all ones if it is left out.
pub(super) fn masked(text: &str, ones: u32) -> Option<(u32, u32)> {
    match text.split_once('/') {
        None => Some((number(text)?, ones)),
        Some((value, mask)) => Some((number(value)?, number(mask)?)),
    }
}

/// A mark, and the bits of it that count.
pub(super) fn mark(table: &Table<'_>) -> Option<(u32, u32)> {
    table.parsed("mark", "a mark like \"7\" or \"0x10/0xf0\"", |text| {
        masked(text, u32::MAX)
    })
}

/// The link that packets were received on.
pub(super) fn indev(table: &Table<'_>) -> Option<Indev> {
    table.parsed("indev", "the name of a link", |text| {
        let is_name = Settings::wrong_name(text).is_none();
        is_name.then(|| Indev::new(text))
    })
}

/// An EtherType. TOML's integers have lost whether they were hexadecimal.
pub(super) fn protocol(table: &Table<'_>, key: &str) -> Option<u16> {
    let what = "a protocol; use ip, ipv6, arp, 802.1q, 802.1ad, all or an EtherType like 0x88f7";
    table.parsed(key, what, |text| match text.to_ascii_lowercase().as_str() {
        "all" => Some(ETH_P_ALL),
        "ip" | "ipv4" => Some(ETH_P_IP),
        "ipv6" => Some(ETH_P_IPV6),
        "arp" => Some(0x0806),
        "802.1q" => Some(0x8100),
        "802.1ad" => Some(0x88a8),
        ethertype => number(ethertype)?.try_into().ok(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::filter::tests::read;

    /// As tc refuses them: no frame could match.
    #[test]
    fn contradictions_are_refused() {
        for (filter, problem) in [
            ("vlan_ethtype = \"all\"", "vlan_ethtype`: cannot be all"),
            (
                "protocol = \"ip\"\nvlan_id = 3",
                "vlan_id`: is of a VLAN tag",
            ),
            (
                "protocol = \"arp\"\ndst_ip = \"10.0.0.1\"",
                "dst_ip`: is of IP, and",
            ),
            ("vlan_ethtype = \"arp\"\ndscp = 1", "dscp`: is of IP, and"),
            (
                "protocol = \"ipv6\"\ndst_ip = \"10.0.0.1\"",
                "dst_ip`: is of IPv4 in a filter of IPv6",
            ),
            (
                "vlan_ethtype = \"ip\"\nsrc_ip = \"fd00::1\"",
                "src_ip`: is of IPv6 in a filter of IPv4",
            ),
            (
                "src_ip = \"fd00::1\"\ndst_ip = \"10.0.0.1\"",
                "dst_ip`: is of IPv4 in a filter of IPv6",
            ),
            (
                "ip_proto = \"icmp\"\nsrc_port = 53",
                "src_port`: is of TCP and UDP",
            ),
        ] {
            let said = read(&format!("flowid = \"1:1\"\n{filter}")).expect_err(filter);
            assert!(said.contains(problem), "{filter}: {said}");
        }
        for filter in [
            "protocol = \"802.1q\"\nvlan_id = 3\ndst_ip = \"10.0.0.1\"",
            "protocol = \"802.1ad\"\nvlan_ethtype = \"802.1q\"\nsrc_port = 53",
            "vlan_ethtype = \"ipv6\"\ndst_ip = \"fd00::1\"",
            "src_ip = \"10.0.0.2\"\ndst_ip = \"10.0.0.1\"\nip_proto = \"udp\"\ndst_port = 53",
        ] {
            read(&format!("flowid = \"1:1\"\n{filter}")).expect(filter);
        }
    }

    /// A number, whether quoted or not.
    #[test]
    fn a_protocol_may_be_a_number() {
        for text in ["0x88f7", "\"0x88f7\"", "35063"] {
            let filter = read(&format!("flowid = \"1:1\"\nprotocol = {text}"));
            assert_eq!(filter.expect(text).protocol, 0x88f7);
        }
        let said = read("flowid = \"1:1\"\nprotocol = 0x10000").expect_err("too many bits");
        assert!(said.contains("is not a protocol"), "{said}");
    }
}
