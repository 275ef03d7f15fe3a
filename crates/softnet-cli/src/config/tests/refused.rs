//! Files that are refused, and the exact line printed for what is wrong.

use super::*;

#[test]
fn the_file_is_not_toml() {
    let line = error("[engine]\nworkers = = 2\n");
    assert!(line.starts_with("x.toml:2:11: not valid TOML: "), "{line}");
    assert!(!line.contains('\n'), "{line}");
    let line = error("[engine]\nworkers = 2\nworkers = 3\n");
    assert!(
        line.starts_with("x.toml:3:1: ") && line.contains("duplicate key"),
        "{line}"
    );
}

#[test]
fn unknown_missing_and_mistyped_keys() {
    let known = "is unknown; known here: ";
    assert_eq!(
        error("[engine]\nworker = 2\n"),
        "x.toml:2:1: key `engine.worker`: is unknown; did you mean `workers`?"
    );
    assert_eq!(
        error("[[port]]\nname = \"a\"\ndriver = \"null\"\n  colour = \"red\"\n"),
        format!(
            "x.toml:4:3: key `port.colour`: {known}name, driver, link, id, protocol, socket, server, \
             socket_mode, socket_group, uplink, memory, memory_kind, guest_offloads, interface, \
             attach, fd, read, write, pace, netns, address, gateway, routes, mac, queues, num_tc, map, \
             parallel, rps, rfs, served_by, burst, qdisc, class, filter, \
             allowed_macs, allowed_ips, max_macs, storm, rate_group, mirror, redirect, mtu, \
             txqueuelen, alias, group, up, isolated, locked, learning, flood, mcast_flood, \
             bcast_flood, hairpin, mcast_router, fastleave, mcast_max_groups, pvid, vlans, \
             untagged"
        )
    );
    for key in ["xps", "xps_rxqs"] {
        let said = error(&format!(
            "[[port]]\nname = \"a\"\ndriver = \"null\"\n{key} = [\"0\"]\n"
        ));
        let instead = "(each worker sends through its own queue, and a flow keeps its queue while \
                       packets of it wait; delete the key)";
        assert!(
            said.starts_with(&format!("x.toml:4:1: key `port.{key}`: {known}name, ")),
            "{said}"
        );
        assert!(said.ends_with(instead), "{said}");
    }
    assert_eq!(
        error("[egine]\n"),
        format!(
            "x.toml:1:2: key `egine`: is unknown; did you mean `engine`? known here: include, engine, \
             port, block, rate_group, bridge, fdb, expect"
        )
    );
    assert_eq!(
        error("\n[[port]]\nname = \"a\"\n"),
        "x.toml:2:1: key `port.driver`: is missing; add it"
    );
    for (text, expected) in [
        (
            "[engine]\nworkers = \"two\"\n",
            "x.toml:2:11: key `engine.workers`: is the string \"two\"; use a whole number",
        ),
        (
            "[engine]\nworkers = 1.5\n",
            "x.toml:2:11: key `engine.workers`: is the number 1.5; use a whole number",
        ),
        (
            "[[port]]\nname = \"a\"\ndriver = \"tap\"\naddress = [\"10.0.0.1/8\", 7]\n",
            "x.toml:4:26: key `port.address`: is the number 7; use a string in quotes",
        ),
        (
            "[[port]]\nname = \"a\"\ndriver = \"tap\"\naddress = \"10.0.0.1/8\"\n",
            "x.toml:4:11: key `port.address`: is the string \"10.0.0.1/8\"; use a list: [...]",
        ),
        (
            "[[port]]\nname = \"a\"\ndriver = \"tap\"\nqdisc = \"tbf\"\n",
            "x.toml:4:9: key `port.qdisc`: is the string \"tbf\"; use a table like { kind = \
             \"pfifo\" }, or a list of them",
        ),
        (
            "[[qdisc]]\nkind = \"prio\"\n",
            "x.toml:1:3: key `qdisc`: is unknown; known here: include, engine, port, block, rate_group, \
             bridge, fdb, expect \
             (qdiscs, classes and filters belong to a port: [[port.qdisc]], [[port.class]], \
             [[port.filter]]; by themselves they are a tree for `softnet sim`)",
        ),
    ] {
        assert_eq!(error(text), expected);
    }
}

#[test]
fn a_file_with_ports_is_no_tree() {
    let text = "[[port]]\nname = \"a\"\n";
    let error = parse_tree("x.toml", text).expect_err(text).to_string();
    let expected = "x.toml:1:3: key `port`: is unknown; known here: qdisc, class, filter (this is \
                    to be a tree of qdiscs; a configuration with ports is for `softnet run`)";
    assert_eq!(error, expected);
}

#[test]
fn names() {
    let port = |name: &str| format!("[[port]]\nname = {name:?}\ndriver = \"null\"\n");
    let line = error(&(port("a") + &port("a")));
    assert_eq!(
        line,
        "x.toml:5:8: key `port.name`: \"a\" is the name of the port in line 2 already; choose \
         another"
    );
    let line = error(&(port("a") + "[[bridge]]\nname = \"a\"\n"));
    assert!(
        line.starts_with("x.toml:5:8: key `bridge.name`: \"a\" is the name of the port"),
        "{line}"
    );
    for name in ["", "sixteen-bytes-xx", "a/b", "..", "a b", "a:1", "tap%d"] {
        let line = error(&port(name));
        assert!(line.starts_with("x.toml:2:8: key `port.name`: "), "{line}");
        assert!(line.ends_with("choose a valid interface name"), "{line}");
    }
    assert!(parse("x.toml", &port("fifteen-bytes-x")).is_ok());
}

#[test]
fn values_out_of_range() {
    let with = |line: &str| format!("[[port]]\nname = \"a\"\ndriver = \"tap\"\n{line}\n");
    for (text, start, part) in [
        (
            "[engine]\nworkers = 0\n".to_owned(),
            "x.toml:2:11: key `engine.workers`",
            "1 to 1024",
        ),
        (
            "[engine]\ncpus = []\n".to_owned(),
            "x.toml:2:8: key `engine.cpus`",
            "there are 0 CPUs for 1 workers",
        ),
        (
            "[engine]\nworkers = 2\ncpus = [1]\n".to_owned(),
            "x.toml:3:8: key `engine.cpus`",
            "give one for each",
        ),
        (
            "[engine]\ncpus = [0, 1024]\n".to_owned(),
            "x.toml:2:12: key `engine.cpus`",
            "0 to 1023",
        ),
        (
            "[engine]\nbuffers = 1\n".to_owned(),
            "x.toml:2:11: key `engine.buffers`",
            "out of range",
        ),
        (
            with("queues = 257"),
            "x.toml:4:10: key `port.queues`",
            "1 to 256",
        ),
        (
            with("queues = -1"),
            "x.toml:4:10: key `port.queues`",
            "1 to 256",
        ),
        (with("mtu = 67"), "x.toml:4:7: key `port.mtu`", "68 to"),
        (
            with("mtu = 4294967364"),
            "x.toml:4:7: key `port.mtu`",
            "out of range",
        ),
        (
            with("netns = \"../x\""),
            "x.toml:4:9: key `port.netns`",
            "ip netns list",
        ),
        (
            with("mac = \"02:00:00:00:00\""),
            "x.toml:4:7: key `port.mac`",
            "not an Ethernet",
        ),
        (
            with("mac = \"02:00:00:00:00:01:02\""),
            "x.toml:4:7: key `port.mac`",
            "not an Ethernet",
        ),
        (
            with("mac = \"+2:00:00:00:00:01\""),
            "x.toml:4:7: key `port.mac`",
            "not an Ethernet",
        ),
        (
            with("mac = \"01:00:5e:00:00:01\""),
            "x.toml:4:7: key `port.mac`",
            "group",
        ),
        (
            with("address = [\"10.0.0.1\"]"),
            "x.toml:4:12: key `port.address`",
            "no prefix",
        ),
        (
            with("address = [\"10.0.0.1/33\"]"),
            "x.toml:4:12: key `port.address`",
            "0 to 32",
        ),
        (
            with("address = [\"10.0.0.1/+8\"]"),
            "x.toml:4:12: key `port.address`",
            "0 to 32",
        ),
        (
            with("address = [\"10.0.0/8\"]"),
            "x.toml:4:12: key `port.address`",
            "not an IP",
        ),
        (
            with("address = [\"ff02::1/64\"]"),
            "x.toml:4:12: key `port.address`",
            "interface can have",
        ),
        (
            with("qdisc = { kind = \"tbf\", rate = \"1furlong\", burst = 9, limit = 9 }"),
            "x.toml:4:32: key `port.qdisc.rate`",
            "not a unit of a rate",
        ),
        (
            with("qdisc = { kind = \"tbf\", brust = 9, rate = 8000, limit = 9 }"),
            "x.toml:4:25: key `port.qdisc.brust`",
            "not an option",
        ),
    ] {
        let line = error(&text);
        assert!(line.starts_with(start) && line.contains(part), "{line}");
    }
}

#[test]
fn an_unreadable_file() {
    let line = load(Path::new("/nonexistent/x.toml"), None)
        .expect_err("missing")
        .to_string();
    assert!(
        line.starts_with("/nonexistent/x.toml: cannot be read: No such file"),
        "{line}"
    );
}
