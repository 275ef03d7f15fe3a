//! L4S beside classic traffic between guests with Linux 7.2, and in `softnet sim`: the shares.
//!
//! The policy is that of `examples/policies/l4s.sh` five times slower, since CPUs are emulated: a
//! fifth of the rate, all times five times as long, gains a fifth. So as many packets are under way
//! as there, and shares are much the same.
//!
//! Linux's DCTCP sends ECT(0). A filter where its packets come in makes that ECT(1), by which
//! `dualpi2` and the simulated DCTCP go.

use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use serde_json::Value;
use softnet_testbed::place::Place;
use softnet_tests::qemu::{Guest, GuestConfig, Netdev, image};

use crate::common::{Daemon, Scratch, has_program, skip, softnet, text, wait_for};
use crate::router::pack;
use crate::{ONE, TWO, turn};

/// Bits per second of the link. The guests carry more.
const RATE: f64 = 10e6;
/// Round-trip time without queues.
const RTT: &str = "50ms";
const TIME: Duration = Duration::from_secs(60);
/// Shares of the scalable sender where the queues are coupled: neither starves the other. Where it
/// is in the classic sender's queue, the simulation gives it 0.95.
///
/// By the laws of both windows it is 0.65: at p, DCTCP's is 2/(2p) in 55 ms, Cubic's 1.23/p in up
/// to 125 ms. The simulation gives 0.67, two runs of guests 0.43 and 0.44, for which a twentieth of
/// the scalable packets had to be marked besides. The step marks what waits 5 ms, as bursts of more
/// than four frames do, which emulated CPUs make. So the test tells how many were.
const SHARES: RangeInclusive<f64> = 0.25..=0.75;
/// Packets that each sender sends at least.
const FEW: u64 = 2000;

/// Modules of the kernel that guests need.
const MODULES: [&str; 4] = [
    "net/core/failover",
    "drivers/net/net_failover",
    "drivers/net/virtio_net",
    "net/ipv4/tcp_dctcp",
];

/// A port for each guest. Acknowledgments are delayed on their way to the sender.
fn config(scratch: &Scratch) -> PathBuf {
    let [sender, receiver] = ["sender", "receiver"].map(|name| scratch.path(name));
    let text = format!(
        r#"
[[port]]
name = "sender"
driver = "stream"
socket = {sender:?}
server = true
[[port.qdisc]]
kind = "netem"
delay = "{RTT}"
[[port.qdisc]]
kind = "clsact"
[[port.filter]]
parent = "ingress"
protocol = "ip"
ip_proto = "tcp"
dst_port = 5001
ip_tos = "0x02/0x03"
action = ["pedit ex munge ip offset 0 set 0x00010000/0xfffcffff pipe", "csum ip4h"]

[[port]]
name = "receiver"
driver = "stream"
socket = {receiver:?}
server = true
[[port.qdisc]]
handle = "1:"
kind = "tbf"
rate = "{RATE}bit"
burst = "6k"
latency = "10s"
[[port.qdisc]]
parent = "1:1"
kind = "dualpi2"
target = "75ms"
tupdate = "80ms"
alpha = 8
beta = 164
step_thresh = "5ms"

[[bridge]]
name = "br0"
ports = ["sender", "receiver"]
"#
    );
    scratch.file("l4s.toml", &text)
}

/// The folder with Linux 7.2 and its modules; if there is none, the test is reported as skipped.
fn kernel() -> Option<PathBuf> {
    let versions = Place::of_peers().outside(Path::new("/kernel/usr/lib/modules"));
    let folders = fs::read_dir(versions).into_iter().flatten().flatten();
    let kernel = folders
        .map(|folder| folder.path())
        .find(|folder| folder.join("vmlinuz").is_file());
    if kernel.is_none() {
        skip("needs Linux 7.2 in the folder SOFTNET_PEERS, as kernel/usr/lib/modules/*/vmlinuz");
    }
    kernel
}

/// A folder with this kernel and the root folder of the tests' guests, and an archive with its
/// modules, which replace those of the same names there.
fn boots(kernel: &Path, image: &Path, scratch: &Scratch) -> (PathBuf, PathBuf) {
    let newest = scratch.path("image");
    fs::create_dir(&newest).expect("a folder");
    for (from, file) in [(kernel, "vmlinuz"), (image, "initrd")] {
        fs::copy(from.join(file), newest.join(file)).expect("a file to boot");
    }
    let root = scratch.path("root");
    let modules = root.join("modules");
    fs::create_dir_all(&modules).expect("a folder");
    for module in MODULES {
        let packed = kernel.join(format!("kernel/{module}.ko.xz"));
        let unpacked = Command::new("xz").arg("-dc").arg(packed).output();
        let unpacked = unpacked.expect("xz");
        let wrong = text(&unpacked.stderr);
        assert!(unpacked.status.success(), "{module}: {wrong}");
        let name = module.rsplit('/').next().expect("a name");
        fs::write(modules.join(format!("{name}.ko")), unpacked.stdout).expect("a file");
    }
    (newest, pack(scratch, &root))
}

fn set(guest: &mut Guest, key: &str, value: &str) {
    guest.ok(&format!("echo {value} >/proc/sys/net/ipv4/{key}"));
}

/// Makes a connection with this congestion control at both ends. The sender waits for `/go`, the
/// receiver counts into a file of that name, and notes the process.
fn connect(sender: &mut Guest, receiver: &mut Guest, port: u16, congestion: &str) {
    for guest in [&mut *sender, &mut *receiver] {
        set(guest, "tcp_congestion_control", congestion);
    }
    // At the end of its input it would close its side, and the sender end.
    receiver.ok(&format!(
        "nc -l -p {port} <>/never | wc -c >/{congestion} & counts=\"$counts $!\""
    ));
    let listens = format!("netstat -tln | grep -q ':{port} '");
    wait_for("a listener", || receiver.run(&listens).0 == 0);
    sender.ok(&format!(
        "(until [ -e /go ]; do sleep 0.1; done; exec cat /dev/zero) | nc {TWO} {port} &"
    ));
    // This side, too, gets the congestion control that is set as it connects.
    let connected = format!("netstat -tn | grep -q ':{port} .*ESTABLISHED'");
    wait_for("a connection", || receiver.run(&connected).0 == 0);
}

/// The first one's part of both.
fn share([scalable, classic]: [f64; 2]) -> f64 {
    scalable / (scalable + classic)
}

/// The scalable sender's share in virtual time, and the counters of `dualpi2`.
fn simulated(config: &Path) -> (f64, [u64; 3]) {
    let mut sim = softnet();
    sim.args(["sim", "--json", "--port", "receiver", "--config"]);
    sim.arg(config);
    for flow in ["name=scalable,cc=dctcp", "name=classic,cc=cubic,ecn=on"] {
        let time = TIME.as_secs();
        sim.arg("--generate")
            .arg(format!("{flow},tcp=1,rtt={RTT},for={time}s"));
    }
    let output = sim.output().expect("softnet");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let rate = |flow: usize| told["flows"][flow]["rate_bps"].as_f64();
    let share = share([0, 1].map(|flow| rate(flow).expect("a rate")));
    (share, counters(&told["classes"]))
}

/// Packets that came to the low-latency queue of the `dualpi2` among these classes and to its
/// classic one, and those that were marked by the step.
fn counters(classes: &Value) -> [u64; 3] {
    let mut classes = classes.as_array().expect("classes").iter();
    let qdisc = classes.find(|class| class["kind"] == "dualpi2");
    let counts = &qdisc.expect("the qdisc")["xstats"];
    ["pkts_in_l", "pkts_in_c", "step_marks"].map(|key| counts[key].as_u64().expect("a number"))
}

/// The same in the switch.
fn queues(switch: &Daemon) -> [u64; 3] {
    let stats = switch.stats();
    let ports = stats["ports"].as_array().expect("ports");
    let port = ports.iter().find(|port| port["name"] == "receiver");
    counters(&port.expect("the port")["classes"])
}

#[test]
#[ignore = "boots virtual machines with Linux 7.2: .ci/long guests"]
fn neither_sender_starves() {
    let (Some(image), Some(kernel)) = (image(), kernel()) else {
        return;
    };
    if !["xz", "cpio"].into_iter().all(has_program) {
        return;
    }
    let _turn = turn();
    let scratch = Scratch::new("l4s");
    let config = config(&scratch);
    let (simulated, in_virtual_time) = simulated(&config);
    let (image, modules) = boots(&kernel, &image, &scratch);
    let switch = Daemon::on(config, scratch.path("control"));
    let mut guests = [("sender", ONE), ("receiver", TWO)].map(|(port, address)| {
        let socket = scratch.path(port);
        let config = GuestConfig {
            netdevs: &[Netdev::Stream(&socket)],
            files: Some(&modules),
            address: &format!("{address}/24"),
            queues: 1,
            device: "",
        };
        Guest::start(&image, scratch.path(&format!("{port}.log")), &config)
    });
    for guest in &mut guests {
        guest.await_ready();
        guest.ok("insmod /modules/tcp_dctcp.ko");
        set(guest, "tcp_ecn", "1");
        // As in the simulation, nobody sends large frames.
        set(guest, "tcp_min_tso_segs", "1");
    }
    let [mut sender, mut receiver] = guests;
    receiver.ok("mkfifo /never");
    connect(&mut sender, &mut receiver, 5001, "dctcp");
    connect(&mut sender, &mut receiver, 5002, "cubic");
    sender.ok("touch /go");
    thread::sleep(TIME);
    receiver.run("killall nc; wait $counts");
    let counted = receiver.ok("cat /dctcp /cubic");
    let counted: Vec<f64> = counted
        .lines()
        .filter_map(|line| line.trim().parse().ok())
        .collect();
    let &[scalable, classic] = &counted[..] else {
        panic!("two counts: {counted:?}");
    };
    let queued = queues(&switch);
    sender.kill();
    receiver.kill();
    switch.stop();
    let rate = (scalable + classic) * 8.0 / TIME.as_secs_f64();
    let measured = share([scalable, classic]);
    let told = format!(
        "the scalable sender's share is {measured:.3}, simulated {simulated:.3}; {rate:.0} bit/s; \
         packets of both queues, marked by the step: {queued:?}, simulated {in_virtual_time:?}"
    );
    println!("{told}");
    // Without ECN, or without the filter, nothing is in the first queue.
    let [scalable, classic, _] = queued;
    assert!(scalable.min(classic) > FEW, "{told}");
    assert!(rate > RATE / 2.0, "the guests are too slow: {told}");
    for share in [measured, simulated] {
        assert!(SHARES.contains(&share), "{told}");
    }
}
