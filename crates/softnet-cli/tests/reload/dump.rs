//! The output of `softnet dump-config`.

use super::*;

#[test]
fn what_is_dumped_builds_the_same_again() {
    let scratch = Scratch::new("dump");
    let daemon = Daemon::start(&scratch, TREE);
    if has_program("tc") && has_program("ip") {
        daemon.run("tc class change dev a classid 1:10 htb rate 3mbit ceil 4mbit burst 20k");
        daemon.run("tc class add dev a parent 1: classid 1:30 htb rate 1mbit");
        daemon.run("tc qdisc add dev a parent 1:30 handle 30: bfifo limit 5000");
        daemon.run("tc qdisc replace dev b root handle 8: prio bands 4");
        daemon.run("tc qdisc add dev b parent 8:2 tbf rate 1mbit burst 10k latency 50ms");
        daemon.run("ip link set dev b alias b-side txqueuelen 9");
        daemon.run("ip link set dev b nomaster");
        daemon.run("ip link add new type dummy");
        let dumped = daemon.say("dump-config");
        for part in [
            "rate = 3000000\nceil = 4000000",
            "parent = \"1:30\"\nhandle = \"30:\"\nkind = \"bfifo\"\nlimit = 5000",
            "parent = \"8:2\"",
            "alias = \"b-side\"",
            "name = \"new\"",
        ] {
            assert!(dumped.contains(part), "{part:?} in\n{dumped}");
        }
    }
    let dumped = daemon.say("dump-config");
    assert!(!dumped.starts_with('#'), "{dumped}");
    let (config, socket) = (daemon.config.clone(), daemon.socket.clone());
    daemon.stop();
    fs::write(&config, &dumped).expect("the file");
    let again = Daemon::on(config, socket);
    assert_eq!(again.say("dump-config"), dumped);
    // The file is what runs: nothing is to be changed.
    let noted = again.stats();
    again.say("reload");
    assert_eq!(again.say("dump-config"), dumped);
    assert_eq!(again.stats()["ports"], noted["ports"]);
    again.stop();
}

/// Settings of a bridge and its ports made by `bridge` and `ip` are in the dump, and are there
/// again after a start from it.
#[test]
fn what_is_set_of_a_bridge_survives_a_start_from_the_dump() {
    if !has_program("bridge") || !has_program("ip") {
        return;
    }
    let scratch = Scratch::new("dump-bridge");
    let daemon = Daemon::start(&scratch, PLAIN);
    isolate(&daemon, "a");
    for command in [
        "ip link set dev br0 type bridge ageing_time 12345 vlan_default_pvid 5",
        "bridge vlan add dev br0 self vid 9-11",
        "bridge vlan add dev b vid 7 untagged",
        "bridge vlan add dev b vid 5 pvid",
        "bridge link set dev b hairpin on mcast_flood off bcast_flood off",
        "bridge fdb add 02:00:00:00:00:09 dev b master static",
        "bridge fdb add 02:00:00:00:00:0a dev b master permanent vlan 7",
        "ip link add loose type dummy",
    ] {
        daemon.run(command);
    }
    let dumped = daemon.say("dump-config");
    assert!(!dumped.contains('#'), "{dumped}");
    for part in [
        "learning = false\nflood = false\npvid = 20\nvlans = [\"30-40\"]\n",
        "pvid = 5\nvlans = [7]\nuntagged = [7]\n",
        "vlan_filtering = true\nvlan_default_pvid = 5\nageing_time = \"123450ms\"\n",
        "[[fdb]]\naddress = \"02:00:00:00:00:07\"\nport = \"a\"\nvlan = 20\n",
        "port = \"a\"\nvlan = 30\nsticky = true\n",
        "address = \"02:00:00:00:00:09\"\nport = \"b\"\n",
        "port = \"b\"\nvlan = 7\nstate = \"permanent\"\n",
    ] {
        assert!(dumped.contains(part), "{part} in\n{dumped}");
    }
    let shown = |daemon: &Daemon| {
        [
            "bridge -j -d link show",
            "bridge -j vlan show",
            "ip -j -d link show type bridge",
        ]
        .map(|command| daemon.run(command))
    };
    let before = shown(&daemon);
    let (config, socket) = (daemon.config.clone(), daemon.socket.clone());
    daemon.stop();
    fs::write(&config, &dumped).expect("the file");
    let again = Daemon::on(config, socket);
    assert_eq!(again.say("dump-config"), dumped);
    assert_eq!(shown(&again)[1], before[1]);
    // Nothing is to be changed; and what is changed becomes as the file says.
    again.say("reload");
    assert_eq!(again.say("dump-config"), dumped);
    for command in [
        "bridge vlan add dev a vid 50 pvid",
        "bridge fdb del 02:00:00:00:00:0a dev b master vlan 7",
        "bridge fdb add 02:00:00:00:00:0b dev a master static vlan 30",
        "bridge fdb replace 02:00:00:00:00:07 dev a master permanent vlan 20",
        "ip link set dev br0 type bridge vlan_filtering 0 vlan_default_pvid 6",
    ] {
        again.run(command);
    }
    assert_ne!(again.say("dump-config"), dumped);
    again.say("reload");
    assert_eq!(again.say("dump-config"), dumped);
    again.stop();
}
