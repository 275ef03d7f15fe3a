//! Whole files: what they become, and the exact line printed for what is wrong.

use softnet_engine::{BridgeSpec, PortSpec, Settings};
use softnet_io::{DeviceSpec, NetnsSpec, TapSpec};
use softnet_tc::TbfSpec;

use softnet::wire::EthernetAddress;

use super::*;

fn error(text: &str) -> String {
    parse("x.toml", text).expect_err(text).to_string()
}

#[test]
fn the_formats_own_example() {
    let config = parse(
        "x.toml",
        r#"
[engine]
workers = 2
buffers = 4096
[[port]]
name = "web"
driver = "tap"
netns = "host-a"
address = ["10.9.0.1/24", "fd00:9::1/64"]
queues = 2
mtu = 9000
mac = "02:00:00:00:0a:01"
qdisc = { kind = "tbf", rate = "100mbit", burst = "32k", latency = "50ms" }
[[port]]
name = "sink"
driver = "null"
[[bridge]]
name = "br0"
ports = ["sink", "web"]
"#,
    )
    .expect("valid");
    assert_eq!((config.workers, config.buffers), (2, 4096));
    let [web, sink] = &config.links.ports[..] else {
        panic!("{config:?}")
    };
    assert_eq!((config.places[0].line, config.places[0].column), (6, 8));
    assert_eq!(web.settings.name, "web");
    assert_eq!((web.options.queues, web.settings.mtu), (2, 9000));
    let tbf = TbfSpec {
        rate: 12_500_000,
        burst: 32_768,
        limit: 657_768,
        peakrate: None,
        mtu: 0,
        link: Default::default(),
    };
    assert_eq!(web.qdisc, QdiscSpec::Tbf(tbf));
    let DeviceSpec::Tap(TapSpec {
        interface,
        netns,
        addresses,
        gateways,
        routes,
        ..
    }) = &web.options.device
    else {
        panic!("{web:?}")
    };
    assert_eq!(interface, "web");
    assert_eq!(*netns, Some(NetnsSpec::Name("host-a".into())));
    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    assert_eq!(addresses, ["10.9.0.1/24", "fd00:9::1/64"]);
    assert!(gateways.is_empty() && routes.is_empty());
    let mac = EthernetAddress([2, 0, 0, 0, 0x0a, 1]);
    assert_eq!(web.settings.address, Some(mac));
    let plain = PortSpec {
        settings: Settings::new("sink"),
        master: Some("br0".into()),
        ..PortSpec::default()
    };
    assert_eq!((sink, web.master.as_deref()), (&plain, Some("br0")));
    let settings = Settings::new("br0");
    let bridge = BridgeSpec {
        settings,
        ..BridgeSpec::default()
    };
    assert_eq!(config.links.bridges, [bridge]);
}

#[test]
fn workers_can_be_given_cpus() {
    let config = parse("x.toml", "[engine]\ncpus = [3, 0, 3]\n").expect("valid");
    assert_eq!((config.workers, config.cpus), (3, vec![3, 0, 3]));
    let config = parse("x.toml", "[engine]\nworkers = 2\n").expect("valid");
    assert_eq!((config.workers, config.cpus), (2, vec![]));
}

#[test]
fn no_port_at_all_is_valid() {
    let config = parse("x.toml", "").expect("valid");
    assert!(config.links.ports.is_empty() && config.workers >= 1);
    assert_eq!(config.buffers, 65_536);
}

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
fn bridges() {
    let ports = "[[port]]\nname = \"a\"\ndriver = \"null\"\n";
    assert_eq!(
        error(&(ports.to_owned() + "[[bridge]]\nname = \"b\"\nports = [\"a\", \"c\"]\n")),
        "x.toml:6:15: key `bridge.ports`: there is no port \"c\"; add a [[port]] of that name or \
         correct it"
    );
    let line = error(&(ports.to_owned() + "[[bridge]]\nname = \"b\"\nports = [\"a\", \"a\"]\n"));
    assert!(
        line.starts_with("x.toml:6:15: ") && line.contains("listed twice"),
        "{line}"
    );
    let line = error(
        &(ports.to_owned()
            + "[[bridge]]\nname = \"b\"\nports = [\"a\"]\n[[bridge]]\nname = \"c\"\nports = \
               [\"a\"]\n"),
    );
    assert!(
        line.starts_with("x.toml:9:10: ") && line.contains("in bridge \"b\" already"),
        "{line}"
    );
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
fn drivers() {
    let port = |driver: &str, more: &str| {
        error(&format!(
            "[[port]]\nname = \"a\"\ndriver = {driver:?}\n{more}\n"
        ))
    };
    assert_eq!(
        port("tun", ""),
        "x.toml:3:10: key `port.driver`: there is no driver \"tun\"; use tap, af_packet, af_xdp, \
         vhost_user, stream, dgram, pcap, null, ifb or vlan"
    );
    let line = port("null", "netns = \"x\"");
    assert!(
        line.starts_with("x.toml:4:9: key `port.netns`: driver \"null\" makes no"),
        "{line}"
    );
    for (driver, more, said) in [
        (
            "vhost_user",
            "",
            "3:10: key `port.socket`: driver \"vhost_user\" needs",
        ),
        (
            "vhost_user",
            "socket = 's'\nnetns = 'x'",
            "5:9: key `port.netns`: driver",
        ),
        (
            "vhost_user",
            "socket = 's'\nqueues = 129",
            "5:10: key `port.queues`: driver",
        ),
        (
            "stream",
            "",
            "3:10: key `port.socket`: driver \"stream\" needs",
        ),
        (
            "dgram",
            "socket = 's'\nqueues = 2",
            "5:10: key `port.queues`: driver \"dgram\" has 1 queue",
        ),
        (
            "pcap",
            "attach = true",
            "4:10: key `port.attach`: driver \"pcap\" makes no TAP device",
        ),
        (
            "tap",
            "attach = true\naddress = [\"10.0.0.1/8\"]",
            "5:11: key `port.address`: the interface is somebody else's",
        ),
        (
            "tap",
            "server = false",
            "4:10: key `port.server`: driver \"tap\" makes no",
        ),
        (
            "null",
            "socket = 's'",
            "4:10: key `port.socket`: driver \"null\" makes no",
        ),
    ] {
        let line = port(driver, more);
        assert!(line.starts_with(&format!("x.toml:{said}")), "{line}");
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

#[test]
fn steering_and_backlog() {
    use softnet_engine::rx::Rfs;
    let text = |engine: &str, port: &str| {
        format!(
            "[engine]\nworkers = 2\n{engine}\n[[port]]\nname = \"a\"\ndriver = \"null\"\n{port}\n"
        )
    };
    let config = parse(
        "x.toml",
        &text(
            "max_backlog = 200\nbusy_poll = \"20us\"",
            "rps = [1, 0]\nrfs = \"follow\"",
        ),
    )
    .expect("valid");
    assert_eq!(config.settings.max_backlog, 200);
    assert_eq!(
        config.settings.busy_poll,
        std::time::Duration::from_micros(20)
    );
    let steering = &config.links.ports[0].options.steering;
    assert_eq!(
        (steering.rps.as_slice(), steering.rfs),
        (&[1, 0][..], Rfs::Follow)
    );
    assert_eq!(
        error(&text("", "rps = [0, 2]")),
        "x.toml:7:11: key `port.rps`: there is no worker 2; they are numbered 0 to 1"
    );
    assert!(
        error(&text("", "rfs = \"x\""))
            .starts_with("x.toml:7:7: key `port.rfs`: \"x\" is not a way")
    );
    assert_eq!(
        error(&text("max_backlog = 0", "")),
        "x.toml:3:15: key `engine.max_backlog`: 0 is out of range; use 1 to 65000"
    );
    assert_eq!(
        error(&text("busy_poll = \"2ms\"", "")),
        "x.toml:3:13: key `engine.busy_poll`: \"2ms\" is out of range; use 0s (never) to 1ms"
    );
}

#[test]
fn the_default_qdisc() {
    let text = |name: &str| format!("[engine]\nworkers = 1\ndefault_qdisc = {name:?}\n");
    let name = |text: &str| {
        let config = parse("x.toml", text).expect("valid");
        config.settings.default_qdisc.name()
    };
    assert_eq!(name(&text("fq_codel")), "fq_codel");
    assert_eq!(name("[engine]\nworkers = 1\n"), "pfifo_fast");
    for wrong in ["htb", "tbf", "noqueue", "mq", "choke"] {
        assert_eq!(
            error(&text(wrong)),
            format!(
                "x.toml:3:17: key `engine.default_qdisc`: {wrong:?} cannot be the default qdisc; \
                 use one without classes that needs no options, like fq_codel, fq or cake"
            )
        );
    }
}

#[test]
fn mq_needs_the_queues_that_it_names() {
    let text = |queues: usize, parent: &str| {
        format!(
            "[[port]]\nname = \"p\"\ndriver = \"null\"\nqueues = {queues}\n\
             [[port.qdisc]]\nkind = \"mq\"\nhandle = \"1:\"\n\
             [[port.qdisc]]\nparent = \"{parent}\"\nkind = \"pfifo\"\n"
        )
    };
    assert!(parse("x.toml", &text(2, "1:2")).is_ok());
    for (queues, parent, what) in [
        (1, "1:1", "mq needs a device with several transmit queues"),
        (
            2,
            "1:3",
            "mq has no class :3: the device has 2 transmit queues",
        ),
    ] {
        let line = error(&text(queues, parent));
        assert!(
            line.contains(&format!("key `port.qdisc`: {what}")),
            "{line}"
        );
    }
}

#[test]
fn noqueue_stands_alone() {
    let text = |tables: &str| format!("[[port]]\nname = \"p\"\ndriver = \"null\"\n{tables}");
    for table in [
        "qdisc = { kind = \"noqueue\" }",
        "qdisc = { kind = \"noqueue\", handle = \"1:\" }",
        "[[port.qdisc]]\nkind = \"noqueue\"\nparent = \"root\"",
    ] {
        let config = parse("x.toml", &text(table)).expect(table);
        assert_eq!(config.links.ports[0].qdisc.kind(), "noqueue", "{table}");
    }
    for (table, what) in [
        (
            "qdisc = { kind = \"noqueue\", parent = \"1:1\" }",
            "noqueue can only be attached to a device's root",
        ),
        (
            "[[port.qdisc]]\nkind = \"noqueue\"\n[[port.qdisc]]\nparent = \"1:1\"\nkind = \
             \"pfifo\"",
            "there is no qdisc 1:",
        ),
    ] {
        let line = error(&text(table));
        assert!(line.contains(what), "{line}");
    }
}
