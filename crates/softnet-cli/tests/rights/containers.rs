//! Devices of a user without rights, in containers and in a namespace of his own.

use super::*;
use crate::common::{copy_program, skip};

/// A user without rights, as whom a program is started.
const NOBODY: [&str; 4] = [
    "--reuid=65534",
    "--regid=65534",
    "--clear-groups",
    "--inh-caps=-all",
];

fn as_nobody(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(NOBODY).arg(program);
    command
}

/// True if `nobody` may make user namespaces, and TAP devices in them.
fn nobody_has_containers() -> bool {
    if !may_make_networks() || !has_program("setpriv") || !has_program("unshare") {
        return false;
    }
    let mut command = as_nobody(Path::new("unshare"));
    command.args(["-Urn", "sh", "-c", "exec 3<>/dev/net/tun"]);
    let works = command.output().is_ok_and(|output| output.status.success());
    if !works {
        skip("needs user namespaces and /dev/net/tun for everyone");
    }
    works
}

/// A container: a process with a network namespace of its own, started by `nobody`.
struct Container {
    running: Running,
    /// The process inside.
    pid: u32,
}

impl Container {
    fn start(program: &str, arguments: &[&str]) -> Container {
        let mut command = as_nobody(Path::new(program));
        command.args(arguments).args(["sleep", "1000"]);
        let running = Running::start(&mut command);
        let own = fs::read_link("/proc/self/ns/net").expect("a namespace");
        let mut pid = 0;
        wait_for("the container", || {
            let all = std::iter::once(running.pid()).chain(descendants(running.pid()));
            let mut inside = all.filter(|pid| {
                let proc = format!("/proc/{}", pid.as_raw_nonzero());
                let sleeps = fs::read_to_string(format!("{proc}/comm"));
                let netns = fs::read_link(format!("{proc}/ns/net"));
                sleeps.is_ok_and(|name| name == "sleep\n") && netns.is_ok_and(|ns| ns != own)
            });
            pid = inside
                .next_back()
                .map_or(0, |pid| pid.as_raw_nonzero().get() as u32);
            pid != 0
        });
        Container { running, pid }
    }

    /// Runs a program in it.
    fn run(&self, words: &[&str]) -> Result<String, String> {
        let mut command = Command::new("nsenter");
        let pid = self.pid.to_string();
        command.args(["-t", &pid, "-n"]);
        let output = command.args(words).output().expect("nsenter");
        match output.status.success() {
            true => Ok(text(&output.stdout)),
            false => Err(text(&output.stderr)),
        }
    }
}

fn descendants(pid: Pid) -> Vec<Pid> {
    let pid = pid.as_raw_nonzero();
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let list = list.unwrap_or_default();
    let list = list
        .split_whitespace()
        .filter_map(|pid| Pid::from_raw(pid.parse().ok()?));
    list.flat_map(|pid| std::iter::once(pid).chain(descendants(pid)))
        .collect()
}

/// The program where `nobody` may read it.
fn copy(scratch: &Scratch) -> std::path::PathBuf {
    let program = scratch.path("softnet");
    copy_program(&program);
    program
}

/// Two containers of a user without rights, of `unshare` and of bubblewrap, joined by a daemon of
/// that user, and limited both ways.
#[test]
fn containers_without_root() {
    if !nobody_has_containers() || !has_program("bwrap") || !has_program("nsenter") {
        return;
    }
    let scratch = Scratch::new("containers");
    let one = Container::start("unshare", &["-Urn"]);
    let other = Container::start(
        "bwrap",
        &["--unshare-all", "--bind", "/", "/", "--proc", "/proc"],
    );
    let limit =
        "qdisc = { kind = \"tbf\", rate = \"20mbit\", burst = \"32k\", latency = \"50ms\" }";
    let port = |name, container: &Container, host| {
        format!(
            "[[port]]\nname = {name:?}\ndriver = \"tap\"\nnetns = {{ pid = {} }}\n\
             address = [\"10.9.0.{host}/24\"]\nroutes = [\"10.77.{host}.0/24\"]\n{limit}\n",
            container.pid
        )
    };
    let config = port("c1", &one, 1)
        + &port("c2", &other, 2)
        + "[[bridge]]\nname = \"br0\"\nports = [\"c1\", \"c2\"]\n";
    let config = scratch.file("containers.toml", &config);
    let socket = std::env::temp_dir().join(format!("softnet-nobody-{}", std::process::id()));
    let mut command = as_nobody(&copy(&scratch));
    command.arg("run").arg(&config).arg("--socket").arg(&socket);
    let mut running = Running::start(&mut command);
    wait_for("the daemon", || {
        running.assert_running();
        socket.exists()
    });
    wait_for("a way between them", || {
        one.run(&["ping", "-c1", "-W1", "10.9.0.2"]).is_ok()
    });
    let routes = other.run(&["ip", "route"]).expect("its routes");
    assert!(routes.contains("10.77.2.0/24 dev c2"), "{routes}");
    let limits = softnet()
        .arg("--socket")
        .arg(&socket)
        .args(["tc", "qdisc"])
        .output();
    let limits = text(&limits.expect("softnet").stdout);
    assert_eq!(limits.matches("tbf").count(), 2, "{limits}");
    for thread in statuses(&running.proc()) {
        assert_eq!(
            (thread["CapEff"].as_str(), thread["Seccomp"].as_str()),
            (NOTHING, "2")
        );
    }
    running.stop();
    for container in [&one, &other] {
        let links = container.run(&["ip", "link"]).expect("its interfaces");
        assert!(!links.contains(" c1") && !links.contains(" c2"), "{links}");
    }
    drop((one.running, other.running));
}

/// `softnet run --userns` of a user without rights.
#[test]
fn devices_without_root() {
    if !nobody_has_containers() || !has_program("nsenter") {
        return;
    }
    let scratch = Scratch::new("userns");
    let config = scratch.file(
        "userns.toml",
        "[[port]]\nname = \"t1\"\ndriver = \"tap\"\naddress = [\"10.9.0.1/24\"]\n\
         gateway = [\"10.9.0.2\"]\n",
    );
    let socket = std::env::temp_dir().join(format!("softnet-userns-{}", std::process::id()));
    let mut command = as_nobody(&copy(&scratch));
    command
        .arg("run")
        .arg(&config)
        .args(["--userns", "--strict"]);
    command.arg("--socket").arg(&socket);
    let mut running = Running::start(&mut command);
    wait_for("the daemon", || {
        running.assert_running();
        socket.exists()
    });
    let inside = Container {
        pid: running.pid().as_raw_nonzero().get() as u32,
        running,
    };
    let mut routes = String::new();
    wait_for("the device", || {
        routes = inside.run(&["ip", "route"]).expect("a namespace");
        routes.contains("default")
    });
    assert!(routes.contains("default via 10.9.0.2 dev t1"), "{routes}");
    for thread in statuses(&inside.running.proc()) {
        assert_eq!(
            (thread["CapEff"].as_str(), thread["Seccomp"].as_str()),
            (NOTHING, "2")
        );
    }
    inside.running.stop();
}
