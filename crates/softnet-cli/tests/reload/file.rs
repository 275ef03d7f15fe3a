//! Effects of a changed file, as a whole.

use super::*;

#[test]
fn warnings_of_the_file_are_logged_and_told_to_who_reloads() {
    const WARNED: &str = "[[port]]\nname = \"p\"\ndriver = \"null\"\n[[port.qdisc]]\nhandle = \
                          \"1:\"\nkind = \"htb\"\ndefault = \"30\"\n";
    let scratch = Scratch::new("reload-warned");
    let daemon = Daemon::start(&scratch, WARNED);
    let warning = format!(
        "softnet: {}:7:11: warning: port \"p\": qdisc 1: default names class 1:30",
        daemon.config.display()
    );
    let output = daemon.ask("reload");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(
        said.starts_with(&warning) && said.lines().count() == 1,
        "{said}"
    );
    let noted = daemon.stop();
    assert_eq!(noted.matches(&warning).count(), 2, "{noted}");
}

#[test]
fn a_reload_makes_it_as_the_file_says() {
    let scratch = Scratch::new("reload");
    let daemon = Daemon::start(&scratch, TREE);
    let first = daemon.say("dump-config");
    let changed = TREE
        .replace("rate = \"5mbit\"", "rate = \"6mbit\"")
        .replace("limit = 7", "limit = 8")
        .replace("ip_proto = \"udp\"", "ip_proto = \"tcp\"")
        .replace("group = 5", "group = 6")
        .replace("queues = 2", "num_tc = 1\nqueues = [\"2@0\"]")
        .replace("ports = [\"a\", \"b\"]", "ports = [\"b\", \"c\"]")
        .replace(
            "[[bridge]]",
            "[[port]]\nname = \"c\"\ndriver = \"null\"\nmirror = { to = \"b\" }\n[[bridge]]",
        );
    daemon.write(&changed);
    daemon.say("reload");
    let second = daemon.say("dump-config");
    for part in [
        "rate = 6000000",
        "limit = 8",
        "ip_proto = 6",
        "group = 6",
        "queues = [\"2@0\"]",
        "mirror = [{ ",
        "ports = [\"b\", \"c\"]",
    ] {
        assert!(second.contains(part), "{part:?} in\n{second}");
    }
    // And back, on SIGHUP; what somebody else changed meanwhile goes.
    if has_program("tc") {
        daemon.run("tc qdisc replace dev b root pfifo limit 99");
    }
    daemon.write(TREE);
    daemon.running.signal(Signal::HUP);
    wait_for("the reload", || daemon.say("dump-config") == first);
    assert_eq!(daemon.stop().matches("reloaded: ").count(), 2);
}

#[test]
fn what_cannot_be_applied_changes_nothing() {
    let scratch = Scratch::new("reload-not");
    let daemon = Daemon::start(&scratch, TREE);
    let before = daemon.say("dump-config");
    let file = daemon.config.display().to_string();
    let other = TREE.replace("limit = 7", "limit = 8");
    let tap = "[[port]]\nname = \"t\"\ndriver = \"tap\"\nnetns = \"softnet-no-such\"\n[[bridge]]";
    // The tree does not fit the device: seen when the file is read.
    let mq = "driver = \"null\"\nqdisc = { kind = \"mq\" }\n[[bridge]]";
    for (config, expected) in [
        (
            other.clone() + "colour = 1\n",
            ": key `bridge.colour`: is unknown",
        ),
        (
            other.replace("workers = 1", "workers = 2"),
            ": [engine] differs from what it was",
        ),
        (
            other.replace("[[bridge]]", tap),
            ": port \"t\" cannot be opened: ",
        ),
        (
            other.replace("[[bridge]]", &format!("[[port]]\nname = \"m\"\n{mq}")),
            ": key `port.qdisc`: ",
        ),
    ] {
        daemon.write(&config);
        let output = daemon.ask("reload");
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        let start = format!("softnet: {file}");
        assert!(
            said.starts_with(&start) && said.contains(expected),
            "{expected}: {said}"
        );
        assert_eq!(daemon.say("dump-config"), before);
    }
    daemon.running.signal(Signal::HUP);
    daemon.write(&other);
    daemon.say("reload");
    assert!(daemon.say("dump-config").contains("limit = 8"));
    daemon.stop();
}

/// A file that does not say how many workers there are means those that there are, whatever CPUs
/// the daemon may use meanwhile.
#[test]
fn a_file_without_workers_is_reloaded_on_other_cpus() {
    let cpus = sched_getaffinity(None).expect("our CPUs");
    if cpus.count() < 2 {
        softnet_tests::skip("needs two CPUs");
        return;
    }
    let scratch = Scratch::new("cpus");
    let config = "[[port]]\nname = \"n0\"\ndriver = \"null\"\n";
    let daemon = Daemon::start(&scratch, config);
    let mut one = CpuSet::new();
    let first = (0..CpuSet::MAX_CPU).find(|&cpu| cpus.is_set(cpu));
    one.set(first.expect("a CPU"));
    let tasks = fs::read_dir(daemon.running.proc().join("task")).expect("its threads");
    for task in tasks.flatten() {
        let task = task.file_name().to_string_lossy().parse().ok();
        let task = task.and_then(Pid::from_raw).expect("a number");
        sched_setaffinity(Some(task), &one).expect("one CPU");
    }
    daemon.say("reload");
    daemon.write(&format!(
        "[engine]\nworkers = {}\n{config}",
        cpus.count() + 1
    ));
    let refused = daemon.ask("reload");
    assert!(text(&refused.stderr).contains("[engine] differs"));
    daemon.stop();
}

#[test]
fn no_daemon_is_told() {
    let scratch = Scratch::new("reload-none");
    let socket = scratch.path("nobody");
    for command in ["reload", "dump-config"] {
        let mut softnet = softnet();
        let output = softnet.arg(command).arg("--socket").arg(&socket).output();
        let output = output.expect("softnet");
        assert_eq!(output.status.code(), Some(1));
        let said = text(&output.stderr);
        let expected = format!("softnet: no daemon can be reached at {}", display(&socket));
        assert!(said.starts_with(&expected), "{said}");
    }
}
