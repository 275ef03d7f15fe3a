//! A daemon whose ports are XDP sockets, opened by its helper: it moves packets without rights, and
//! leaves nothing at the interfaces, however it ends.

mod common;

use std::process::Command;
use std::thread;

use common::{
    NamedNetns, Running, Scratch, has_program, may_make_networks, softnet, text, wait_for,
};
use rustix::process::Signal;

/// A host behind a veth, whose other end is in the namespace `wires`.
fn host(tag: &str, number: u8, wires: &NamedNetns) -> NamedNetns {
    let host = NamedNetns::new(tag);
    let wire = format!("wire{number}");
    let queues = ["numrxqueues", "2", "numtxqueues", "2"];
    let link = ["link", "add", &wire];
    let peer = ["type", "veth", "peer", "name", "eth0", "netns", &host.name];
    wires.ip(&[&link[..], &queues, &peer, &queues].concat());
    wires.ip(&["link", "set", &wire, "up"]);
    let address = format!("10.9.0.{number}/24");
    host.ip(&["address", "add", &address, "dev", "eth0"]);
    host.ip(&["link", "set", "eth0", "up"]);
    let mut ethtool = Command::new("ip");
    ethtool.args(["netns", "exec", &host.name, "ethtool", "-K", "eth0"]);
    let output = ethtool.args(["tx", "off", "txvlan", "off"]).output();
    assert!(output.expect("ethtool").status.success());
    host
}

fn ping(from: &NamedNetns) {
    wait_for("a ping", || {
        let mut ping = Command::new("ip");
        ping.args(["netns", "exec", &from.name, "ping", "-c20", "-i0.01", "-W1"]);
        let output = ping.arg("10.9.0.2").output().expect("ping");
        text(&output.stdout).contains(" 0% packet loss")
    });
}

/// A line for each interface: its program and whether it is promiscuous.
fn show(wires: &NamedNetns) -> String {
    let mut ip = Command::new("ip");
    let output = ip.args(["-n", &wires.name, "-d", "link", "show", "type", "veth"]);
    text(&output.output().expect("ip").stdout)
}

#[test]
fn ports_of_a_daemon_without_rights() {
    if !may_make_networks() || !has_program("ethtool") {
        return;
    }
    let scratch = Scratch::new("xdp");
    let wires = NamedNetns::new("xdpw");
    let hosts = [host("xdpa", 1, &wires), host("xdpb", 2, &wires)];
    let port = |number| {
        let netns = &wires.name;
        format!(
            "[[port]]\nname = \"p{number}\"\ndriver = \"af_xdp\"\ninterface = \"wire{number}\"\n\
             netns = {netns:?}\nqueues = 2\n"
        )
    };
    let shaped = "[port.qdisc]\nkind = \"tbf\"\nrate = \"50%\"\nburst = \"1m\"\nlimit = \"9m\"\n";
    let bridge = "[[bridge]]\nname = \"br0\"\nports = [\"p1\", \"p2\"]\n";
    // As much as may be locked without any right.
    let config = format!(
        "[engine]\nworkers = 2\nbuffers = 1024\n{}{shaped}{}{bridge}",
        port(1),
        port(2)
    );
    let config = scratch.file("xdp.toml", &config);
    let socket = scratch.path("s");
    for end in [Signal::KILL, Signal::TERM, Signal::TERM] {
        let mut command = softnet();
        command.arg("run").arg(&config).arg("--socket").arg(&socket);
        let mut running = Running::start(&mut command);
        wait_for("the daemon", || {
            running.assert_running();
            show(&wires).matches("prog/xdp").count() == 2
        });
        // Each CPU has a queue of its own.
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| ping(&hosts[0]));
            }
        });
        let mut stats = softnet();
        let stats = stats.arg("--socket").arg(&socket).arg("stats").output();
        let stats = text(&stats.expect("softnet").stdout);
        assert!(stats.contains("copy mode, native XDP"), "{stats}");
        // Each veth says 10 Gb/s.
        for (words, expected) in [
            (&["tc", "qdisc", "show", "dev", "p1"][..], "rate 5Gbit"),
            (&["dump-config"][..], "rate = \"50%\""),
        ] {
            let mut show = softnet();
            let show = show.arg("--socket").arg(&socket).args(words).output();
            let shown = text(&show.expect("softnet").stdout);
            assert!(shown.contains(expected), "{shown}");
        }
        // The interface is not Softnet's to change.
        for words in [
            &["ip", "link", "set", "dev", "p1", "mtu", "1400"][..],
            &["port", "set", "p1", "mtu=1400"],
        ] {
            let mut set = softnet();
            let set = set.arg("--socket").arg(&socket).args(words).output();
            let set = set.expect("softnet");
            let said = text(&set.stderr);
            assert!(
                !set.status.success() && said.contains("not Softnet's to change"),
                "{said}"
            );
        }
        running.signal(end);
        let output = running.finish();
        if end == Signal::TERM {
            assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        }
        wait_for("the end of its programs and sockets", || {
            let shown = show(&wires);
            !shown.contains("prog/xdp") && shown.matches("promiscuity 0").count() == 2
        });
    }
}
