//! The options of filters: what is shown is what was asked for, and nothing that is asked makes
//! the reader panic.

use proptest::prelude::*;
use softnet_tc::{
    Action, ActionSpec, BucketKey, Compare, Control, ETH_P_ALL, ETH_P_IP, ETH_P_IPV6, Ematch,
    FieldMatch, FilterKind, FilterList, FilterSpec, FilterStats, Flower, FlowerField, Indev,
    IndevTable, Key, Layer, MetaId, Offset, Prefix, Test, U32, Width,
};

use super::*;
use crate::nl::headers::TcMsg;
use crate::nl::{Attr, Message, Request};
use crate::tc::RTM_NEWTFILTER;
use crate::tc::actions::{Parsed, ShownAt};
use crate::testing::message;

/// Reads the options that `put` writes.
fn with_options<T>(
    put: impl FnOnce(&mut Message<'_>),
    f: impl FnOnce(Option<Attr<'_>>) -> T,
) -> T {
    let messages = message(RTM_NEWTFILTER, 0, &TcMsg::default(), put);
    let request = Request::read(messages.as_bytes()).unwrap();
    let mut attrs = request.attr_iter::<TcMsg>().unwrap();
    f(attrs.find(|attr| attr.kind() == TCA_OPTIONS))
}

fn which(spec: &FilterSpec) -> Which<'static> {
    Which {
        home: super::Home::Link(1, spec.parent),
        key: spec.key(),
        protocol: spec.protocol,
        kind: None,
    }
}

fn prefix() -> impl Strategy<Value = (bool, u128, u8, u8)> {
    (any::<bool>(), any::<u128>(), 1..=32_u8, 1..=128_u8)
}

/// A link that is there.
fn received() -> Indev {
    IndevTable::default().add("a", Some((1, Some(0))))
}

/// Matches as `tc` can say them.
fn flower() -> impl Strategy<Value = (u16, Flower)> {
    let is_v6 = any::<bool>();
    let addresses = (prop::option::of(prefix()), prop::option::of(prefix()));
    let port = || prop::option::of(any::<std::ops::Range<u16>>());
    let ports = (prop::option::of(any::<bool>()), port(), port());
    let tos = prop::option::of((any::<u8>(), 1..=u8::MAX));
    let vlan = prop::option::of((prop::option::of(0..4096_u16), prop::option::of(0..8_u8)));
    let all = (is_v6, addresses, ports, tos, vlan, any::<bool>());
    all.prop_map(
        |(is_v6, (src, dst), (proto, sport, dport), tos, vlan, is_all)| {
            // `protocol all` says nothing of IP headers, unless an address does.
            let is_ip = !is_all || vlan.is_some() || src.is_some() || dst.is_some();
            let (ip_tos, proto) = (tos.filter(|_| is_ip), proto.filter(|_| is_ip));
            let ttl = ip_tos;
            let prefix = |(_, bits, v4, v6): (bool, u128, u8, u8)| match is_v6 {
                true => Prefix::new(std::net::Ipv6Addr::from(bits).into(), v6),
                false => Prefix::new(std::net::Ipv4Addr::from(bits as u32).into(), v4),
            };
            let ports = |ports: std::ops::Range<u16>| ports.start..=ports.end.max(ports.start);
            let network = if is_v6 { ETH_P_IPV6 } else { ETH_P_IP };
            let flower = Flower {
                indev: is_all.then(received),
                vlan_id: vlan.and_then(|(id, _)| id),
                vlan_prio: vlan.and_then(|(_, prio)| prio),
                vlan_ethtype: vlan.map(|_| network),
                src_ip: src.and_then(prefix),
                dst_ip: dst.and_then(prefix),
                ip_proto: proto.map(|is_udp| if is_udp { 17 } else { 6 }),
                ip_tos,
                src_port: proto.and(sport).map(ports),
                dst_port: proto.and(dport).map(ports),
                mark: None,
                fields: ttl
                    .map(|(ttl, mask)| {
                        FieldMatch::new(FlowerField::IpTtl, ttl.into(), mask.into())
                    })
                    .into_iter()
                    .filter(|of| of.mask != 0)
                    .collect(),
            };
            let protocol = match vlan {
                Some(_) => 0x8100,
                None if is_all => ETH_P_ALL,
                None => network,
            };
            (protocol, flower)
        },
    )
}

fn key() -> impl Strategy<Value = Key> {
    let next = prop::sample::select(vec![0, u32::MAX]);
    let words = (any::<u32>(), any::<u32>(), -4..16_383_i32, next);
    words.prop_map(|(value, mask, word, next)| Key {
        value,
        mask,
        at: word * 4,
        next,
    })
}

fn keys() -> impl Strategy<Value = U32> {
    let mark = prop::option::of((any::<u32>(), any::<u32>()));
    let link = prop::option::of((1..0x800_u32).prop_map(|table| table << 20));
    let numbers = any::<((i16, u32), (u16, i16, u16, u8), [bool; 4])>();
    let all = (prop::collection::vec(key(), 0..20), mark, link, numbers);
    all.prop_map(|(keys, mark, link, numbers)| {
        let (bucket, (plus, at, mask, shift), [leads, is_on, is_variable, eat]) = numbers;
        U32 {
            keys,
            mark,
            indev: is_on.then(received),
            leads,
            link,
            bucket: BucketKey {
                at: bucket.0,
                mask: bucket.1,
            },
            offset: Offset {
                is_on,
                plus,
                is_variable,
                at,
                mask,
                shift,
                eat,
            },
        }
    })
}

fn compare() -> impl Strategy<Value = Compare> {
    prop::sample::select(vec![Compare::Eq, Compare::Lt, Compare::Gt])
}

fn ematch() -> impl Strategy<Value = Ematch> {
    let width = prop::sample::select(vec![Width::One, Width::Two, Width::Four]);
    let layer = prop::sample::select(vec![Layer::Link, Layer::Network, Layer::Transport]);
    let cmp = (
        width,
        layer,
        any::<u16>(),
        any::<u32>(),
        compare(),
        any::<u32>(),
    );
    let cmp = cmp.prop_map(|(width, layer, at, mask, compare, value)| Test::Cmp {
        width,
        at,
        layer,
        mask,
        compare,
        value,
        trans: value % 3 == 0,
    });
    let mark = (1_u32.., compare(), any::<u32>());
    let test = prop_oneof![
        cmp,
        key().prop_map(Test::Word),
        (compare(), any::<u32>()).prop_map(|(compare, value)| Test::Priority(compare, value)),
        mark.prop_map(|(mask, compare, value)| Test::Mark {
            mask,
            compare,
            value
        }),
    ];
    let bytes = prop::collection::vec(any::<u8>(), 1..5);
    let bytes = (any::<u16>(), bytes).prop_map(|(at, needle)| Test::Bytes {
        at,
        layer: Layer::Transport,
        needle,
    });
    let id = prop::sample::select(MetaId::ALL.to_vec());
    let meta = (id, 0..32_u8, any::<u32>(), compare(), any::<u32>());
    let meta = meta.prop_map(|((id, ..), shift, mask, compare, value)| Test::Meta {
        id,
        shift,
        // All bits have no mask.
        mask: if mask == u32::MAX { 0 } else { mask },
        compare,
        value,
    });
    let test = prop_oneof![3 => test, 1 => bytes, 1 => meta];
    let one = (any::<bool>(), test);
    let one = one.prop_map(|(negated, test)| Ematch {
        negated,
        or: false,
        test,
    });
    let group = |inner| {
        let inner = prop::collection::vec(inner, 1..3);
        (any::<bool>(), inner).prop_map(|(negated, inner)| Ematch {
            negated,
            or: false,
            test: Test::Group(joined(inner)),
        })
    };
    one.prop_recursive(3, 12, 3, group)
}

/// The last of a list is joined to nothing.
fn joined(mut list: Vec<Ematch>) -> Vec<Ematch> {
    let last = list.len().saturating_sub(1);
    for (n, ematch) in list.iter_mut().enumerate() {
        ematch.or = n < last && ematch.negated;
    }
    list
}

fn kind() -> impl Strategy<Value = (u16, FilterKind)> {
    let ip = |kind| (ETH_P_IP, kind);
    prop_oneof![
        3 => flower().prop_map(|(protocol, flower)| (protocol, FilterKind::Flower(flower))),
        2 => keys().prop_map(move |keys| ip(FilterKind::U32(keys))),
        2 => prop::collection::vec(ematch(), 0..10)
            .prop_map(move |all| ip(FilterKind::Basic(joined(all)))),
        1 => Just(ip(FilterKind::Matchall)),
        1 => any::<u32>().prop_map(move |mask| ip(FilterKind::Fw {
            mask,
            indev: (mask & 1 == 0).then(received),
        })),
    ]
}

/// Actions that cannot be asked for as they are shown: requests have tables of rates, which are
/// not shown (`tcf_police_dump`).
const RATES: [&str; 2] = [
    "police rate 1mbit burst 10k conform-exceed drop/pipe overhead 4",
    "police rate 40gbit burst 1m mtu 9000 peakrate 80gbit",
];

/// A filter, with [`RATES`] as well.
fn any_spec() -> impl Strategy<Value = FilterSpec> {
    let rate = prop::sample::select(RATES.to_vec());
    (spec(), prop::option::of(rate)).prop_map(|(spec, rate)| {
        let rate = rate.map(|text| Action::new(text.parse().unwrap()));
        let actions = spec.actions.as_slice().iter().cloned().chain(rate);
        FilterSpec {
            actions: actions.collect(),
            ..spec
        }
    })
}

fn spec() -> impl Strategy<Value = FilterSpec> {
    let words = [
        "drop random determ pass 4",
        "police pkts_rate 1000 pkts_burst 100 mtu 9000",
        "skbedit mark 3/0xf0 priority 1:2 queue_mapping skbhash 2 5",
        "skbedit ptype otherhost inheritdsfield",
        "vlan push id 5 protocol 802.1ad priority 3",
        "vlan push_eth dst_mac 2:0:0:0:0:1 src_mac 2:0:0:0:0:2",
        "vlan pop",
        "pedit ex munge ip offset 8 set 0x3f000000/0xffffff munge tcp offset 0 add 1/0",
        "pedit munge offset 0 at 3 0xf 2 set 1/0",
        "csum ip4h tcp pipe",
        "skbmod set dmac 2:0:0:0:0:9 set etype 0x1234 drop",
        "skbmod swap mac",
        "mirred ingress mirror blockid 3",
        "simple sdata \"a b\" jump 2 cookie a1b2",
    ];
    let control = prop_oneof![
        Just(Control::Pass),
        Just(Control::Drop),
        Just(Control::Continue),
        Just(Control::Reclassify),
        Just(Control::Trap),
        (0..1_u32 << 28).prop_map(Control::Jump),
        (0..1_u32 << 28).prop_map(Control::Goto),
    ];
    let action = prop_oneof![
        control.prop_map(ActionSpec::from),
        prop::sample::select(words.to_vec()).prop_map(|text| text.parse().unwrap()),
    ];
    let action = prop::collection::vec(action, 0..4);
    let class = prop::option::of(1..=u32::MAX);
    let key = (any::<u32>(), 1..=u16::MAX, any::<u32>());
    let all = (kind(), action, class, key);
    all.prop_map(
        |((protocol, kind), action, class, (chain, prio, handle))| FilterSpec {
            parent: Handle::new(1, 0),
            chain,
            prio,
            protocol,
            handle: match kind {
                // That of a table is 0x800 at least, and not 0xfff.
                FilterKind::U32(_) => 0x8000_0800 | handle & 0x7fe0_07ff,
                _ => handle,
            },
            kind,
            class: class.map(Handle::from_raw),
            actions: action.into_iter().map(Action::new).collect(),
            skip_hw: false,
        },
    )
}

/// The kernel reads keys of IP headers for IP alone, and takes a number of tags for their
/// EtherTypes.
#[test]
fn keys_of_ip_headers_are_for_ip() {
    let ttl = FieldMatch::new(FlowerField::IpTtl, 4, 0xff);
    let tags = FieldMatch::new(FlowerField::NumOfVlans, 2, 0xff);
    let flower = |fields: &[FieldMatch]| Flower {
        ip_tos: Some((4, 0xff)),
        ip_proto: Some(6),
        src_port: Some(80..=80),
        fields: fields.to_vec(),
        ..Flower::default()
    };
    let rest = |fields: &[FieldMatch]| Flower {
        fields: fields.to_vec(),
        ..Flower::default()
    };
    let ip = flower(&[ttl]);
    let mut second = [tags, FieldMatch::new(FlowerField::CvlanId, 5, 0xfff)];
    second.sort();
    for (protocol, asked, read) in [
        (0x8100, rest(&second), rest(&second)),
        (ETH_P_IP, ip.clone(), ip.clone()),
        (ETH_P_ALL, ip, rest(&[])),
        (ETH_P_IP, flower(&[tags, ttl]), rest(&[tags])),
    ] {
        let spec = FilterSpec {
            protocol,
            ..FilterSpec::new(FilterKind::Flower(asked), Handle::new(1, 0))
        };
        let stats = FilterStats::default();
        let shown = |out: &mut Message<'_>| kinds::dump(&spec, &stats, &ShownAt::default(), out);
        let parsed = with_options(shown, |options| {
            let list = FilterList::default();
            let parsed = kinds::parse("flower", options, &which(&spec), None, &list);
            parsed.map(|parsed| parsed.kind)
        });
        assert_eq!(parsed.ok(), Some(FilterKind::Flower(read)), "{protocol:#x}");
    }
}

/// The marks are classes of the qdisc, which a block has not.
#[test]
fn fw_without_options_is_at_a_qdisc_alone() {
    let list = FilterList::default();
    let parse = |home| {
        let spec = FilterSpec::new(FilterKind::FwClass, Handle::new(1, 0));
        let mut which = which(&spec);
        which.home = home;
        kinds::parse("fw", None, &which, None, &list).map(|parsed| parsed.kind)
    };
    let link = Home::Link(1, Handle::new(1, 0));
    assert_eq!(parse(link).ok(), Some(FilterKind::FwClass));
    let refused = parse(Home::Block(1)).err();
    assert_eq!(refused.map(|error| error.errno), Some(Errno::EINVAL));
}

proptest! {
    #[test]
    fn what_is_shown_is_what_was_asked_for(spec in spec(), counts in any::<[u64; 4]>()) {
        let [tried, matched, packets, bytes] = counts;
        let stats = FilterStats { tried, matched, packets, bytes, held: vec![matched; 7] };
        let shown = |out: &mut Message<'_>| kinds::dump(&spec, &stats, &ShownAt::default(), out);
        let parsed = with_options(shown, |options| {
            let list = FilterList::default();
            kinds::parse(spec.kind.name(), options, &which(&spec), Some(&spec), &list)
        });
        let parsed = parsed.unwrap();
        prop_assert_eq!(parsed.kind, spec.kind.clone());
        prop_assert_eq!(parsed.effect.class, spec.class);
        let read: Vec<_> = parsed.effect.actions.iter().map(Parsed::parts).collect();
        let asked = spec.actions.as_slice().iter().map(|action| {
            let spec = action.spec();
            (spec.kind.clone(), spec.control, spec.cookie.clone())
        });
        prop_assert_eq!(read, asked.collect::<Vec<_>>());
        prop_assert_eq!(parsed.handle, spec.handle);
    }

    /// Shown options, with some bytes changed and cut short, are read or refused.
    #[test]
    fn anything_may_be_in_options(
        spec in any_spec(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let stats = FilterStats::default();
        let mut bytes = with_options(
            |out| kinds::dump(&spec, &stats, &ShownAt::default(), out),
            |options| options.unwrap().data.to_vec(),
        );
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(cut.index(bytes.len() + 1));
        for kind in ["flower", "u32", "basic", "matchall", "fw"] {
            let put = |out: &mut Message<'_>| out.put_bytes(TCA_OPTIONS, &bytes);
            let _ = with_options(put, |options| {
                let list = FilterList::default();
                kinds::parse(kind, options, &which(&spec), Some(&spec), &list)
            });
        }
    }
}
