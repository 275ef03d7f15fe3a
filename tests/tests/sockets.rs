//! Ports whose other end is a process with a Unix socket: drivers `stream` and `dgram`.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use softnet::stats::DropReason;
use softnet_engine::{Opened, PortStats, Settings};
use softnet_io::vhost_user::SocketSpec;
use softnet_io::{Buffers, Dgram, DgramSpec, Driver, Stream, StreamSpec};
use softnet_tests::traffic::{Connection, Flow, ping};
use softnet_tests::{Host, HostConfig, Lan, LanConfig, PATIENCE, wait_for};

/// A path that no other test uses, removed when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let name = format!("softnet-{name}-{}.sock", std::process::id());
        Scratch(std::env::temp_dir().join(name))
    }

    fn socket(&self, server: bool) -> SocketSpec {
        SocketSpec {
            path: self.0.clone(),
            server,
            mode: 0o600,
            group: None,
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A switch with one host of this number.
fn lan(number: u8) -> Option<Lan> {
    Lan::build(LanConfig {
        hosts: vec![HostConfig::default()],
        first: number,
        ..LanConfig::default()
    })
}

fn add<S: Driver>(lan: &Lan, spec: &S) -> u32
where
    softnet_io::PortRx: From<S::Rx>,
    softnet_io::PortTx: From<S::Tx>,
{
    let settings = Settings::new("cable");
    lan.add_port("cable", |buffers| {
        let Opened { rx, tx, features } = spec.open(&settings, 1, buffers).expect("a socket");
        Opened { rx, tx, features }
    })
}

/// The second port of a switch.
fn cable(lan: &Lan) -> PortStats {
    lan.engine.stats().ports[1].clone()
}

fn exchange(a: &Host, b: &Host) {
    for v6 in [false, true] {
        for len in [0, 56, 1472, 1473, 20_000] {
            ping(a, b, v6, len);
            ping(b, a, v6, len);
        }
        let flow = Flow::open(a, b, v6);
        for len in [0, 1, 1472, 65_507] {
            flow.echo(len);
        }
        flow.send_segmented(60_500, 1000);
        Connection::open(a, b, v6).transfer(1, 4 << 20);
        Connection::open(b, a, v6).transfer(2, 4 << 20);
    }
}

/// Two switches, joined by one socket.
#[test]
fn a_stream_joins_two_switches() {
    let scratch = Scratch::new("stream");
    let (Some(one), Some(other)) = (lan(1), lan(2)) else {
        return;
    };
    let spec = |server| StreamSpec {
        socket: scratch.socket(server),
        uplink: None,
    };
    // The client is there first.
    add(&other, &spec(false));
    wait_for("a reason", || {
        let status = cable(&other).status.unwrap_or_default();
        status.starts_with("not connected: ")
    });
    assert!(!cable(&other).link.up);
    add(&one, &spec(true));
    let up = || cable(&one).link.up && cable(&other).link.up;
    wait_for("a connection", up);
    exchange(&one.hosts[0], &other.hosts[0]);
    for lan in [&one, &other] {
        lan.settle();
    }
    // What the host says by itself before there was a cable; and TCP may have filled the queue, if
    // the other switch had no CPU for a while.
    let drops = other.stop().drops();
    let may_be = [
        DropReason::NoForward,
        DropReason::DeviceDown,
        DropReason::QdiscLimit,
    ];
    assert!(drops.iter().all(|d| may_be.contains(&d.0)), "{drops:?}");
    wait_for("the link to be down", || !cable(&one).link.up);
    // Another one is served then.
    let other = lan(3).expect("as before");
    add(&other, &spec(false));
    wait_for("a connection", || cable(&one).link.up);
    wait_for("the other end of it", || cable(&other).link.up);
    exchange(&one.hosts[0], &other.hosts[0]);
    one.stop_within(Duration::from_secs(1));
    other.stop_within(Duration::from_secs(1));
    assert!(!scratch.0.exists(), "the socket is left");
}

#[test]
fn datagrams_join_two_switches() {
    let scratch = Scratch::new("dgram");
    let (Some(one), Some(other)) = (lan(1), lan(2)) else {
        return;
    };
    let spec = |server| DgramSpec {
        socket: scratch.socket(server),
    };
    add(&one, &spec(true));
    add(&other, &spec(false));
    exchange(&one.hosts[0], &other.hosts[0]);
    other.stop_within(Duration::from_secs(1));
    // Another one takes its place by what it sends.
    let other = lan(3).expect("as before");
    add(&other, &spec(false));
    exchange(&one.hosts[0], &other.hosts[0]);
    one.stop_within(Duration::from_secs(1));
    other.stop_within(Duration::from_secs(1));
    assert!(!scratch.0.exists(), "the socket is left");
}

/// Frames of a stream, read from its other end.
fn read_frame(peer: &mut UnixStream) -> Option<Vec<u8>> {
    let mut length = [0; 4];
    match peer.read_exact(&mut length) {
        Ok(()) => {}
        Err(error) => {
            let silent = [
                ErrorKind::WouldBlock,
                ErrorKind::TimedOut,
                ErrorKind::UnexpectedEof,
            ];
            assert!(silent.contains(&error.kind()), "{error}");
            return None;
        }
    }
    let mut frame = vec![0; u32::from_be_bytes(length) as usize];
    peer.read_exact(&mut frame).expect("a whole frame");
    Some(frame)
}

/// A peer that reads late gets whole frames, in order, and as many as are counted as sent; what
/// did not fit the queue is counted, too.
#[test]
fn a_peer_that_does_not_read_has_its_queue_wait() {
    let scratch = Scratch::new("stream-slow");
    let Some(lan) = lan(1) else { return };
    let spec = StreamSpec {
        socket: scratch.socket(true),
        uplink: None,
    };
    add(&lan, &spec);
    let mut peer = UnixStream::connect(&scratch.0).expect("the port listens");
    wait_for("a connection", || cable(&lan).link.up);
    let from = softnet_tests::traffic::udp(&lan.hosts[0], lan.hosts[0].v4.into());
    from.set_broadcast(true).expect("a broadcast");
    let sent = 4000_u32;
    for number in 0..sent {
        let mut data = vec![number as u8; 4 + number as usize % 1400];
        data[..4].copy_from_slice(&number.to_be_bytes());
        from.send_to(&data, "10.9.0.255:9999").expect("sending");
        if number % 100 == 0 {
            // So that the host's own queue holds them.
            wait_for("it to be received", || {
                let port = lan.engine.stats().ports[0].device.clone();
                port.rx_packets >= u64::from(number)
            });
        }
    }
    assert!(cable(&lan).device.queued > 0, "the socket took all of it");
    peer.set_read_timeout(Some(PATIENCE)).expect("a limit");
    // To the end of the connection: the host goes on to say things by itself.
    let reader = std::thread::spawn(move || {
        let (mut frames, mut numbers) = (0_u64, Vec::new());
        while let Some(frame) = read_frame(&mut peer) {
            frames += 1;
            // UDP to that port; the host sends other things as well.
            if frame.get(36..38) == Some(&9999_u16.to_be_bytes()) {
                let number = u32::from_be_bytes(*frame[42..].first_chunk().expect("a number"));
                let rest = &frame[46..46 + number as usize % 1400];
                assert!(rest.iter().all(|&byte| byte == number as u8));
                numbers.push(number);
            }
        }
        (frames, numbers)
    });
    lan.settle();
    let stats = lan.stop();
    let (frames, numbers) = reader.join().expect("whole frames");
    assert!(numbers.is_sorted(), "out of order");
    assert!(numbers.len() >= 1000);
    assert_eq!(frames, stats.ports[1].device.tx_packets);
}

/// The buffers of a port without an engine.
fn buffers() -> Buffers {
    let pool = |buffers, buffer_size| {
        let config = softnet::mem::PoolConfig {
            buffers,
            buffer_size,
        };
        softnet::mem::Pool::new(config).expect("a pool")
    };
    Buffers {
        small: pool(256, 2048),
        large: Some(pool(8, 65_536)),
    }
}

fn connect(path: &Path) -> UnixStream {
    UnixStream::connect(path).expect("the port listens")
}

/// Lengths that lie, half frames and silence: the connection ends with a reason, or waits, and the
/// next one is as good as new.
#[test]
fn hostile_peers_of_a_stream() {
    use softnet::mem::PacketList;
    use softnet::stats::DropCounters;
    use softnet::time::Time;
    use softnet_engine::rx::{Receive, RxQueue};
    let scratch = Scratch::new("stream-hostile");
    let spec = StreamSpec {
        socket: scratch.socket(true),
        uplink: None,
    };
    let buffers = buffers();
    let mut stream = Stream::open(&spec, 1500, &buffers).expect("a socket");
    let link = stream.rx.link().expect("a link");
    let (mut packets, drops) = (PacketList::new(), DropCounters::new());
    let poll = |stream: &mut Stream, packets: &mut PacketList| {
        stream
            .rx
            .poll(&mut Receive::new(64, Time::ZERO, packets, &drops));
    };
    let frame = |len: usize| [&(len as u32).to_be_bytes()[..], &vec![7; len]].concat();
    for (bytes, ends) in [
        (u32::MAX.to_be_bytes().to_vec(), true),
        (65_558_u32.to_be_bytes().to_vec(), true),
        (frame(100)[..50].to_vec(), false),
        (frame(100)[..2].to_vec(), false),
        (vec![], false),
        ([frame(0), frame(13), frame(60)].concat(), false),
        ([frame(60), vec![0xff; 1000]].concat(), true),
    ] {
        let mut peer = connect(&scratch.0);
        wait_for("the connection", || link.state().up);
        peer.write_all(&bytes).expect("sending");
        let before = packets.len();
        poll(&mut stream, &mut packets);
        assert_eq!(!link.state().up, ends, "{:?}", link.status());
        if ends {
            let status = link.status().expect("a reason");
            assert!(status.contains("it sent a frame of"), "{status}");
            wait_for("the end of the connection", || {
                poll(&mut stream, &mut packets);
                peer.read(&mut [0]).is_ok_and(|n| n == 0)
            });
        }
        // A frame that is right, also behind half of another connection's.
        let right = bytes.windows(60).any(|window| window == [7; 60]);
        assert_eq!(
            packets.len() - before,
            usize::from(right && bytes.len() > 60)
        );
        drop(peer);
        wait_for("the link to be down", || {
            poll(&mut stream, &mut packets);
            !link.state().up
        });
    }
    assert_eq!(drops.get(DropReason::Runt), 2);
    drop(packets);
    drop(stream);
    assert_eq!(buffers.small.stats().free, 256);
}

/// A client whose server comes and goes: it greets it whenever it comes.
#[test]
fn a_datagram_client_greets() {
    use softnet::mem::PacketList;
    use softnet::tx::{Sent, TxRing, Xmit};
    let scratch = Scratch::new("dgram-client");
    let spec = DgramSpec {
        socket: scratch.socket(false),
    };
    let buffers = buffers();
    let mut dgram = Dgram::open(&spec, 1500, &buffers).expect("a socket");
    let mut send = |count: usize| {
        let mut packets = PacketList::new();
        buffers.small.alloc_bulk(count, &mut packets);
        let mut packets: PacketList = packets
            .into_iter()
            .map(|mut packet| {
                let _ = packet.append(&[9; 60]);
                packet
            })
            .collect();
        let mut sent = Sent::default();
        let xmit = dgram.tx.xmit(&mut packets, &mut sent);
        (sent, xmit, packets.len())
    };
    for _ in 0..2 {
        let (sent, xmit, _) = send(3);
        assert_eq!(sent.dropped, [(DropReason::DeviceDown, 3)]);
        assert_eq!(xmit, Xmit::Complete);
        let server = UnixDatagram::bind(&scratch.0).expect("a socket");
        server.set_nonblocking(true).expect("a socket");
        assert_eq!(send(2).0.packets, 2);
        let mut bytes = [0; 100];
        let (n, client) = server.recv_from(&mut bytes).expect("a greeting");
        assert_eq!(&bytes[..n], b"VFKT");
        server.send_to_addr(&[1; 60], &client).expect("an answer");
        for _ in 0..2 {
            assert_eq!(server.recv(&mut bytes).expect("a frame"), 60);
        }
        // A full peer is tried again later. How many it holds is a setting of the system.
        let full = (0..100).map(|_| send(100)).find(|it| it.1 == Xmit::Busy);
        let (sent, _, left) = full.expect("a full peer");
        assert_eq!((sent.packets as usize + left, sent.dropped), (100, vec![]));
        drop(server);
        std::fs::remove_file(&scratch.0).expect("the socket");
    }
}
