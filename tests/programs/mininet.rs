//! mininet's `TCLink`: the commands that `TCIntf` makes of a link's parameters (bandwidth by `htb`,
//! `hfsc` or `tbf`, delay and loss by `netem`, queues by `red`), as its description says, one link
//! after the other. Mininet itself needs Open vSwitch and the kernel's interfaces.

use super::Daemon;
use super::common::{has_program, skip, text};

/// A bandwidth of 10 Mbit/s, by each of the ways that `TCLink` has. The last line has the parent of
/// what follows.
const BANDWIDTH: [(&str, &[&str], &str); 3] = [
    (
        "htb",
        &[
            "qdisc add dev p0 root handle 5:0 htb default 1",
            "class add dev p0 parent 5:0 classid 5:1 htb rate 10.000000Mbit burst 15k",
        ],
        "parent 5:1",
    ),
    (
        "hfsc",
        &[
            "qdisc add dev p0 root handle 5:0 hfsc default 1",
            "class add dev p0 parent 5:0 classid 5:1 hfsc sc rate 10.000000Mbit ul rate \
             10.000000Mbit",
        ],
        "parent 5:1",
    ),
    (
        "tbf",
        &["qdisc add dev p0 root handle 5: tbf rate 10.000000Mbit burst 15000 latency 1ms"],
        "parent 5:1",
    ),
];

const ECN: &str = "handle 6: red limit 1000000 min 30000 max 35000 avpkt 1500 burst 20 bandwidth \
                   10.000000mbit probability 1 ecn";

#[test]
fn the_commands_of_tclink_make_its_links() {
    if !has_program("tc") || !has_program("ip") {
        return;
    }
    let daemon = Daemon::with_port("mininet");
    let is_known = |kind: &str, command: &str| {
        let output = daemon.tc(command);
        let said = text(&output.stderr);
        let unknown = said.contains("qdisc kind is unknown");
        assert!(unknown || output.status.success(), "{command}: {said}");
        if unknown {
            skip(&format!("the version has no {kind}"));
        }
        !unknown
    };
    for (kind, commands, parent) in BANDWIDTH {
        if !is_known(kind, commands[0]) {
            continue;
        }
        for command in &commands[1..] {
            daemon.done(command);
        }
        let mut parent = parent.to_owned();
        let red = format!("qdisc add dev p0 {parent} {ECN}");
        if kind == "htb" && is_known("red", &red) {
            parent = "parent 6:".to_owned();
        }
        let netem = "handle 10: netem delay 5ms 1ms loss 1.000000% limit 500";
        daemon.done(&format!("qdisc add dev p0 {parent} {netem}"));
        let shown = daemon.done("qdisc show dev p0");
        let wanted = "limit 500 delay 5ms  1ms loss 1%";
        assert!(shown.contains(wanted), "{kind}: {shown}");
        daemon.done("qdisc del dev p0 root");
    }
    // A link with delay alone.
    daemon.done("qdisc add dev p0 root handle 10: netem delay 5ms");
    assert!(daemon.done("qdisc show dev p0").contains("delay 5ms"));
    daemon.stop();
}
