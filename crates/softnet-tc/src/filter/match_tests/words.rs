//! Words that `u32` and `basic` look at.

use super::*;

#[test]
fn u32_looks_at_words() {
    let pool = pool(8);
    let inner = [ipv4(0xb8, 7, 17, 0), ports(1, 53)].concat();
    let plain = packet(&pool, &[&IP, &inner]);
    let tagged = packet(&pool, &[&[0x81, 0, 0, 7], &IP, &inner]);
    let mut marked = packet(&pool, &[&IP, &inner]);
    marked.set_mark(0x25);
    let kind = |keys: &[(u32, u32, i32)], mark| {
        let keys = keys.iter();
        let keys = keys.map(|&(value, mask, at)| Key {
            value,
            mask,
            at,
            next: 0,
        });
        FilterKind::U32(U32 {
            keys: keys.collect(),
            mark,
            ..U32::default()
        })
    };
    let ethertype = (0x0800, 0xffff, -4);
    for (kind, expected) in [
        (kind(&[], None), [1, 1, 1]),
        (kind(&[(0x45b8_0000, 0xffff_0000, 0)], None), [1, 1, 1]),
        (kind(&[(0x0a00_0001, u32::MAX, 12)], None), [1, 1, 1]),
        (kind(&[(0x0a00_0001, 0xffff_0000, 12)], None), [1, 1, 1]),
        (kind(&[(53, 0xffff, 20)], None), [1, 1, 1]),
        (
            kind(&[(53, 0xffff, 20), (6 << 16, 0xff_0000, 8)], None),
            [0, 0, 0],
        ),
        // The addresses are 02:00:00:00:00:0b and 02:00:00:00:00:0a.
        (
            kind(&[(0x0200, 0xffff, -16), (0xb, u32::MAX, -12)], None),
            [1, 1, 1],
        ),
        (
            kind(&[(0x0200_0000, u32::MAX, -8), ethertype], None),
            [1, 1, 1],
        ),
        (kind(&[(0x000a_0000, 0xffff_0000, -4)], None), [1, 1, 1]),
        // The last word, and one that is not whole.
        (kind(&[(0, 0, 36)], None), [1, 1, 1]),
        (kind(&[(0, 0, 40)], None), [0, 0, 0]),
        (kind(&[], Some((0x125, 0xff))), [0, 0, 1]),
    ] {
        let hits = [&plain, &tagged, &marked].map(|p| u8::from(matches(&kind, ETH_P_ALL, p)));
        assert_eq!(hits, expected, "{kind:?}");
    }
    // What is in another segment is found.
    let mut chained = packet(&pool, &[&IP, &inner[..21]]);
    let mut rest = pool.alloc().unwrap();
    assert!(rest.append(&inner[21..]));
    chained.append_segment(rest);
    let both = kind(&[(53, 0xffff, 20), (0x0001_0035, u32::MAX, 20)], None);
    assert!(matches(&both, ETH_P_ALL, &chained));
}

/// As in the kernel: no further filter of the priority is tried, but those of the next.
#[test]
fn a_u32_key_beyond_the_packet_ends_the_priority() {
    let pool = pool(4);
    let short = packet(&pool, &[&IP, &ipv4(0, 7, 17, 0)]);
    let word = |at| {
        let key = Key {
            value: 0,
            mask: 0,
            at,
            next: 0,
        };
        FilterKind::U32(U32 {
            keys: vec![key],
            ..U32::default()
        })
    };
    for (first, class) in [(16, 1), (20, 3)] {
        let mut list = FilterList::default();
        for (prio, at, class) in [(1, first, 1), (1, 0, 2), (2, 0, 3)] {
            let filter = FilterSpec {
                prio,
                ..FilterSpec::new(word(at), Handle::new(1, class))
            };
            list.put(FilterOp::Add, filter).unwrap();
        }
        let expected = Classified::Class(Handle::new(1, class));
        assert_eq!(list.filters().try_on(&short), expected);
        let tried: Vec<u64> = list.shown().map(|(_, stats)| stats.tried).collect();
        assert_eq!(tried, [1, 0, u64::from(class == 3)]);
    }
}

#[test]
fn basic_evaluates_expressions() {
    let pool = pool(4);
    let mut dns = packet(&pool, &[&IP, &ipv4(0xb8, 7, 17, 0), &ports(1000, 53)]);
    dns.set_priority(6);
    let mut v6 = packet(&pool, &[&IPV6, &ipv6(17, &[]), &ports(1000, 53)]);
    v6.set_mark(0x12);
    let arp = frame(&pool, 1, 2, 60, 0);
    let cmp = |width, at, layer, mask, compare, value| Test::Cmp {
        width,
        at,
        layer,
        mask,
        compare,
        value,
        trans: false,
    };
    let port = || cmp(Width::Two, 2, Layer::Transport, 0, Compare::Eq, 53);
    let (mask, value) = (0xf0, 0x10);
    let compare = Compare::Eq;
    for (all, expected) in [
        (vec![], [1, 1, 1]),
        (vec![(false, port())], [1, 1, 0]),
        (vec![(true, port())], [0, 0, 1]),
        (
            vec![(
                false,
                cmp(Width::One, 0, Layer::Network, 0xf0, Compare::Lt, 0x60),
            )],
            [1, 0, 1],
        ),
        (
            vec![(
                false,
                cmp(Width::Four, 10, Layer::Link, 0, Compare::Gt, 0x9_0800),
            )],
            [1, 1, 0],
        ),
        (
            vec![(false, Test::Priority(Compare::Gt, 5)), (false, port())],
            [1, 0, 0],
        ),
        (
            vec![(
                false,
                Test::Mark {
                    mask,
                    compare,
                    value,
                },
            )],
            [0, 1, 0],
        ),
        (
            vec![(
                false,
                Test::Word(Key {
                    value: 0x11_0000,
                    mask: 0xff_0000,
                    at: 8,
                    next: 0,
                }),
            )],
            [1, 0, 0],
        ),
        // Behind the end there is no number: neither this nor that.
        (
            vec![(
                false,
                cmp(Width::One, 60, Layer::Link, 0, Compare::Lt, 1000),
            )],
            [0, 1, 0],
        ),
    ] {
        let all = all.into_iter().map(|(negated, test)| Ematch {
            negated,
            or: false,
            test,
        });
        let kind = FilterKind::Basic(all.collect());
        let hits = [&dns, &v6, &arp].map(|p| u8::from(matches(&kind, ETH_P_ALL, p)));
        assert_eq!(hits, expected, "{kind:?}");
    }
}
