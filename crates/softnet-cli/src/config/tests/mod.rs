//! Whole files: what they become, and the exact line printed for what is wrong.

mod refused;

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
