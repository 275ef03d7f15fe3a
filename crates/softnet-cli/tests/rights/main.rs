//! Rights of the daemon once it runs; and the things that are left when it or its helper dies.

#[path = "../common/mod.rs"]
mod common;

mod allowed;
mod containers;

use std::collections::BTreeMap;
use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use common::{
    HostState, NamedNetns, Running, Scratch, ask, end, has_program, may_make_networks, ping,
    softnet, text, two_ports, wait_for,
};
use rustix::process::{Pid, Signal, kill_process};

/// A daemon with two TAP ports and the port of a virtual machine.
struct Daemon {
    running: Running,
    scratch: Scratch,
    hosts: [NamedNetns; 2],
    /// The daemon's own.
    own: NamedNetns,
}

impl Daemon {
    fn start(tag: &str, options: &[&str]) -> Daemon {
        Daemon::start_as(tag, options, |_| ())
    }

    /// Starts it by a command that was changed.
    fn start_as(tag: &str, options: &[&str], change: impl FnOnce(&mut Command)) -> Daemon {
        let scratch = Scratch::new(tag);
        let hosts = ["a", "b"].map(|host| NamedNetns::new(&format!("{tag}{host}")));
        let ports = two_ports((&hosts[0], ""), (&hosts[1], ""));
        let machine = scratch.path("vm.sock");
        let config = format!(
            "[engine]\nworkers = 2\n{ports}[[port]]\nname = \"vm\"\ndriver = \"vhost_user\"\n\
             socket = {machine:?}\n"
        );
        let config = scratch.file("rights.toml", &config);
        let mut command = softnet();
        command.arg("run").arg(config);
        command.args(options).arg("--socket").arg(scratch.path("s"));
        change(&mut command);
        let own = NamedNetns::new(&format!("{tag}own"));
        let mut running = own.run(|| Running::start(&mut command));
        wait_for("the daemon", || {
            running.assert_running();
            scratch.path("s").exists() && running.has_thread("vhost-user")
        });
        let daemon = Daemon {
            running,
            scratch,
            hosts,
            own,
        };
        daemon.ping();
        daemon
    }

    fn ping(&self) {
        ping(&self.hosts);
    }

    /// Runs a command against it.
    fn ask(&self, words: &[&str]) -> Result<String, String> {
        ask(&self.scratch.path("s"), words)
    }

    fn helper(&self) -> Option<Pid> {
        children(&self.running)
            .into_iter()
            .find_map(|(pid, name)| (name == "softnet-helper helper").then_some(pid))
    }

    /// Ends it: it must account for all packets.
    fn finish(self) -> String {
        text(&end(self.running, &self.hosts).stderr)
    }
}

/// Numbers of the processes that a program has started, with their first two words.
fn children(running: &Running) -> Vec<(Pid, String)> {
    let mut children = Vec::new();
    for task in fs::read_dir(running.proc().join("task"))
        .expect("its threads")
        .flatten()
    {
        let list = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        for pid in list.split_whitespace() {
            let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let words: Vec<&str> = line.split('\0').take(2).collect();
            let pid = pid.parse().ok().and_then(Pid::from_raw).expect("a number");
            children.push((pid, words.join(" ")));
        }
    }
    children
}

/// Fields of `/proc/PID/task/TID/status`, by thread.
fn statuses(proc: &Path) -> Vec<BTreeMap<String, String>> {
    let tasks = fs::read_dir(proc.join("task")).expect("its threads");
    let read = |task: fs::DirEntry| {
        let status = fs::read_to_string(task.path().join("status")).ok()?;
        let fields = status.lines().filter_map(|line| line.split_once(':'));
        let fields = fields.map(|(name, value)| (name.to_owned(), value.trim().to_owned()));
        Some(fields.collect())
    };
    tasks.flatten().filter_map(read).collect()
}

impl Daemon {
    /// Fields of its threads, as of [`statuses`], once those of these names run, with so many
    /// lists of system calls. A thread has its name, its lists and no rights when it has begun.
    fn threads(&self, of: &[&str], lists: &str) -> Vec<BTreeMap<String, String>> {
        // Its control thread has begun when it answers.
        self.ask(&["stats"]).expect("answered");
        let mut threads = Vec::new();
        wait_for("the threads", || {
            threads = statuses(&self.running.proc());
            let has_begun = |name: &&str| {
                let mut threads = threads.iter();
                let thread = threads.find(|thread| thread["Name"] == **name);
                thread.is_some_and(|thread| {
                    thread["Seccomp_filters"] == lists && thread["CapEff"] == NOTHING
                })
            };
            of.iter().all(has_begun)
        });
        threads
    }
}

/// Threads with a list of their own.
const OWN: [&str; 4] = ["softnet/0", "softnet/1", "vhost-call", "vhost-user"];

const NOTHING: &str = "0000000000000000";

#[test]
fn no_thread_has_rights() {
    if !may_make_networks() {
        return;
    }
    let before = HostState::now();
    let daemon = Daemon::start("rights", &[]);
    let threads = daemon.threads(&OWN, "3");
    let mut names: Vec<&str> = threads
        .iter()
        .map(|thread| thread["Name"].as_str())
        .collect();
    names.sort_unstable();
    let expected = [
        "control",
        "softnet",
        "softnet/0",
        "softnet/1",
        "vhost-call",
        "vhost-user",
    ];
    assert_eq!(names, expected);
    for thread in &threads {
        let name = &thread["Name"];
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(thread[set], NOTHING, "{name}: {set}");
        }
        assert_eq!(thread["NoNewPrivs"], "1", "{name}");
        assert_eq!(thread["Seccomp"], "2", "{name}");
        // The list of all threads and the one that sends libraries to `clone`; and its own.
        let own = OWN.contains(&name.as_str());
        let filters = if own { "3" } else { "2" };
        assert_eq!(thread["Seccomp_filters"], filters, "{name}");
    }
    let helper = daemon.helper().expect("it has a helper");
    let helper = statuses(Path::new(&format!("/proc/{}", helper.as_raw_nonzero())));
    assert_eq!(helper.len(), 1, "{helper:?}");
    assert_ne!(helper[0]["CapEff"], NOTHING);
    // Whatever takes rights still works.
    daemon
        .ask(&["ip", "link", "set", "eth-a", "mtu", "1400"])
        .expect("changed");
    daemon.hosts[0].ip(&["link", "show", "eth-a"]);
    daemon
        .ask(&["ip", "link", "add", "tap9", "type", "tap"])
        .expect("made");
    assert!(daemon.own.interfaces().contains("tap9"));
    daemon.ask(&["ip", "link", "del", "tap9"]).expect("removed");
    daemon.ask(&["reload"]).expect("reloaded");
    daemon.ping();
    let socket = daemon.scratch.path("vm.sock");
    assert!(socket.exists());
    daemon.finish();
    assert!(!socket.exists(), "the helper removes it");
    assert_eq!(HostState::now(), before);
}

#[test]
fn without_a_helper_workers_have_no_rights() {
    if !may_make_networks() {
        return;
    }
    let daemon = Daemon::start("nohelper", &["--no-helper"]);
    assert_eq!(daemon.helper(), None);
    for thread in daemon.threads(&OWN[..2], "1") {
        let name = &thread["Name"];
        let is_worker = name.starts_with("softnet/");
        assert_eq!(
            thread["Seccomp"],
            if is_worker { "2" } else { "0" },
            "{name}"
        );
        assert_eq!(thread["NoNewPrivs"], "1", "{name}");
        assert_eq!(thread["CapEff"] == NOTHING, is_worker, "{name}");
    }
    daemon
        .ask(&["ip", "link", "set", "eth-a", "mtu", "1400"])
        .expect("changed");
    daemon.ping();
    daemon.finish();
}

/// A system that has no `membarrier(2)`, as some sandboxes: a list of system calls that refuses it.
#[test]
fn packets_flow_without_membarrier() {
    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

    if !may_make_networks() {
        return;
    }
    let missing = SeccompAction::Errno(libc::ENOSYS.cast_unsigned());
    let machine = std::env::consts::ARCH.try_into().expect("a known machine");
    let rules = BTreeMap::from([(libc::SYS_membarrier, vec![])]);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, missing, machine);
    let program: BpfProgram = filter.and_then(TryInto::try_into).expect("a filter");
    let daemon = Daemon::start_as("membarrier", &[], |command| {
        use std::os::unix::process::CommandExt;
        let refuse = move || seccompiler::apply_filter(&program).map_err(std::io::Error::other);
        // SAFETY: after fork it makes two system calls, and allocates nothing unless they fail.
        unsafe { command.pre_exec(refuse) };
    });
    for thread in statuses(&daemon.running.proc()) {
        // One more than without.
        let filters: u32 = thread["Seccomp_filters"].parse().expect("a number");
        assert!(filters >= 3, "{thread:?}");
    }
    let load = Load::start(&daemon.hosts);
    load.wait(2000);
    // Every queue changes hands, and buffers go from thread to thread.
    for qdisc in ["fq_codel", "pfifo", "prio"] {
        let words = ["tc", "qdisc", "replace", "dev", "eth-b", "root", qdisc];
        daemon.ask(&words).expect("replaced");
        load.wait(500);
    }
    drop(load);
    daemon.finish();
}

/// Datagrams from one host to the other until it is dropped.
struct Load {
    stop: std::sync::Arc<AtomicBool>,
    received: std::sync::Arc<AtomicU64>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Load {
    fn start(hosts: &[NamedNetns; 2]) -> Load {
        let stop = std::sync::Arc::new(AtomicBool::new(false));
        let received = std::sync::Arc::new(AtomicU64::new(0));
        let open = |host: &NamedNetns, address: &str| {
            let socket = host.run(|| UdpSocket::bind(address)).expect("a socket");
            let wait = Some(Duration::from_millis(50));
            socket.set_read_timeout(wait).expect("a time");
            socket
        };
        let (from, to) = (
            open(&hosts[0], "10.9.0.1:0"),
            open(&hosts[1], "10.9.0.2:7000"),
        );
        let threads = vec![
            {
                let stop = stop.clone();
                thread::spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        // Refused while there is no way.
                        let _ = from.send_to(&[7; 1000], "10.9.0.2:7000");
                    }
                })
            },
            {
                let (stop, received) = (stop.clone(), received.clone());
                thread::spawn(move || {
                    let mut bytes = [0; 2000];
                    while !stop.load(Ordering::Relaxed) {
                        if to.recv(&mut bytes).is_ok() {
                            received.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                })
            },
        ];
        Load {
            stop,
            received,
            threads,
        }
    }

    /// Waits until so many more have come.
    fn wait(&self, more: u64) {
        let goal = self.received.load(Ordering::Relaxed) + more;
        wait_for("datagrams", || {
            self.received.load(Ordering::Relaxed) >= goal
        });
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

#[test]
fn the_helper_dies_under_load() {
    if !may_make_networks() {
        return;
    }
    let daemon = Daemon::start("helper", &[]);
    let load = Load::start(&daemon.hosts);
    load.wait(100);
    let helper = daemon.helper().expect("it has a helper");
    kill_process(helper, Signal::KILL).expect("it is ours");
    wait_for("its end", || daemon.helper().is_none());
    load.wait(1000);
    let error = daemon.ask(&["ip", "link", "add", "tap9", "type", "tap"]);
    let error = error.expect_err("nobody is there who could");
    assert!(error.contains("privileged helper is gone"), "{error}");
    let error = daemon.ask(&["ip", "link", "set", "eth-a", "mtu", "1300"]);
    assert!(error.is_err_and(|error| error.contains("helper is gone")));
    // It can be done without: what has no device of its own in the system.
    daemon
        .ask(&["tc", "qdisc", "add", "dev", "eth-b", "root", "pfifo"])
        .expect("added");
    load.wait(1000);
    drop(load);
    let log = daemon.finish();
    assert!(
        log.contains("the privileged helper has ended (signal: 9"),
        "{log}"
    );
    assert_eq!(
        log.matches("the privileged helper has ended").count(),
        1,
        "{log}"
    );
}

#[test]
fn the_daemon_is_killed() {
    if !may_make_networks() {
        return;
    }
    let before = HostState::now();
    let daemon = Daemon::start("killed", &[]);
    let load = Load::start(&daemon.hosts);
    load.wait(100);
    let helper = daemon.helper().expect("it has a helper");
    let helper = format!("/proc/{}", helper.as_raw_nonzero());
    let sockets = ["s", "vm.sock"].map(|name| daemon.scratch.path(name));
    daemon.running.signal(Signal::KILL);
    wait_for("the end of the helper", || {
        !Path::new(&helper).exists() || is_zombie(&helper)
    });
    drop(load);
    for host in &daemon.hosts {
        wait_for("the end of its devices", || {
            !host.interfaces().iter().any(|name| name.contains("eth"))
        });
    }
    assert!(
        !sockets.iter().any(|path| path.exists()),
        "the helper removes them"
    );
    assert_eq!(HostState::now(), before);
}

/// Nobody may wait for the orphans of a test.
fn is_zombie(proc: &str) -> bool {
    let stat = fs::read_to_string(format!("{proc}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_none_or(|(_, rest)| rest.starts_with('Z'))
}
