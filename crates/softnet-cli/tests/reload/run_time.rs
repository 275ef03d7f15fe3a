//! Ports that come and go at run time, and what outlives the daemon.

use super::*;

#[test]
fn ports_are_added_changed_and_removed_at_run_time() {
    let scratch = Scratch::new("run-time");
    let daemon = Daemon::start(&scratch, PLAIN);
    let keys = "driver=null queues=2 bridge=br0 qdisc.kind=htb allowed_ips=10.0.0.1/32";
    daemon.say(&format!("port add c {keys}"));
    daemon.say("rate-group add g rate=1gbit");
    daemon.say("port set c rate_group=g mtu=1400");
    let dumped = daemon.say("dump-config");
    for part in [
        "mtu = 1400",
        "rate_group = \"g\"",
        "ports = [\"a\", \"b\", \"c\"]",
        "allowed_ips = [\"10.0.0.1/32\"]",
    ] {
        assert!(dumped.contains(part), "{part:?} in\n{dumped}");
    }
    let shown: Value = serde_json::from_str(&daemon.say("port show c --json")).expect("JSON");
    let shown = &shown["ports"][0];
    assert_eq!(
        (&shown["run_time"], &shown["bridge"]),
        (&true.into(), &"br0".into())
    );
    assert_eq!(shown["config"]["mtu"], 1400);
    let table = daemon.say("port show");
    assert!(
        table.contains("port add") && table.contains("null"),
        "{table}"
    );
    // What is wrong changes nothing.
    for (wrong, code, text_of_it) in [
        ("port add c driver=null", 2, "already"),
        ("port add d driver=nul", 2, "there is no driver"),
        (
            "port add d driver=tap netns=softnet-no-such",
            2,
            ": port \"d\" cannot be opened: there is no network namespace 'softnet-no-such'",
        ),
        ("port set c mtu=-1", 2, "mtu"),
        ("port set x mtu=1500", 2, "there is no port"),
        ("port del x", 2, "there is no port"),
        ("port show x", 2, "there is no port"),
        ("rate-group del g", 2, "is in rate group"),
        ("rate-group add h", 2, "limits nothing"),
        ("port add d driver", 2, "KEY=VALUE"),
    ] {
        let output = daemon.ask(wrong);
        assert_eq!(output.status.code(), Some(code), "{wrong}");
        let said = text(&output.stderr);
        assert!(said.contains(text_of_it), "{wrong}: {said}");
        assert!(!said.contains("port \"d\": port \"d\""), "{wrong}: {said}");
    }
    assert_eq!(daemon.say("dump-config"), dumped);
    // It stays over a reload, which takes the file's own ports back to what the file says.
    daemon.say("port set a mtu=1300");
    let dry = daemon.say("reload --dry-run");
    assert_eq!(dry, "~ port \"a\": mtu: 1300 -> (default)\n");
    daemon.say("reload");
    assert_eq!(daemon.say("dump-config"), dumped);
    assert_eq!(daemon.say("reload --dry-run"), "");
    daemon.say("port set c rate_group= bridge=");
    daemon.say("port del c");
    daemon.say("rate-group del g");
    assert_eq!(daemon.say("reload --dry-run"), "");
    let output = daemon.ask("port del a");
    assert!(text(&output.stderr).contains("a reload brings it back"));
    assert_eq!(
        daemon.say("reload --dry-run"),
        "+ port \"a\"\n~ bridge \"br0\": ports: [\"b\"] -> [\"a\", \"b\"]\n"
    );
    let noted = daemon.stop();
    assert!(noted.contains("user 0: port add c driver=null"), "{noted}");
}

/// Whoever kills the daemon takes no limit from anybody.
#[test]
fn the_state_outlives_the_daemon() {
    let scratch = Scratch::new("state");
    let state = scratch.path("state");
    let file = PLAIN.replace(
        "[engine]\n",
        &format!("[engine]\nstate = {:?}\n", display(&state)),
    );
    let daemon = Daemon::start(&scratch, &file);
    daemon.say("port add c driver=null bridge=br0 storm.broadcast=5");
    if has_program("tc") {
        daemon.run("tc qdisc add dev a root tbf rate 3mbit burst 10k latency 50ms");
    }
    let dumped = daemon.say("dump-config");
    wait_for("the state", || {
        fs::read_to_string(&state).is_ok_and(|text| text.contains(&dumped))
    });
    let (config, socket) = (daemon.config.clone(), daemon.socket.clone());
    daemon.running.signal(Signal::KILL);
    drop(daemon);
    let daemon = Daemon::on(config.clone(), socket.clone());
    assert_eq!(daemon.say("dump-config"), dumped);
    daemon.say("port set c storm.broadcast=6");
    // Another file: what it names is as it says, and what was added stays.
    let edited = file.replace("name = \"b\"\n", "name = \"b\"\nmtu = 1400\n");
    daemon.write(&edited);
    let noted = daemon.stop();
    assert!(noted.contains("state: as it was"), "{noted}");
    let daemon = Daemon::on(config, socket);
    let now = daemon.say("dump-config");
    for part in [
        "mtu = 1400",
        "broadcast = 6",
        "ports = [\"a\", \"b\", \"c\"]",
    ] {
        assert!(now.contains(part), "{part:?} in\n{now}");
    }
    assert!(!now.contains("tbf"), "{now}");
    let noted = daemon.stop();
    assert!(
        noted.contains("state: ~ port \"b\": mtu: (default) -> 1400"),
        "{noted}"
    );
    fs::write(&state, "[[port]]\n").expect("ours");
    let mut again = softnet();
    let output = again
        .arg("run")
        .arg(scratch.path("config.toml"))
        .output()
        .expect("softnet");
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("mend or remove it"),
        "{}",
        text(&output.stderr)
    );
}
