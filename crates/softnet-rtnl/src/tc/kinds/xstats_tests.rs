//! Each statistic that a kind of qdisc has is where the kernel's structure has it.

use softnet::mem::{Pool, PoolConfig};
use softnet_tc::{CodelSpec, FqCodelSpec, FqSpec, QdiscEnv, Tree};

use super::*;

/// Units of 1,024 ns in a microsecond and more, so that both are whole numbers.
const TIME: u64 = 1_024_000;

/// The statistics that a kind has, each with a number of its own.
fn numbered(spec: QdiscSpec) -> Values {
    let config = PoolConfig {
        buffers: 8,
        buffer_size: 2048,
    };
    let env = QdiscEnv::new(&Pool::new(config).unwrap());
    let tree = Tree::build(spec, &env).unwrap();
    let xstats = tree.xstats(tree.spec().root().unwrap().handle).unwrap();
    let stats = xstats.values().map(|(stat, _)| stat);
    Values(stats.zip((1..).map(|number| number * TIME)).collect())
}

/// Checks fields of 32 and 64 bits, from the front on: the name, or none where it is 0.
fn check(values: &Values, bytes: &[u8], fields: &[(usize, &str)], times: &[&str]) {
    let (mut at, mut seen) = (0, 0);
    for &(size, name) in fields {
        let mut number = [0; 8];
        number[..size].copy_from_slice(&bytes[at..at + size]);
        let number = u64::from_ne_bytes(number);
        at += size;
        if name.is_empty() {
            assert_eq!(number, 0);
            continue;
        }
        seen += 1;
        let of = values.0.iter().find(|(stat, _)| stat.name() == name);
        let (_, expected) = *of.expect(name);
        let unit = if times.contains(&name) { 1000 } else { 1 };
        assert_eq!(number, expected / unit, "{name}");
    }
    assert_eq!(at, bytes.len());
    assert_eq!(seen, values.0.len(), "all are shown");
}

#[test]
fn those_of_codel() {
    let values = numbered(QdiscSpec::Codel(CodelSpec::default()));
    let fields = [
        "maxpacket",
        "count",
        "lastcount",
        "ldelay",
        "drop_next",
        "drop_overlimit",
        "ecn_mark",
        "dropping",
        "ce_mark",
    ];
    let times = ["ldelay", "drop_next"];
    check(
        &values,
        &codel::xstats(&values),
        &fields.map(|name| (4, name)),
        &times,
    );
}

#[test]
fn those_of_fq_codel() {
    let values = numbered(QdiscSpec::FqCodel(FqCodelSpec::default()));
    let fields = [
        "",
        "maxpacket",
        "drop_overlimit",
        "ecn_mark",
        "new_flow_count",
        "new_flows_len",
        "old_flows_len",
        "ce_mark",
        "memory_used",
        "drop_overmemory",
    ];
    check(
        &values,
        &codel::xstats_fq(&values),
        &fields.map(|name| (4, name)),
        &[],
    );
}

#[test]
fn those_of_fq() {
    let values = numbered(QdiscSpec::Fq(FqSpec::default()));
    let fields = [
        (8, "gc"),
        (8, ""),
        (8, ""),
        (8, "throttled"),
        (8, "flows_plimit"),
        (8, "pkts_too_long"),
        (8, "alloc_errors"),
        (8, "next_packet_delay"),
        (4, "flows"),
        (4, "inactive_flows"),
        (4, "throttled_flows"),
        (4, "latency"),
        (8, "ce_mark"),
        (8, "horizon_drops"),
        (8, "horizon_caps"),
        (8, ""),
        (8, "band0_drops"),
        (8, "band1_drops"),
        (8, "band2_drops"),
        (4, "band0_pkts"),
        (4, "band1_pkts"),
        (4, "band2_pkts"),
        (4, ""),
    ];
    check(&values, &fq::xstats(&values), &fields, &[]);
}

/// What a class of `htb` has.
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
        xstats: None,
    };
    let class = ShownClass {
        spec: &ClassSpec::Htb(softnet_tc::HtbClassSpec::new(1000)),
        qdisc: &QdiscSpec::Htb(softnet_tc::HtbSpec::default()),
        stats: &stats,
        level: 0,
    };
    let expected = [1_i32, 2, 0, -3, 4].map(i32::to_ne_bytes).concat();
    assert_eq!(class_xstats(&class), Some(expected));
}
