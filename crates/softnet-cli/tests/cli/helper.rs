//! A helper that is a service of its own, and daemons without rights that it serves; files that
//! systemd passes to both.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};

use crate::common::{
    NamedNetns, Running, Scratch, ask, carriers, copy_program, end, has_program,
    may_make_networks, ping, softnet, text, two_ports, wait_for,
};
use rustix::process::{Pid, Signal, kill_process};

/// Number of the user `nobody`, as whom daemons run.
const NOBODY: u32 = 65_534;
const NOTHING: &str = "0000000000000000";
/// `O_CLOEXEC`.
const CLOEXEC: u32 = 0o2_000_000;

/// A configuration of two TAP ports and that of a virtual machine, and daemons that run it.
struct Place {
    scratch: Scratch,
    hosts: [NamedNetns; 2],
    /// The program where `nobody` may read it.
    program: PathBuf,
}

impl Place {
    fn new(tag: &str) -> Place {
        let scratch = Scratch::new(tag);
        let hosts = ["a", "b"].map(|host| NamedNetns::new(&format!("{tag}{host}")));
        let ports = two_ports((&hosts[0], ""), (&hosts[1], ""));
        let machine = scratch.path("vm.sock");
        // A successor of the same user connects to the control socket.
        let file = format!(
            "[engine]\nworkers = 1\nbuffers = 8192\nsocket_mode = \"0666\"\n{ports}[[port]]\n\
             name = \"vm\"\ndriver = \"vhost_user\"\nsocket = {machine:?}\n"
        );
        scratch.file("config.toml", &file);
        let program = scratch.path("softnet");
        copy_program(&program);
        Place {
            scratch,
            hosts,
            program,
        }
    }

    /// Starts a helper of its own for a user.
    fn helper(&self, user: u32) -> Running {
        let mut command = softnet();
        command.args(["helper", "--user", &user.to_string()]);
        command
            .arg("--config")
            .arg(self.scratch.path("config.toml"));
        command.arg("--listen").arg(self.socket());
        let mut running = Running::start(&mut command);
        wait_for("the helper", || {
            running.assert_running();
            // It listens before the socket is that user's.
            fs::metadata(self.socket()).is_ok_and(|file| file.uid() == user)
        });
        running
    }

    fn socket(&self) -> PathBuf {
        self.scratch.path("helper.sock")
    }

    /// A daemon of `nobody`.
    fn command(&self, options: &[&str]) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        command.args(["--inh-caps=-all", "--"]).arg(&self.program);
        command.arg("run").arg(self.scratch.path("config.toml"));
        command.args(options).arg("--helper").arg(self.socket());
        command.arg("--socket").arg(self.scratch.path("s"));
        command
    }

    fn start(&self) -> Running {
        let mut running = Running::start(&mut self.command(&[]));
        wait_for("the daemon", || {
            running.assert_running();
            self.ask("stats").is_ok() && self.scratch.path("vm.sock").exists()
        });
        self.ping();
        running
    }

    fn ping(&self) {
        ping(&self.hosts);
    }

    fn ask(&self, words: &str) -> Result<String, String> {
        let words: Vec<&str> = words.split(' ').collect();
        ask(&self.scratch.path("s"), &words)
    }

    /// See [`carriers`].
    fn carriers(&self) -> String {
        carriers(&self.hosts)
    }

    /// Ends a daemon: what it had is gone.
    fn end(&self, daemon: Running) -> String {
        text(&end(daemon, &self.hosts).stderr)
    }

    /// Processes of the helper that serve daemons.
    fn serving(&self) -> Vec<Pid> {
        let file = self.scratch.path("config.toml");
        let line = format!("softnet-helper\0helper\0--config\0{}\0", file.display());
        let processes = fs::read_dir("/proc").expect("processes").flatten();
        let serving = processes.filter_map(|process| {
            let pid = process.file_name().to_str()?.parse().ok()?;
            let words = fs::read_to_string(process.path().join("cmdline")).ok()?;
            (words == line).then(|| Pid::from_raw(pid)).flatten()
        });
        serving.collect()
    }
}

/// True if a helper and daemons of another user can be tried here.
fn may_serve() -> bool {
    may_make_networks() && has_program("setpriv")
}

/// Values of a field of `/proc/PID/task/TID/status`, of each thread.
fn threads(daemon: &Running, field: &str) -> Vec<String> {
    let tasks = fs::read_dir(daemon.proc().join("task")).expect("its threads");
    let value = |task: fs::DirEntry| {
        let status = fs::read_to_string(task.path().join("status")).ok()?;
        let mut lines = status.lines();
        let value = lines.find_map(|line| line.strip_prefix(field)?.strip_prefix(":\t"))?;
        Some(value.to_owned())
    };
    tasks.flatten().filter_map(value).collect()
}

/// One daemon after the other, none of which ever has rights.
#[test]
fn daemons_without_rights() {
    if !may_serve() {
        return;
    }
    let place = Place::new("own");
    let helper = place.helper(NOBODY);
    for _ in 0..2 {
        let daemon = place.start();
        for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            let values = threads(&daemon, set);
            assert!(!values.is_empty());
            assert!(values.iter().all(|value| value == NOTHING), "{values:?}");
        }
        let users = threads(&daemon, "Uid");
        let nobody = ["65534"; 4].join("\t");
        assert!(users.iter().all(|user| *user == nobody), "{users:?}");
        let lists = threads(&daemon, "Seccomp");
        assert!(lists.iter().all(|list| list == "2"), "{lists:?}");
        assert_eq!(place.serving().len(), 1, "one connection, one process");
        // Whatever takes rights works.
        place
            .ask("ip link set eth-a mtu 1400")
            .expect("an interface of its own");
        place.ask("reload").expect("reloaded");
        place.ping();
        place.end(daemon);
        for socket in ["s", "vm.sock"] {
            assert!(!place.scratch.path(socket).exists(), "{socket} is removed");
        }
        assert!(place.serving().is_empty());
    }
    helper.stop();
    assert!(!place.socket().exists(), "its socket is removed");
}

#[test]
fn a_daemon_is_replaced() {
    if !may_serve() {
        return;
    }
    let place = Place::new("ownnext");
    let helper = place.helper(NOBODY);
    let daemon = place.start();
    place.ask("port set eth-b mtu=1300").expect("changed");
    let carriers = place.carriers();
    let next = Running::start(&mut place.command(&["--replace"]));
    let output = daemon.finish();
    let log = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{log}");
    assert!(log.contains("replaced by another daemon"), "{log}");
    place.ping();
    assert_eq!(place.carriers(), carriers, "the devices stay");
    let mut link = Command::new("ip");
    link.args(["-n", &place.hosts[1].name, "link", "show", "eth-b"]);
    let shown = text(&link.output().expect("ip").stdout);
    assert!(shown.contains("mtu 1300"), "{shown}");
    wait_for("the end of what served the first", || {
        place.serving().len() == 1
    });
    place
        .ask("ip link set eth-b mtu 1250")
        .expect("an interface that was handed over");
    place.end(next);
    assert!(!place.scratch.path("vm.sock").exists(), "it is removed");
    drop(helper);
}

/// A restart of the helper's service leaves what serves a daemon alone. If that is gone, too, what
/// is open goes on.
#[test]
fn the_helper_goes() {
    if !may_serve() {
        return;
    }
    let place = Place::new("owngone");
    let helper = place.helper(NOBODY);
    let daemon = place.start();
    // It is killed.
    drop(helper);
    place
        .ask("ip link set eth-a mtu 1400")
        .expect("it is served");
    let output = place.command(&[]).output().expect("softnet");
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(
        said.contains("cannot reach the privileged helper"),
        "{said}"
    );
    // The next one listens in the place of the one that died.
    let again = place.helper(NOBODY);
    let serving = place.serving();
    assert_eq!(serving.len(), 1, "{serving:?}");
    kill_process(serving[0], Signal::KILL).expect("ours");
    let refused = place.ask("ip link set eth-a mtu 1300");
    let refused = refused.expect_err("nobody is there who could");
    assert!(refused.contains("privileged helper is gone"), "{refused}");
    place.ping();
    let log = place.end(daemon);
    let said = "the privileged helper has ended (it closed the connection)";
    assert_eq!(log.matches(said).count(), 1, "{log}");
    drop(again);
}

#[test]
fn other_users_are_not_served() {
    if !may_serve() {
        return;
    }
    let place = Place::new("ownother");
    let helper = place.helper(NOBODY - 1);
    let mut root = softnet();
    root.arg("run").arg(place.scratch.path("config.toml"));
    root.arg("--helper").arg(place.socket());
    root.arg("--socket").arg(place.scratch.path("s"));
    // `nobody` cannot reach the socket. Root can, and is not the user either.
    for (command, why) in [
        (&mut place.command(&[]), "Permission denied"),
        (&mut root, "it serves user 65533 alone, not user 0"),
    ] {
        let output: Output = command.output().expect("softnet");
        assert_eq!(output.status.code(), Some(1));
        let said = text(&output.stderr);
        assert!(said.contains(why), "{said}");
    }
    assert!(place.serving().is_empty());
    drop(helper);
}

/// A program that was started with a file. It ends with the test.
struct Started(Child);

impl Started {
    /// Starts this program with a file of a name, as systemd does.
    fn with(file: OwnedFd, name: &str, words: &[&OsStr], log: &Path) -> Started {
        let line = "exec 3<&0 0</dev/null; LISTEN_PID=$$ exec \"$@\"";
        let mut command = Command::new("bash");
        command.args(["-c", line, "bash", env!("CARGO_BIN_EXE_softnet")]);
        command.args(words);
        command.env("LISTEN_FDS", "1").env("LISTEN_FDNAMES", name);
        command.stdin(Stdio::from(file)).stdout(Stdio::null());
        command
            .stderr(File::create(log).expect("a log"))
            .process_group(0);
        Started(command.spawn().expect("bash"))
    }

    fn end(mut self) -> ExitStatus {
        kill_process(Pid::from_child(&self.0), Signal::TERM).expect("it runs");
        self.0.wait().expect("its end")
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A helper that was started with its socket, and a daemon with a queue of a TAP device: the number
/// of its file means something else in the helper.
#[test]
fn files_that_systemd_passes() {
    use rustix::net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
    };
    use softnet::mem::{Pool, PoolConfig};
    use softnet_engine::rx::RxQueue;
    use softnet_io::{Buffers, Netns, Tap, TapConfig};

    if !may_make_networks() || !has_program("bash") {
        return;
    }
    let scratch = Scratch::new("passed");
    let hosts = ["a", "b"].map(|host| NamedNetns::new(&format!("passed{host}")));
    let config = scratch.file(
        "config.toml",
        &format!(
            "[engine]\nworkers = 1\nbuffers = 8192\n\
             [[port]]\nname = \"wan\"\ndriver = \"tap\"\nnetns = {:?}\nfd = \"uplink\"\n\
             [[port]]\nname = \"eth-b\"\ndriver = \"tap\"\nnetns = {:?}\n\
             address = [\"10.9.0.2/24\"]\n\
             [[bridge]]\nname = \"br0\"\nports = [\"wan\", \"eth-b\"]\n",
            hosts[0].name, hosts[1].name
        ),
    );
    let (path, control) = (scratch.path("helper.sock"), scratch.path("s"));
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None).expect("a socket");
    let address = SocketAddrUnix::new(path.as_path()).expect("a path");
    bind(&socket, &address).expect("ours");
    listen(&socket, 4).expect("ours");
    let words = ["helper", "--user", "root", "--config"].map(OsStr::new);
    let words = [&words[..], &[config.as_os_str()]].concat();
    let helper = Started::with(
        socket,
        "softnet-helper.socket",
        &words,
        &scratch.path("helper.log"),
    );
    let small = Pool::new(PoolConfig {
        buffers: 256,
        buffer_size: 2048,
    });
    let buffers = Buffers {
        small: small.expect("memory"),
        large: None,
    };
    let made = TapConfig {
        netns: Some(Netns::named(&hosts[0].name).expect("ours")),
        addresses: vec!["10.9.0.1/24".parse().expect("an address")],
        ..TapConfig::new("wan0")
    };
    let tap = Tap::open(&made, &buffers).expect("a device");
    let queue = tap.rx[0].fd().expect("a file").try_clone_to_owned();
    let words = ["run", "--strict", "--helper", "--socket"].map(OsStr::new);
    let [run, strict, by, at] = words;
    let words = [
        run,
        config.as_os_str(),
        strict,
        by,
        path.as_os_str(),
        at,
        control.as_os_str(),
    ];
    let log = scratch.path("log");
    let mut daemon = Started::with(queue.expect("a copy"), "uplink", &words, &log);
    let read = || fs::read_to_string(&log).unwrap_or_default();
    wait_for("a ping", || {
        assert!(matches!(daemon.0.try_wait(), Ok(None)), "{}", read());
        let mut ping = Command::new("ip");
        ping.args(["netns", "exec", &hosts[0].name]);
        ping.args(["ping", "-c1", "-W1", "10.9.0.2"]);
        ping.output().expect("ping").status.success()
    });
    let info = fs::read_to_string(format!("/proc/{}/fdinfo/3", daemon.0.id())).expect("its file");
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:\t"));
    let flags = u32::from_str_radix(flags.expect("flags"), 8).expect("octal");
    assert_ne!(flags & CLOEXEC, 0, "programs that it starts do not get it");
    assert_eq!(daemon.end().code(), Some(0), "{}", read());
    assert!(hosts[0].interfaces().contains("wan0"), "it is ours");
    assert_eq!(helper.end().code(), Some(0));
    assert!(path.exists(), "systemd's socket stays");
}

#[test]
fn a_file_that_nobody_passed() {
    let scratch = Scratch::new("nofile");
    let config = scratch.file(
        "config.toml",
        "[engine]\nworkers = 1\nbuffers = 256\n\
         [[port]]\nname = \"wan\"\ndriver = \"tap\"\nfd = \"uplink\"\n",
    );
    let mut command = softnet();
    command.arg("run").arg(config);
    command.args(["--strict", "--no-helper", "--socket"]);
    let output = command.arg(scratch.path("s")).output().expect("softnet");
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    let why = "this process was not started with a file named \"uplink\"";
    assert!(said.contains(why), "{said}");
}
