//! The driver `pcap`: files that hosts receive, and files of what hosts send.

use std::io::Write;
use std::path::PathBuf;

use softnet_engine::{Opened, PortStats, Settings};
use softnet_io::pcap::{Pace, PacketFile};
use softnet_io::{Driver, PcapSpec};
use softnet_tests::traffic::{receive, udp};
use softnet_tests::{HostConfig, Lan, LanConfig, wait_for};

/// A directory that no other test uses, removed when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let name = format!("softnet-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).expect("a directory");
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn lan() -> Option<Lan> {
    Lan::build(LanConfig {
        hosts: vec![HostConfig::default()],
        ..LanConfig::default()
    })
}

fn add(lan: &Lan, spec: &PcapSpec) -> u32 {
    lan.add_port("file", |buffers| {
        let Opened { rx, tx, features } = spec
            .open(&Settings::new("file"), 1, buffers)
            .expect("files");
        Opened { rx, tx, features }
    })
}

fn port(lan: &Lan) -> PortStats {
    lan.engine.stats().ports[1].clone()
}

/// UDP over IPv4 to the first host, without a checksum.
fn datagram(to: u16, payload: &[u8]) -> Vec<u8> {
    let mut ip = [
        0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 9, 0, 77, 10, 9, 0, 1,
    ];
    ip[2..4].copy_from_slice(&(28 + payload.len() as u16).to_be_bytes());
    let words = ip
        .chunks(2)
        .map(|c| u32::from(u16::from_be_bytes([c[0], c[1]])));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    ip[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    let mut packet = ip.to_vec();
    packet.extend(7777_u16.to_be_bytes());
    packet.extend(to.to_be_bytes());
    packet.extend((8 + payload.len() as u16).to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(payload);
    packet
}

/// A pcap file of this kind whose packets are this far apart, in microseconds.
fn pcap(link_type: u32, apart: u32, packets: &[Vec<u8>]) -> Vec<u8> {
    let words = [0xa1b2_c3d4, 4 << 16 | 2, 0, 0, 65_535, link_type];
    let mut file: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
    for (number, packet) in (0..).zip(packets) {
        let (micros, len) = (number * apart, packet.len() as u32);
        let head = [micros / 1_000_000, micros % 1_000_000, len, len];
        file.extend(head.into_iter().flat_map(u32::to_le_bytes));
        file.extend(packet);
    }
    file
}

#[test]
fn files_are_received_and_written() {
    let scratch = Scratch::new("pcap");
    let (input, output) = (scratch.0.join("in.pcap.gz"), scratch.0.join("out.pcap"));
    for pace in [Pace::Fast, Pace::Captured] {
        let Some(lan) = lan() else { return };
        let socket = udp(&lan.hosts[0], lan.hosts[0].v4.into());
        let to = socket.local_addr().expect("an address").port();
        let payload = |number: u32| vec![number as u8; 10 + number as usize % 1400];
        // To the host's own Ethernet address.
        let frame = |number| {
            let header = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 77, 8, 0];
            [&header[..], &datagram(to, &payload(number))].concat()
        };
        let frames: Vec<_> = (0..1000).map(frame).collect();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&pcap(1, 100, &frames)).expect("memory");
        std::fs::write(&input, gzip.finish().expect("memory")).expect("a file");
        let spec = PcapSpec {
            read: Some(input.clone()),
            write: Some(output.clone()),
            pace,
        };
        add(&lan, &spec);
        for number in 0..1000 {
            receive(&socket, &payload(number));
        }
        wait_for("the end of the file", || {
            port(&lan).status.as_deref() == Some("1000 packets, to the end of the file")
        });
        assert!(port(&lan).link.up, "it is written still");
        // What the host sends is in the other file, as many packets as are counted.
        socket.set_broadcast(true).expect("a broadcast");
        let before = port(&lan).device.tx_bytes;
        for _ in 0..10 {
            let sent = socket.send_to(&[9; 500], "10.9.0.255:9999");
            assert_eq!(sent.expect("sending"), 500);
        }
        // By their bytes: what the host says by itself is shorter by far.
        wait_for("them to be written", || {
            port(&lan).device.tx_bytes >= before + 10 * 542
        });
        let stats = lan.stop();
        let file = std::fs::File::open(&output).expect("the file");
        let mut file = PacketFile::new(std::io::BufReader::new(file)).expect("a pcap file");
        let mut broadcasts = 0;
        while let Some(frame) = file.next_frame().expect("whole packets") {
            assert_eq!(frame.data.len(), frame.len as usize);
            broadcasts += u32::from(frame.data.ends_with(&[9; 500]));
        }
        assert_eq!(broadcasts, 10);
        assert_eq!(file.count(), stats.ports[1].device.tx_packets);
    }
}

/// Raw IP gets an Ethernet header, and what is wrong ends the reading with its reason.
#[test]
fn raw_packets_and_errors() {
    let scratch = Scratch::new("pcap-raw");
    let input = scratch.0.join("raw.pcap");
    let Some(lan) = lan() else { return };
    let mut file = pcap(101, 0, &[datagram(9, &[1; 100]), vec![0xff; 100], vec![]]);
    file.extend([0; 8]);
    std::fs::write(&input, file).expect("a file");
    let spec = PcapSpec {
        read: Some(input.clone()),
        ..PcapSpec::default()
    };
    add(&lan, &spec);
    wait_for("the end", || !port(&lan).link.up);
    let status = port(&lan).status.expect("a reason");
    assert_eq!(status, "3 packets, then an error: packet 4 is cut off");
    wait_for("them to be counted", || port(&lan).device.rx_packets == 3);
    assert_eq!(port(&lan).device.dropped(), 2);
    lan.stop();
    // A pipe that says nothing does not keep the port.
    let Some(lan) = self::lan() else { return };
    let pipe = scratch.0.join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo").success());
    let keep = std::fs::File::options()
        .read(true)
        .write(true)
        .open(&pipe)
        .expect("the pipe");
    add(
        &lan,
        &PcapSpec {
            read: Some(pipe),
            ..PcapSpec::default()
        },
    );
    lan.stop();
    drop(keep);
    let missing = PcapSpec {
        read: Some(scratch.0.join("none")),
        ..PcapSpec::default()
    };
    let buffers = softnet_io::Buffers {
        small: softnet::mem::Pool::new(softnet::mem::PoolConfig {
            buffers: 8,
            buffer_size: 2048,
        })
        .expect("a pool"),
        large: None,
    };
    let error = missing.open(&Settings::new("x"), 1, &buffers).unwrap_err();
    assert!(error.to_string().ends_with("none: cannot be read"));
}
