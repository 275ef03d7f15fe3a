//! A measurement, not a test: pings between two guests in QEMU through Softnet, and through Open
//! vSwitch with DPDK in a folder made by debootstrap (`SOFTNET_PEERS`), in turns.
//!
//! `SOFTNET_PEERS=DIR cargo test --release -p softnet-cli --test qemu_ping -- --ignored
//! --nocapture`, on a machine that does nothing else.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use common::{Running, Scratch, softnet, text, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use softnet_tests::qemu::{Guest, GuestConfig, image};

const ROUNDS: usize = 10;
/// Of a round; the first is not counted.
const PINGS: usize = 101;
const INTERVAL: &str = "0.02";
/// The longest sleep of Open vSwitch's polling thread, in microseconds.
const SLEEPS: [&str; 2] = ["0", "100"];

/// Open vSwitch with two ports for guests.
struct OpenVswitch {
    peers: PathBuf,
    /// As the programs see it.
    folder: PathBuf,
}

impl OpenVswitch {
    fn start(peers: &Path) -> OpenVswitch {
        let folder = PathBuf::from(format!("/tmp/softnet-ovs-{}", std::process::id()));
        let switch = OpenVswitch {
            peers: peers.to_owned(),
            folder,
        };
        std::fs::create_dir(switch.path("")).expect("a folder");
        let here = |name: &str| switch.folder.join(name).display().to_string();
        let database = here("conf.db");
        let schema = "/usr/share/openvswitch/vswitch.ovsschema";
        switch.run("ovsdb-tool", &["create", &database, schema]);
        let remote = format!("--remote=punix:{}", here("db.sock"));
        let pid = format!("--pidfile={}", here("db.pid"));
        switch.run("ovsdb-server", &[&database, &remote, &pid, "--detach"]);
        switch.set(&["--no-wait", "init"]);
        let extra = "other_config:dpdk-extra=\"--no-huge -m 2048 --no-pci --in-memory\"";
        let mask = "other_config:pmd-cpu-mask=0x2";
        let dpdk = "other_config:dpdk-init=true";
        let table = ["--no-wait", "set", "Open_vSwitch", "."];
        switch.set(&[&table[..], &[dpdk, extra, mask]].concat());
        let database = format!("unix:{}", here("db.sock"));
        let pid = format!("--pidfile={}", here("switch.pid"));
        let log = format!("--log-file={}", here("switch.log"));
        let program = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
        switch.run(program, &[&database, &pid, &log, "--detach"]);
        let datapath = "datapath_type=netdev";
        switch.set(&["add-br", "br0", "--", "set", "bridge", "br0", datapath]);
        for port in ["vm1", "vm2"] {
            let socket = format!("options:vhost-server-path={}", here(port));
            let interface = [
                "set",
                "Interface",
                port,
                "type=dpdkvhostuserclient",
                &socket,
            ];
            switch.set(&[&["add-port", "br0", port, "--"], &interface[..]].concat());
        }
        switch
    }

    fn path(&self, name: &str) -> PathBuf {
        let folder = self.folder.strip_prefix("/").expect("absolute");
        self.peers.join(folder).join(name)
    }

    fn run(&self, program: &str, arguments: &[&str]) {
        let output = Command::new("chroot")
            .arg(&self.peers)
            .arg(program)
            .args(arguments)
            .envs(["RUNDIR", "DBDIR", "SYSCONFDIR", "LOGDIR"].map(|name| {
                let folder = self.folder.display().to_string();
                (format!("OVS_{name}"), folder)
            }))
            .output()
            .expect("chroot");
        let status = output.status.success();
        assert!(status, "{program}: {}", text(&output.stderr));
    }

    /// Runs `ovs-vsctl`.
    fn set(&self, arguments: &[&str]) {
        let database = format!("--db=unix:{}", self.folder.join("db.sock").display());
        self.run("ovs-vsctl", &[&[database.as_str()], arguments].concat());
    }

    fn signal(&self, file: &str, signal: Signal) {
        let pid = std::fs::read_to_string(self.path(file)).unwrap_or_default();
        if let Some(pid) = pid.trim().parse().ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, signal);
        }
    }
}

impl Drop for OpenVswitch {
    fn drop(&mut self) {
        for file in ["switch.pid", "db.pid"] {
            self.signal(file, Signal::CONT);
            self.signal(file, Signal::KILL);
        }
        let _ = std::fs::remove_dir_all(self.path(""));
    }
}

/// Two guests at sockets of QEMU's.
fn guests(image: &Path, scratch: &Scratch, name: &str, sockets: [PathBuf; 2]) -> [Guest; 2] {
    let boot = |number: usize| {
        let config = GuestConfig {
            socket: &sockets[number - 1],
            server: true,
            address: &format!("10.9.0.{number}/24"),
            queues: 1,
            device: "",
        };
        Guest::boot(image, scratch.path(&format!("{name}{number}.log")), &config)
    };
    thread::scope(|scope| {
        let two = scope.spawn(|| boot(2));
        [boot(1), two.join().expect("a guest")]
    })
}

/// Round trips in milliseconds.
fn pings(guest: &mut Guest) -> Vec<f64> {
    let (_, output) = guest.run(&format!("ping -c {PINGS} -i {INTERVAL} -W 5 10.9.0.2"));
    let times: Vec<f64> = output
        .lines()
        .filter_map(|line| {
            line.split_once("time=")?
                .1
                .strip_suffix(" ms")?
                .parse()
                .ok()
        })
        .collect();
    assert!(times.len() > PINGS * 9 / 10, "{output}");
    times[1..].to_vec()
}

#[test]
#[ignore = "a measurement"]
fn ping() {
    let image = image().expect("a guest");
    let peers = std::env::var_os("SOFTNET_PEERS").map(PathBuf::from);
    let peers = peers.expect("SOFTNET_PEERS");
    let scratch = Scratch::new("ping");
    let sockets = [1, 2].map(|number| scratch.path(&format!("vm{number}.sock")));
    let port = |number: usize| {
        format!(
            "[[port]]\nname = \"vm{number}\"\ndriver = \"vhost_user\"\nserver = false\n\
             socket = {:?}\n",
            sockets[number - 1]
        )
    };
    let bridge = "[[bridge]]\nname = \"br0\"\nports = [\"vm1\", \"vm2\"]\n";
    let workers = "[engine]\nworkers = 1\n";
    let config = [workers, &port(1), &port(2), bridge].concat();
    let config = scratch.file("ping.toml", &config);
    let mut ours = Running::start(softnet().arg("run").arg(config));
    ours.assert_running();
    let theirs = OpenVswitch::start(&peers);
    let there = ["vm1", "vm2"].map(|port| theirs.path(port));
    theirs.signal("switch.pid", Signal::STOP);
    let [mut one, _two] = guests(&image, &scratch, "softnet", sockets);
    theirs.signal("switch.pid", Signal::CONT);
    let [mut other, _fourth] = guests(&image, &scratch, "ovs", there);
    for guest in [&mut one, &mut other] {
        wait_for("the path", || guest.run("ping -c 1 -W 1 10.9.0.2").0 == 0);
    }
    let ovs = SLEEPS.map(|sleep| format!("Open vSwitch, `pmd-sleep-max={sleep}`"));
    let names = [&["Softnet".to_owned()][..], &ovs].concat();
    let mut times = vec![Vec::new(); names.len()];
    for round in 0..ROUNDS {
        // Another one is the first each time. Only one switch runs.
        for variant in (0..names.len()).map(|n| (n + round) % names.len()) {
            let guest = if variant == 0 {
                theirs.signal("switch.pid", Signal::STOP);
                ours.signal(Signal::CONT);
                &mut one
            } else {
                ours.signal(Signal::STOP);
                theirs.signal("switch.pid", Signal::CONT);
                let sleep = SLEEPS[variant - 1];
                let setting = format!("other_config:pmd-sleep-max={sleep}");
                theirs.set(&["set", "Open_vSwitch", ".", &setting]);
                &mut other
            };
            thread::sleep(Duration::from_millis(300));
            times[variant].push(pings(guest));
        }
    }
    println!("| | mean, ms | p50 | p99 | mean of each round |\n|---|---|---|---|---|");
    for (name, rounds) in names.iter().zip(&times) {
        let means: Vec<String> = rounds.iter().map(|round| ms(mean(round))).collect();
        let mut all = rounds.concat();
        all.sort_by(f64::total_cmp);
        let at = |share: f64| ms(all[((all.len() - 1) as f64 * share) as usize]);
        let (mean, p50, p99) = (ms(mean(&all)), at(0.5), at(0.99));
        println!("| {name} | {mean} | {p50} | {p99} | {} |", means.join(", "));
    }
}

fn mean(times: &[f64]) -> f64 {
    times.iter().sum::<f64>() / times.len() as f64
}

fn ms(time: f64) -> String {
    format!("{time:.2}")
}
