//! A tree of qdiscs at a port, changed while hosts talk through it.

use std::time::Duration;

use softnet::qdisc::QdiscStats;
use softnet_tc::{
    ClassStats, FilterOp, FilterSpec, Flower, Handle, PrioSpec, QdiscSpec, TbfSpec, TreeSpec,
};
use softnet_tests::traffic::{Flow, receive};
use softnet_tests::{HostConfig, Lan, LanConfig, wait_for};

fn handle(text: &str) -> Handle {
    text.parse().expect("a handle")
}

fn tbf(rate: u64, burst: u64) -> QdiscSpec {
    QdiscSpec::Tbf(TbfSpec {
        rate,
        burst,
        limit: 1,
        ..TbfSpec::default()
    })
}

/// A datagram that a filter puts into the first band does not wait behind those that fill the
/// second; and all that waited arrives once the rate is raised.
#[test]
fn a_filter_leads_past_a_full_queue() {
    let open = tbf(1_250_000_000, 1 << 20);
    let mut tree = TreeSpec::new();
    let nodes = [
        ("root", "1:", open.clone()),
        ("1:1", "2:", QdiscSpec::Prio(PrioSpec::default())),
    ];
    for (parent, name, qdisc) in nodes {
        tree.add(handle(parent), handle(name), qdisc)
            .expect("a qdisc");
    }
    let mut config = LanConfig {
        hosts: vec![
            HostConfig {
                offload: false,
                ..HostConfig::default()
            };
            2
        ],
        ..LanConfig::default()
    };
    config.hosts[1].qdisc = QdiscSpec::Tree(tree);
    let Some(lan) = Lan::build(config) else {
        return;
    };
    let [a, b] = &lan.hosts[..] else {
        panic!("two hosts")
    };
    let (bulk, urgent) = (Flow::open(a, b, false), Flow::open(a, b, false));
    bulk.echo(100);
    urgent.echo(100);
    let port = urgent.b.local_addr().expect("an address").port();
    let edit = |qdisc: &QdiscSpec, filter: bool| {
        let result = lan.engine.edit_tree(b.port, |tree| {
            if filter {
                let flower = Flower {
                    ip_proto: Some(17),
                    dst_port: Some(port..=port),
                    ..Flower::default()
                };
                let filter = FilterSpec::new(flower, handle("2:1"));
                tree.put_filter(FilterOp::Add, filter)?;
            }
            tree.change(handle("1:"), qdisc)
        });
        result.expect("a change");
    };
    let class = |name: &str| -> QdiscStats {
        let classes: Vec<ClassStats> = lan.engine.classes(b.port);
        let name = handle(name);
        classes
            .iter()
            .find(|c| c.class == name)
            .expect("the class")
            .stats
    };
    // One packet of 1042 bytes passes; then a byte takes 100 ms.
    edit(&tbf(10, 1514), true);
    let datagram = |n: u8| [n; 1000];
    for n in 0..20 {
        bulk.a.send(&datagram(n)).expect("a datagram");
    }
    wait_for("the second band to fill", || class("2:2").qlen >= 19);
    urgent.a.send(&datagram(99)).expect("a datagram");
    wait_for("the first band to have it", || class("2:1").qlen == 1);
    assert_eq!(class("2:1").packets, 0);
    // Enough for one packet more: it is the one that came last.
    edit(&tbf(10, 1514), false);
    receive(&urgent.b, &datagram(99));
    // Counted at the end of the run in which it left.
    wait_for("the urgent packet to be counted", || {
        class("2:1").packets == 1
    });
    assert!(class("2:2").qlen >= 19);
    edit(&open, false);
    for n in 0..20 {
        receive(&bulk.b, &datagram(n));
    }
    wait_for("the queue to be empty", || {
        let root = class("root");
        (root.qlen, root.backlog) == (0, 0)
    });
    assert_eq!(class("root").drops, 0);
    drop((bulk, urgent));
    lan.stop_within(Duration::from_secs(5));
}
