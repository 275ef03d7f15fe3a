//! Fields of `flower` that are numbers under a mask, and groups of expressions.

use softnet::mem::{Packet, Pool};
use softnet::testing::pool;

use super::*;

/// A frame with these bytes behind the addresses.
fn packet(pool: &Pool, parts: &[&[u8]]) -> Packet {
    let mut packet = pool.alloc().unwrap();
    assert!(packet.append(&[2, 0, 0, 0, 0, 0xB, 2, 0, 0, 0, 0, 0xA]));
    for part in parts {
        assert!(packet.append(part));
    }
    packet
}

/// An IPv4 header for 20 bytes of payload.
fn ipv4(protocol: u8, fragment: [u8; 2]) -> Vec<u8> {
    let [hi, lo] = fragment;
    let mut header = vec![0x45, 0, 0, 40, 0, 0, hi, lo, 64, protocol, 0, 0];
    header.extend([10, 0, 0, 1, 10, 0, 0, 2]);
    header
}

fn tcp(flags: u8) -> Vec<u8> {
    let mut header = vec![0x13, 0x88, 0, 53, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, flags];
    header.extend([0; 6]);
    header
}

fn matches(texts: &[(FlowerField, &str)], packet: &Packet) -> bool {
    let field = |(field, text): &(FlowerField, &str)| {
        field.parse(text).unwrap_or_else(|| panic!("{text}"))
    };
    let flower = Flower {
        fields: texts.iter().map(field).collect(),
        ..Flower::default()
    };
    let mut list = FilterList::default();
    let filter = FilterSpec::new(flower, Handle::new(1, 1));
    list.put(FilterOp::Add, filter).unwrap();
    list.filters().try_on(packet) == Classified::Class(Handle::new(1, 1))
}

const IP: [u8; 2] = [8, 0];

#[test]
fn fields_are_compared_under_masks() {
    use FlowerField::*;
    let pool = pool(16);
    let syn = packet(&pool, &[&IP, &ipv4(6, [0, 0]), &tcp(2)]);
    let sctp = packet(&pool, &[&IP, &ipv4(132, [0, 0]), &tcp(0)]);
    let icmp = packet(&pool, &[&IP, &ipv4(1, [0, 0]), &[8, 3], &[0; 18]]);
    let first = packet(&pool, &[&IP, &ipv4(17, [0x20, 0]), &[0; 20]]);
    let later = packet(&pool, &[&IP, &ipv4(17, [0, 9]), &[0; 20]]);
    let tags = [0x88, 0xa8, 0x20, 5, 0x81, 0, 0x60, 7, 8, 0];
    let tagged = packet(&pool, &[&tags, &ipv4(6, [0, 0]), &tcp(2)]);
    let arp = packet(
        &pool,
        &[
            &[
                8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 0xA, 10, 0, 0, 1,
            ],
            &[0, 0, 0, 0, 0, 0, 10, 0, 0, 2],
        ],
    );
    let pppoe = packet(
        &pool,
        &[&[0x88, 0x64, 0x11, 0, 0, 9, 0, 4, 0, 0x21], &[0; 40]],
    );
    let mpls = packet(
        &pool,
        &[&[0x88, 0x47, 0, 1, 0x00, 64, 0, 2, 0x13, 63], &[0; 40]],
    );
    for (fields, packet, expected) in [
        (&[(DstMac, "02:00:00:00:00:0b")][..], &syn, true),
        (&[(SrcMac, "02:00:00:00:00:0b")], &syn, false),
        (
            &[(SrcMac, "02:00:00:00:00:00/ff:ff:ff:ff:ff:00")],
            &syn,
            true,
        ),
        (&[(TcpFlags, "2/0x12"), (IpTtl, "64")], &syn, true),
        (&[(TcpFlags, "0x10/0x12")], &syn, false),
        (&[(TcpFlags, "0/1")], &icmp, false),
        (&[(IpTtl, "65")], &syn, false),
        (
            &[(DstPort, "0x34/0xfe"), (SrcPort, "0x1300/0xff00")],
            &syn,
            true,
        ),
        (&[(DstPort, "53")], &sctp, true),
        (&[(DstPort, "53")], &icmp, false),
        (&[(IcmpType, "8"), (IcmpCode, "3")], &icmp, true),
        (&[(IcmpType, "8")], &syn, false),
        (&[(IpFlags, "1/1")], &first, true),
        (&[(IpFlags, "3/3")], &first, true),
        (&[(IpFlags, "3/3")], &later, false),
        (&[(IpFlags, "1/3")], &later, true),
        (&[(IpFlags, "0/1")], &syn, true),
        (&[(NumOfVlans, "2")], &tagged, true),
        (&[(NumOfVlans, "0")], &syn, true),
        (
            &[(CvlanId, "7"), (CvlanPrio, "3"), (CvlanEthtype, "0x800")],
            &tagged,
            true,
        ),
        (&[(CvlanId, "5")], &tagged, false),
        (&[(CvlanId, "5")], &syn, false),
        (&[(TcpFlags, "2")], &tagged, true),
        (
            &[
                (ArpOp, "1"),
                (ArpSip, "0x0a000001"),
                (ArpTip, "0x0a000000/0xffffff00"),
            ],
            &arp,
            true,
        ),
        (
            &[(ArpSha, "02:00:00:00:00:0a"), (ArpTha, "0:0:0:0:0:0")],
            &arp,
            true,
        ),
        (&[(ArpOp, "2")], &arp, false),
        (&[(ArpOp, "1")], &syn, false),
        (&[(PppoeSid, "9"), (PppProto, "0x21")], &pppoe, true),
        (&[(PppoeSid, "8")], &pppoe, false),
        (
            &[(Mpls(0), "0x10000/0xfffff000"), (Mpls(1), "0x2133f")],
            &mpls,
            true,
        ),
        (&[(Mpls(2), "0/1")], &mpls, false),
    ] {
        assert_eq!(matches(fields, packet), expected, "{fields:?}");
    }
    for text in ["", "1/0", "4096", "x", "1:2", "0x/3"] {
        assert_eq!(CvlanId.parse(text), None, "{text}");
    }
}

/// Bits that a mask leaves out are shown as they were given, and make no other match
/// (`fl_set_key_val`, `fl_set_masked_key`).
#[test]
fn bits_that_do_not_count_are_kept() {
    let of = |text: &str| Flower {
        fields: vec![FlowerField::SrcMac.parse(text).unwrap()],
        ..Flower::default()
    };
    let text = "02:00:00:00:00:02/ff:ff:ff:00:00:00";
    let one = of(text);
    assert_eq!(one.fields[0].to_string(), "0x20000000002/0xffffff000000");
    assert!(one.is_same(&of("02:00:00:00:00:03/ff:ff:ff:00:00:00")));
    assert!(!one.is_same(&of("02:00:01:00:00:02/ff:ff:ff:00:00:00")));
    assert!(!one.is_same(&of("02:00:00:00:00:02")));
    let pool = pool(4);
    let other = packet(&pool, &[&IP, &ipv4(6, [0, 0]), &tcp(2)]);
    assert!(matches(&[(FlowerField::SrcMac, text)], &other));
    // Parts of what has several are there or not.
    let flags = FieldMatch::new(FlowerField::IpFlags, 3, 1);
    assert_eq!((flags.value, flags.mask), (1, 1));
}

/// As the kernel, which goes from left to right: what decides ends the list.
#[test]
fn expressions_are_joined_by_and_and_or() {
    let pool = pool(4);
    let packet = packet(&pool, &[&IP, &ipv4(6, [0, 0]), &tcp(2)]);
    let test = |holds: bool| Test::Priority(Compare::Eq, u32::from(!holds));
    let one = |holds: bool, or: bool| Ematch {
        negated: false,
        or,
        test: test(holds),
    };
    let group = |list: Vec<Ematch>, or: bool| Ematch {
        negated: false,
        or,
        test: Test::Group(list),
    };
    let bytes = |at, needle: &[u8], layer| Ematch {
        negated: false,
        or: false,
        test: Test::Bytes {
            at,
            layer,
            needle: needle.to_vec(),
        },
    };
    let meta = |id, shift, mask, value| Ematch {
        negated: false,
        or: false,
        test: Test::Meta {
            id,
            shift,
            mask,
            compare: Compare::Eq,
            value,
        },
    };
    for (list, expected) in [
        (vec![one(false, true), one(true, false)], true),
        (vec![one(true, true), one(false, false)], true),
        (
            vec![one(false, false), one(true, true), one(true, false)],
            false,
        ),
        (
            vec![
                one(true, false),
                group(vec![one(false, true), one(true, false)], false),
            ],
            true,
        ),
        (
            vec![
                group(vec![one(true, false), one(false, false)], true),
                one(false, false),
            ],
            false,
        ),
        (vec![bytes(12, &[10, 0, 0, 1], Layer::Network)], true),
        (vec![bytes(2, &[0, 53], Layer::Transport)], true),
        (vec![bytes(0, &[2, 0], Layer::Link)], true),
        (vec![bytes(400, &[0], Layer::Network)], false),
        (vec![meta(MetaId::PktLen, 0, 0, 54)], true),
        (vec![meta(MetaId::PktLen, 1, 0xf, 11)], true),
        (vec![meta(MetaId::VlanTag, 0, 0, 0)], false),
    ] {
        let mut filters = FilterList::default();
        let kind = FilterKind::Basic(list.clone());
        filters
            .put(FilterOp::Add, FilterSpec::new(kind, Handle::new(1, 1)))
            .unwrap();
        let class = Classified::Class(Handle::new(1, 1));
        assert_eq!(
            filters.filters().try_on(&packet) == class,
            expected,
            "{list:?}"
        );
    }
    let mut deep = vec![one(true, false)];
    for _ in 0..40 {
        deep = vec![group(deep, false)];
    }
    let mut filters = FilterList::default();
    let deep = FilterSpec::new(FilterKind::Basic(deep), Handle::new(1, 1));
    assert_eq!(
        filters.put(FilterOp::Add, deep),
        Err(FilterError::Expressions)
    );
}

/// `pkt_len` is `skb->len`, which begins behind the Ethernet header where a packet arrives.
#[test]
fn a_packet_is_shorter_where_it_arrives() {
    let pool = pool(4);
    let mut packet = packet(&pool, &[&IP, &ipv4(6, [0, 0]), &tcp(2)]);
    let length = Test::Meta {
        id: MetaId::PktLen,
        shift: 0,
        mask: 0,
        compare: Compare::Eq,
        value: 40,
    };
    let length = Ematch {
        negated: false,
        or: false,
        test: length,
    };
    let kind = FilterKind::Basic(vec![length]);
    let class = Handle::new(1, 1);
    let mut list = FilterList::default();
    list.put(FilterOp::Add, FilterSpec::new(kind, class))
        .unwrap();
    let mut cx = softnet::qdisc::Cx::new(&pool);
    for (arriving, expected) in [(true, Classified::Class(class)), (false, Classified::None)] {
        cx.arriving = arriving;
        let classified = list.filters().classify(&mut packet, &mut cx);
        assert_eq!(classified, expected);
    }
}
