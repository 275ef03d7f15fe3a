//! A batch like LibreQoS's: 10,000 circuits, each a class of `htb` with a fair queue below, by `tc
//! -batch`. Time and memory are said, not asserted.

use std::fmt::Write;
use std::time::Instant;

use super::common::has_program;
use super::{Daemon, succeeded};

const CIRCUITS: u32 = 10_000;
/// Circuits of a site, whose class is above them.
const SITE: u32 = 100;

fn batch(leaf: &str) -> String {
    let mut text = String::new();
    let mut line = |line: std::fmt::Arguments<'_>| writeln!(text, "{line}").expect("a string");
    line(format_args!(
        "qdisc replace dev p0 root handle 1: htb default 2"
    ));
    line(format_args!(
        "class add dev p0 parent 1: classid 1:1 htb rate 10gbit ceil 10gbit burst 1m quantum 1514"
    ));
    for circuit in 0..CIRCUITS {
        let site = 0x8000 + circuit / SITE;
        if circuit % SITE == 0 {
            line(format_args!(
                "class add dev p0 parent 1:1 classid 1:{site:x} htb rate 500mbit ceil 1gbit \
                 quantum 1514"
            ));
        }
        let class = 0x100 + circuit;
        line(format_args!(
            "class add dev p0 parent 1:{site:x} classid 1:{class:x} htb rate 10mbit ceil 100mbit \
             quantum 1514"
        ));
        line(format_args!("qdisc add dev p0 parent 1:{class:x} {leaf}"));
    }
    text
}

fn resident(daemon: &Daemon) -> u64 {
    let status =
        std::fs::read_to_string(daemon.daemon.running.proc().join("status")).expect("status");
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    number.expect("a number")
}

#[test]
fn ten_thousand_circuits_are_added_and_removed() {
    add_and_remove("libreqos", "fq_codel flows 64");
}

#[test]
#[ignore = "as long as the other, and differs in the leaf: .ci/long programs"]
fn circuits_with_cake_are_added_and_removed() {
    add_and_remove("libreqos-cake", "cake bandwidth 100mbit diffserv4");
}

fn add_and_remove(tag: &str, leaf: &str) {
    if !has_program("tc") || !has_program("ip") {
        return;
    }
    let daemon = Daemon::with_port(tag);
    let before = resident(&daemon);
    let file = daemon.scratch.file("batch", &batch(leaf));
    let start = Instant::now();
    let output = daemon.exec("tc").arg("-batch").arg(file).output();
    succeeded(&output.expect("softnet"), &"tc -batch");
    let took = start.elapsed();
    let count = |what: &str| daemon.done(what).lines().count();
    // The site classes and the one above.
    let classes = CIRCUITS + CIRCUITS / SITE + 1;
    let shown = daemon.done("class show dev p0");
    let htb = shown
        .lines()
        .filter(|line| line.starts_with("class htb"))
        .count();
    assert_eq!(htb, classes as usize);
    assert_eq!(count("qdisc show dev p0"), CIRCUITS as usize + 1);
    let kilobytes = resident(&daemon).saturating_sub(before);
    println!("{CIRCUITS} circuits with {leaf}: {took:?}, {kilobytes} kB more than without");
    let start = Instant::now();
    daemon.done("qdisc del dev p0 root");
    println!("all removed: {:?}", start.elapsed());
    assert_eq!(count("qdisc show dev p0"), 1);
    daemon.stop();
}
