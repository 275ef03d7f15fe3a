//! Guests by vhost-user, and a host at a TAP device.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::MutexGuard;
use std::time::Instant;

use rustix::process::Signal;
use serde_json::Value;
use softnet_tests::qemu::{Guest, GuestConfig, Netdev, image};

use crate::common::{
    NamedNetns, PATIENCE, Running, Scratch, has_program, may_make_networks, softnet, text,
    wait_for,
};
use crate::{HOST, ONE, TWO, between, exchange, read, turn};

/// The switch and all that is around it but the guests.
struct Net {
    _turn: MutexGuard<'static, ()>,
    image: PathBuf,
    scratch: Scratch,
    host: NamedNetns,
    config: PathBuf,
    /// The part of the configuration with the guests' ports.
    guests: String,
    /// Which of the guests' sockets are Softnet's.
    server: [bool; 2],
    /// Killed when dropped.
    switch: Option<Running>,
}

impl Net {
    /// Two ports for guests with `queues` and sockets that are Softnet's or not, and a host.
    fn start(tag: &str, queues: [usize; 2], server: [bool; 2]) -> Option<Net> {
        let image = image()?;
        if !may_make_networks() || !has_program("ip") {
            return None;
        }
        let turn = turn();
        let scratch = Scratch::new(tag);
        let host = NamedNetns::new(tag);
        let mut guests = String::from("[engine]\nworkers = 2\n");
        for number in [1, 2] {
            guests += &format!(
                "[[port]]\nname = \"vm{number}\"\ndriver = \"vhost_user\"\nsocket = {:?}\n\
                 queues = {}\nserver = {}\n",
                scratch.path(&format!("vm{number}.sock")),
                queues[number - 1],
                server[number - 1],
            );
        }
        let config = format!(
            "{guests}[[port]]\nname = \"host\"\ndriver = \"tap\"\nnetns = {:?}\n\
             address = [\"{HOST}/24\"]\n\
             [[bridge]]\nname = \"br0\"\nports = [\"vm1\", \"vm2\", \"host\"]\n",
            host.name
        );
        let config = scratch.file("vms.toml", &config);
        let mut net = Net {
            _turn: turn,
            image,
            scratch,
            host,
            config,
            guests,
            server,
            switch: None,
        };
        net.start_switch();
        Some(net)
    }

    fn start_switch(&mut self) {
        let mut command = softnet();
        command.arg("run").arg(&self.config);
        let mut switch = Running::start(command.arg("--socket").arg(self.control()));
        wait_for("the switch", || {
            switch.assert_running();
            let up = self.host.interfaces().contains("host");
            up && self.ask(&["stats"]).status.success()
        });
        self.switch = Some(switch);
    }

    /// Packets that the switch has received.
    fn forwarded(&self) -> u64 {
        let rx = &self.stats()["conservation"]["rx"];
        rx.as_u64().expect("a number")
    }

    fn control(&self) -> PathBuf {
        self.scratch.path("control")
    }

    /// Runs `softnet` for this switch.
    fn ask(&self, arguments: &[&str]) -> std::process::Output {
        let mut command = softnet();
        command
            .arg(arguments[0])
            .arg("--socket")
            .arg(self.control());
        command.args(&arguments[1..]).output().expect("softnet")
    }

    fn stats(&self) -> Value {
        let output = self.ask(&["stats", "--json"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("one object")
    }

    fn port(&self, name: &str) -> Value {
        let stats = self.stats();
        let mut ports = stats["ports"].as_array().expect("ports").iter();
        let port = ports.find(|port| port["name"] == name);
        port.expect("the port").clone()
    }

    /// Waits until a port says so.
    fn wait_status(&self, port: &str, part: &str) {
        let mut status = String::new();
        let start = Instant::now();
        while !status.contains(part) {
            assert!(start.elapsed() < PATIENCE, "{port}: {status}");
            status = self.port(port)["link"]["status"].to_string();
        }
    }

    /// `ip` with the switch instead of the kernel.
    fn ip(&self, arguments: &[&str]) -> String {
        let output = self.ask(&[&["exec", "--", "ip"], arguments].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    }

    fn start_guest(&self, number: usize, queues: usize, device: &str) -> Guest {
        let netdev = Netdev::VhostUser {
            socket: &self.scratch.path(&format!("vm{number}.sock")),
            server: !self.server[number - 1],
        };
        let config = GuestConfig {
            netdevs: &[netdev],
            files: None,
            address: &format!("{}/24", [ONE, TWO][number - 1]),
            queues,
            device,
        };
        let log = self.scratch.path(&format!("vm{number}.log"));
        Guest::start(&self.image, log, &config)
    }

    fn boot(&self, number: usize, queues: usize, device: &str) -> Guest {
        let mut guest = self.start_guest(number, queues, device);
        guest.await_ready();
        guest
    }

    /// Both guests, at the same time.
    fn boot_both(&self, queues: [usize; 2], devices: [&str; 2]) -> [Guest; 2] {
        let start = |n: usize| self.start_guest(n + 1, queues[n], devices[n]);
        let mut guests = [0, 1].map(start);
        guests.iter_mut().for_each(Guest::await_ready);
        guests
    }

    /// Files and parts of guests' memory that the switch has open.
    fn held(&self) -> (BTreeMap<String, usize>, usize) {
        let process = self.switch.as_ref().expect("it runs").proc();
        // The switch closes its side of a connection a moment after `softnet stats` is done.
        let control = self.control().display().to_string();
        wait_for("the end of the control connections", || {
            let sockets = read(process.join("net/unix"));
            let ours = sockets.lines().filter(|line| line.ends_with(&control));
            ours.count() == 1
        });
        let mut files = BTreeMap::new();
        for entry in std::fs::read_dir(process.join("fd"))
            .expect("it runs")
            .flatten()
        {
            // Gone already: it counts as none.
            if let Ok(file) = std::fs::read_link(entry.path()) {
                let kind = file
                    .to_string_lossy()
                    .split(['[', '0'])
                    .next()
                    .map(str::to_owned);
                *files.entry(kind.unwrap_or_default()).or_default() += 1;
            }
        }
        let maps = read(process.join("maps"));
        let guests = maps
            .lines()
            .filter(|line| line.contains("memory-backend-memfd"));
        (files, guests.count())
    }

    /// Ends the switch: nothing is left of guests, who must be gone.
    fn finish(mut self, held: &(BTreeMap<String, usize>, usize)) {
        for port in ["vm1", "vm2"] {
            self.wait_status(port, "waiting for a front end");
        }
        let mut last = self.held();
        let start = Instant::now();
        while last != *held {
            assert!(start.elapsed() < PATIENCE, "{last:?}, at first {held:?}");
            last = self.held();
        }
        // The TAP device keeps buffers at hand. Without it, all must be there.
        self.scratch.file("vms.toml", &self.guests);
        let output = self.ask(&["reload"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let mut stats = self.stats();
        let start = Instant::now();
        let all = |pool: &Value| pool["free"] == pool["buffers"];
        while !stats["pools"].as_array().expect("pools").iter().all(all) {
            assert!(start.elapsed() < PATIENCE, "{stats:#}");
            stats = self.stats();
        }
        let sum = |key: &str| stats["conservation"][key].as_u64().expect("a number");
        assert_eq!(
            sum("rx") + sum("copied"),
            sum("tx") + sum("dropped") + sum("queued"),
            "{stats:#}"
        );
        let switch = self.switch.take().expect("it runs");
        switch.signal(Signal::TERM);
        assert_eq!(switch.finish().status.code(), Some(0));
        assert!(!self.control().exists(), "the control socket is left");
        for (number, server) in [(1, self.server[0]), (2, self.server[1])] {
            // QEMU leaves its own when it is killed.
            let left = self.scratch.path(&format!("vm{number}.sock")).exists();
            assert!(!(server && left), "the socket of guest {number} is left");
        }
    }
}

/// Packets that a guest's device counted at each of its queue pairs, received and sent.
fn by_queue(guest: &mut Guest, direction: &str) -> Vec<u64> {
    let counters = guest.ok("ethtool -S eth0");
    let counter = |line: &str| {
        let (name, value) = line.trim().split_once(": ")?;
        let queue = name.strip_prefix(direction)?.strip_suffix("_packets")?;
        queue.parse::<usize>().ok()?;
        value.parse().ok()
    };
    counters.lines().filter_map(counter).collect()
}

/// Each guest uses both of its queue pairs both ways, as do the peer's.
fn both_queues(one: &mut Guest, two: &mut Guest) {
    for (guest, peer) in [(&mut *one, TWO), (&mut *two, ONE)] {
        let now = guest.ok("ethtool -l eth0 | tail -n 1");
        assert!(now.starts_with("Combined:") && now.ends_with('2'), "{now}");
        // A sender uses the queue of its CPU; replies are spread by their flows.
        let are_used = (0..30).any(|_| {
            guest.ok(&format!(
                "for cpu in 1 2; do taskset $cpu nc {peer} 9 </dev/null; done"
            ));
            ["tx_queue_", "rx_queue_"]
                .iter()
                .all(|way| by_queue(guest, way)[..2].iter().all(|&packets| packets > 0))
        });
        assert!(are_used, "traffic on one queue alone");
    }
}

/// Guests with split and packed rings, with several queues and offload and without; they reboot and
/// die, and nothing of them stays.
#[test]
fn guests_come_and_go() {
    let Some(net) = Net::start("guests", [2, 4], [true, true]) else {
        return;
    };
    let held = net.held();
    assert_eq!(held.1, 0);
    let [mut one, mut two] = net.boot_both([2, 4], [",host_mtu=1400", ",packed=on"]);
    net.wait_status("vm1", "4 of 4 split rings enabled");
    net.wait_status("vm2", "4 of 8 packed rings enabled");
    assert!(net.held().1 > 0, "guest memory is mapped");
    assert_eq!(one.ok("cat /sys/class/net/eth0/mtu"), "1400");
    assert_eq!(net.port("vm1")["link"]["mtu"], 1400);
    assert_eq!(two.ok("cat /sys/class/net/eth0/mtu"), "1500");
    between(&mut one, &mut two);
    both_queues(&mut one, &mut two);
    exchange(&net.host, &mut one, ONE);
    exchange(&net.host, &mut two, TWO);

    // The guest uses fewer queues, and more again.
    two.ok("ethtool -L eth0 combined 1");
    net.wait_status("vm2", "2 of 8 packed rings enabled");
    between(&mut one, &mut two);
    two.ok("ethtool -L eth0 combined 2");
    net.wait_status("vm2", "4 of 8 packed rings enabled");
    between(&mut one, &mut two);

    // The port is taken down.
    net.ip(&["link", "set", "vm1", "down"]);
    assert_ne!(one.run(&format!("ping -c 1 -W 1 {TWO}")).0, 0);
    net.ip(&["link", "set", "vm1", "up"]);
    between(&mut one, &mut two);

    two.reboot();
    between(&mut one, &mut two);

    // One is killed; the others go on, and another takes its place: without offload.
    two.kill();
    net.wait_status("vm2", "the front end closed the connection");
    assert_eq!(net.port("vm2")["link"]["up"], false);
    exchange(&net.host, &mut one, ONE);
    let plain = ",mrg_rxbuf=off,csum=off,gso=off,host_tso4=off,host_tso6=off,host_ecn=off,\
                 host_ufo=off,guest_csum=off,guest_tso4=off,guest_tso6=off,guest_ecn=off,\
                 guest_ufo=off";
    let mut two = net.boot(2, 2, plain);
    let features = two.ok("ethtool -k eth0");
    for off in ["tx-checksumming: off", "tcp-segmentation-offload: off"] {
        assert!(features.contains(off), "{off}: {features}");
    }
    between(&mut one, &mut two);
    both_queues(&mut one, &mut two);
    exchange(&net.host, &mut two, TWO);
    one.kill();
    two.kill();
    net.finish(&held);
}

/// The switch is killed while guests send, and another one serves the same guests: one with packed
/// rings, whose front end connects again, and one with split rings, whose front end is connected
/// to.
#[test]
#[ignore = "boots virtual machines: .ci/long guests"]
fn the_switch_is_killed() {
    let Some(mut net) = Net::start("killed", [1, 2], [true, false]) else {
        return;
    };
    let held = net.held();
    let [mut one, mut two] = net.boot_both([1, 2], [",packed=on", ""]);
    between(&mut one, &mut two);
    for _ in 0..2 {
        let before = net.forwarded();
        let command = format!("for n in 1 2 3 4 5 6; do nc {TWO} 10; done | sha256sum");
        one.tell(&command);
        wait_for("traffic", || net.forwarded() > before + 1000);
        net.switch = None;
        wait_for("the guests to see it", || {
            two.ok("cat /sys/class/net/eth0/carrier") == "0"
        });
        net.start_switch();
        net.wait_status("vm1", "2 of 2 packed rings enabled");
        net.wait_status("vm2", "4 of 4 split rings enabled");
        let (status, output) = one.answer(&command);
        assert_eq!(status, 0, "{output}");
        let six = two.ok("cat /data /data /data /data /data /data | sha256sum");
        assert_eq!(output, six);
        between(&mut one, &mut two);
        exchange(&net.host, &mut one, ONE);
    }
    two.kill();
    one.kill();
    net.finish(&held);
}
