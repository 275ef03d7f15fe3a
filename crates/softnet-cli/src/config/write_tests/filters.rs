//! Any filter.

use proptest::prelude::*;
use softnet_tc::{
    Action, ActionSpec, Compare, Control, ETH_P_ALL, Ematch, FieldMatch, FilterKind, FilterSpec,
    Flower, FlowerField, Handle, Indev, Key, Layer, MetaId, Prefix, Test, U32, Width,
};

use super::kinds::number;

fn key() -> impl Strategy<Value = Key> {
    let at = (-4..16_383_i32).prop_map(|word| 4 * word);
    (any::<u32>(), any::<u32>(), at).prop_map(|(value, mask, at)| Key {
        value,
        mask,
        at,
        next: 0,
    })
}

fn ematch() -> impl Strategy<Value = Ematch> {
    let compare = || prop_oneof![Just(Compare::Eq), Just(Compare::Lt), Just(Compare::Gt)];
    let width = prop_oneof![Just(Width::One), Just(Width::Two), Just(Width::Four)];
    let layer = prop_oneof![
        Just(Layer::Link),
        Just(Layer::Network),
        Just(Layer::Transport)
    ];
    let numbers = (any::<u16>(), number(), number());
    let cmp = (width, layer, compare(), numbers).prop_map(|(width, layer, compare, numbers)| {
        Test::Cmp {
            width,
            at: numbers.0,
            layer,
            mask: numbers.1,
            compare,
            value: numbers.2,
            trans: numbers.2 % 3 == 0,
        }
    });
    let mark = (number(), compare(), number());
    let mark = mark.prop_map(|(mask, compare, value)| Test::Mark {
        mask,
        compare,
        value,
    });
    let test = prop_oneof![
        cmp,
        key().prop_map(Test::Word),
        (compare(), number()).prop_map(|(compare, value)| Test::Priority(compare, value)),
        mark,
    ];
    let bytes = prop::collection::vec(any::<u8>(), 1..5);
    let bytes = (any::<u16>(), bytes).prop_map(|(at, needle)| Test::Bytes {
        at,
        layer: Layer::Transport,
        needle,
    });
    let id = prop::sample::select(MetaId::ALL.to_vec());
    let meta = (id, 0..32_u8, number(), compare(), number());
    let meta = meta.prop_map(|((id, ..), shift, mask, compare, value)| Test::Meta {
        id,
        shift,
        mask,
        compare,
        value,
    });
    let test = prop_oneof![3 => test, 1 => bytes, 1 => meta];
    let one = (any::<bool>(), any::<bool>(), test);
    let one = one.prop_map(|(negated, or, test)| Ematch { negated, or, test });
    let group = |inner| {
        let inner = prop::collection::vec(inner, 1..3);
        (any::<bool>(), any::<bool>(), inner).prop_map(|(negated, or, inner)| Ematch {
            negated,
            or,
            test: Test::Group(joined(inner)),
        })
    };
    one.prop_recursive(3, 12, 3, group)
}

/// The last of a list is joined to nothing.
fn joined(mut list: Vec<Ematch>) -> Vec<Ematch> {
    if let Some(last) = list.last_mut() {
        last.or = false;
    }
    list
}

fn flower() -> impl Strategy<Value = Flower> {
    let ports = || {
        let ports = prop::option::of((any::<u16>(), any::<u16>()));
        ports.prop_map(|ports| ports.map(|(a, b)| a.min(b)..=a.max(b)))
    };
    let v4 = (any::<[u8; 4]>(), 0..=32_u8).prop_map(|(a, len)| Prefix::new(a.into(), len));
    let v6 = (any::<[u8; 16]>(), 0..=128_u8).prop_map(|(a, len)| Prefix::new(a.into(), len));
    let prefix = prop_oneof![Just(None), v4, v6];
    let vlan = (prop::option::of(0..4096_u16), prop::option::of(0..8_u8));
    let mark = prop::option::of(any::<(u32, u32)>());
    let tos = prop::option::of(any::<(u8, u8)>());
    (vlan, prefix, tos, ports(), ports(), mark).prop_map(|(vlan, prefix, tos, src, dst, mark)| {
        Flower {
            indev: vlan.1.map(|_| Indev::new("a")),
            vlan_id: vlan.0,
            vlan_prio: vlan.1,
            vlan_ethtype: None,
            src_ip: None,
            dst_ip: prefix,
            ip_proto: Some(17),
            ip_tos: tos,
            src_port: src,
            dst_port: dst,
            mark,
            fields: FlowerField::all()
                .filter(|field| u64::from(vlan.0.unwrap_or(7)) & field.ones() & 5 == 1)
                .map(|field| FieldMatch::new(field, 0x1234_5678_9abc, 0xff_00ff))
                .collect(),
        }
    })
}

pub(super) fn filter() -> impl Strategy<Value = FilterSpec> {
    let mark = prop::option::of(any::<(u32, u32)>());
    let u32 = (prop::collection::vec(key(), 0..3), mark);
    let u32 = u32.prop_map(|(keys, mark)| {
        FilterKind::U32(U32 {
            keys,
            mark,
            indev: mark.map(|_| Indev::new("b")),
            ..U32::default()
        })
    });
    let kind = prop_oneof![
        2 => flower().prop_map(FilterKind::Flower),
        2 => u32,
        2 => prop::collection::vec(ematch(), 0..3)
            .prop_map(|list| FilterKind::Basic(joined(list))),
        1 => Just(FilterKind::Matchall),
        1 => (1..4_u32).prop_map(|mask| FilterKind::Fw {
            mask,
            indev: (mask == 2).then(|| Indev::new("c")),
        }),
    ];
    let words = [
        "skbedit mark 3/0xf0 priority 1:2",
        "mirred egress redirect dev a",
        "police rate 1mbit burst 10k conform-exceed drop/pipe",
        "police avrate 1mbit estimator 1s 8s",
        "vlan push id 5",
        "csum ip4h tcp pipe",
        "pedit ex munge ip offset 8 set 0x3f000000/0xffffff",
        "simple sdata \"a b\" cookie a1",
    ];
    let control = prop_oneof![
        Just(Control::Pass),
        Just(Control::Drop),
        Just(Control::Continue),
        Just(Control::Reclassify),
        (0..4_u32).prop_map(Control::Goto),
    ];
    let action = prop_oneof![
        control.prop_map(ActionSpec::from),
        prop::sample::select(words.to_vec()).prop_map(|text| text.parse().expect("an action")),
    ];
    let action = prop::collection::vec(action, 0..4);
    let protocol = prop_oneof![Just(ETH_P_ALL), Just(0x8100), Just(0x88a8)];
    let number = (0..3_u32, 0..6_u16, 0..20_u32, 0..6_u16);
    (kind, action, protocol, number).prop_map(|(kind, action, protocol, number)| {
        let handle = match kind {
            FilterKind::Matchall | FilterKind::U32(_) => 0,
            _ => number.2,
        };
        FilterSpec {
            chain: number.0,
            prio: number.1,
            protocol,
            handle,
            actions: action.into_iter().map(Action::new).collect(),
            ..FilterSpec::new(kind, Handle::new(1, number.3))
        }
    })
}
