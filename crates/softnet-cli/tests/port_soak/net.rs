//! The hosts, and what their ports are.

use std::fs;

use super::common::{Daemon, NamedNetns, Scratch, softnet_at, text};
use super::uplink::Uplink;
use super::{HOSTS, UPLINK};

const BROADCAST: [u8; 6] = [0xff; 6];

fn mac(number: u8) -> String {
    format!("02:00:00:00:02:{number:02x}")
}

/// UDP over IPv4 in a broadcast frame to a station, without a checksum.
pub(super) fn datagram(from: u8, to: u8, port: u16, payload: &[u8]) -> Vec<u8> {
    let mut ip = [
        0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 9, 0, from, 10, 9, 0, to,
    ];
    ip[2..4].copy_from_slice(&(28 + payload.len() as u16).to_be_bytes());
    let sum = softnet::wire::checksum(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let length = (8 + payload.len() as u16).to_be_bytes();
    let port = port.to_be_bytes();
    let ethernet = [&BROADCAST[..], &[2, 0, 0, 0, 2, from, 8, 0]].concat();
    [&ethernet, &ip[..], &port, &port, &length, &[0, 0], payload].concat()
}

/// A pcap file of such frames.
fn packet_file() -> Vec<u8> {
    let words = [0xa1b2_c3d4, 4 << 16 | 2, 0, 0, 65_535, 1];
    let mut file: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
    for number in 0..300 {
        let frame = datagram(77, 1, 9, &vec![7; number * 4]);
        let len = frame.len() as u32;
        file.extend([0, 0, len, len].into_iter().flat_map(u32::to_le_bytes));
        file.extend(frame);
    }
    file
}

/// The hosts, and the switch's ends of veths.
pub(super) struct Net {
    pub(super) hosts: Vec<NamedNetns>,
    pub(super) wires: NamedNetns,
    pub(super) uplink: Uplink,
    pub(super) scratch: Scratch,
}

impl Net {
    pub(super) fn new() -> Net {
        let host = |name| NamedNetns::new(&format!("all{name}"));
        let net = Net {
            hosts: HOSTS.map(host).into(),
            wires: NamedNetns::new("allw"),
            uplink: Uplink::new(),
            scratch: Scratch::new("all"),
        };
        fs::write(net.scratch.path("in.pcap"), packet_file()).expect("a file");
        let foreign = &net.hosts[2];
        foreign.ip(&["tuntap", "add", "eth0", "mode", "tap", "vnet_hdr"]);
        net.configure(3);
        for number in [4, 5] {
            net.connect(number);
        }
        net
    }

    /// Gives a host's own interface its addresses.
    fn configure(&self, number: u8) {
        let host = &self.hosts[usize::from(number) - 1];
        let (mac, address) = (mac(number), format!("10.9.0.{number}/24"));
        let broadcast = ["broadcast", "10.9.0.255"];
        host.ip(&["link", "set", "eth0", "address", &mac]);
        host.ip(&[&["address", "add", &address, "dev", "eth0"], &broadcast[..]].concat());
        host.ip(&["link", "set", "eth0", "up"]);
    }

    /// Makes a host's veth.
    pub(super) fn connect(&self, number: u8) {
        let host = &self.hosts[usize::from(number) - 1];
        let wire = format!("wire{number}");
        let peer = ["type", "veth", "peer", "name", "eth0", "netns", &host.name];
        self.wires
            .ip(&[&["link", "add", &wire], &peer[..]].concat());
        self.wires.ip(&["link", "set", &wire, "up"]);
        // A port of af_xdp has no offloads.
        let output = host.at("ethtool -K eth0 tx off txvlan off");
        assert!(output.status.success(), "{}", text(&output.stderr));
        self.configure(number);
    }

    /// The keys of a port, each as in a file and as in a command.
    pub(super) fn keys(&self, name: &str) -> Vec<String> {
        let path = |file: &str| format!("{:?}", self.scratch.path(file));
        let tap = |host: u8| {
            vec![
                "driver=\"tap\"".to_owned(),
                format!("netns={:?}", self.hosts[usize::from(host) - 1].name),
                format!("mac={:?}", mac(host)),
                format!("address=[\"10.9.0.{host}/24\"]"),
                "interface=\"eth0\"".to_owned(),
            ]
        };
        let wire = |driver: &str, number: u8| {
            vec![
                format!("driver={driver:?}"),
                format!("interface=\"wire{number}\""),
                format!("netns={:?}", self.wires.name),
            ]
        };
        let socket = |driver: &str, server: bool| {
            vec![
                format!("driver={driver:?}"),
                format!("socket={}", path(&format!("{driver}.sock"))),
                format!("server={server}"),
            ]
        };
        match name {
            "tap" => tap(1),
            "tap2" => tap(2),
            "foreign" => vec![
                "driver=\"tap\"".to_owned(),
                "attach=true".to_owned(),
                "interface=\"eth0\"".to_owned(),
                format!("netns={:?}", self.hosts[2].name),
            ],
            "af_packet" => wire("af_packet", 4),
            "af_xdp" => wire("af_xdp", 5),
            "pcap" => vec![
                "driver=\"pcap\"".to_owned(),
                format!("read={}", path("in.pcap")),
                format!("write={}", path("out.pcap")),
                "pace=\"fast\"".to_owned(),
            ],
            UPLINK => vec![
                "driver=\"stream\"".to_owned(),
                "uplink=\"passt\"".to_owned(),
            ],
            "guest" => vec![
                "driver=\"tap\"".to_owned(),
                format!("netns={:?}", self.uplink.guest.name),
                "address=[\"10.55.0.2/24\"]".to_owned(),
                "gateway=[\"10.55.0.1\"]".to_owned(),
            ],
            "null" => vec!["driver=\"null\"".to_owned()],
            "host6" => tap(6),
            "host7" => tap(7),
            "to_stream" => socket("stream", false),
            "to_dgram" => socket("dgram", false),
            driver => socket(driver, true),
        }
    }

    /// A daemon with these bridges, where passt finds a route.
    pub(super) fn start(&self, name: &str, bridges: &[&[&str]]) -> Daemon {
        // As much as one who may not raise the limit may lock for two ports of af_xdp.
        let mut file = String::from("[engine]\nworkers = 2\nbuffers = 2048\n");
        for (number, ports) in bridges.iter().enumerate() {
            for port in *ports {
                let keys = self.keys(port).join("\n");
                file += &format!("[[port]]\nname = {port:?}\n{keys}\n");
            }
            file += &format!("[[bridge]]\nname = \"br{number}\"\nports = {ports:?}\n");
        }
        let file = self.scratch.file(&format!("{name}.toml"), &file);
        let command = softnet_at(&self.uplink.system);
        Daemon::by(command, file, self.scratch.path(name))
    }
}
