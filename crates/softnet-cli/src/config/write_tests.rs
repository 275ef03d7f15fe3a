//! Written configurations are read as the same: whole files, and any tree.

mod filters;
mod kinds;
mod tree;

use softnet_tc::{FilterOp, FilterSpec, Flower, Handle, Indev, PrioSpec, QdiscSpec, TreeSpec};

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
