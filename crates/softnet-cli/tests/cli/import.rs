//! `softnet import`: what this kernel runs at an interface, as a configuration.

use std::process::{Command, Output};

use crate::common::{NamedNetns, Scratch, has_program, may_make_networks, softnet, text};

/// A namespace with the interface `t0`, and the commands of `tc` that its kernel takes.
struct Host {
    netns: NamedNetns,
}

impl Host {
    fn new(tag: &str) -> Host {
        let netns = NamedNetns::new(tag);
        netns.ip(&["tuntap", "add", "t0", "mode", "tap"]);
        netns.ip(&["link", "set", "t0", "up"]);
        Host { netns }
    }

    fn tc(&self, words: &str) {
        let mut command = Command::new("tc");
        command
            .args(["-n", &self.netns.name])
            .args(words.split_whitespace());
        let output = command.output().expect("tc");
        assert!(output.status.success(), "{words}: {}", text(&output.stderr));
    }

    fn import(&self, more: &[&str]) -> Output {
        let mut command = softnet();
        command.args(["import", "t0"]).args(more);
        self.netns.run(|| command.output()).expect("softnet")
    }
}

/// Runs it as it is imported.
fn sim(scratch: &Scratch, imported: &Output, words: &[&str]) -> (Option<i32>, String) {
    let config = scratch.file("imported.toml", &text(&imported.stdout));
    let check = softnet()
        .arg("check")
        .arg(&config)
        .output()
        .expect("softnet");
    assert!(check.status.success(), "{}", text(&check.stderr));
    let mut command = softnet();
    command
        .args(["sim", "--port", "t0", "--config"])
        .arg(&config)
        .args(words);
    let output = command.output().expect("softnet");
    (
        output.status.code(),
        text(&output.stdout) + &text(&output.stderr),
    )
}

fn can_import() -> bool {
    has_program("tc") && may_make_networks()
}

#[test]
fn a_live_policy_is_imported_and_simulated() {
    if !can_import() {
        return;
    }
    let scratch = Scratch::new("import");
    let host = Host::new("import");
    for words in [
        "qdisc add dev t0 root handle 1: htb default 20",
        "class add dev t0 parent 1: classid 1:1 htb rate 10mbit",
        "class add dev t0 parent 1:1 classid 1:10 htb rate 2mbit ceil 10mbit prio 0",
        "class add dev t0 parent 1:1 classid 1:20 htb rate 8mbit ceil 10mbit prio 1",
        "qdisc add dev t0 parent 1:20 handle 20: tbf rate 5mbit burst 16k latency 50ms",
        "filter add dev t0 parent 1: protocol ip prio 1 u32 match ip dport 53 0xffff flowid 1:10",
        "filter add dev t0 parent 1: protocol ip prio 1 u32 match ip dport 22 0xffff flowid 1:10",
        "filter add dev t0 parent 1: protocol ip prio 2 u32 match ip tos 0xb8 0xfc flowid 1:10",
        "qdisc add dev t0 ingress",
        "filter add dev t0 parent ffff: protocol ip prio 5 u32 match ip src 10.0.0.9 flowid :1",
    ] {
        host.tc(words);
    }
    let imported = host.import(&["--strict"]);
    let toml = text(&imported.stdout);
    assert_eq!(
        imported.status.code(),
        Some(0),
        "{toml}{}",
        text(&imported.stderr)
    );
    assert!(!toml.contains("left out"), "{toml}");
    assert_eq!(toml.matches("[[port.filter]]").count(), 4, "{toml}");
    assert_eq!(toml.matches("[[port.class]]").count(), 3, "{toml}");
    let words = [
        "--generate",
        "name=dns,rate=1mbit,size=200,dport=53,for=2s",
        "--generate",
        "name=ssh,rate=1mbit,size=200,dport=22,for=2s",
        "--generate",
        "name=voip,rate=1mbit,size=200,dscp=46,for=2s",
        "--generate",
        "name=rest,rate=9mbit,for=2s",
        "--expect",
        "1:10 rate 2.8..3.1mbit",
        "--expect",
        "1:20 rate 4.5..5.3mbit",
    ];
    let (code, said) = sim(&scratch, &imported, &words);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("filters of ingress and of blocks are not simulated"),
        "{said}"
    );
}

#[test]
fn what_is_left_out_has_a_line_and_strict_counts_it() {
    if !can_import() {
        return;
    }
    let host = Host::new("left-out");
    // Nothing was asked for: the port is as its driver makes it.
    let plain = host.import(&["--strict"]);
    assert_eq!(plain.status.code(), Some(0), "{}", text(&plain.stdout));
    assert!(
        !text(&plain.stdout).contains("qdisc"),
        "{}",
        text(&plain.stdout)
    );
    for words in [
        "qdisc add dev t0 root handle 1: htb default 10",
        "class add dev t0 parent 1: classid 1:10 htb rate 10mbit",
        "filter add dev t0 parent 1: prio 3 protocol ip u32 match ip dport 5 0xffff action mirred \
         egress redirect dev lo",
        "filter add dev t0 parent 1: prio 4 protocol ip u32 match ip dport 7 0xffff flowid 1:10",
    ] {
        host.tc(words);
    }
    let imported = host.import(&[]);
    let toml = text(&imported.stdout);
    assert_eq!(imported.status.code(), Some(0), "{toml}");
    let lines: Vec<&str> = toml.lines().filter(|line| line.starts_with('#')).collect();
    assert_eq!(lines.len(), 1, "{toml}");
    let start = "# left out: filter u32 at 1:, prio 3: ";
    assert!(lines.iter().all(|line| line.starts_with(start)), "{toml}");
    assert_eq!(toml.matches("[[port.filter]]").count(), 1, "{toml}");
    let strict = host.import(&["--strict"]);
    assert_eq!(strict.status.code(), Some(3));
    assert!(text(&strict.stderr).contains("1 objects are left out"));
}

/// A table with a number that was asked for, and one that the kernel chose; and a filter before
/// both that the service is to ask for behind them.
#[test]
fn hash_tables_and_links_are_imported() {
    if !can_import() {
        return;
    }
    let scratch = Scratch::new("import-tables");
    let host = Host::new("tables");
    for words in [
        "qdisc add dev t0 root handle 1: htb default 20",
        "class add dev t0 parent 1: classid 1:10 htb rate 10mbit",
        "class add dev t0 parent 1: classid 1:11 htb rate 10mbit",
        "class add dev t0 parent 1: classid 1:20 htb rate 10mbit",
        "filter add dev t0 parent 1: prio 2 protocol ip u32 match ip dport 9 0xffff flowid 1:11",
        "filter add dev t0 parent 1: prio 3 protocol ip handle 2: u32 divisor 16",
        "filter add dev t0 parent 1: prio 3 protocol ip u32 ht 2:5: match ip dport 5 0xffff \
         flowid 1:10",
        "filter add dev t0 parent 1: prio 3 protocol ip u32 ht 2:6: match ip dport 5 0xffff \
         flowid 1:11",
        "filter add dev t0 parent 1: prio 3 protocol ip u32 match ip src 10.0.0.0/8 link 2: \
         hashkey mask 0x0000000f at 12",
    ] {
        host.tc(words);
    }
    let imported = host.import(&["--strict"]);
    let toml = text(&imported.stdout);
    let code = imported.status.code();
    assert_eq!(code, Some(0), "{toml}{}", text(&imported.stderr));
    assert_eq!(toml.matches("[[port.filter]]").count(), 5, "{toml}");
    assert!(toml.contains("link = \"2:\""), "{toml}");
    let mut words: Vec<&str> = Vec::new();
    for flow in [
        "name=five,rate=1mbit,for=1s,src=10.0.0.5,dport=5",
        "name=six,rate=2mbit,for=1s,src=10.0.0.6,dport=5",
        "name=seven,rate=3mbit,for=1s,src=10.0.0.7,dport=5",
        "name=nine,rate=4mbit,for=1s,src=10.0.0.5,dport=9",
    ] {
        words.extend(["--generate", flow]);
    }
    for bound in [
        "1:10 rate 0.9..1.1mbit",
        "1:11 rate 5.7..6.3mbit",
        "1:20 rate 2.8..3.2mbit",
    ] {
        words.extend(["--expect", bound]);
    }
    let (code, said) = sim(&scratch, &imported, &words);
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn what_names_another_interface_is_left_out() {
    if !can_import() {
        return;
    }
    let host = Host::new("mirred");
    host.tc("qdisc add dev t0 handle ffff: ingress");
    host.tc(
        "filter add dev t0 parent ffff: protocol ip prio 5 u32 match u32 0 0 action mirred egress \
         redirect dev lo",
    );
    for (prio, dev) in [(6, "lo"), (7, "t0")] {
        let filter = format!("prio {prio} u32 match u32 0 0 indev {dev} flowid :1");
        host.tc(&format!(
            "filter add dev t0 parent ffff: protocol ip {filter}"
        ));
    }
    let imported = host.import(&[]);
    let toml = text(&imported.stdout);
    for line in [
        "# left out: filter u32 at ffff:, prio 5: mirred leads to an interface",
        "# left out: filter u32 at ffff:, prio 6: indev names lo, an interface",
    ] {
        assert!(toml.contains(line), "{toml}");
    }
    assert_eq!(toml.matches("left out").count(), 2, "{toml}");
    assert!(toml.contains("indev = \"t0\""), "{toml}");
    let missing = softnet().args(["import", "no-such-dev"]).output();
    let missing = missing.expect("softnet");
    assert_eq!(missing.status.code(), Some(1));
    assert!(
        text(&missing.stderr).contains("no-such-dev"),
        "{}",
        text(&missing.stderr)
    );
}

/// A filter that names the interface has its name, by whatever name it is imported.
#[test]
fn another_name_of_an_interface_stands_for_its_name() {
    if !can_import() {
        return;
    }
    let host = Host::new("altname");
    let altname = ["link", "property", "add", "dev", "t0", "altname", "wan"];
    host.netns.ip(&altname);
    host.tc("qdisc add dev t0 handle ffff: ingress");
    host.tc(
        "filter add dev t0 parent ffff: protocol ip prio 7 u32 match u32 0 0 indev t0 flowid :1",
    );
    let mut command = softnet();
    command.args(["import", "wan", "--strict"]);
    let imported = host.netns.run(|| command.output()).expect("softnet");
    let toml = text(&imported.stdout);
    let said = text(&imported.stderr);
    assert_eq!(imported.status.code(), Some(0), "{toml}{said}");
    assert!(toml.contains("indev = \"t0\""), "{toml}");
    assert!(toml.contains("interface = \"t0\""), "{toml}");
}
