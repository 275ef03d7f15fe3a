//! Places of ports in bridges.

use super::*;

/// Output of `bridge` about a port and the stations behind it.
fn in_bridge(daemon: &Daemon, port: &str) -> [String; 3] {
    [
        daemon.run(&format!("bridge -j -d link show dev {port}")),
        daemon.run(&format!("bridge -j vlan show dev {port}")),
        daemon.run(&format!("bridge -j fdb show dev {port} state static")),
    ]
}

/// Another device behind a port does not move it to another VLAN.
#[test]
fn a_port_with_another_device_keeps_its_place_in_the_bridge() {
    if !has_program("bridge") || !has_program("ip") {
        return;
    }
    let scratch = Scratch::new("reload-replace");
    let daemon = Daemon::start(&scratch, PLAIN);
    isolate(&daemon, "a");
    let before = in_bridge(&daemon, "a");
    assert!(before[2].contains("02:00:00:00:00:08"), "{before:?}");
    let socket = format!("vhost_user\"\nsocket = {:?}", scratch.path("vm.sock"));
    let dumped = daemon.say("dump-config");
    for device in ["null\"\nqueues = 2", "null\"\nburst = 99", &socket] {
        daemon.write(&dumped.replacen("null\"", device, 1));
        daemon.say("reload");
        assert!(
            daemon
                .say("dump-config")
                .contains(device.lines().last().expect("a key"))
        );
        // A port that nobody is connected to is not forwarding.
        let now = in_bridge(&daemon, "a");
        assert_eq!(now[1..], before[1..], "{device}");
        assert!(
            now[0].contains("\"learning\":false,\"flood\":false"),
            "{now:?}"
        );
    }
    daemon.stop();
}

/// Ports that have been moved already when the engine refuses a change are put back as they were.
#[test]
fn a_reload_that_fails_late_gives_back_options_and_vlans() {
    if !has_program("bridge") || !has_program("ip") {
        return;
    }
    let scratch = Scratch::new("reload-late");
    let many =
        |name: &str| format!("[[port]]\nname = \"{name}\"\ndriver = \"null\"\nqueues = 250\n");
    let first = PLAIN.to_owned() + &many("x") + &many("y") + &many("z");
    let config = scratch.file("config.toml", &first);
    let mut command = Command::new("sh");
    // Each queue has files.
    command.args(["-c", "ulimit -n 8192 && exec \"$0\" \"$@\""]);
    command.arg(softnet().get_program());
    let daemon = Daemon::by(command, config, scratch.path("socket"));
    isolate(&daemon, "a");
    daemon.run("ip link set dev b name c");
    let before = (in_bridge(&daemon, "a"), daemon.say("dump-config"));
    // A worker has 1,023 queues.
    let moved = first
        .replace("ports = [\"a\", \"b\"]", "ports = [\"b\"]")
        .replacen("null\"", "null\"\nqueues = 3", 1);
    let moved = moved + "[[bridge]]\nname = \"br1\"\nports = [\"a\"]\n" + &many("w") + &many("v");
    daemon.write(&moved);
    let output = daemon.ask("reload");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("port \"v\" cannot be opened: "), "{said}");
    assert!(!said.contains("came back"), "{said}");
    assert_eq!((in_bridge(&daemon, "a"), daemon.say("dump-config")), before);
    daemon.stop();
}
