//! Kit of the tests: the program under test, a daemon of it ([`Daemon`]), namespaces that clean up
//! after themselves, and skipping.

#![allow(
    dead_code,
    unused_imports,
    reason = "each test program uses a part of it"
)]

mod between;
mod daemon;
mod uplink;

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal, geteuid, kill_process, test_kill_process_group};
pub(crate) use softnet_tests::{PATIENCE, skip, wait_for};

pub(crate) use between::{between, pass_on, receive, send};
pub(crate) use daemon::Daemon;
pub(crate) use uplink::{kill_passt, passt, passt_system, softnet_at};

/// The built program. Each call chooses another control socket, so that daemons do not meet.
pub(crate) fn softnet() -> Command {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    let name = format!("softnet-test-{}-{call}.sock", std::process::id());
    let mut command = Command::new(env!("CARGO_BIN_EXE_softnet"));
    command.env("SOFTNET_SOCKET", std::env::temp_dir().join(name));
    command
}

/// Copies the built program, to be run from there. By a process of its own: a file that this one
/// had open for writing would be so in each child that another test makes meanwhile, until that
/// runs its program, and a file that somebody writes is not run (`ETXTBSY`).
pub(crate) fn copy_program(to: &Path) {
    let mut copy = Command::new("cp");
    let copied = copy.arg(env!("CARGO_BIN_EXE_softnet")).arg(to).status();
    assert!(copied.is_ok_and(|status| status.success()), "{to:?}");
}

/// True if this test may make devices and namespaces; if not, it is reported as skipped.
pub(crate) fn may_make_networks() -> bool {
    let why = if !geteuid().is_root() {
        "needs root for network namespaces and TAP devices"
    } else if fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/net/tun")
        .is_err()
    {
        "needs /dev/net/tun"
    } else if let Err(error) = softnet_io::Netns::anonymous() {
        return skip_with(&format!("needs network namespaces: {error}"));
    } else {
        return true;
    };
    skip_with(why)
}

/// True if a program is there; if not, the test is reported as skipped.
pub(crate) fn has_program(name: &str) -> bool {
    let found = Command::new(name).arg("--version").output().is_ok()
        || Command::new(name).arg("-V").output().is_ok();
    found || skip_with(&format!("needs the program {name}"))
}

fn skip_with(why: &str) -> bool {
    skip(why);
    false
}

/// A running program in a process group of its own. Killed when dropped.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
}

impl Running {
    /// Starts it with its output captured.
    pub(crate) fn start(command: &mut Command) -> Running {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .expect("starting the program");
        Running { child }
    }

    /// The program's process number.
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Where the kernel tells about it.
    pub(crate) fn proc(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}", self.child.id()))
    }

    /// True if it runs a thread of this name.
    pub(crate) fn has_thread(&self, name: &str) -> bool {
        let Ok(tasks) = fs::read_dir(self.proc().join("task")) else {
            return false;
        };
        tasks
            .flatten()
            .filter_map(|task| fs::read_to_string(task.path().join("comm")).ok())
            .any(|comm| comm.trim_end() == name)
    }

    /// Fails the test with its output if it has ended already.
    pub(crate) fn assert_running(&mut self) {
        if let Some(status) = self.child.try_wait().expect("waiting") {
            let mut text = String::new();
            let pipe = self.child.stderr.as_mut().expect("captured");
            pipe.read_to_string(&mut text).expect("its output");
            panic!("it ended early: {status}: {text}");
        }
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("signalling a running program");
    }

    /// Has a daemon end, which must have been well: it accounts for all packets. Returns what it
    /// noted.
    pub(crate) fn stop(self) -> String {
        self.signal(Signal::TERM);
        let output = self.finish();
        let noted = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{noted}");
        noted
    }

    /// Waits for its end and checks that no process of its group is left.
    pub(crate) fn finish(mut self) -> Output {
        let group = self.pid();
        // Outputs are small, so that the pipes never fill.
        wait_for("the program's end", || {
            self.child.try_wait().expect("waiting").is_some()
        });
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let out = self.child.stdout.as_mut().expect("captured");
        out.read_to_end(&mut stdout).expect("its output");
        let err = self.child.stderr.as_mut().expect("captured");
        err.read_to_end(&mut stderr).expect("its output");
        let status = self.child.wait().expect("waiting");
        assert!(
            test_kill_process_group(group).is_err(),
            "a child process is left"
        );
        Output {
            status,
            stdout,
            stderr,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A network namespace made by `ip netns add`, removed when dropped.
#[derive(Debug)]
pub(crate) struct NamedNetns {
    /// The namespace's name.
    pub(crate) name: String,
}

impl NamedNetns {
    /// Makes one whose name no other test uses.
    pub(crate) fn new(tag: &str) -> NamedNetns {
        let name = format!("softnet-test-{}-{tag}", std::process::id());
        let path = Path::new("/run/netns").join(&name);
        assert!(taken().insert(path.clone()), "another test has {name}");
        let netns = NamedNetns { name };
        // A run that was killed, and had the number of this process, has left it.
        if path.exists() {
            netns.ip_netns("del");
        }
        netns.ip_netns("add");
        netns
    }

    fn ip_netns(&self, verb: &str) {
        let output = Command::new("ip")
            .args(["netns", verb, &self.name])
            .output()
            .expect("ip");
        assert!(
            output.status.success(),
            "ip netns {verb}: {}",
            text(&output.stderr)
        );
    }

    /// Runs `f` on a thread in it.
    pub(crate) fn run<T: Send>(&self, f: impl FnOnce() -> T + Send) -> T {
        let netns = softnet_io::Netns::named(&self.name).expect("opening our namespace");
        netns.run(f).expect("entering our namespace")
    }

    /// The output of a program in it.
    pub(crate) fn at(&self, words: &str) -> Output {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]);
        command.args(words.split(' ')).output().expect("ip")
    }

    /// Names of the interfaces in it.
    pub(crate) fn interfaces(&self) -> BTreeSet<String> {
        self.run(|| interfaces(Path::new("/proc/thread-self/net/dev")))
    }

    /// `ip -n NAME …`
    pub(crate) fn ip(&self, arguments: &[&str]) {
        let output = Command::new("ip")
            .args(["-n", &self.name])
            .args(arguments)
            .output();
        let output = output.expect("ip");
        assert!(
            output.status.success(),
            "ip {arguments:?}: {}",
            text(&output.stderr)
        );
    }
}

impl Drop for NamedNetns {
    fn drop(&mut self) {
        let _ = Command::new("ip")
            .args(["netns", "del", &self.name])
            .output();
        taken().remove(&Path::new("/run/netns").join(&self.name));
    }
}

/// Namespaces and directories that tests of this process have.
fn taken() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    static TAKEN: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    TAKEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Things that a test could leave behind in the system outside its own namespaces.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HostState {
    interfaces: BTreeSet<String>,
    netns: BTreeSet<PathBuf>,
}

impl HostState {
    /// As they are now. Namespaces of tests that run beside this one do not count, nor those of
    /// `softnet-testbed`.
    pub(crate) fn now() -> HostState {
        let netns = fs::read_dir("/run/netns").into_iter().flatten().flatten();
        let of_tests = |path: &PathBuf| {
            let path = path.to_string_lossy();
            path.contains("softnet-test-") || path.contains("/snb")
        };
        HostState {
            interfaces: interfaces(Path::new("/proc/net/dev")),
            netns: netns
                .map(|entry| entry.path())
                .filter(|path| !of_tests(path))
                .collect(),
        }
    }
}

/// The configuration of two TAP ports in a bridge, `eth-a` in one namespace and `eth-b` in the
/// other, each with these lines.
pub(crate) fn two_ports(a: (&NamedNetns, &str), b: (&NamedNetns, &str)) -> String {
    let port = |name, (netns, lines): (&NamedNetns, &str), host| {
        let netns = &netns.name;
        format!(
            "[[port]]\nname = \"eth-{name}\"\ndriver = \"tap\"\nnetns = {netns:?}\n\
             address = [\"10.9.0.{host}/24\"]\n{lines}\n"
        )
    };
    port("a", a, 1)
        + &port("b", b, 2)
        + "[[bridge]]\nname = \"br0\"\nports = [\"eth-a\", \"eth-b\"]\n"
}

/// Waits until the first host of [`two_ports`] reaches the second.
pub(crate) fn ping(hosts: &[NamedNetns; 2]) {
    wait_for("a ping", || {
        hosts[0].at("ping -c1 -W1 10.9.0.2").status.success()
    });
}

/// Numbers of both interfaces of [`two_ports`], and times that their carriers came or went.
pub(crate) fn carriers(hosts: &[NamedNetns; 2]) -> String {
    let of = |(host, name): (usize, &str)| {
        let folder = format!("/sys/class/net/{name}");
        let cat = format!("cat {folder}/ifindex {folder}/carrier_changes");
        text(&hosts[host].at(&cat).stdout)
    };
    [(0, "eth-a"), (1, "eth-b")].map(of).concat()
}

/// Ends a daemon of [`two_ports`]: it accounts for all packets, and its interfaces go.
pub(crate) fn end(daemon: Running, hosts: &[NamedNetns; 2]) -> Output {
    daemon.signal(Signal::TERM);
    let output = daemon.finish();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    for host in hosts {
        let names = host.interfaces();
        assert!(!names.iter().any(|name| name.contains("eth")), "{names:?}");
    }
    output
}

/// Runs a command of the daemon at this socket: its output, or the reason of its failure.
pub(crate) fn ask(socket: &Path, words: &[&str]) -> Result<String, String> {
    let mut command = softnet();
    command.arg("--socket").arg(socket);
    let output = command.args(words).output().expect("softnet");
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(text(&output.stderr)),
    }
}

fn interfaces(proc_net_dev: &Path) -> BTreeSet<String> {
    let table = fs::read_to_string(proc_net_dev).expect("the list of interfaces");
    table
        .lines()
        .skip(2)
        .filter_map(|line| line.split_once(':'))
        .map(|(name, _)| name.trim().to_owned())
        .collect()
}

/// A directory for one test's files, removed when dropped.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// A fresh directory that everyone may read.
    pub(crate) fn new(tag: &str) -> Scratch {
        use std::os::unix::fs::PermissionsExt;
        let path = std::env::temp_dir().join(format!("softnet-test-{}-{tag}", std::process::id()));
        assert!(taken().insert(path.clone()), "another test has {path:?}");
        // A run that was killed, and had the number of this process, may have left it.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).expect("a scratch directory");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("its mode");
        Scratch { path }
    }

    /// Writes a file in it.
    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path.join(name);
        fs::write(&path, text).expect("writing a scratch file");
        path
    }

    /// Writes a program in it: by a process of its own, as [`copy_program`] does.
    pub(crate) fn program(&self, name: &str, text: &str) -> PathBuf {
        let from = self.file(&format!("{name}.text"), text);
        let to = self.path(name);
        let mut install = Command::new("install");
        let installed = install.args(["-m", "755"]).arg(from).arg(&to).status();
        assert!(installed.is_ok_and(|status| status.success()), "{to:?}");
        to
    }

    /// A path in it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
        taken().remove(&self.path);
    }
}

/// Bytes as text, for messages.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
