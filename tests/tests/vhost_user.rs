//! Virtual machines' ports against DPDK's driver: two devices of one `dpdk-testpmd`, which sends
//! what it receives on one out of the other, on a bridge. The same packets go round and round, and
//! both sides count them.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use softnet::mem::{Pool, PoolConfig};
use softnet::time::Clock;
use softnet::tx::TxPolicy;
use softnet_engine::{Engine, PortSetup};
use softnet_io::vhost_user::{SocketSpec, VhostUser};
use softnet_io::{Buffers, Poller, PortRx, PortTx};
use softnet_tc::QdiscSpec;
use softnet_tests::{skip, wait_for};

/// Descriptors of a ring.
const RING: u64 = 256;

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

/// Starts the program with two devices.
fn start(folder: &Path, device: &str, queues: usize) -> Child {
    let mut command = Command::new("dpdk-testpmd");
    command.args([
        "-l",
        "0-1",
        "--no-huge",
        "-m",
        "256",
        "--no-pci",
        "--no-shconf",
    ]);
    command.arg(format!("--file-prefix=softnet-{}", std::process::id()));
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
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    child.expect("the program is there")
}

/// What it counted at a port: received and sent.
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

fn go_round(name: &str, device: &str, queues: usize, server: bool) {
    if Command::new("dpdk-testpmd")
        .arg("--version")
        .output()
        .is_err()
    {
        skip("dpdk-testpmd is not installed");
        return;
    }
    let folder = format!("softnet-testpmd-{}-{name}", std::process::id());
    let folder = std::env::temp_dir().join(folder);
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
    let engine: Engine<PortRx, PortTx> =
        Engine::start(sleepers, pool.clone(), Clock::monotonic()).expect("an engine");
    let port = |number: usize| {
        let socket = SocketSpec {
            path: machine.folder.join(format!("{number}.sock")),
            server,
            mode: 0o600,
            group: None,
        };
        let buffers = Buffers {
            small: pool.clone(),
            large: None,
        };
        let opened = VhostUser::open(&socket, queues, 1500, &buffers).expect("a port");
        let setup = PortSetup {
            name: format!("vm{number}"),
            rx: opened.rx.into_iter().map(PortRx::from).collect(),
            tx: opened.tx.into_iter().map(PortTx::from).collect(),
            features: opened.features,
            qdisc: QdiscSpec::default(),
            policy: TxPolicy::default(),
        };
        engine.add_port(setup).expect("it is added")
    };
    let ports = [port(0), port(1)];
    engine.add_bridge("br0", &ports).expect("a bridge");
    machine.testpmd = Some(start(&machine.folder, device, queues));
    let stats = |port: usize| engine.port_stats(ports[port]).expect("it is there");
    wait_for("packets to go round", || {
        (0..2).all(|port| stats(port).device.tx_packets > 20_000)
    });
    let layout = if device.contains("packed_vq=1") {
        "packed"
    } else {
        "split"
    };
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
    // What is in the rings when it stops was counted on one side only.
    let most = RING * queues as u64;
    for port in 0..2 {
        let (received, sent) = counted(&output, port);
        let device = stats(port).device;
        let (to, from) = (device.tx_packets, device.rx_packets);
        assert!(
            received <= to && to - received <= most && from <= sent && sent - from <= most,
            "port {port}: it received {received} of {to} and sent {sent}, of which {from} came"
        );
    }
    let sum = engine.stop(Duration::from_secs(1)).conservation();
    assert!(sum.holds() && sum.queued == 0, "{sum:?}");
    wait_for("the buffers", || pool.stats().free == 8192);
}

#[test]
fn split_rings() {
    go_round("split", "", 1, true);
}

#[test]
fn packed_rings() {
    go_round("packed", ",packed_vq=1", 1, true);
}

#[test]
fn rings_without_mergeable_buffers() {
    go_round("plain", ",mrg_rxbuf=0,in_order=0", 1, true);
}

#[test]
fn several_queues() {
    go_round("queues", ",packed_vq=1,mrg_rxbuf=0", 2, true);
}

#[test]
fn packed_rings_one_buffer_a_frame_in_any_order() {
    go_round(
        "packed-plain",
        ",packed_vq=1,mrg_rxbuf=0,in_order=0",
        1,
        true,
    );
}

/// DPDK's path for rings that give buffers back in order, without mergeable ones.
#[test]
fn split_rings_in_order() {
    go_round("in-order", ",mrg_rxbuf=0,in_order=1", 1, true);
}

#[test]
fn four_queues() {
    go_round("four", ",in_order=0", 4, true);
}

/// The socket is the program's.
#[test]
fn as_a_client() {
    go_round("client", ",server=1", 1, false);
}
