//! Smart queue management of a home router, by the commands of its descriptions: what leaves is
//! shaped at the link, what arrives at an `ifb`.

use super::Daemon;
use super::common::has_program;

/// With `; 2` behind one that ends with this code.
const COMMANDS: &str = "\
ip link add name ifb4wan type ifb
tc qdisc del dev wan root ; 2
tc qdisc add dev wan root handle 1: htb default 12
tc class add dev wan parent 1: classid 1:1 htb quantum 1514 rate 8500kbit ceil 8500kbit
tc class add dev wan parent 1:1 classid 1:11 htb rate 128kbit ceil 2800kbit prio 1
tc class add dev wan parent 1:1 classid 1:12 htb rate 1400kbit ceil 8400kbit prio 2
tc class add dev wan parent 1:1 classid 1:13 htb rate 1400kbit ceil 8300kbit prio 3
tc qdisc add dev wan parent 1:11 handle 110: fq_codel limit 1001 noecn quantum 300
tc qdisc add dev wan parent 1:12 handle 120: fq_codel limit 1001 noecn quantum 300
tc qdisc add dev wan parent 1:13 handle 130: fq_codel limit 1001 noecn quantum 300
tc filter add dev wan parent 1:0 protocol ip prio 1 u32 match ip tos 0x10 0xfc classid 1:11
tc qdisc add dev wan handle ffff: ingress
tc qdisc add dev ifb4wan root handle 1: htb default 10
tc class add dev ifb4wan parent 1: classid 1:1 htb rate 42mbit ceil 42mbit
tc class add dev ifb4wan parent 1:1 classid 1:10 htb rate 42mbit ceil 42mbit
tc qdisc add dev ifb4wan parent 1:10 handle 110: fq_codel limit 1001 ecn
ip link set dev ifb4wan up
tc filter add dev wan parent ffff: protocol all prio 10 u32 match u32 0 0 flowid 1:1 \
action mirred egress redirect dev ifb4wan";

/// The same by one qdisc each way.
const PIECE_OF_CAKE: &str = "\
ip link add name ifb4wan type ifb
tc qdisc del dev wan root ; 2
tc qdisc add dev wan root cake bandwidth 8500kbit besteffort nat dual-srchost ack-filter
tc qdisc add dev wan handle ffff: ingress
tc qdisc add dev ifb4wan root cake bandwidth 42000kbit besteffort wash dual-dsthost ingress
ip link set dev ifb4wan up
tc filter add dev wan parent ffff: protocol all prio 10 u32 match u32 0 0 flowid 1:1 \
action mirred egress redirect dev ifb4wan";

#[test]
fn what_arrives_and_what_leaves_is_shaped() {
    if !has_program("tc") || !has_program("ip") {
        return;
    }
    for commands in [COMMANDS, PIECE_OF_CAKE] {
        run(commands);
    }
}

fn run(commands: &str) {
    let daemon = Daemon::start("sqm", "[[port]]\nname = \"wan\"\ndriver = \"null\"\n");
    for line in commands.lines() {
        let (line, expected) = match line.strip_suffix(" ; 2") {
            Some(line) => (line, 2),
            None => (line, 0),
        };
        let mut words = line.split_whitespace();
        let program = words.next().expect("a program");
        let output = daemon.exec(program).args(words).output().expect("softnet");
        let said = super::common::text(&output.stderr);
        assert_eq!(output.status.code(), Some(expected), "{line}: {said}");
    }
    let shown = daemon.done("filter show dev wan ingress");
    assert!(
        shown.contains("Egress Redirect to device ifb4wan"),
        "{shown}"
    );
    daemon.done("qdisc del dev wan ingress");
    let left = daemon.done("qdisc show dev wan");
    assert!(!left.contains("ingress"), "{left}");
    daemon.stop();
}
