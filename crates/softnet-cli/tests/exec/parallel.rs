//! A port with `parallel = true`: `tc` has one tree, which both of its queues run.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use crate::common::{Daemon, NamedNetns, Scratch, has_program, may_make_networks, wait_for};

/// Flows from one host to the other. Some take one queue and some the other.
const FLOWS: usize = 16;
/// Targets of the flows: the destination port and the class.
const CLASSES: [(u16, &str); 2] = [(5001, "1:10"), (5002, "1:20")];

struct World {
    daemon: Daemon,
    /// A socket for each flow, and where it sends.
    flows: Vec<(UdpSocket, SocketAddr)>,
    /// Nobody reads what arrives.
    _to: Vec<UdpSocket>,
    _hosts: [NamedNetns; 2],
    _scratch: Scratch,
}

fn file(hosts: &[NamedNetns; 2], parallel: bool) -> String {
    let mut text = String::from("[engine]\nworkers = 2\n");
    for (host, (name, address)) in hosts.iter().zip([("a0", "10.9.7.1"), ("b0", "10.9.7.2")]) {
        text += &format!(
            "[[port]]\nname = {name:?}\ndriver = \"tap\"\nqueues = 2\nnetns = {:?}\n\
             address = [\"{address}/24\"]\n",
            host.name
        );
        if parallel && name == "b0" {
            text += "parallel = true\n";
        }
    }
    text + "[[bridge]]\nname = \"br0\"\nports = [\"a0\", \"b0\"]\n"
}

impl World {
    /// `tag` is of one test alone.
    fn new(tag: &str) -> Option<World> {
        if !may_make_networks() || !has_program("tc") || !has_program("ip") {
            return None;
        }
        let scratch = Scratch::new(tag);
        let hosts = ["a", "b"].map(|host| NamedNetns::new(&format!("{tag}-{host}")));
        let mut daemon = Daemon::start(&scratch, &file(&hosts, true));
        let mut bind = |host: &NamedNetns, address: (&str, u16)| -> UdpSocket {
            let mut bound = None;
            wait_for("an address", || {
                daemon.running.assert_running();
                bound = host.run(|| UdpSocket::bind(address)).ok();
                bound.is_some()
            });
            bound.expect("a socket")
        };
        let to = CLASSES.map(|(port, _)| bind(&hosts[1], ("10.9.7.2", port)));
        let flow = |n: usize| {
            let from = bind(&hosts[0], ("10.9.7.1", 0));
            let to = to[n % to.len()].local_addr().expect("an address");
            (from, to)
        };
        let flows = (0..FLOWS).map(flow).collect();
        Some(World {
            daemon,
            flows,
            _to: to.into(),
            _hosts: hosts,
            _scratch: scratch,
        })
    }

    fn tc(&self, command: &str) -> String {
        self.daemon.run(&format!("tc {command}"))
    }

    /// Packets that a qdisc or class of port `b0` has sent.
    fn packets(&self, what: &str, name: &str) -> u64 {
        let shown = self.tc(&format!("-s {what} show dev b0"));
        let mut lines = shown.lines();
        let named = |line: &str| line.split(' ').nth(2) == Some(name);
        lines.find(|line| named(line)).expect(&shown);
        // "Sent 300 bytes 1 pkt (…".
        let mut sent = lines.next().expect(&shown).split_whitespace();
        sent.nth(3).and_then(|n| n.parse().ok()).expect(&shown)
    }

    /// Sends so many datagrams on each flow.
    fn send(&self, each: usize) {
        for _ in 0..each {
            for (socket, to) in &self.flows {
                socket.send_to(&[7; 300], to).expect("sending");
            }
        }
    }

    /// Ends the daemon, which says so if a packet was lost uncounted.
    fn stop(self) {
        self.daemon.stop();
    }
}

/// `tc` shows one tree: what both queues send is in the sums of qdiscs, classes and filters.
#[test]
fn tc_shows_one_tree_that_two_queues_run() {
    let Some(world) = World::new("one-tree") else {
        return;
    };
    // Each queue by itself: the flows take both.
    world.tc("qdisc replace dev b0 root handle 9: mq");
    // The hosts find each other.
    wait_for("both queues to be used", || {
        world.send(1);
        ["9:1", "9:2"]
            .iter()
            .all(|queue| world.packets("class", queue) > 0)
    });
    world.tc("qdisc replace dev b0 root handle 1: htb default 0");
    world.tc("class add dev b0 parent 1: classid 1:1 htb rate 10gbit");
    for (port, class) in CLASSES {
        world.tc(&format!(
            "class add dev b0 parent 1:1 classid {class} htb rate 1gbit ceil 10gbit"
        ));
        world.tc(&format!(
            "filter add dev b0 parent 1: protocol ip prio 1 u32 \
             match ip dport {port} 0xffff flowid {class}"
        ));
    }
    world.tc("qdisc add dev b0 parent 1:10 handle 10: fq_codel");
    // No more at once than the queues of the first host's interface hold while nobody runs.
    const EACH: usize = 10;
    const TIMES: u64 = 5;
    let mut each = 0;
    for _ in 0..TIMES {
        world.send(EACH);
        each += (EACH * FLOWS / CLASSES.len()) as u64;
        for (_, class) in CLASSES {
            wait_for("the class to send all", || {
                world.packets("class", class) == each
            });
        }
    }
    wait_for("the class above to have counted it", || {
        world.packets("class", "1:1") == 2 * each
    });
    let qdiscs = world.tc("qdisc show dev b0");
    assert_eq!(qdiscs.lines().count(), 2, "one tree: {qdiscs}");
    wait_for("the qdiscs to have counted it", || {
        world.packets("qdisc", "10:") == each && world.packets("qdisc", "1:") >= 2 * each
    });
    // The first filter is tried for all, and matches half of it.
    for hits in [2 * each, each].map(|tried| format!("(rule hit {tried} success {each})")) {
        wait_for(&hits, || world.tc("-s filter show dev b0").contains(&hits));
    }

    // It is in the configuration; without it one queue runs the tree.
    let dumped = world.daemon.say("dump-config");
    assert_eq!(dumped.matches("parallel = true").count(), 1, "{dumped}");
    let without = dumped.replace("parallel = true\n", "");
    world.daemon.write(&without);
    world.daemon.say("reload");
    assert!(!world.daemon.say("dump-config").contains("parallel"));
    assert_eq!(world.packets("class", "1:10"), 0, "it is another tree");
    world.send(1);
    wait_for("packets", || {
        world.packets("class", "1:10") == (FLOWS / 2) as u64
    });
    world.daemon.write(&dumped);
    world.daemon.say("reload");
    assert_eq!(world.daemon.say("dump-config"), dumped);
    world.stop();
}

/// Ends the load when it is dropped.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Classes, qdiscs and filters come and go while both queues send. Nothing is lost uncounted.
#[test]
fn a_parallel_tree_is_changed_under_load() {
    let Some(world) = World::new("load") else {
        return;
    };
    world.tc("qdisc replace dev b0 root handle 1: htb default 10");
    world.tc("class add dev b0 parent 1: classid 1:10 htb rate 1gbit");
    let (over, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                world.send(4);
                sent.fetch_add(1, Ordering::Relaxed);
            }
        });
        // Also if this fails.
        let done = Over(&over);
        for round in 0..8 {
            let before = sent.load(Ordering::Relaxed);
            for command in [
                "class add dev b0 parent 1: classid 1:20 htb rate 500mbit",
                "filter add dev b0 parent 1: protocol ip prio 1 u32 \
                 match ip dport 5002 0xffff flowid 1:20",
                "class change dev b0 parent 1: classid 1:20 htb rate 2gbit",
                "qdisc add dev b0 parent 1:20 handle 20: fq_codel",
                "qdisc change dev b0 handle 20: parent 1:20 fq_codel limit 500",
                "qdisc replace dev b0 parent 1:20 handle 21: pfifo limit 100",
                "filter del dev b0 parent 1: prio 1",
                "class del dev b0 classid 1:20",
            ] {
                world.tc(command);
            }
            wait_for("more to be sent", || sent.load(Ordering::Relaxed) > before);
            let classes = world.tc("class show dev b0");
            assert_eq!(classes.lines().count(), 1, "round {round}: {classes}");
        }
        drop(done);
    });
    world.stop();
}
