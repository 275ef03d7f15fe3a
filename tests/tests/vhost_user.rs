//! Virtual machines' ports against DPDK's driver: two devices of one `dpdk-testpmd`, which sends
//! what it receives on one out of the other, on a bridge. The same packets go round and round, and
//! both sides count them.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use softnet::mem::{Pool, PoolConfig};
use softnet::time::Clock;
use softnet_engine::{Engine, Opened, OwnQueues, PortSpec, Settings};
use softnet_io::vhost_user::{SocketSpec, VhostUser};
use softnet_io::{Buffers, Poller, PortRx, PortTx};
use softnet_tests::{skip, wait_for};

/// Descriptors of a ring.
const RING: u64 = 256;
/// Features.
const INDIRECT_DESC: u64 = 1 << 28;
const RING_PACKED: u64 = 1 << 34;

/// A folder for the sockets, and the program, which do not stay.
struct Machine {
    folder: PathBuf,
    testpmd: Option<Child>,
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Some(mut testpmd) = self.testpmd.take() {
            let _ = testpmd.kill();
            let _ = testpmd.wait();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Features to negotiate, and the program's packets.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    /// Properties of its devices.
    device: &'static str,
    queues: usize,
    /// True if the sockets are Softnet's.
    server: bool,
    /// Segments of what it sends.
    segments: &'static [u64],
    /// Bytes of one of its buffers.
    buffer: usize,
}

const CASE: Case = Case {
    name: "split",
    device: "",
    queues: 1,
    server: true,
    segments: &[64],
    buffer: 2176,
};

/// Where its programs come from: this system, or a folder with another (`SOFTNET_PEERS`).
#[derive(Clone)]
struct Place(Option<PathBuf>);

impl Place {
    /// This one, and the other if it is named.
    fn all() -> Vec<Place> {
        let other = std::env::var_os("SOFTNET_PEERS").filter(|folder| !folder.is_empty());
        let other = other.map(|folder| Place(Some(folder.into())));
        [Place(None)].into_iter().chain(other).collect()
    }

    fn testpmd(&self) -> Command {
        match &self.0 {
            None => Command::new("dpdk-testpmd"),
            Some(root) => {
                let mut command = Command::new("chroot");
                command.arg(root).arg("dpdk-testpmd");
                command
            }
        }
    }

    /// Where `path`, as the program sees it, is for us.
    fn outside(&self, path: &Path) -> PathBuf {
        match &self.0 {
            None => path.to_owned(),
            Some(root) => root.join(path.strip_prefix("/").expect("absolute")),
        }
    }
}

/// Starts the program with two devices. `folder`: as it sees it.
fn start(place: &Place, folder: &Path, case: Case) -> Child {
    let mut command = place.testpmd();
    command.args(["-l", "0-1", "--no-huge", "-m", "256", "--no-pci"]);
    // It says what is negotiated.
    command.args(["--no-shconf", "--log-level=pmd.net.virtio.init:debug"]);
    // Another test's program may start at the same time.
    let (process, name) = (std::process::id(), case.name);
    command.arg(format!("--file-prefix=softnet-{process}-{name}"));
    let Case { queues, device, .. } = case;
    for port in 0..2 {
        let path = folder.join(format!("{port}.sock"));
        command.arg(format!(
            "--vdev=net_virtio_user{port},path={},queue_size={RING},queues={queues}{device}",
            path.display()
        ));
    }
    command.args(["--", "--forward-mode=io", "--tx-first", "--stats-period=1"]);
    command.args(["--total-num-mbufs=8192", "--no-lsc-interrupt"]);
    command.args([format!("--rxq={queues}"), format!("--txq={queues}")]);
    let segments = case.segments.iter().map(u64::to_string);
    let segments = segments.collect::<Vec<_>>().join(",");
    command.arg(format!("--txpkts={segments}"));
    command.arg(format!("--mbuf-size={}", case.buffer));
    if case.segments.len() > 1 {
        // A frame may come in several buffers.
        command.arg("--enable-scatter");
    }
    let log = File::create(place.outside(folder).join("log")).expect("a file");
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn();
    child.expect("the program is there")
}

/// Features negotiated last, by the program's log.
fn features(log: &str) -> u64 {
    let (_, features) = log
        .rsplit_once("features after negotiate = ")
        .unwrap_or_else(|| panic!("it does not tell: {log}"));
    let features = features.split_whitespace().next().expect("a number");
    u64::from_str_radix(features, 16).expect("a number")
}

/// Packets that it counted at a port: received and sent.
fn counted(output: &str, port: usize) -> (u64, u64) {
    let head = format!("Forward statistics for port {port} ");
    let (_, rest) = output.rsplit_once(&head).expect("final statistics");
    let number = |key: &str| {
        let (_, rest) = rest.split_once(key).expect("a counter");
        let number = rest.split_whitespace().next().expect("a number");
        number.parse().expect("a number")
    };
    (number("RX-packets:"), number("TX-packets:"))
}

fn go_round(case: Case) {
    for place in Place::all() {
        go_round_with(&place, case);
    }
}

fn go_round_with(place: &Place, case: Case) {
    let Case { name, queues, .. } = case;
    let version = place.testpmd().arg("--version").output();
    // What `chroot` says when it is not there.
    if !version.is_ok_and(|output| output.status.code() != Some(127)) {
        skip("dpdk-testpmd is not installed");
        return;
    }
    let inside = format!("softnet-testpmd-{}-{name}", std::process::id());
    let inside = std::env::temp_dir().join(inside);
    let folder = place.outside(&inside);
    std::fs::create_dir(&folder).expect("a folder");
    let mut machine = Machine {
        folder,
        testpmd: None,
    };
    let config = PoolConfig {
        buffers: 8192,
        buffer_size: 2048,
    };
    let pool = Pool::new(config).expect("memory");
    let sleepers = vec![Poller::new().expect("an epoll instance")];
    let devices = OwnQueues::<PortRx, PortTx>::default();
    let engine = Engine::start(sleepers, pool.clone(), Clock::monotonic(), devices);
    let engine = engine.expect("an engine");
    engine.add_bridge(Settings::new("br0")).expect("a bridge");
    let port = |number: usize| {
        let socket = SocketSpec {
            path: machine.folder.join(format!("{number}.sock")),
            server: case.server,
            mode: 0o600,
            group: None,
        };
        let buffers = Buffers {
            small: pool.clone(),
            large: None,
        };
        let opened = VhostUser::open(&socket.into(), queues, 1500, &buffers).expect("a port");
        let setup = PortSpec {
            master: Some("br0".into()),
            ..PortSpec::new(format!("vm{number}"))
        };
        let device = Opened {
            rx: opened.rx.into_iter().map(PortRx::from).collect(),
            tx: opened.tx.into_iter().map(PortTx::from).collect(),
            features: opened.features,
        };
        engine.add_port_with(setup, device).expect("it is added")
    };
    let ports = [port(0), port(1)];
    machine.testpmd = Some(start(place, &inside, case));
    let stats = |port: usize| engine.port_stats(ports[port]).expect("it is there");
    wait_for("packets to go round", || {
        (0..2).all(|port| stats(port).device.tx_packets > 20_000)
    });
    let log = std::fs::read_to_string(machine.folder.join("log")).expect("its log");
    let features = features(&log);
    let layout = if features & RING_PACKED != 0 {
        "packed"
    } else {
        "split"
    };
    let packed = case.device.contains("packed_vq=1");
    assert_eq!(features & RING_PACKED != 0, packed, "{features:#x}");
    assert!(features & INDIRECT_DESC != 0, "{features:#x}");
    let status = stats(0).status.expect("it tells");
    assert_eq!(
        status,
        format!("connected, {0} of {0} {layout} rings enabled", 2 * queues)
    );
    let mut testpmd = machine.testpmd.take().expect("it runs");
    let pid = rustix::process::Pid::from_child(&testpmd);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    let mut output = String::new();
    let mut stdout = testpmd.stdout.take().expect("a pipe");
    stdout.read_to_string(&mut output).expect("text");
    assert!(testpmd.wait().expect("it ends").success(), "{output}");
    wait_for("the links to go down", || {
        (0..2).all(|port| !stats(port).link.up)
    });
    // All that the worker has done is counted then.
    let all = engine.stop(Duration::from_secs(1));
    // What is in the rings when it stops was counted on one side only.
    let most = RING * queues as u64;
    for port in 0..2 {
        let (received, sent) = counted(&output, port);
        let name = format!("vm{port}");
        let device = all.ports.iter().find(|it| it.name == name);
        let device = &device.expect("it is there").device;
        let (to, from) = (device.tx_packets, device.rx_packets);
        let frame: u64 = case.segments.iter().sum();
        assert_eq!(device.rx_bytes, from * frame, "whole frames");
        assert!(
            received <= to && to - received <= most && from <= sent && sent - from <= most,
            "port {port}: it received {received} of {to} and sent {sent}, of which {from} came"
        );
    }
    let sum = all.conservation();
    assert!(sum.holds() && sum.queued == 0, "{sum:?}");
    wait_for("the buffers", || pool.stats().free == 8192);
}

#[test]
fn split_rings() {
    go_round(CASE);
}

#[test]
fn packed_rings() {
    go_round(Case {
        name: "packed",
        device: ",packed_vq=1",
        ..CASE
    });
}

#[test]
fn rings_without_mergeable_buffers() {
    go_round(Case {
        name: "plain",
        device: ",mrg_rxbuf=0,in_order=0",
        ..CASE
    });
}

#[test]
fn several_queues() {
    go_round(Case {
        name: "queues",
        device: ",packed_vq=1,mrg_rxbuf=0",
        queues: 2,
        ..CASE
    });
}

#[test]
fn packed_rings_one_buffer_a_frame_in_any_order() {
    go_round(Case {
        name: "packed-plain",
        device: ",packed_vq=1,mrg_rxbuf=0,in_order=0",
        ..CASE
    });
}

/// DPDK's path for rings that give buffers back in order, without mergeable ones.
#[test]
fn split_rings_in_order() {
    go_round(Case {
        name: "in-order",
        device: ",mrg_rxbuf=0,in_order=1",
        ..CASE
    });
}

#[test]
fn four_queues() {
    go_round(Case {
        name: "four",
        device: ",in_order=0",
        queues: 4,
        ..CASE
    });
}

/// The socket is the program's.
#[test]
fn as_a_client() {
    go_round(Case {
        name: "client",
        device: ",server=1",
        server: false,
        ..CASE
    });
}

/// A frame takes four of the program's buffers. Those that it sends are in a table, as they are
/// where it has negotiated indirect descriptors and need not keep to the order.
const INDIRECT: Case = Case {
    name: "indirect",
    device: ",in_order=0",
    segments: &[128, 128, 128, 64],
    // With a headroom of 128.
    buffer: 256,
    ..CASE
};

#[test]
fn indirect_descriptors() {
    go_round(INDIRECT);
}

#[test]
fn indirect_descriptors_of_packed_rings() {
    go_round(Case {
        name: "packed-indirect",
        device: ",packed_vq=1,in_order=0",
        ..INDIRECT
    });
}
