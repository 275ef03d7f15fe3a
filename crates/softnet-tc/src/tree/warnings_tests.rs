use softnet::testing::pool;

use crate::account::{SizeOptions, SizeTable};
use crate::qdisc::QdiscEnv;
use crate::testing::handle;
use crate::*;

/// Where, and of which parameter.
fn found(tree: &TreeSpec, queues: usize, parallel: bool, mtu: u32) -> Vec<(String, &'static str)> {
    let warnings = warnings(tree, queues, parallel, mtu);
    for warning in &warnings {
        let (text, at) = (warning.to_string(), warning.at);
        let start = match at.minor() {
            0 => format!("{at} "),
            _ => format!("{at}: "),
        };
        assert!(text.starts_with(&start) && text.len() < 160, "{text}");
    }
    let place = |warning: &Warning| (warning.at.to_string(), warning.parameter);
    warnings.iter().map(place).collect()
}

fn tbf(tbf: TbfSpec) -> TreeSpec {
    let mut tree = TreeSpec::new();
    let limit = 100_000;
    let tbf = QdiscSpec::Tbf(TbfSpec { limit, ..tbf });
    tree.add(Handle::ROOT, handle("1:"), tbf).unwrap();
    tree
}

/// `1:1` with `1:10` below it, and a default class.
fn htb(default: u16, class: HtbClassSpec) -> TreeSpec {
    let mut tree = TreeSpec::new();
    let htb = QdiscSpec::Htb(HtbSpec {
        default,
        ..HtbSpec::default()
    });
    tree.add(Handle::ROOT, handle("1:"), htb).unwrap();
    let whole = HtbClassSpec {
        burst: 1 << 30,
        cburst: 1 << 30,
        ..HtbClassSpec::new(class.ceil)
    };
    for (parent, name, spec) in [("1:", "1:1", whole), ("1:1", "1:10", class)] {
        let spec = ClassSpec::Htb(spec);
        tree.add_class(handle(parent), handle(name), spec).unwrap();
    }
    tree
}

fn small(burst: u64, cburst: u64) -> HtbClassSpec {
    HtbClassSpec {
        burst,
        cburst,
        ..HtbClassSpec::new(1000)
    }
}

#[test]
fn a_default_class_that_is_missing_or_no_leaf_is_warned_of() {
    let class = || small(1514, 1514);
    for (default, warned) in [(0, false), (0x10, false), (0x11, true), (1, true)] {
        let expected: &[_] = if warned {
            &[("1:".into(), "default")]
        } else {
            &[]
        };
        let tree = htb(default, class());
        assert_eq!(found(&tree, 1, false, 1500), expected, "{default:x}");
    }
}

/// Exactly a frame is enough.
#[test]
fn a_bucket_below_a_frame_is_warned_of() {
    let at = |place: &str, parameters: &[&'static str]| -> Vec<_> {
        parameters
            .iter()
            .map(|&of| (place.to_string(), of))
            .collect()
    };
    for (burst, cburst, warned) in [
        (1514, 1514, &[][..]),
        (1513, 1514, &["burst"]),
        (1514, 1513, &["cburst"]),
        (0, 0, &["burst", "cburst"]),
    ] {
        let tree = htb(0, small(burst, cburst));
        assert_eq!(found(&tree, 1, false, 1500), at("1:10", warned));
    }
    for (burst, peakrate, mtu, warned) in [
        (1514, None, 0, &[][..]),
        (1513, None, 0, &["burst"]),
        (1514, Some(2000), 1514, &[]),
        (1514, Some(2000), 1513, &["mtu"]),
    ] {
        let tree = tbf(TbfSpec {
            rate: 1000,
            burst,
            peakrate,
            mtu,
            ..TbfSpec::default()
        });
        assert_eq!(found(&tree, 1, false, 1500), at("1:", warned));
    }
    // A frame of this device is longer.
    assert_eq!(
        found(&htb(0, small(1600, 9014)), 1, false, 9000),
        at("1:10", &["burst"])
    );
}

/// Sizes are what packets count as: at the root, and for `htb` on the link.
#[test]
fn a_frame_is_as_long_as_it_counts() {
    let rate = |burst| TbfSpec {
        rate: 1000,
        burst,
        ..TbfSpec::default()
    };
    for (burst, warned) in [(1533, 1), (1534, 0)] {
        let mut tree = tbf(rate(burst));
        let options = SizeOptions {
            overhead: 20,
            ..SizeOptions::default()
        };
        let table = SizeTable::new(&options).unwrap();
        tree.set_stab(handle("1:"), Some(table)).unwrap();
        assert_eq!(found(&tree, 1, false, 1500).len(), warned);
    }
    for (burst, warned) in [(1523, 1), (1524, 0)] {
        let mut class = small(burst, 2000);
        class.link.overhead = 10;
        assert_eq!(found(&htb(0, class), 1, false, 1500).len(), warned);
    }
}

/// Two queues and 1 Gbit/s: 25,000 bytes a pot, 125,000 in a wait of 1 ms.
#[test]
fn a_small_burst_that_queues_share_is_warned_of() {
    const NEEDED: u64 = 2 * (2 * 25_000 + 125_000);
    let class = |rate, burst| HtbClassSpec {
        burst,
        cburst: 1 << 30,
        ..HtbClassSpec::new(rate)
    };
    let gbit = 125_000_000;
    for (rate, burst, queues, parallel, warned) in [
        (gbit, NEEDED - 1, 2, true, 1),
        (gbit, NEEDED, 2, true, 0),
        (gbit, NEEDED, 3, true, 1),
        (gbit, 1600, 2, false, 0),
        (gbit, 1600, 1, true, 0),
        // In 1 ms a frame or less: 1518 bytes, with a VLAN tag.
        (1_517_999, 1600, 2, true, 0),
        (1_518_000, 1600, 2, true, 1),
    ] {
        let case = (rate, burst, queues, parallel);
        let tree = htb(0, class(rate, burst));
        assert_eq!(
            found(&tree, queues, parallel, 1500).len(),
            warned,
            "{case:?}"
        );
        let tree = tbf(TbfSpec {
            rate,
            burst,
            ..TbfSpec::default()
        });
        assert_eq!(
            found(&tree, queues, parallel, 1500).len(),
            warned,
            "{case:?}"
        );
    }
    // Each queue has its own.
    let mut tree = TreeSpec::new();
    tree.add(Handle::ROOT, handle("1:"), QdiscSpec::Mq).unwrap();
    let tbf = QdiscSpec::Tbf(TbfSpec {
        rate: gbit,
        burst: 1600,
        limit: 3000,
        ..TbfSpec::default()
    });
    tree.add(handle("1:1"), handle("2:"), tbf).unwrap();
    assert_eq!(found(&tree, 2, true, 1500), []);
}

#[test]
fn nat_is_warned_of() {
    for nat in [false, true] {
        let cake = CakeSpec {
            nat,
            ..CakeSpec::default()
        };
        for qdisc in [QdiscSpec::Cake(cake.clone()), QdiscSpec::CakeMq(cake)] {
            let mut tree = TreeSpec::new();
            tree.add(Handle::ROOT, handle("1:"), qdisc).unwrap();
            let expected = Vec::from_iter(nat.then(|| ("1:".to_owned(), "nat")));
            assert_eq!(found(&tree, 1, false, 1500), expected);
        }
    }
}

/// Each instance would see a part of what arrives.
#[test]
fn autorate_of_several_instances_is_warned_of() {
    let cake = CakeSpec {
        autorate_ingress: true,
        ..CakeSpec::default()
    };
    let found = |qdisc, queues| {
        let mut tree = TreeSpec::new();
        tree.add(Handle::ROOT, handle("1:"), qdisc).unwrap();
        found(&tree, queues, true, 1500)
    };
    let expected = [("1:".to_owned(), "autorate-ingress")];
    assert_eq!(found(QdiscSpec::Cake(cake.clone()), 2), expected);
    assert_eq!(found(QdiscSpec::Cake(cake), 1), []);
}

/// A default class comes after its qdisc where `tc` is used.
#[test]
fn warnings_of_one_name_leave_the_others_out() {
    let env = QdiscEnv {
        parallel: true,
        ..QdiscEnv::new(&pool(4))
    };
    let class = HtbClassSpec::new(125_000_000);
    let (tree, _) = DeviceTree::new(htb(0x99, class), 2, &env).unwrap();
    let all = warnings(tree.spec(), 2, true, 1500);
    assert_eq!(all.len(), 3);
    assert_eq!(tree.warnings_of(handle("1:10")), all[1..]);
    for other in ["1:", "1:1", "1:99", "2:"] {
        assert_eq!(tree.warnings_of(handle(other)), []);
    }
    let spec = TbfSpec {
        rate: 1000,
        burst: 100,
        ..TbfSpec::default()
    };
    let (tree, _) = DeviceTree::new(tbf(spec), 2, &env).unwrap();
    assert_eq!(
        tree.warnings_of(handle("1:")),
        warnings(tree.spec(), 2, true, 1500)
    );
    assert_eq!(tree.warnings_of(handle("1:")).len(), 1);
}
