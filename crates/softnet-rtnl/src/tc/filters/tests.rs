//! The options of filters: what is shown is what was asked for, and nothing that is asked makes
//! the reader panic.

use proptest::prelude::*;
use softnet_tc::{
    Compare, ETH_P_ALL, ETH_P_IP, ETH_P_IPV6, Ematch, FilterAction, FilterKind, FilterSpec,
    FilterStats, Flower, Key, Layer, Prefix, Test, U32, Width,
};

use super::*;
use crate::nl::headers::TcMsg;
use crate::nl::{Attr, Message, Request};
use crate::tc::RTM_NEWTFILTER;
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
        link: 1,
        parent: spec.parent,
        key: spec.key(),
        protocol: spec.protocol,
        kind: None,
    }
}

fn prefix() -> impl Strategy<Value = (bool, u128, u8, u8)> {
    (any::<bool>(), any::<u128>(), 1..=32_u8, 1..=128_u8)
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
        |(is_v6, (src, dst), (proto, sport, dport), ip_tos, vlan, is_all)| {
            let prefix = |(_, bits, v4, v6): (bool, u128, u8, u8)| match is_v6 {
                true => Prefix::new(std::net::Ipv6Addr::from(bits).into(), v6),
                false => Prefix::new(std::net::Ipv4Addr::from(bits as u32).into(), v4),
            };
            let ports = |ports: std::ops::Range<u16>| ports.start..=ports.end.max(ports.start);
            let network = if is_v6 { ETH_P_IPV6 } else { ETH_P_IP };
            let flower = Flower {
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
    let words = (any::<u32>(), any::<u32>(), -4..16_383_i32);
    words.prop_map(|(value, mask, word)| Key {
        value,
        mask,
        at: word * 4,
    })
}

fn keys() -> impl Strategy<Value = U32> {
    let mark = prop::option::of((any::<u32>(), any::<u32>()));
    (prop::collection::vec(key(), 0..20), mark).prop_map(|(keys, mark)| U32 { keys, mark })
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
    (any::<bool>(), test).prop_map(|(negated, test)| Ematch { negated, test })
}

fn kind() -> impl Strategy<Value = (u16, FilterKind)> {
    let ip = |kind| (ETH_P_IP, kind);
    prop_oneof![
        3 => flower().prop_map(|(protocol, flower)| (protocol, FilterKind::Flower(flower))),
        2 => keys().prop_map(move |keys| ip(FilterKind::U32(keys))),
        2 => prop::collection::vec(ematch(), 0..10).prop_map(move |all| ip(FilterKind::Basic(all))),
        1 => Just(ip(FilterKind::Matchall)),
        1 => any::<u32>().prop_map(move |mask| ip(FilterKind::Fw { mask })),
    ]
}

fn spec() -> impl Strategy<Value = FilterSpec> {
    let action = prop_oneof![
        Just(FilterAction::Pass),
        Just(FilterAction::Drop),
        Just(FilterAction::Continue),
        Just(FilterAction::Reclassify),
        (0..1_u32 << 28).prop_map(FilterAction::Goto),
    ];
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
            action,
        },
    )
}

proptest! {
    #[test]
    fn what_is_shown_is_what_was_asked_for(spec in spec(), counts in any::<[u64; 4]>()) {
        let [tried, matched, packets, bytes] = counts;
        let stats = FilterStats { tried, matched, packets, bytes, held: vec![matched; 7] };
        let shown = |out: &mut Message<'_>| kinds::dump(&spec, &stats, out);
        let parsed = with_options(shown, |options| {
            kinds::parse(spec.kind.name(), options, &which(&spec), Some(&spec))
        });
        let parsed = parsed.unwrap();
        let effect = action::Effect { class: spec.class, action: spec.action };
        prop_assert_eq!(parsed.kind, spec.kind.clone());
        prop_assert_eq!(parsed.effect, effect);
        // The table of `u32` goes without saying.
        let node = matches!(spec.kind, FilterKind::U32(_)).then_some(0xfff);
        prop_assert_eq!(parsed.handle, spec.handle & node.unwrap_or(u32::MAX));
    }

    /// Shown options, with some bytes changed and cut short, are read or refused.
    #[test]
    fn anything_may_be_in_options(
        spec in spec(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let stats = FilterStats::default();
        let mut bytes = with_options(
            |out| kinds::dump(&spec, &stats, out),
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
                kinds::parse(kind, options, &which(&spec), Some(&spec))
            });
        }
    }
}
