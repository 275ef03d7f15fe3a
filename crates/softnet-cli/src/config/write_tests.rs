//! Written configurations are read as the same: whole files, and any tree.

use std::time::Duration;

use proptest::prelude::*;
use softnet_tc::{
    Action, ActionSpec, AqmSpec, ClassSpec, CodelSpec, Compare, Control, DrrClassSpec, ETH_P_ALL,
    Ematch, EstimatorSpec, EtsSpec, FieldMatch, FilterKind, FilterOp, FilterSpec, Flower,
    FlowerField, FqCodelSpec, FqSpec, Handle, HfscClassSpec, HfscSpec, HtbClassSpec, HtbSpec,
    Indev, Key, Layer, LinkCost, LinkDefaults, LinkLayer, MetaId, Prefix, PrioSpec, QdiscSpec,
    QfqClassSpec, ServiceCurve, SizeOptions, SizeTable, TbfSpec, Test, TreeSpec, U32, Width,
};

use softnet_tc::units::MAX_RATE;

use super::write::{self, write};
use super::{Config, parse, parse_tree};

/// Where things are in a file, and the order of the members of a bridge, say nothing about what
/// they are.
fn without_places(mut config: Config) -> Config {
    config.places.clear();
    config
}

#[track_caller]
fn assert_same(text: &str) {
    let config = parse("x.toml", text).expect(text);
    let written = write(&config);
    let again = parse("x.toml", &written).unwrap_or_else(|error| panic!("{error}\n{written}"));
    assert_eq!(without_places(again), without_places(config), "{written}");
}

#[test]
fn every_example_is_written_as_it_is_read() {
    for text in super::reference_tests::valid_files() {
        assert_same(&text);
    }
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    let mut seen = 0;
    for file in std::fs::read_dir(examples).expect("examples").flatten() {
        let text = std::fs::read_to_string(file.path()).unwrap_or_default();
        if file.path().extension().is_some_and(|e| e == "toml") && parse("x.toml", &text).is_ok() {
            assert_same(&text);
            seen += 1;
        }
    }
    assert!(seen > 0, "no example");
}

/// Rates that are shares of an interface's speed stay shares: of a qdisc alone, and of a tree.
#[test]
fn shares_of_a_speed_are_written_as_they_are_read() {
    let port = "[engine]\nworkers = 1\n[[port]]\nname = \"up\"\ndriver = \"af_packet\"\n";
    let tbf = r#"qdisc = { kind = "tbf", rate = "50%", burst = "32k", limit = "1mb" }"#;
    let htb = r#"qdisc = { kind = "htb", handle = "1:", default = "10" }
        class = [
            { classid = "1:1", rate = "90%" },
            { classid = "1:10", parent = "1:1", rate = "1mbit", ceil = "33.3333%" },
        ]"#;
    for (qdisc, shares) in [
        (tbf, &[r#"rate = "50%""#][..]),
        (
            r#"qdisc = { kind = "cake", bandwidth = "95%" }"#,
            &[r#"bandwidth = "95%""#][..],
        ),
        (
            htb,
            &[
                r#"rate = "90%""#,
                r#"ceil = "90%""#,
                "rate = 1000000",
                r#"ceil = "33.3333%""#,
            ][..],
        ),
    ] {
        let text = format!("{port}{qdisc}\n");
        assert_same(&text);
        let written = write(&parse("x.toml", &text).expect("valid"));
        for share in shares {
            assert!(written.contains(share), "{share} in {written}");
        }
    }
    // How many bytes wait in a time depends on the speed, and not all links have one.
    let peak = "rate = \"1mbit\", peakrate = \"50%\", mtu = 1540";
    for by_size in [tbf, &tbf.replace("rate = \"50%\"", peak)] {
        assert_same(&format!("{port}{by_size}\n"));
        let by_time = by_size.replace("limit = \"1mb\"", "latency = \"50ms\"");
        let error = parse("x.toml", &format!("{port}{by_time}\n")).expect_err("latency");
        let error = error.to_string();
        assert!(
            error.contains("depends on the rate") && error.contains("give limit"),
            "{error}"
        );
    }
    for driver in ["tap", "null"] {
        let text = format!("{}{tbf}\n", port.replace("af_packet", driver));
        let error = parse("x.toml", &text).expect_err(driver).to_string();
        assert!(
            error.contains("give bits per second, like 100mbit"),
            "{error}"
        );
    }
}

/// Numbers of RED are written as they are used, and read as they are written.
#[test]
fn queues_with_aqm_are_written_as_they_are_read() {
    for options in [
        r#"kind = "red", limit = "400k""#,
        r#"kind = "red", limit = 400000, min = 30000, max = 90000, avpkt = 1000, burst = 55,
            bandwidth = "100mbit", probability = "0.1", ecn = true, nodrop = true"#,
        r#"kind = "red", limit = 9, min = 3, max = 5, wlog = 4, plog = 18, probability = "0",
            idle_table = "10 0x13 1x243", adaptive = true, harddrop = true"#,
        r#"kind = "sfq""#,
        r#"kind = "sfq", limit = 99, quantum = 3000, perturb = "10s", flows = 64, divisor = 64,
            depth = 9, headdrop = true, redflowlimit = "100k", ecn = true, harddrop = true"#,
        r#"kind = "pie", target = "20ms", alpha = 5, bytemode = true, dq_rate_estimator = true"#,
        r#"kind = "fq_pie", flows = 9, quantum = 300, memory_limit = "1m", ecn_prob = 20"#,
        r#"kind = "dualpi2", memlimit = "1m", step_packets = 7, coupling_factor = 3,
            classic_protection = 40, ecn_mask = 3, drop_enqueue = true, split_gso = false"#,
    ] {
        let options = options.replace('\n', " ");
        assert_same(&format!(
            "[engine]\nworkers = 1\n[[port]]\nname = \"p\"\ndriver = \"null\"\nqdisc = {{ {options} }}\n"
        ));
    }
}

/// Hash tables of u32 with filters that lead to them from before and from another priority, chains
/// that stay, and the mark as a class.
#[test]
fn tables_and_chains_are_written_as_they_are_read() {
    let text = r#"
[[qdisc]]
handle = "1:"
kind = "htb"

[[filter]]
parent = "1:"
chain = 7
kind = "chain"

[[filter]]
parent = "1:"
chain = 8
kind = "chain"
template = "flower"
protocol = "ip"
src_ip = "0.0.0.0/24"
ip_proto = 0
dst_port = 0
src_mac = "00:00:00:00:00:00/ff:ff:ff:00:00:00"

[[filter]]
chain = 8
prio = 1
protocol = "ip"
src_ip = "10.0.0.0/8"
flowid = "1:1"

[[filter]]
parent = "1:"
prio = 98
kind = "u32"
link = "43:"
hashkey = "mask 0xff at 16"
offset = "at 0 mask 0xf00 shift 6 eat"

[[filter]]
parent = "1:"
prio = 99
kind = "u32"
handle = "43:"
divisor = 256

[[filter]]
prio = 99
kind = "u32"
handle = "43:7:801"
match = ["u32 0x35 0xffff at nexthdr+0"]
flowid = "1:1"

[[filter]]
prio = 99
kind = "u32"
match = ["u32 0xa000007 0xffffffff at 16"]
link = "43:"
offset = "plus 4"
flowid = "1:2"

[[filter]]
parent = "1:"
prio = 100
kind = "fw"
"#;
    let QdiscSpec::Tree(tree) = parse_tree("x.toml", text).expect("valid") else {
        panic!("no tree")
    };
    let filters: Vec<String> = tree
        .filters()
        .map(|filter| format!("{} {:x}", filter.prio, filter.handle))
        .collect();
    let expected = [
        "98 80000800",
        "99 4300000",
        "99 4307801",
        "99 80100800",
        "100 0",
        "1 1",
    ];
    assert_eq!(filters, expected);
    assert_eq!(
        tree.kept_chains()
            .map(|(_, chain, template)| (chain, template.is_some()))
            .collect::<Vec<_>>(),
        [(7, false), (8, true)]
    );
    let tree = QdiscSpec::Tree(tree);
    let written = write::write_tree(&tree);
    assert_eq!(parse_tree("x.toml", &written), Ok(tree), "{written}");
    for (wrong, part) in [
        ("link = \"44:\"", "Link hash table not found"),
        ("link = \"800:\"", "Not linking to root node"),
        ("divisor = 3", "Divisor is not a power of 2"),
        ("handle = \"43:\"\ndivisor = 2", "Filter already exists"),
    ] {
        let more = format!("{text}\n[[filter]]\nparent = \"1:\"\nprio = 99\nkind = \"u32\"\n");
        let said = parse_tree("x.toml", &(more + wrong))
            .expect_err(part)
            .to_string();
        assert!(said.contains(part), "{said}");
    }
}

/// Filters may match the same since one of them was changed, or since a link has another name.
#[test]
fn filters_that_match_the_same_are_read_as_they_are_written() {
    let root = Handle::new(1, 0);
    let mut tree = TreeSpec::new();
    tree.add(Handle::ROOT, root, QdiscSpec::Prio(PrioSpec::default()))
        .expect("valid");
    for (op, handle, from) in [
        (FilterOp::Add, 1, "a"),
        (FilterOp::Add, 2, "b"),
        (FilterOp::Replace, 2, "a"),
    ] {
        let flower = Flower {
            indev: Some(Indev::new(from)),
            ..Flower::default()
        };
        let filter = FilterSpec {
            prio: 1,
            handle,
            ..FilterSpec::new(flower, root.class(handle as u16))
        };
        tree.put_filter(op, filter).expect("valid");
    }
    let tree = QdiscSpec::Tree(tree);
    let written = write::write_tree(&tree);
    assert_eq!(parse_tree("x.toml", &written), Ok(tree), "{written}");
    // By hand, without a handle, it is a mistake.
    let twice = written.replace("handle = 2\n", "");
    assert_ne!(twice, written);
    let said = parse_tree("x.toml", &twice).expect_err("twice").to_string();
    assert!(said.contains("Filter already exists"), "{said}");
}

#[test]
fn texts_are_escaped() {
    assert_same(
        r#"
[engine]
workers = 3
cpus = [0, 1, 0]
socket = "/run/a \"b\"\\c"
socket_group = "ü\t"
monitor_socket = "/run/m"
monitor_group = "adm"
[[port]]
name = 'a"b\c'
driver = "tap"
netns = "x'''\"\"\"y"
alias = "two\nlines\u0001"
group = 4294967295
txqueuelen = 17
up = false
max_macs = 1
qdisc = { kind = "pfifo_fast" }
[[port]]
name = "b"
driver = "null"
isolated = true
locked = true
num_tc = 2
queues = ["1@0", "2@1"]
map = [0, 1]
rps = [0, 2]
rfs = "record"
served_by = "worker"
burst = 3
allowed_macs = ["02:00:00:00:00:01", "02:00:00:00:00:02"]
allowed_ips = ["10.0.0.5", "10.1.0.0/16", "fd00::/64", "::/0"]
storm = { broadcast = 0, unknown_unicast = 4294967295 }
mirror = [{ to = "b" }, { to = 'a"b\c', dir = "ingress" }]
redirect = { to = "b", dir = "ingress" }
rate_group = "all"
[[port]]
name = "vm1"
driver = "vhost_user"
socket = "vm1.sock"
[[port]]
name = "vm2"
driver = "vhost_user"
socket = "/run/vm2.sock"
server = false
socket_mode = "0666"
socket_group = "kvm"
memory = "1536m"
memory_kind = "hugetlb"
guest_offloads = false
queues = 128
[[rate_group]]
name = "all"
rate = "1gbit"
burst = "64k"
pps = 1000
pps_burst = 64
[[rate_group]]
name = "other"
pps = 12345
[[bridge]]
name = "br0"
mac = "02:00:00:00:00:01"
mtu = 9000
alias = "'"
ports = ["b"]
"#,
    );
}

fn time() -> impl Strategy<Value = Duration> {
    // The longest that rtnetlink has.
    let micros = Just(Duration::from_micros(u32::MAX.into()));
    prop_oneof![9 => (0..1_u64 << 50).prop_map(Duration::from_nanos), 1 => micros]
}

fn link() -> impl Strategy<Value = LinkCost> {
    let layer = prop_oneof![Just(LinkLayer::Ethernet), Just(LinkLayer::Atm)];
    (any::<u16>(), any::<u16>(), layer).prop_map(|(overhead, mpu, linklayer)| LinkCost {
        overhead,
        mpu,
        linklayer,
    })
}

fn aqm() -> impl Strategy<Value = AqmSpec> {
    let threshold = (prop::option::of(time()), any::<u8>(), any::<u8>());
    (time(), time(), any::<bool>(), threshold).prop_map(|(target, interval, ecn, threshold)| {
        let (ce_threshold, ce_threshold_selector, ce_threshold_mask) = threshold;
        AqmSpec {
            target,
            interval: interval.max(Duration::from_micros(1)),
            ecn,
            ce_threshold,
            ce_threshold_selector,
            ce_threshold_mask,
        }
    })
}

fn number() -> impl Strategy<Value = u32> {
    prop_oneof![0..20_u32, any::<u32>(), Just(u32::MAX)]
}

/// Also what is refused.
fn rate() -> impl Strategy<Value = u64> {
    prop_oneof![
        3 => 1..1000_u64,
        3 => 1..=MAX_RATE,
        1 => Just(MAX_RATE),
        1 => any::<u64>(),
    ]
}

/// Bytes, also more than can be.
fn limit() -> impl Strategy<Value = u64> {
    prop_oneof![3 => 0..=1_u64 << 50, 1 => Just(1 << 50), 1 => any::<u64>()]
}

fn tbf() -> impl Strategy<Value = QdiscSpec> {
    let peak = prop::option::of((rate(), number()));
    let burst = any::<u32>().prop_map(u64::from);
    (rate(), burst, limit(), peak, link()).prop_map(|(rate, burst, limit, peak, link)| {
        QdiscSpec::Tbf(TbfSpec {
            rate,
            burst,
            limit,
            peakrate: peak.map(|(peak, _)| peak),
            mtu: peak.map_or(0, |(_, mtu)| mtu),
            link,
        })
    })
}

fn fq() -> impl Strategy<Value = QdiscSpec> {
    let numbers = (
        number(),
        number(),
        prop::option::of(0..1_u32 << 20),
        1..=18_u8,
        number(),
    );
    let times = (time(), time(), time(), prop::option::of(time()));
    let rates = (prop::option::of(rate()), rate());
    let bands = (
        prop::array::uniform16(0..3_u8),
        prop::array::uniform3(16_384..1_u32 << 30),
    );
    (numbers, times, rates, bands, any::<[bool; 2]>()).prop_map(
        |(numbers, times, rates, bands, [pacing, horizon_drop])| {
            QdiscSpec::Fq(FqSpec {
                limit: numbers.0,
                flow_limit: numbers.1,
                quantum: numbers.2,
                initial_quantum: numbers.2.map(|n| 3 * n),
                orphan_mask: numbers.4,
                buckets_log: numbers.3,
                refill_delay: times.0,
                pacing,
                maxrate: rates.0,
                low_rate_threshold: rates.1,
                timer_slack: times.1,
                horizon: times.2,
                offload_horizon: Duration::ZERO,
                horizon_drop,
                ce_threshold: times.3,
                priomap: bands.0,
                weights: bands.1,
            })
        },
    )
}

fn fq_codel() -> impl Strategy<Value = QdiscSpec> {
    let quantum = prop::option::of(0..1_u32 << 20);
    (number(), number(), 1..=65_536_u32, quantum, number(), aqm()).prop_map(
        |(limit, memory_limit, flows, quantum, drop_batch, aqm)| {
            QdiscSpec::FqCodel(FqCodelSpec {
                limit,
                memory_limit,
                flows,
                quantum,
                drop_batch,
                aqm,
            })
        },
    )
}

fn ets() -> impl Strategy<Value = QdiscSpec> {
    let quanta = prop::collection::vec(256..=1_u32 << 20, 0..16);
    let map = prop::array::uniform16(any::<u8>());
    (1..=16_u16, any::<u16>(), quanta, map).prop_map(|(bands, strict, quanta, map)| {
        let ets = EtsSpec {
            bands,
            strict: strict % (bands + 1),
            priomap: map.map(|band| (u16::from(band) % bands) as u8),
            ..EtsSpec::default()
        };
        QdiscSpec::Ets(ets.with_quanta(&quanta, &LinkDefaults::default()))
    })
}

fn spec() -> impl Strategy<Value = QdiscSpec> {
    let prio = (2..=16_u16, prop::array::uniform16(any::<u8>())).prop_map(|(bands, map)| {
        let priomap = map.map(|band| (u16::from(band) % bands) as u8);
        QdiscSpec::Prio(PrioSpec { bands, priomap })
    });
    let simple = prop_oneof![
        number().prop_map(|limit| QdiscSpec::Pfifo { limit }),
        number().prop_map(|limit| QdiscSpec::PfifoHeadDrop { limit }),
        (0..1_u64 << 50).prop_map(|limit| QdiscSpec::Bfifo { limit }),
        Just(QdiscSpec::PfifoFast { limit: 1000 }),
        Just(QdiscSpec::Noqueue),
        Just(QdiscSpec::Mq),
    ];
    let codel = (number(), aqm());
    let codel = codel.prop_map(|(limit, aqm)| QdiscSpec::Codel(CodelSpec { limit, aqm }));
    let htb = (any::<u16>(), 1..=u32::MAX, prop::option::of(number()));
    let htb = htb.prop_map(|(default, r2q, direct_qlen)| {
        QdiscSpec::Htb(HtbSpec {
            default,
            r2q,
            direct_qlen,
        })
    });
    prop_oneof![
        4 => simple,
        3 => prio,
        6 => htb,
        2 => Just(QdiscSpec::Drr),
        2 => Just(QdiscSpec::Qfq),
        3 => any::<u16>().prop_map(|default| QdiscSpec::Hfsc(HfscSpec { default })),
        2 => ets(),
        1 => tbf(),
        1 => codel,
        1 => fq_codel(),
        1 => fq(),
    ]
}

/// A class of any kind; the tree refuses those of another kind than its qdisc.
fn class() -> impl Strategy<Value = ClassSpec> {
    let drr = (256..=1_u32 << 20).prop_map(|quantum| ClassSpec::Drr(DrrClassSpec { quantum }));
    let qfq = (1..=1024_u32, 512..=65_536_u32);
    let qfq = qfq.prop_map(|(weight, maxpkt)| ClassSpec::Qfq(QfqClassSpec { weight, maxpkt }));
    let curve = || {
        let fields = (any::<u32>(), any::<u32>(), any::<u32>());
        prop::option::of(fields.prop_map(|(m1, d, m2)| ServiceCurve { m1, d, m2 }))
    };
    let hfsc = (curve(), curve(), curve());
    let hfsc = hfsc.prop_map(|(rt, ls, ul)| {
        // What has no effect cannot be written.
        let ul = ul.filter(|_| ls.is_some());
        ClassSpec::Hfsc(HfscClassSpec { rt, ls, ul })
    });
    prop_oneof![3 => htb_class(), 1 => drr, 1 => qfq, 3 => hfsc]
}

fn htb_class() -> impl Strategy<Value = ClassSpec> {
    let burst = || any::<u32>().prop_map(u64::from);
    let quantum = prop::option::of(number());
    (rate(), rate(), burst(), burst(), 0..8_u32, quantum, link()).prop_map(
        |(rate, ceil, burst, cburst, prio, quantum, link)| {
            ClassSpec::Htb(HtbClassSpec {
                rate,
                ceil,
                burst,
                cburst,
                ticks: None,
                prio,
                quantum,
                link,
            })
        },
    )
}

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

fn filter() -> impl Strategy<Value = FilterSpec> {
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

#[derive(Clone, Debug)]
enum Step {
    Qdisc(prop::sample::Index, QdiscSpec),
    Class(prop::sample::Index, u16, ClassSpec),
    Filter(prop::sample::Index, FilterSpec),
    Stab(SizeOptions),
    Estimator(prop::sample::Index, i8, u8),
}

fn step() -> impl Strategy<Value = Step> {
    let index = any::<prop::sample::Index>;
    let layer = prop_oneof![
        Just(None),
        Just(Some(LinkLayer::Ethernet)),
        Just(Some(LinkLayer::Atm))
    ];
    let stab = (0..10_000_u32, 0..100_u32, 0..200_u32, -50..50_i32, layer);
    let stab = stab.prop_map(|(mtu, tsize, mpu, overhead, linklayer)| {
        Step::Stab(SizeOptions {
            mtu,
            tsize,
            mpu,
            overhead,
            linklayer,
        })
    });
    prop_oneof![
        4 => (index(), spec()).prop_map(|(at, spec)| Step::Qdisc(at, spec)),
        6 => (index(), 1..40_u16, class()).prop_map(|(at, n, spec)| Step::Class(at, n, spec)),
        4 => (index(), filter()).prop_map(|(at, filter)| Step::Filter(at, filter)),
        1 => stab,
        1 => (index(), -2..=3_i8, 1..=30_u8).prop_map(|(at, i, log)| Step::Estimator(at, i, log)),
    ]
}

/// A tree of what can be done in this order.
fn tree(root: QdiscSpec, steps: Vec<Step>) -> TreeSpec {
    let mut tree = TreeSpec::new();
    let _ = tree.add(Handle::ROOT, Handle::new(1, 0), root);
    for step in steps {
        let qdiscs: Vec<Handle> = tree.nodes().map(|node| node.handle).collect();
        let classes = tree.added_classes().map(|(class, _)| class);
        let mut names: Vec<Handle> = qdiscs.iter().copied().chain(classes).collect();
        if qdiscs.is_empty() {
            break;
        }
        // What the tree refuses is not in it.
        let _ = match step {
            Step::Qdisc(at, spec) => {
                names.extend(
                    qdiscs
                        .iter()
                        .flat_map(|qdisc| (1..4).map(|n| qdisc.class(n))),
                );
                tree.add(*at.get(&names), Handle::NONE, spec).map(drop)
            }
            Step::Class(at, minor, spec) => {
                let parent = *at.get(&names);
                tree.add_class(parent, parent.class(minor), spec)
            }
            Step::Filter(at, filter) => {
                let parent = *at.get(&names);
                let class = filter.class.map(|class| parent.class(class.minor()));
                let filter = FilterSpec {
                    parent,
                    class,
                    ..filter
                };
                tree.put_filter(FilterOp::Add, filter)
                    .map(drop)
                    .map_err(Into::into)
            }
            Step::Stab(options) => match SizeTable::new(&options) {
                Ok(table) => tree.set_stab(qdiscs[0], Some(table)),
                Err(_) => Ok(()),
            },
            Step::Estimator(at, interval, log) => {
                let spec = EstimatorSpec::new(interval, log).expect("in range");
                tree.set_estimator(*at.get(&names), spec)
            }
        };
    }
    tree
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(400)
    })]

    #[test]
    fn any_tree_is_read_as_it_is_written(
        root in spec(),
        steps in prop::collection::vec(step(), 0..40),
    ) {
        let tree = tree(root, steps);
        prop_assume!(!tree.is_empty());
        let tree = QdiscSpec::Tree(tree);
        let text = write::write_tree(&tree);
        let read = parse_tree("x.toml", &text);
        let read = read.unwrap_or_else(|error| panic!("{error}\n{text}"));
        prop_assert_eq!(&read, &tree, "{}", text);
        prop_assert_eq!(write::write_tree(&read), text);
    }
}
