//! The statistics of each kind of qdisc are in the kernel's structures, and those structures as
//! long as the kernel's.

use softnet::mem::{PacketList, Pool, PoolConfig};
use softnet::qdisc::{Cx, Qdisc};
use softnet::time::Time;
use softnet_tc::{QdiscEnv, RedCurve, RedSpec, Tree, Xstat};

use super::tests::shown_with;
use super::xstats::Slot;
use super::*;

#[test]
fn each_statistic_of_a_kind_has_one_place() {
    let config = PoolConfig {
        buffers: 8,
        buffer_size: 2048,
    };
    let env = QdiscEnv::new(&Pool::new(config).unwrap());
    let mut sizes = Vec::new();
    for kind in QDISC_KINDS {
        let spec = (kind.default)(&LinkDefaults::default());
        let Some(layout) = layout(&spec) else {
            continue;
        };
        let tree = Tree::build(spec, &env).unwrap();
        let xstats = tree.xstats(tree.spec().root().unwrap().handle).unwrap();
        // The kernel has no flows that share a queue for want of memory, and shows the probability
        // of `red` among the options.
        let known = |stat: &Xstat| ![Xstat::SharedPackets, Xstat::MaxP].contains(stat);
        let own = xstats.values().map(|(stat, _)| stat);
        let mut own: Vec<Xstat> = own.filter(known).collect();
        let shown = layout.iter().filter_map(|slot| match slot {
            Slot::U32(stat) | Slot::U64(stat) => Some(*stat),
            Slot::AtMostU32(stat) | Slot::Micros(stat, _) | Slot::WholeMicros(stat) => Some(*stat),
            Slot::Zero(_) => None,
        });
        for stat in shown {
            let at = own.iter().position(|own| *own == stat);
            own.remove(at.unwrap_or_else(|| panic!("{}: {stat:?}", kind.name)));
        }
        assert_eq!(own, [], "{}", kind.name);
        sizes.push((kind.name, xstats::bytes(layout, None).len()));
    }
    let expected = [
        ("codel", 36),
        ("fq_codel", 40),
        ("fq", 152),
        ("red", 16),
        ("pie", 40),
        ("fq_pie", 36),
        ("dualpi2", 48),
        ("netem", 56),
    ];
    assert_eq!(sizes, expected);
}

/// An adaptive `red` shows the probability that it has now.
#[test]
fn an_adaptive_red_shows_its_probability() {
    let config = PoolConfig {
        buffers: 8,
        buffer_size: 2048,
    };
    let pool = Pool::new(config).unwrap();
    let curve = RedCurve {
        min: 1000,
        max: 3000,
        wlog: 1,
        max_p: 1 << 30,
        ..RedCurve::default()
    };
    for adaptive in [true, false] {
        let spec = QdiscSpec::Red(RedSpec {
            limit: 10_000,
            curve: curve.clone(),
            adaptive,
            ..RedSpec::default()
        });
        let mut tree = Tree::build(spec.clone(), &QdiscEnv::new(&pool)).unwrap();
        let mut cx = Cx::new(&pool);
        let shown = |tree: &Tree| {
            let handle = tree.spec().root().unwrap().handle;
            let options = shown_with(&spec, tree.xstats(handle)).unwrap();
            u32::from_ne_bytes(options[24..28].try_into().unwrap())
        };
        assert_eq!(shown(&tree), 1 << 30);
        for seconds in 1..=2 {
            let now = Time(seconds * 1_000_000_000);
            tree.dequeue(0, &mut PacketList::new(), cx.at(now));
        }
        assert_eq!(shown(&tree) < 1 << 30, adaptive);
    }
}

/// Statistics of a class of `htb`.
#[test]
fn those_of_a_class() {
    let htb = softnet_tc::HtbClassStats {
        lended: 1,
        borrowed: (1 << 32) + 2,
        overlimits: 9,
        tokens: -3,
        ctokens: 4,
    };
    let stats = ClassStats {
        class: Handle::new(1, 1),
        parent: Handle::new(1, 0),
        qdisc: Handle::NONE,
        kind: "pfifo",
        stats: QdiscStats::default(),
        htb: Some(htb),
        own: None,
        xstats: None,
    };
    let class = ShownClass {
        spec: &ClassSpec::Htb(softnet_tc::HtbClassSpec::new(1000)),
        qdisc: &QdiscSpec::Htb(softnet_tc::HtbSpec::default()),
        stats: &stats,
        level: 0,
    };
    let expected = [1_i32, 2, 0, -3, 4].map(i32::to_ne_bytes).concat();
    assert_eq!(class_xstats(&class), Some(App::Structure(expected)));
}

/// Statistics of a flow that is shown as a class.
#[test]
fn those_of_a_flow() {
    let flow = softnet_tc::FlowStats {
        qlen: 2,
        backlog: 3000,
        deficit: -7,
        sojourn: 5_000_000,
        count: 3,
        last_count: 1,
        drop_next: Some(-2_048_000),
    };
    let expected = [1_i32, -7, 4999, 3, 1, 1, -2048, 0, 0, 0];
    let bytes = expected.map(i32::to_ne_bytes).concat();
    assert_eq!(flow_xstats(&flow), App::Structure(bytes));
    let App::Structure(quiet) = flow_xstats(&Default::default()) else {
        panic!("attributes");
    };
    assert_eq!(quiet[20..28], [0; 8]);
    let of_qdisc = xstats::bytes(codel::XSTATS_FQ, None);
    assert_eq!(quiet.len(), of_qdisc.len());
}
