//! TAP ports and virtual machines on one bridge, where everything goes wrong that can: guests are
//! killed, stall, break their rings, take their memory away and come back with other features;
//! ports are reconfigured, removed and added. At the end nothing is lost: every packet was
//! delivered or has a drop reason, every buffer, file and mapping is back, and every port carries
//! traffic. Guests that are never killed count for themselves.
//!
//! It takes `SOFTNET_VM_SOAK_SECONDS` (5), with the seed `SOFTNET_VM_SOAK_SEED` (random).

mod control;
mod frames;
mod host;
mod machine;
mod testpmd;

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use softnet_engine::EngineStats;
use softnet_io::vhost_user::SocketSpec;
use softnet_tests::random::Random;
use softnet_tests::raw::PacketSocket;
use softnet_tests::{HostConfig, Lan, LanConfig, PATIENCE, counters, skip, wait_for};

use control::{Administrator, VmPort};
use frames::{BROADCAST, Mac};
use host::HostLife;
use machine::{Faults, Machine, MachineConfig};
use testpmd::Testpmd;

/// Queue pairs, whether it is steady, and whether the port has the socket, of each machine.
const MACHINES: [(usize, bool, bool); 7] = [
    (1, true, true),
    (2, true, true),
    (1, false, true),
    (2, false, true),
    (4, false, true),
    (1, false, false),
    (2, false, true),
];
/// Queues of each of the two ports of `dpdk-testpmd`.
const TESTPMD_QUEUES: usize = 2;

fn variable(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().expect("a number"))
}

/// Threads, but for the one that watches notifications of guests: a process has one, for good.
fn threads() -> usize {
    let names = std::fs::read_dir("/proc/self/task").expect("the threads");
    let names = names
        .flatten()
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("comm")).ok());
    names.filter(|name| name.trim() != "vhost-call").count()
}

/// Resources of this process: files, but for the timer of that thread, threads, and mappings of
/// other processes' memory.
fn held() -> (usize, usize, usize) {
    let files = std::fs::read_dir("/proc/self/fd").expect("the files");
    let links = files.map(|file| std::fs::read_link(file.expect("a file").path()));
    let timer = Path::new("anon_inode:[timerfd]");
    let files = links.filter(|link| !link.as_ref().is_ok_and(|link| link == timer));
    let maps = std::fs::read_to_string("/proc/self/maps").expect("the mappings");
    let shared = maps.lines().filter(|line| line.contains("(deleted)"));
    (files.count(), threads(), shared.count())
}

#[test]
fn soak() {
    let seconds = variable("SOFTNET_VM_SOAK_SECONDS").unwrap_or(5);
    let seed = variable("SOFTNET_VM_SOAK_SEED").unwrap_or_else(|| RandomState::new().hash_one(0));
    println!("SOFTNET_VM_SOAK_SEED={seed} SOFTNET_VM_SOAK_SECONDS={seconds}");
    let before = held();
    let folder = std::env::temp_dir().join(format!("softnet-soak-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("a folder");
    let ran = run(&folder, seed, Duration::from_secs(seconds));
    let left = std::fs::read_dir(&folder).expect("the folder").count();
    std::fs::remove_dir_all(&folder).expect("the folder");
    if ran {
        // The front end's own socket stays, as it does with QEMU.
        assert_eq!(left, 1, "sockets are left");
        wait_for(&format!("files, threads and mappings: {before:?}"), || {
            held() == before
        });
    }
}

/// False: the test cannot run here.
fn run(folder: &Path, seed: u64, time: Duration) -> bool {
    let offload = |offload| HostConfig {
        offload,
        queues: 2,
        ..HostConfig::default()
    };
    let config = LanConfig {
        // The first one is steady.
        hosts: vec![offload(false), offload(true)],
        workers: 2,
        cpu: None,
        buffers: 32_768,
        large: 512,
        ..LanConfig::default()
    };
    let Some(lan) = Lan::build(config) else {
        return false;
    };
    let mut seeds = Random::new(seed);
    let bridge = lan.bridge;
    let socket = |name: &str, server| SocketSpec {
        path: folder.join(format!("{name}.sock")),
        server,
        mode: 0o600,
        group: None,
    };
    let mut ports = Vec::new();
    let mut machines = Vec::new();
    for (number, (queues, steady, server)) in (0..).zip(MACHINES) {
        let name = format!("vm{number}");
        let socket = socket(&name, server);
        let config = MachineConfig {
            number,
            path: socket.path.clone(),
            server,
            pairs: queues,
            steady,
        };
        let listener = Machine::listen(&config);
        let port = VmPort {
            name,
            socket,
            queues,
            steady,
        };
        let id = port.add(&lan);
        ports.push((port, id));
        machines.push(Machine::new(config, listener, seeds.number()));
    }
    let with_testpmd = testpmd::is_there();
    if !with_testpmd {
        skip("dpdk-testpmd is not installed");
    }
    let mut testpmd = Testpmd {
        sockets: Vec::new(),
        queues: TESTPMD_QUEUES,
        random: Random::new(seeds.number()),
        faults: Faults::new(),
    };
    for number in 0..2 {
        let port = VmPort {
            name: format!("pmd{number}"),
            socket: socket(&format!("pmd{number}"), true),
            queues: TESTPMD_QUEUES,
            // Its driver does not connect again.
            steady: true,
        };
        testpmd.sockets.push(port.socket.path.clone());
        let id = port.add(&lan);
        ports.push((port, id));
    }
    let hosts = lan.hosts.iter().map(|host| host.mac);
    let stations: Vec<Mac> = machines.iter().map(|m| m.mac).chain(hosts).collect();
    let mut administrator = Administrator::new(&lan, bridge, ports, seeds.number());
    let mut lives: Vec<_> = (0..lan.hosts.len())
        .map(|number| HostLife {
            lan: &lan,
            number,
            steady: number == 0,
            random: Random::new(seeds.number()),
            faults: Faults::new(),
        })
        .collect();
    let (stop_machines, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let mut running = Vec::new();
        for machine in &mut machines {
            running.push(scope.spawn(|| machine.run(&stations, &stop_machines)));
        }
        for life in &mut lives {
            running.push(scope.spawn(|| life.run(&stations, &stop)));
        }
        if with_testpmd {
            running.push(scope.spawn(|| testpmd.run(&stop)));
        }
        let control = scope.spawn(|| administrator.run(&stop));
        let end = Instant::now() + time;
        // One that ends early has failed.
        let fails = || control.is_finished() || running.iter().any(|life| life.is_finished());
        while Instant::now() < end && !fails() {
            thread::sleep(Duration::from_millis(50));
        }
        // Every port is there when machines connect for the last time.
        stop.store(true, Ordering::Relaxed);
        let ended = control.join();
        stop_machines.store(true, Ordering::Relaxed);
        ended.expect("the administrator");
    });
    let mut faults = std::mem::take(&mut administrator.faults);
    let all = machines.iter().map(|machine| &machine.faults);
    let all = all.chain(lives.iter().map(|life| &life.faults));
    for (what, n) in all.chain([&testpmd.faults]).flatten() {
        *faults.entry(what).or_default() += n;
    }
    println!("{faults:?}");
    drop((administrator, lives));
    lan.engine.take_events();
    everybody_is_heard(&lan, &mut machines);
    settle(&lan, &mut machines);
    let stats = lan.stop();
    counts_agree(&stats, &mut machines);
    true
}

/// Each station says who it is, and then each hears from each.
fn everybody_is_heard(lan: &Lan, machines: &mut [Machine]) {
    wait_for("the links", || {
        let ports = lan.engine.stats().ports;
        // That of a host, which was taken up a moment ago, too; nobody is at the others.
        let those = ports.iter().filter(|port| !port.name.starts_with("pmd"));
        those.filter(|port| port.link.up).count() == MACHINES.len() + lan.hosts.len()
    });
    run_dry(lan, machines);
    let sockets: Vec<_> = lan
        .hosts
        .iter()
        .map(|host| PacketSocket::open(host, 0x88b5))
        .collect();
    let hosts = lan.hosts.len();
    let stations = machines.len() + hosts;
    let macs: Vec<Mac> = machines
        .iter()
        .map(|machine| machine.mac)
        .chain(lan.hosts.iter().map(|host| host.mac))
        .collect();
    let mut number = 0xffff_0000;
    for to in [None, Some(())] {
        for from in 0..stations {
            for receiver in (0..stations).filter(|receiver| *receiver != from) {
                number += 1;
                let to = to.map_or(BROADCAST, |()| macs[receiver]);
                match from.checked_sub(machines.len()) {
                    None => machines[from].send(to, number),
                    Some(host) => {
                        let frame = frames::frame(to, macs[from], number, 100);
                        let sent = sockets[host].send(Default::default(), &frame);
                        sent.expect("it is up");
                    }
                }
                match receiver.checked_sub(machines.len()) {
                    None => machines[receiver].await_number(number),
                    Some(host) => wait_for("a frame at a host", || {
                        let frames = sockets[host].drain();
                        let mut numbers = frames.iter().map(|(_, f)| frames::number(f));
                        numbers.any(|n| n == Some(number))
                    }),
                }
            }
        }
    }
}

/// Waits until nothing is queued, while machines take what comes.
fn run_dry(lan: &Lan, machines: &mut [Machine]) {
    let end = Instant::now() + PATIENCE;
    loop {
        machines.iter_mut().for_each(|machine| machine.traffic(&[]));
        let ports = lan.engine.stats().ports;
        let queued = ports.iter().filter(|port| port.device.queued > 0);
        let queued: Vec<_> = queued.collect();
        let untaken = |m: &mut Machine| (m.in_flight(), m.name.clone());
        let untaken = machines.iter_mut().map(untaken).filter(|(n, _)| *n > 0);
        let untaken: Vec<_> = untaken.collect();
        if queued.is_empty() && untaken.is_empty() {
            return;
        }
        assert!(
            Instant::now() < end,
            "not sent: {queued:#?}, not taken: {untaken:?}"
        );
        thread::sleep(Duration::from_millis(2));
    }
}

/// Waits until nothing is under way, and the steady host's kernel has counted what its port has.
fn settle(lan: &Lan, machines: &mut [Machine]) {
    run_dry(lan, machines);
    let mut last = Default::default();
    let agree = |last: &mut (u64, u64, u64, u64)| {
        let (kernel, port) = (counters::interface(&lan.hosts[0]), lan.port(0));
        let sent = (kernel.tx_packets, port.rx_packets);
        *last = (sent.0, sent.1, kernel.rx_packets, port.tx_packets);
        last.0 == last.1 && last.2 == last.3
    };
    wait_for("the kernel's counters to be ours", || agree(&mut last));
    println!("host: {last:?}");
}

/// The counts of steady machines are those of their ports.
fn counts_agree(stats: &EngineStats, machines: &mut [Machine]) {
    for machine in machines.iter_mut().filter(|machine| machine.steady) {
        let rings = machine.queues();
        (0..rings).for_each(|pair| drop(machine.drain(2 * pair)));
        let port = stats.ports.iter().find(|port| port.name == machine.name);
        let port = &port.expect("its port").device;
        let counted = (machine.sent(), machine.received);
        println!("{}: {counted:?}", machine.name);
        assert_eq!(
            counted,
            (port.rx_packets, port.tx_packets),
            "{}",
            machine.name
        );
    }
}
