//! Filters as tables of a file, and what is said of wrong ones.

use super::super::parse_tree;
use super::*;
use softnet_tc::{Compare, Control, Ematch, Layer, QdiscSpec, Test, Width};

/// The filter that a table makes, or what is said of it.
pub(in super::super) fn read(filter: &str) -> Result<FilterSpec, String> {
    let text = format!("[[qdisc]]\nhandle = \"1:\"\nkind = \"prio\"\n[[filter]]\n{filter}\n");
    match parse_tree("x.toml", &text) {
        Ok(QdiscSpec::Tree(tree)) => Ok(tree.filters().next().expect("a filter").clone()),
        Ok(other) => panic!("{other:?}"),
        Err(error) => Err(error.to_string()),
    }
}

fn kind(filter: &str) -> FilterKind {
    read(&format!("flowid = \"1:1\"\n{filter}"))
        .expect(filter)
        .kind
}

/// As tc does (`pack_key`): shorter keys are parts of words.
#[test]
fn keys_of_u32_are_words() {
    for (text, value, mask, at) in [
        ("u32 10 ff at -16", 10, 0xff, -16),
        ("u16 0x35 0xffff at 22", 0x35, 0xffff, 20),
        ("u16 0x35 ffff at 20", 0x35_0000, 0xffff_0000, 20),
        ("u8 17 ff at 9", 17 << 16, 0xff_0000, 8),
        ("u8 0x45 ff", 0x4500_0000, 0xff00_0000, 0),
        ("u8 1 ff at -1", 1, 0xff, -4),
    ] {
        let next = 0;
        let expected = U32 {
            keys: vec![Key {
                value,
                mask,
                at,
                next,
            }],
            ..U32::default()
        };
        let text = format!("kind = \"u32\"\nmatch = \"{text}\"");
        assert_eq!(kind(&text), FilterKind::U32(expected), "{text}");
    }
    let two = kind("kind = \"u32\"\nmatch = [\"u8 1 1\", \"u8 2 2 at 1\"]\nmark = \"1/3\"");
    let FilterKind::U32(two) = two else {
        panic!("{two:?}")
    };
    assert_eq!((two.keys.len(), two.mark), (2, Some((1, 3))));
    for (text, part) in [
        ("u16 1 1 at 21", "is not a key"),
        ("u32 1 1 at 70000", "cannot be at 70000"),
        ("u32 1 1 at -20", "cannot be at -20"),
        ("u8 256 1 at 0", "is not a key"),
        ("u8 1 100 at 0", "is not a key"),
        ("u24 1 1 at 0", "is not a key"),
        ("u32 1 1 at nexthdr", "is not a key"),
    ] {
        let text = format!("kind = \"u32\"\nflowid = \"1:1\"\nmatch = \"{text}\"");
        let said = read(&text).expect_err(part);
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn expressions_of_basic() {
    let text = "kind = \"basic\"\nmatch = \"cmp(u16 at 2 layer transport mask 0xfff eq 53) and \
                not u32(u8 1 0xff at 3) and meta(priority gt 5) and \
                meta(nf_mark mask 3 lt 2)\"";
    let test = |negated, test| Ematch {
        negated,
        or: false,
        test,
    };
    let (mask, value) = (0xff, 1);
    let expected = vec![
        test(
            false,
            Test::Cmp {
                width: Width::Two,
                at: 2,
                layer: Layer::Transport,
                mask: 0xfff,
                compare: Compare::Eq,
                value: 53,
                trans: false,
            },
        ),
        test(
            true,
            Test::Word(Key {
                value,
                mask,
                ..Key::default()
            }),
        ),
        test(false, Test::Priority(Compare::Gt, 5)),
        test(
            false,
            Test::Mark {
                mask: 3,
                compare: Compare::Lt,
                value: 2,
            },
        ),
    ];
    assert_eq!(kind(text), FilterKind::Basic(expected));
    assert_eq!(kind("kind = \"basic\""), FilterKind::Basic(Vec::new()));
}

#[test]
fn handles_chains_and_actions() {
    let u32 = read("kind = \"u32\"\nflowid = \"1:2\"\nprio = 5\nhandle = \"800::10\"");
    assert_eq!(u32.expect("valid").handle, 0x8000_0010);
    let fw = read("kind = \"fw\"\nhandle = \"0x6/0xff\"\nclassid = \"1:2\"").expect("valid");
    assert_eq!((fw.handle, fw.kind), (6, FilterKind::fw(0xff)));
    let goto = "kind = \"matchall\"\nparent = \"1:\"\nchain = 3\naction = \"goto chain 7\"";
    let goto = read(goto).expect("valid");
    assert_eq!((goto.chain, goto.actions), (3, Control::Goto(7).into()));
    assert_eq!((goto.class, goto.prio, goto.handle), (None, 49152, 1));
    for (text, part) in [
        ("action = \"drop\"", "`filter.parent`: is missing"),
        ("parent = \"1:\"", "`filter.flowid`: is missing"),
        (
            "kind = \"fw\"\nflowid = \"1:1\"",
            "`filter.handle`: is missing",
        ),
        (
            "kind = \"u32\"\nflowid = \"1:1\"\nhandle = \"801::1\"",
            "`filter.handle`: cls_u32: Handle specified hash table address mismatch: 0x801",
        ),
        (
            "flowid = \"1:1\"\naction = \"goto chain 268435456\"",
            "Specified chain index exceeds upper limit: 268435456",
        ),
        ("kind = \"matchall\"\nmark = 1", "matchall has no options"),
        ("flowid = \"1:1\"\ndscp = 1\nip_tos = 4", "the same field"),
        (
            "flowid = \"1:1\"\nclassid = \"1:2\"",
            "`filter.classid`: is the same as flowid",
        ),
    ] {
        let said = read(text).expect_err(part);
        assert!(said.contains(part), "{said}");
    }
}
