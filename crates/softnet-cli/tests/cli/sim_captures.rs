//! `softnet sim`: captures in and out.

use std::borrow::Cow;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::{Scratch, softnet, text};
use pcap_file::pcap::{PcapHeader, PcapWriter, RawPcapPacket};
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::{Block, PcapNgReader};
use pcap_file::{DataLink, TsResolution};

const TREE: &str = r#"
[[qdisc]]
handle = "1:"
kind = "tbf"
rate = "80kbit"
burst = 3000
limit = 6000

[[qdisc]]
parent = "1:1"
handle = "2:"
kind = "prio"

[[qdisc]]
parent = "2:3"
kind = "pfifo"
limit = 2
"#;

fn capture(
    path: &Path,
    header: PcapHeader,
    frames: impl IntoIterator<Item = (u64, Vec<u8>, u32)>,
) {
    let file = File::create(path).expect("a file");
    let mut writer = PcapWriter::with_header(file, header).expect("a header");
    for (nanos, data, orig_len) in frames {
        let raw = RawPcapPacket {
            ts_sec: 1_000 + (nanos / 1_000_000_000) as u32,
            ts_frac: (nanos % 1_000_000_000) as u32,
            incl_len: data.len() as u32,
            orig_len,
            data: Cow::Owned(data),
        };
        writer.write_raw_packet(&raw).expect("a frame");
    }
}

fn nanoseconds() -> PcapHeader {
    PcapHeader {
        ts_resolution: TsResolution::NanoSecond,
        datalink: DataLink::ETHERNET,
        ..PcapHeader::default()
    }
}

/// An IPv4 frame of 1000 bytes with a number and a type of service.
fn frame(number: u8, tos: u8) -> Vec<u8> {
    let mut frame = vec![number; 1000];
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14..16].copy_from_slice(&[0x45, tos]);
    frame[16..18].copy_from_slice(&986_u16.to_be_bytes());
    frame[18..34].fill(0);
    frame[23] = 253;
    frame
}

/// Packets that were written: when each left, its bytes, its length and its comment.
fn written(path: &Path) -> Vec<(Duration, Vec<u8>, u32, String)> {
    let file = File::open(path).expect("the capture");
    let mut reader = PcapNgReader::new(file).expect("a pcapng file");
    let mut all = Vec::new();
    while let Some(block) = reader.next_block() {
        let Block::EnhancedPacket(packet) = block.expect("a block") else {
            continue;
        };
        let mut comment = String::new();
        for option in packet.options {
            if let EnhancedPacketOption::Comment(text) = option {
                comment = text.into_owned();
            }
        }
        let data = packet.data.into_owned();
        all.push((packet.timestamp, data, packet.original_len, comment));
    }
    all
}

/// Time since the first capture's second, number and length of each frame.
fn frames(path: &Path) -> Vec<(Duration, u8, u32)> {
    let all = written(path).into_iter();
    let start = Duration::from_secs(1_000);
    all.map(|(time, data, len, _)| (time - start, data[500], len))
        .collect()
}

fn files(scratch: &Scratch) -> [PathBuf; 3] {
    let tree = scratch.file("tree.toml", TREE);
    let beside = |name| tree.with_file_name(name);
    [tree.clone(), beside("in.pcap"), beside("out.pcap")]
}

#[test]
fn a_capture_through_a_tree() {
    let scratch = Scratch::new("sim-capture");
    let [tree, input, output] = files(&scratch);
    // Four of high throughput (band 2, of which two find room behind the three that leave at
    // once), then three of low delay.
    let low = (0..6).map(|n| (7, frame(n, 0x08), 1000));
    let high = (10..13).map(|n| (1_000_007, frame(n, 0x10), 1000));
    capture(&input, nanoseconds(), low.chain(high));
    let run = || {
        let mut command = softnet();
        command
            .args(["sim", "--tos-priority", "--json", "--tree"])
            .arg(&tree);
        command.arg("--pcap").arg(&input).arg("--out").arg(&output);
        let result = command.output().expect("softnet");
        assert!(result.status.success(), "{}", text(&result.stderr));
        text(&result.stdout).to_owned()
    };
    let json = run();
    let left = frames(&output);
    let times: Vec<(u64, u8)> = left
        .iter()
        .map(|(t, n, _)| (t.as_nanos() as u64, *n))
        .collect();
    // The bucket is empty at the start of the capture; a packet takes 100 ms.
    let expected = [
        (7, 0),
        (7, 1),
        (7, 2),
        (100_000_007, 10),
        (200_000_007, 11),
        (300_000_007, 12),
        (400_000_007, 3),
        (500_000_007, 4),
    ];
    assert_eq!(times, expected);
    assert_eq!(run(), json, "the same again");
    let value: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(value["arrived"], 9);
    assert_eq!(
        (&value["sent"], &value["dropped"]["qdisc_limit"]),
        (&8.into(), &1.into())
    );
    let class = |name: &str| {
        let classes = value["classes"].as_array().expect("classes").iter();
        classes
            .clone()
            .find(|c| c["class"] == name)
            .expect("the class")
            .clone()
    };
    assert_eq!(class("2:3")["drop_reasons"]["qdisc_limit"], 1);
    assert_eq!(class("2:1")["sojourn_ns"]["max"], 299_000_000);
    assert_eq!(class("2:3")["sojourn_ns"]["max"], 500_000_000);
}

#[test]
fn captures_that_are_short_long_or_damaged() {
    let scratch = Scratch::new("sim-odd");
    let [_, input, output] = files(&scratch);
    let tree = scratch.file("fifo.toml", "qdisc = { kind = \"pfifo\" }");
    let run = |arguments: &[&str]| {
        let mut command = softnet();
        command
            .args(["sim", "--tree"])
            .arg(&tree)
            .arg("--pcap")
            .arg(&input)
            .args(arguments);
        let result = command.arg("--out").arg(&output).output().expect("softnet");
        (
            result.status.code(),
            text(&result.stdout).to_owned(),
            text(&result.stderr).to_owned(),
        )
    };
    // Captured in part, longer than a buffer, longer than any frame; and the first is not the
    // earliest.
    let header = PcapHeader {
        snaplen: 600,
        ..nanoseconds()
    };
    let odd = [
        (5_000, vec![1; 600], 9000),
        (0, vec![2; 600], 600),
        (6_000, vec![3; 600], 70_000),
    ];
    capture(&input, header, odd);
    let (code, out, err) = run(&[]);
    assert_eq!(code, Some(0), "{err}");
    assert!(
        out.contains("arrived 3 = sent 2 + dropped 1 (too_long 1) + queued 0"),
        "{out}"
    );
    let expected = [
        (Duration::from_nanos(5_000), 1, 9000),
        (Duration::from_nanos(5_000), 2, 600),
    ];
    assert_eq!(frames(&output), expected);
    // A link of one byte per microsecond.
    let (_, out, _) = run(&["--link", "8mbit"]);
    assert!(out.contains("9.000 ms"), "{out}");
    // Cut off in the middle of the last frame.
    capture(
        &input,
        nanoseconds(),
        [(0, vec![1; 600], 600), (1, vec![2; 600], 600)],
    );
    let whole = std::fs::read(&input).expect("the capture");
    std::fs::write(&input, &whole[..whole.len() - 100]).expect("a shorter capture");
    let (code, out, err) = run(&[]);
    assert_eq!(code, Some(0));
    assert!(
        err.contains("frame 2 is cut off") && out.contains("arrived 1 = sent 1"),
        "{err}{out}"
    );
    // What is no capture, or of no frames.
    for (bytes, part) in [
        (&[0x0a, 0x0d, 0x0d, 0x0a, 0, 0, 0, 0][..], "packet 1"),
        (
            b"hello, this is no capture",
            "neither a pcap nor a pcapng file",
        ),
        (b"", "neither a pcap nor a pcapng file"),
    ] {
        std::fs::write(&input, bytes).expect("a file");
        let (code, _, err) = run(&[]);
        assert!(
            code == Some(2) && err.contains(part) && err.matches('\n').count() == 1,
            "{err}"
        );
        assert!(err.contains("in.pcap: "), "{err}");
    }
    let header = PcapHeader {
        datalink: DataLink::IEEE802_11,
        ..nanoseconds()
    };
    capture(&input, header, [(0, vec![1; 600], 600)]);
    let (code, _, err) = run(&[]);
    assert!(
        code == Some(2) && err.contains("in.pcap: packet 1 has link type 105"),
        "{err}"
    );
    let odd = [(0, vec![1; 600], 600), (1, vec![1; 600], 599)];
    capture(&input, nanoseconds(), odd);
    let (code, _, err) = run(&[]);
    assert!(
        code == Some(2)
            && err.contains("in.pcap: packet 2: more of it was captured than there was"),
        "{err}"
    );
    // No file, and one that would be written while it is read.
    std::fs::remove_file(&input).expect("the capture");
    let (code, _, err) = run(&[]);
    assert!(
        code == Some(2) && err.contains("in.pcap: cannot be read: "),
        "{err}"
    );
    capture(&input, nanoseconds(), [(0, vec![1; 600], 600)]);
    let whole = std::fs::read(&input).expect("the capture");
    let mut command = softnet();
    command.args(["sim", "--tree"]).arg(&tree).arg("--pcap");
    command.arg(&input).arg("--out").arg(&input);
    let result = command.output().expect("softnet");
    assert_eq!(result.status.code(), Some(2), "{}", text(&result.stderr));
    assert_eq!(std::fs::read(&input).expect("the capture"), whole);
    capture(&input, nanoseconds(), []);
    assert!(run(&[]).1.contains("arrived 0 = sent 0"));
}

#[test]
fn raw_compressed_and_piped_captures() {
    let scratch = Scratch::new("sim-forms");
    let [_, input, output] = files(&scratch);
    let tree = scratch.file("fifo.toml", "qdisc = { kind = \"pfifo\" }");
    let header = PcapHeader {
        datalink: DataLink::RAW,
        ..nanoseconds()
    };
    let packet = frame(7, 0)[14..].to_vec();
    capture(
        &input,
        header,
        [(0, packet, 986), (9, frame(8, 0)[14..].to_vec(), 986)],
    );
    let packed = scratch.path("in.pcap.gz");
    let gzip = Command::new("gzip").arg("-c").arg(&input).output();
    std::fs::write(&packed, gzip.expect("gzip").stdout).expect("a file");
    let run = |from: &Path, stdin: Stdio| {
        let mut command = softnet();
        command.args(["sim", "--tree"]).arg(&tree).arg("--pcap");
        command.arg(from).arg("--out").arg(&output).stdin(stdin);
        let result = command.output().expect("softnet");
        let (out, err) = (text(&result.stdout), text(&result.stderr));
        assert!(out.contains("arrived 2 = sent 2"), "{out}{err}");
        // With the Ethernet headers that they did not have.
        frames(&output)
    };
    let whole = run(&input, Stdio::null());
    assert_eq!(whole[1], (Duration::from_nanos(9), 8, 1000));
    assert_eq!(run(&packed, Stdio::null()), whole);
    let piped = File::open(&packed).expect("the capture");
    assert_eq!(run(Path::new("-"), piped.into()), whole);
}

/// The demo's bufferbloat, in virtual time: how long each packet of a thin flow takes beside one
/// that fills the queue in front of 50 Mb/s.
#[test]
fn a_thin_flow_waits_in_a_fifo_and_not_in_fq_codel() {
    const PERIOD: Duration = Duration::from_millis(10);
    let scratch = Scratch::new("sim-bloat");
    let thin = |leaf: &str| -> Vec<Duration> {
        let tree = format!(
            "[[qdisc]]\nhandle = \"1:\"\nkind = \"htb\"\ndefault = \"1\"\n\n\
             [[class]]\nclassid = \"1:1\"\nrate = \"50mbit\"\n\n\
             [[qdisc]]\nparent = \"1:1\"\n{leaf}\n"
        );
        let tree = scratch.file("bloat.toml", &tree);
        let out = scratch.path("bloat.pcap");
        let mut command = softnet();
        command.arg("sim").arg("--tree").arg(&tree).arg("--out");
        command.arg(&out);
        // In a second 10 Mb/s too much: 826 frames.
        for flow in [
            "rate=60mbit,for=1s,size=1514,dport=5001",
            "rate=80kbit,for=1s,size=100,dport=7",
        ] {
            command.args(["--generate", flow]);
        }
        let result = command.output().expect("softnet");
        assert!(result.status.success(), "{}", text(&result.stderr));
        let mut times = Vec::new();
        for (left, _, len, _) in written(&out) {
            if len == 100 {
                times.push(left - PERIOD * times.len() as u32);
            }
        }
        assert_eq!(times.len(), 100, "none of the thin flow is dropped");
        times.sort_unstable();
        times
    };
    let (fifo, fair) = (
        thin("kind = \"pfifo\"\nlimit = 1000"),
        thin("kind = \"fq_codel\""),
    );
    let ms = Duration::from_millis;
    println!("pfifo {:?}, fq_codel {:?}", fifo[50], fair[50]);
    assert!(fifo[50] > ms(80) && fifo[99] > ms(180), "{fifo:?}");
    assert!(fair[50] < ms(1) && fair[99] < ms(2), "{fair:?}");
}

/// Each packet that leaves has the story that `--explain` tells of it.
#[test]
fn what_is_written_has_its_story() {
    let scratch = Scratch::new("sim-comments");
    let tree = scratch.file(
        "prio.toml",
        "[[qdisc]]\nhandle = \"1:\"\nkind = \"prio\"\n\n\
         [[filter]]\nprio = 1\nip_proto = \"udp\"\ndst_port = 53\nflowid = \"1:1\"\n\n\
         [[filter]]\nprio = 2\nkind = \"matchall\"\nflowid = \"1:3\"\n",
    );
    let out = scratch.path("out.pcapng");
    let run = |number: &str| {
        let mut command = softnet();
        command.args(["sim", "--link", "800kbit", "--explain", number]);
        command.arg("--tree").arg(&tree).arg("--out").arg(&out);
        for flow in [
            "rate=80mbit,for=500us,size=1000,dport=9",
            "rate=8mbit,for=500us,size=1000,dport=53,start=1ms",
        ] {
            command.args(["--generate", flow]);
        }
        let result = command.output().expect("softnet");
        assert!(result.status.success(), "{}", text(&result.stderr));
        text(&result.stdout).to_owned()
    };
    run("1");
    let left = written(&out);
    // The sixth overtakes those that wait.
    for (number, (.., comment)) in ["1", "6", "2", "3", "4", "5"].into_iter().zip(&left) {
        let said = run(number);
        assert!(said.ends_with(&format!("{comment}\n")), "{comment}: {said}");
        let start = format!("packet {number} came at ");
        assert!(comment.starts_with(&start), "{comment}");
        assert!(comment.contains("matches, to 1:"), "{comment}");
    }
    assert_eq!(left.len(), 6);
}
