//! Changes that outlive the daemon, and who hears of them.

use super::*;

use std::os::unix::net::UnixDatagram;

/// A configuration with a state's file.
fn with_state(scratch: &Scratch, file: &str) -> String {
    let state = format!("[engine]\nstate = {:?}\n", display(&scratch.path("state")));
    file.replace("[engine]\n", &state)
}

fn kill(daemon: Daemon) -> (PathBuf, PathBuf) {
    let at = (daemon.config.clone(), daemon.socket.clone());
    daemon.running.signal(Signal::KILL);
    at
}

/// The file's limit that a client removed and SIGHUP brought back is there after a crash.
#[test]
fn a_reload_by_a_signal_is_saved() {
    if !has_program("tc") {
        return;
    }
    let scratch = Scratch::new("saved-hup");
    let limited = PLAIN.replacen(
        "driver = \"null\"\n",
        "driver = \"null\"\n\
         qdisc = { kind = \"tbf\", rate = \"1mbit\", burst = \"10k\", latency = \"50ms\" }\n",
        1,
    );
    let daemon = Daemon::start(&scratch, &with_state(&scratch, &limited));
    daemon.run("tc qdisc del dev a root");
    let state = || fs::read_to_string(scratch.path("state")).unwrap_or_default();
    assert!(!state().contains("tbf"), "it is saved when it is answered");
    daemon.running.signal(Signal::HUP);
    wait_for("the limit in the state", || state().contains("tbf"));
    let (config, socket) = kill(daemon);
    let daemon = Daemon::on(config, socket);
    assert!(daemon.say("dump-config").contains("tbf"));
    daemon.stop();
}

/// Each change is on the disk when its client is answered, also those that come at once.
#[test]
fn changes_are_saved_when_they_are_answered() {
    let scratch = Scratch::new("saved-at-once");
    let daemon = Daemon::start(&scratch, &with_state(&scratch, PLAIN));
    for n in 1..=20 {
        daemon.say(&format!("port set a storm.broadcast={n}"));
        let state = fs::read_to_string(scratch.path("state")).expect("a state");
        assert!(state.contains(&format!("broadcast = {n}")), "{n}: {state}");
    }
    daemon.stop();
}

#[test]
fn an_added_port_is_kept_by_another_name() {
    if !has_program("ip") {
        return;
    }
    let scratch = Scratch::new("saved-name");
    let daemon = Daemon::start(&scratch, &with_state(&scratch, PLAIN));
    daemon.say("port add c driver=null bridge=br0 mtu=1400");
    daemon.run("ip link set dev c name d");
    assert_eq!(daemon.say("reload --dry-run"), "");
    daemon.say("reload");
    assert!(daemon.say("dump-config").contains("name = \"d\""));
    let shown: Value = serde_json::from_str(&daemon.say("port show d --json")).expect("JSON");
    assert_eq!(shown["ports"][0]["run_time"], true);
    let (config, socket) = kill(daemon);
    let daemon = Daemon::on(config, socket);
    daemon.say("reload");
    let dumped = daemon.say("dump-config");
    assert!(
        dumped.contains("name = \"d\"") && !dumped.contains("name = \"c\""),
        "{dumped}"
    );
    let deleted = daemon.ask("port del d");
    assert_eq!(text(&deleted.stderr), "", "no reload brings it back");
    daemon.stop();
}

#[test]
fn a_mirror_to_a_port_that_went_goes() {
    let scratch = Scratch::new("saved-copies");
    let file = with_state(&scratch, PLAIN);
    let daemon = Daemon::start(&scratch, &file);
    daemon.say("port add c driver=null");
    let output = daemon.ask("port set c mirror.to=b");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let without = file.replace("[[port]]\nname = \"b\"\ndriver = \"null\"\n", "");
    let without = without.replace("[\"a\", \"b\"]", "[\"a\"]");
    // At a start, too.
    daemon.write(&without);
    let (config, socket) = kill(daemon);
    let daemon = Daemon::on(config, socket);
    assert!(!daemon.say("dump-config").contains("mirror"));
    daemon.write(&file);
    daemon.say("reload");
    daemon.say("port set c mirror.to=b");
    daemon.write(&without);
    let output = daemon.ask("reload");
    let said = text(&output.stderr);
    assert!(
        output.status.success() && said.contains("port \"c\": "),
        "{said}"
    );
    let dumped = daemon.say("dump-config");
    assert!(
        dumped.contains("name = \"c\"") && !dumped.contains("mirror"),
        "{dumped}"
    );
    daemon.stop();
}

/// A disk that takes nothing: the change is in effect, its client is told, and the log once.
#[test]
fn a_state_that_cannot_be_written_is_told_and_written_later() {
    let scratch = Scratch::new("saved-late");
    let folder = scratch.path("folder");
    fs::create_dir(&folder).expect("ours");
    let state = format!("[engine]\nstate = {:?}\n", display(&folder.join("state")));
    let daemon = Daemon::start(&scratch, &PLAIN.replace("[engine]\n", &state));
    fs::remove_dir(&folder).expect("it is empty");
    for n in [1, 2] {
        let output = daemon.ask(&format!("port set a storm.broadcast={n}"));
        let said = text(&output.stderr);
        assert!(
            output.status.success() && said.contains("a restart may forget it"),
            "{said}"
        );
    }
    if has_program("tc") {
        let mut tc = softnet();
        tc.arg("--socket").arg(&daemon.socket);
        tc.args("tc qdisc add dev a root pfifo".split(' '));
        let output = tc.output().expect("softnet");
        let said = text(&output.stderr);
        assert!(
            output.status.success() && said.contains("a restart may forget it"),
            "{said}"
        );
    }
    fs::create_dir(&folder).expect("ours");
    wait_for("the state", || {
        let state = fs::read_to_string(folder.join("state"));
        state.is_ok_and(|state| state.contains("broadcast = 2"))
    });
    daemon.say("port set a storm.broadcast=3");
    let noted = daemon.stop();
    assert_eq!(noted.matches("state: not written").count(), 1, "{noted}");
    assert!(noted.contains("state: written again"), "{noted}");
}

/// Who changed what is a line each, whatever is in a value.
#[test]
fn changes_are_audited() {
    let scratch = Scratch::new("audit");
    let daemon = Daemon::start(&scratch, PLAIN);
    let mut forger = softnet();
    let forged = "alias=x\nsoftnet: user 0: port del b";
    let output = forger
        .args(["port", "set", "a", forged, "--socket"])
        .arg(&daemon.socket)
        .output();
    assert!(output.expect("softnet").status.success());
    daemon.say("reload");
    if has_program("tc") {
        daemon.run("tc qdisc add dev b root pfifo");
        daemon.run("ip link set dev b mtu 1400");
        daemon.run("tc qdisc show dev b");
    }
    assert_eq!(daemon.say("log"), "info\n");
    assert_eq!(daemon.say("log warning"), "warning\n");
    assert_eq!(daemon.ask("log debug").status.code(), Some(2));
    daemon.say("port set a mtu=1300");
    assert_eq!(daemon.say("log notice"), "notice\n");
    let noted = daemon.stop();
    let lines: Vec<&str> = noted.lines().collect();
    assert!(!lines.contains(&"softnet: user 0: port del b"), "{noted}");
    let mut expected = vec![
        "softnet: user 0: port set a alias=\"x\\nsoftnet: user 0: port del b\"",
        "softnet: user 0: reload",
        "softnet: user 0: log warning",
    ];
    if has_program("tc") {
        expected.extend([
            "softnet: user 0: RTM_NEWQDISC dev b",
            "softnet: user 0: RTM_NEWLINK dev b",
        ]);
    }
    for line in expected {
        assert!(lines.contains(&line), "{line:?} in\n{noted}");
    }
    assert!(
        !noted.contains("mtu=1300") && !noted.contains("GETQDISC"),
        "{noted}"
    );
}

/// systemd is told of a reload by a client as of one by a signal.
#[test]
fn a_reload_is_told_to_systemd() {
    let scratch = Scratch::new("notify-reload");
    let path = scratch.path("notify");
    let socket = UnixDatagram::bind(&path).expect("ours");
    socket.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let config = scratch.file("config.toml", PLAIN);
    let mut command = softnet();
    command.env("NOTIFY_SOCKET", &path);
    let daemon = Daemon::by(command, config, scratch.path("socket"));
    let next = || {
        let mut buffer = [0; 256];
        let length = socket.recv(&mut buffer).expect("a message");
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    };
    assert!(next().starts_with("READY=1\nSTATUS=2 ports"));
    daemon.write(&(PLAIN.to_owned() + "[[port]]\nname = \"c\"\ndriver = \"null\"\n"));
    daemon.say("reload");
    assert_eq!(next(), "RELOADING=1");
    assert!(next().starts_with("READY=1\nSTATUS=3 ports"));
    daemon.write("[[port]]\n");
    assert_eq!(daemon.ask("reload").status.code(), Some(2));
    assert_eq!(next(), "RELOADING=1");
    assert!(next().starts_with("READY=1\nSTATUS=3 ports"));
    daemon.write(PLAIN);
    daemon.running.signal(Signal::HUP);
    assert_eq!(next(), "RELOADING=1");
    assert!(next().starts_with("READY=1\nSTATUS=2 ports"));
    daemon.stop();
}

/// In the journal each line has its priority.
#[test]
fn lines_in_the_journal_have_priorities() {
    let scratch = Scratch::new("journal");
    let config = scratch.file("config.toml", PLAIN);
    let log = fs::File::create(scratch.path("log")).expect("ours");
    let stat = log.metadata().expect("ours");
    let mut command = softnet();
    command
        .env("JOURNAL_STREAM", format!("{}:{}", stat.dev(), stat.ino()))
        .args(["run"])
        .arg(config)
        .arg("--socket")
        .arg(scratch.path("socket"))
        .stderr(log);
    let mut child = command
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("softnet");
    let socket = scratch.path("socket");
    wait_for("the daemon", || socket.exists());
    let mut set = softnet();
    let set = set
        .args(["port", "set", "a", "mtu=1400", "--socket"])
        .arg(socket);
    wait_for("an answer", || {
        set.output().expect("softnet").status.success()
    });
    let pid = Pid::from_child(&child);
    rustix::process::kill_process(pid, Signal::TERM).expect("it runs");
    assert!(child.wait().expect("ours").success());
    let log = fs::read_to_string(scratch.path("log")).expect("ours");
    assert!(log.contains("<6>softnet: running: "), "{log}");
    assert!(log.contains("<5>softnet: user "), "{log}");
    assert!(log.lines().all(|line| line.starts_with('<')), "{log}");
}
