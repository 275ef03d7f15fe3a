//! The vhost-user driver in an engine, against the front end of the `vhost` crate and against one
//! that says anything.

mod coming_and_going;
mod front_end;
mod hostile;
mod notification;

use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use softnet::mem::{Pool, PoolConfig};
use softnet::time::Clock;
use softnet_engine::{Engine, Opened, OwnQueues, PortEvent, PortSpec, PortStats, Settings};
use softnet_io::vhost_user::{SocketSpec, VhostUser};
use softnet_io::{Buffers, Poller, PortRx, PortTx};
use softnet_tests::guest::{FrontEnd, Guest, GuestConfig, HEADER, message, of_ring, request};
use vhost::VhostBackend;
use vhost::vhost_user::VhostUserFrontend;

use front_end::*;

/// An engine with ports on one bridge, each with a socket of its own.
struct Net {
    engine: Engine<OwnQueues<PortRx, PortTx>>,
    ports: Vec<u32>,
    folder: PathBuf,
    pool: Pool,
    buffers: usize,
}

impl Net {
    fn new(queues: &[usize], workers: usize) -> Net {
        Net::of(queues, workers, true)
    }

    fn of(queues: &[usize], workers: usize, server: bool) -> Net {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = format!("softnet-vhost-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        std::fs::create_dir(&folder).expect("a folder");
        let buffers = 1024;
        let pool = Pool::new(PoolConfig {
            buffers,
            buffer_size: 2048,
        })
        .expect("a pool");
        let sleepers = (0..workers).map(|_| Poller::new().expect("an epoll instance"));
        let devices = OwnQueues::default();
        let engine = Engine::start(
            sleepers.collect(),
            pool.clone(),
            Clock::monotonic(),
            devices,
        );
        let engine = engine.expect("an engine");
        engine.add_bridge(Settings::new("br0")).expect("a bridge");
        let mut net = Net {
            engine,
            ports: Vec::new(),
            folder,
            pool,
            buffers,
        };
        for (port, queues) in queues.iter().enumerate() {
            let socket = SocketSpec {
                path: net.path(port),
                server,
                mode: 0o600,
                group: None,
            };
            let buffers = Buffers {
                small: net.pool.clone(),
                large: None,
            };
            let opened = VhostUser::open(&socket.into(), *queues, 1500, &buffers).expect("a port");
            let id = net.engine.add_port_with(
                PortSpec {
                    master: Some("br0".into()),
                    ..PortSpec::new(format!("vm{port}"))
                },
                Opened {
                    rx: opened.rx.into_iter().map(PortRx::from).collect(),
                    tx: opened.tx.into_iter().map(PortTx::from).collect(),
                    features: opened.features,
                },
            );
            net.ports.push(id.expect("it is added"));
        }
        net
    }

    fn path(&self, port: usize) -> PathBuf {
        self.folder.join(format!("{port}.sock"))
    }

    fn stats(&self, port: usize) -> PortStats {
        self.engine
            .port_stats(self.ports[port])
            .expect("it is there")
    }

    fn wait_up(&self, port: usize, up: bool) {
        wait("the link", || self.stats(port).link.up == up);
    }

    /// Waits until the port says that.
    fn wait_status(&self, port: usize, part: &str) {
        let mut status = String::new();
        let end = Instant::now() + Duration::from_secs(20);
        while !status.contains(part) {
            assert!(Instant::now() < end, "{status:?} instead of {part:?}");
            std::thread::sleep(Duration::from_millis(1));
            status = self.stats(port).status.unwrap_or_default();
        }
    }

    /// Nothing is lost: neither packets nor buffers.
    fn stop(self) {
        let stats = self.engine.stop(Duration::from_secs(1));
        let sum = stats.conservation();
        assert!(sum.holds() && sum.queued == 0, "{sum:?}");
        let (pool, buffers) = (&self.pool, self.buffers);
        wait("the buffers", || pool.stats().free == buffers);
        let left = || std::fs::read_dir(&self.folder).expect("a folder").count();
        wait("the sockets to go", || left() == 0);
        std::fs::remove_dir(&self.folder).expect("it is empty");
    }
}

fn wait(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < end, "waited for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Guests with one and with two queue pairs.
const PAIR: GuestConfig = GuestConfig {
    pairs: 1,
    size: 256,
    packed: false,
    event_index: false,
    features: 0,
};
const TWO_PAIRS: GuestConfig = GuestConfig { pairs: 2, ..PAIR };

/// A broadcast frame from a station.
fn frame(from: u8, mark: u32) -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend([2, 0, 0, 0, 0, from, 0x88, 0xb5]);
    frame.extend(mark.to_be_bytes());
    frame.resize(64, from);
    frame
}

/// Takes back what was sent, and sends a frame behind this header.
fn send_with(guest: &mut Guest, header: [u8; HEADER], frame: &[u8]) {
    guest.ring(1).complete();
    assert!(guest.with(1, |ring| ring.send(header, frame, false)));
}

/// The next frame that was received, and its header.
fn take(guest: &mut Guest, ring: usize) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut header = guest.ring(ring).receive()?;
    let frame = header.split_off(HEADER);
    Some((header, frame))
}

fn receive(guest: &mut Guest, ring: usize) -> Vec<u8> {
    let mut received = None;
    wait("a frame", || {
        received = take(guest, ring);
        received.is_some()
    });
    let (header, frame) = received.expect("a frame");
    assert_eq!(header, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
    frame
}

/// True if the guest was notified since this was last asked.
fn told(call: BorrowedFd<'_>) -> bool {
    rustix::io::read(call, &mut [0; 8]).is_ok()
}

#[test]
fn frames_pass_between_guests() {
    let net = Net::new(&[1, 1], 2);
    let mut guests = [Guest::new(PAIR), Guest::new(PAIR)];
    net.wait_up(0, false);
    net.wait_status(0, "waiting for a front end");
    let mut front_ends = Vec::new();
    for (port, guest) in guests.iter().enumerate() {
        front_ends.push(connect(&net.path(port), guest, MRG_RXBUF));
        net.wait_up(port, true);
        net.wait_status(port, "connected, 2 of 2 split rings enabled");
    }
    let [a, b] = &mut guests;
    // More than the other guest has buffers for: the rest waits, and comes in order.
    b.offer(0, 8);
    for mark in 0..20 {
        a.send(1, &frame(1, mark));
    }
    for mark in 0..8 {
        assert_eq!(receive(b, 0), frame(1, mark));
    }
    wait("the buffers to come back", || a.in_flight(1) == 0);
    wait("the rest to wait", || net.stats(1).device.queued == 12);
    assert!(take(b, 0).is_none());
    for mark in 8..20 {
        b.offer(0, 1);
        assert_eq!(receive(b, 0), frame(1, mark));
    }
    // The other way, to the station that was learnt.
    a.offer(0, 1);
    let mut reply = frame(2, 7);
    reply[..6].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    b.send(1, &reply);
    assert_eq!(receive(a, 0), reply);
    // What no honest driver sends has a reason.
    b.send(1, &[0; 3]);
    wait("a runt", || !net.stats(1).device.drops.is_empty());
    assert_eq!(net.stats(1).device.drops[0].0.name(), "runt");
    net.stop();
}

/// QEMU enables rings before it sets features, and sets up one ring after the other.
#[test]
fn the_order_of_qemu() {
    use request::*;
    let net = Net::new(&[1, 1], 1);
    let mut guests = [Guest::new(PAIR), Guest::new(PAIR)];
    let mut connections = Vec::new();
    for (port, guest) in guests.iter().enumerate() {
        let mut qemu = silent(&net.path(port));
        let features = ask(&mut qemu, GET_FEATURES);
        let protocol = ask(&mut qemu, GET_PROTOCOL_FEATURES);
        assert_ne!(protocol & 1, 0, "several queues");
        say(&mut qemu, SET_PROTOCOL_FEATURES, &1_u64.to_ne_bytes(), &[]);
        assert_eq!(ask(&mut qemu, GET_QUEUE_NUM), 1);
        say(&mut qemu, SET_OWNER, &[], &[]);
        assert_eq!(ask(&mut qemu, GET_FEATURES), features);
        for ring in 0..2 {
            let number = (ring as u64).to_ne_bytes();
            say(&mut qemu, SET_VRING_CALL, &number, &[guest.call_file(ring)]);
        }
        say(&mut qemu, SET_VRING_ENABLE, &of_ring(0, 1), &[]);
        say(&mut qemu, SET_VRING_ENABLE, &of_ring(1, 1), &[]);
        let features = (VERSION_1 | 1 << 30).to_ne_bytes();
        say(&mut qemu, SET_FEATURES, &features, &[]);
        say(&mut qemu, SET_MEM_TABLE, &guest.table(), &[guest.file(); 2]);
        for ring in 0..2 {
            let number = (ring as u64).to_ne_bytes();
            let size = of_ring(ring, PAIR.size.into());
            say(&mut qemu, SET_VRING_NUM, &size, &[]);
            say(&mut qemu, SET_VRING_BASE, &of_ring(ring, 0), &[]);
            say(&mut qemu, SET_VRING_ADDR, &guest.ring_addresses(ring), &[]);
            say(&mut qemu, SET_VRING_KICK, &number, &[guest.kick_file(ring)]);
            say(&mut qemu, SET_VRING_CALL, &number, &[guest.call_file(ring)]);
        }
        net.wait_up(port, true);
        connections.push(qemu);
    }
    let [a, b] = &mut guests;
    for mark in 0..3 {
        b.offer(0, 1);
        a.send(1, &frame(1, mark));
        assert_eq!(receive(b, 0), frame(1, mark));
    }
    // The guest reboots: its rings are stopped where they are, and started anew.
    let qemu = &mut connections[1];
    for ring in 0..2 {
        let base = qemu.ask(GET_VRING_BASE, &of_ring(ring, 0));
        assert_eq!(base.expect("a base"), of_ring(ring, [3, 0][ring]));
    }
    net.wait_up(1, false);
    *b = Guest::new(PAIR);
    say(qemu, SET_MEM_TABLE, &b.table(), &[b.file(); 2]);
    for ring in 0..2 {
        say(qemu, SET_VRING_BASE, &of_ring(ring, 0), &[]);
        let number = (ring as u64).to_ne_bytes();
        say(qemu, SET_VRING_KICK, &number, &[b.kick_file(ring)]);
    }
    net.wait_up(1, true);
    b.offer(0, 1);
    a.send(1, &frame(1, 9));
    assert_eq!(receive(b, 0), frame(1, 9));
    drop(connections);
    net.stop();
}

/// The MTU is the front end's, and offload is what the guest takes.
#[test]
fn what_the_guest_takes_is_known() {
    let net = Net::new(&[1], 1);
    let guest = Guest::new(PAIR);
    let mut raw = silent(&net.path(0));
    // All of CSUM, TSO4, TSO6, USO4, USO6 towards the guest, and no more.
    let offload = 1 << 1 | 1 << 7 | 1 << 8 | 1 << 54 | 1 << 55;
    let features = (VERSION_1 | offload).to_ne_bytes();
    say(&mut raw, request::SET_FEATURES, &features, &[]);
    say(&mut raw, request::NET_SET_MTU, &9000_u64.to_ne_bytes(), &[]);
    let files = [guest.file(); 2];
    say(&mut raw, request::SET_MEM_TABLE, &guest.table(), &files);
    let link = || net.stats(0).link;
    wait("the MTU", || link().mtu == Some(9000));
    let features = link().features.expect("they are known");
    assert!(features.checksum && features.tso4 && features.tso6 && features.uso);
    // Segmentation without checksums is not possible.
    let features = (VERSION_1 | 1 << 7).to_ne_bytes();
    say(&mut raw, request::SET_FEATURES, &features, &[]);
    wait("features", || {
        link().features.is_some_and(|f| !f.checksum && !f.tso4)
    });
    drop(raw);
    wait("none", || link().features.is_none());
    net.stop();
}

/// A datagram without its checksum, as a driver leaves it, and the header that says so.
fn partial() -> ([u8; 12], Vec<u8>) {
    let mut frame = vec![0xff; 6];
    frame.extend([2, 0, 0, 0, 0, 1, 8, 0]);
    frame.extend([
        0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ]);
    // In the checksum's place is the sum of the pseudo-header.
    frame.extend([0x30, 0x39, 0x30, 0x39, 0, 26, 0x14, 0x2e]);
    frame.extend([7; 18]);
    ([1, 0, 0, 0, 0, 0, 34, 0, 6, 0, 0, 0], frame)
}

/// A guest that takes less than the one before gets nothing that it does not take, also before
/// the control path has heard of it.
#[test]
fn a_guest_that_takes_less_is_spared() {
    let net = Net::new(&[1, 1], 1);
    let mut guests = [Guest::new(PAIR), Guest::new(PAIR)];
    let _sender = connect(&net.path(0), &guests[0], 0);
    let front_end = connect(&net.path(1), &guests[1], 1 << 1);
    net.wait_up(1, true);
    let [a, b] = &mut guests;
    let (header, frame) = partial();
    let mut exchange = |b: &mut Guest| {
        b.offer(0, 1);
        send_with(a, header, &frame);
        let mut received = None;
        wait("a datagram", || {
            received = take(b, 0);
            received.is_some() || !net.stats(1).device.drops.is_empty()
        });
        received
    };
    let heard = |checksum| {
        let known = |event: &PortEvent| {
            let PortEvent::Link(_, link) = event else {
                return false;
            };
            link.features.is_some_and(|f| f.checksum == checksum)
        };
        wait("the features", || {
            net.engine.take_events().iter().any(known)
        });
    };
    heard(true);
    let (to_finish, datagram) = exchange(b).expect("it came");
    assert_eq!(
        (to_finish[..10].to_vec(), &datagram),
        (header[..10].to_vec(), &frame)
    );
    drop(front_end);
    net.wait_up(1, false);
    let _front_end = connect(&net.path(1), b, 0);
    net.wait_up(1, true);
    assert_eq!(exchange(b), None);
    let drops = net.stats(1).device.drops;
    assert_eq!((drops[0].0.name(), drops[0].1), ("driver_refused", 1));
    heard(false);
    b.offer(0, 1);
    send_with(a, header, &frame);
    let mut received = None;
    wait("a datagram", || {
        received = take(b, 0);
        received.is_some()
    });
    let (finished, datagram) = received.expect("it came");
    assert_eq!(finished, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
    assert_eq!(datagram[..40], frame[..40]);
    // The sum of the pseudo-header, the header and the payload.
    assert_eq!(datagram[40..42], [0x4c, 0x06]);
    net.stop();
}

/// The driver drops what is longer than the port's MTU, and learns of another.
#[test]
fn a_changed_mtu_is_that_of_frames_from_the_guest() {
    let net = Net::new(&[1, 1], 1);
    let mut guests = [Guest::new(PAIR), Guest::new(PAIR)];
    let _front_ends: Vec<_> = (0..2)
        .map(|port| connect(&net.path(port), &guests[port], 0))
        .collect();
    (0..2).for_each(|port| net.wait_up(port, true));
    let [a, b] = &mut guests;
    let mut long = frame(1, 0);
    long.resize(1600, 0);
    let dropped = |port: usize, reason: &str| {
        let drops = net.stats(port).device.drops;
        drops.iter().any(|(was, n)| was.name() == reason && *n == 1)
    };
    a.send(1, &long);
    wait("the frame to be dropped", || dropped(0, "too_long"));
    net.engine
        .change(net.ports[0], |link| link.mtu = 9000)
        .expect("it is there");
    a.send(1, &long);
    wait("the frame to be too long for the other", || {
        dropped(1, "mtu")
    });
    net.engine
        .change(net.ports[1], |link| link.mtu = 9000)
        .expect("it is there");
    b.offer(0, 1);
    a.send(1, &long);
    assert_eq!(receive(b, 0), long);
    net.stop();
}

/// A port with two queues: what is sent on either arrives, whichever the guest uses.
#[test]
fn the_guest_chooses_its_queue_pairs() {
    let net = Net::new(&[1, 2], 2);
    let mut guests = [Guest::new(PAIR), Guest::new(TWO_PAIRS)];
    let mut sender = connect(&net.path(0), &guests[0], 0);
    let mut front_end = negotiate(&net.path(1), 4, 0);
    front_end
        .set_mem_table(&regions(&guests[1]))
        .expect("memory");
    let [a, b] = &mut guests;
    let mut mark = 0;
    for used in [&[0][..], &[0, 1], &[1], &[0]] {
        for pair in 0..2 {
            if used.contains(&pair) {
                start(&mut front_end, b, 2 * pair);
                start(&mut front_end, b, 2 * pair + 1);
            } else if used == [1] {
                front_end
                    .set_vring_enable(2 * pair, false)
                    .expect("disabled");
                front_end
                    .set_vring_enable(2 * pair + 1, false)
                    .expect("disabled");
            } else if mark > 0 {
                front_end.get_vring_base(2 * pair).expect("stopped");
                front_end.get_vring_base(2 * pair + 1).expect("stopped");
            }
        }
        net.wait_status(1, &format!("connected, {} of 4", 2 * used.len()));
        let before = net.stats(1).device.dropped();
        // Flows enough to use both queues of the port.
        let first = mark;
        while mark < first + 32 {
            used.iter().for_each(|pair| b.offer(2 * pair, 1));
            a.send(1, &frame(mark as u8, mark));
            mark += 1;
            wait("the frame to be taken", || a.in_flight(1) == 0);
        }
        let mut marks = Vec::new();
        wait("all frames", || {
            for pair in used {
                while let Some((_, frame)) = take(b, 2 * pair) {
                    marks.push(u32::from_be_bytes([
                        frame[14], frame[15], frame[16], frame[17],
                    ]));
                }
            }
            marks.len() == 32
        });
        marks.sort_unstable();
        assert_eq!(marks, (first..mark).collect::<Vec<_>>());
        assert_eq!(net.stats(1).device.dropped(), before);
        // And back, on each.
        for &pair in used {
            a.offer(0, 1);
            b.send(2 * pair + 1, &frame(200 + pair as u8, mark));
            assert_eq!(receive(a, 0), frame(200 + pair as u8, mark));
        }
    }
    sender.set_vring_enable(0, false).expect("disabled");
    drop((sender, front_end));
    net.stop();
}

/// Two workers send on two queues into the one ring that the guest uses. Nobody is left waiting:
/// each frame arrives, or finds its queue full.
#[test]
fn two_senders_share_a_ring() {
    const FRAMES: u32 = 1500;
    let net = Net::new(&[1, 1, 2], 2);
    let mut guests = [Guest::new(PAIR), Guest::new(PAIR), Guest::new(TWO_PAIRS)];
    let _senders = [0, 1].map(|port| connect(&net.path(port), &guests[port], 0));
    let mut front_end = negotiate(&net.path(2), 4, 0);
    front_end
        .set_mem_table(&regions(&guests[2]))
        .expect("memory");
    start(&mut front_end, &guests[2], 0);
    start(&mut front_end, &guests[2], 1);
    (0..3).for_each(|port| net.wait_up(port, true));
    let [a, b, c] = &mut guests;
    a.offer(0, 1);
    c.send(1, &frame(3, 0));
    receive(a, 0);
    let dropped = || net.stats(2).device.dropped();
    let (mut sent, mut offered, mut received) = ([0; 2], 0, 0_u64);
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let arrived = received + dropped();
        if sent == [FRAMES; 2] && arrived == 2 * u64::from(FRAMES) {
            break;
        }
        assert!(Instant::now() < end, "{arrived} of {sent:?}");
        // Some wait for the ring, and do not fill their queues.
        let waiting = u64::from(sent[0] + sent[1]) - arrived;
        for (from, guest) in [&mut *a, &mut *b].into_iter().enumerate() {
            let last = FRAMES.min(sent[from] + 100_u64.saturating_sub(waiting) as u32 / 2);
            while sent[from] < last && guest.in_flight(1) < 100 {
                let mut frame = frame(10 + (sent[from] % 50) as u8, sent[from]);
                frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 3]);
                frame[10] = from as u8;
                guest.send(1, &frame);
                sent[from] += 1;
            }
        }
        // Few enough that the ring is often full.
        while offered - received < 16 {
            c.offer(0, 1);
            offered += 1;
        }
        while take(c, 0).is_some() {
            received += 1;
        }
        std::thread::yield_now();
    }
    assert!(received > u64::from(FRAMES), "{received}");
    net.stop();
}

/// Rings are disabled, stopped, started and told otherwise while two workers send to them. Each
/// frame arrives whole, or is dropped with a reason, and each sender's come in order.
#[test]
fn rings_come_and_go_while_many_send() {
    const FRAMES: u32 = 1500;
    let net = Net::new(&[1, 1, 2], 2);
    let mut guests = [Guest::new(PAIR), Guest::new(PAIR), Guest::new(TWO_PAIRS)];
    let _senders = [0, 1].map(|port| connect(&net.path(port), &guests[port], 0));
    let front_end = connect(&net.path(2), &guests[2], 0);
    (0..3).for_each(|port| net.wait_up(port, true));
    let [a, b, c] = &mut guests;
    a.offer(0, 1);
    c.send(1, &frame(3, 0));
    receive(a, 0);
    let files = [0, 2].map(|ring| [c.kick_file(ring), c.call_file(ring)].map(event));
    let stop = std::sync::atomic::AtomicBool::new(false);
    let dropped = || net.stats(2).device.dropped();
    std::thread::scope(|scope| {
        let changer = scope.spawn(|| {
            let (mut front_end, mut changes) = (front_end, 0);
            while !stop.load(Ordering::Relaxed) || changes < 8 {
                // The other pair is there meanwhile.
                let pair = changes % 2;
                let ([kick, call], ring) = (&files[pair], 2 * pair);
                front_end.set_vring_enable(ring, false).expect("disabled");
                front_end.set_vring_enable(ring, true).expect("enabled");
                front_end.set_vring_call(ring, call).expect("a call");
                front_end.get_vring_base(ring).expect("stopped");
                front_end.set_vring_kick(ring, kick).expect("started");
                changes += 1;
            }
            drop(front_end);
        });
        let (mut sent, mut received, mut offered) = ([0_u32; 2], [0_u32; 2], [0_u32; 2]);
        let mut last = [[None; 2]; 2];
        wait("all frames", || {
            let mut arrived = u64::from(received[0] + received[1]) + dropped();
            for (from, guest) in [&mut *a, &mut *b].into_iter().enumerate() {
                let waiting = u64::from(sent[0] + sent[1]).saturating_sub(arrived);
                if sent[from] < FRAMES && waiting < 100 && guest.in_flight(1) < 100 {
                    let mut frame = frame(10 + from as u8, sent[from]);
                    frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 3]);
                    guest.send(1, &frame);
                    sent[from] += 1;
                }
            }
            for pair in 0..2 {
                while offered[pair] - received[pair] < 16 {
                    c.offer(2 * pair, 1);
                    offered[pair] += 1;
                }
                while let Some((_, got)) = take(c, 2 * pair) {
                    let (from, mark) = (
                        got[11] - 10,
                        u32::from_be_bytes([got[14], got[15], got[16], got[17]]),
                    );
                    let mut whole = frame(got[11], mark);
                    whole[..6].copy_from_slice(&[2, 0, 0, 0, 0, 3]);
                    assert_eq!(got, whole);
                    let last = &mut last[pair][usize::from(from)];
                    assert!(*last < Some(mark), "{last:?} before {mark}");
                    *last = Some(mark);
                    received[pair] += 1;
                }
            }
            arrived = u64::from(received[0] + received[1]) + dropped();
            sent == [FRAMES; 2] && arrived == 2 * u64::from(FRAMES)
        });
        stop.store(true, Ordering::Relaxed);
        changer.join().expect("the front end");
    });
    net.stop();
}

/// QEMU 7.2 adds and removes each region once for each queue pair, while rings run.
#[test]
fn a_region_is_added_and_removed_more_than_once() {
    let net = Net::new(&[1, 1], 1);
    let mut guests = [Guest::new(PAIR), Guest::new(PAIR)];
    let mut front_ends: Vec<_> = (0..2)
        .map(|port| connect(&net.path(port), &guests[port], 0))
        .collect();
    let [mut more, _] = regions(&guests[0]);
    let again = more;
    more.guest_phys_addr += 1 << 32;
    more.userspace_addr += 1 << 32;
    let front_end = &mut front_ends[0];
    for region in [again, more, more] {
        front_end.add_mem_region(&region).expect("added");
    }
    for _ in 0..2 {
        front_end.remove_mem_region(&more).expect("removed");
    }
    // As if it had come once: it can come again elsewhere.
    more.guest_phys_addr += 1 << 32;
    front_end.add_mem_region(&more).expect("added");
    let [a, b] = &mut guests;
    b.offer(0, 1);
    a.send(1, &frame(1, 1));
    assert_eq!(receive(b, 0), frame(1, 1));
    drop(front_ends);
    net.stop();
}

/// Regions come and go, and the whole table is given again, while frames pass.
#[test]
fn memory_changes_while_frames_pass() {
    let net = Net::new(&[1, 1], 2);
    let mut guests = [Guest::new(PAIR), Guest::new(PAIR)];
    let front_ends: Vec<_> = (0..2)
        .map(|port| connect(&net.path(port), &guests[port], 0))
        .collect();
    let hotplugged = Guest::new(PAIR);
    let [mut more, _] = regions(&hotplugged);
    more.guest_phys_addr += 1 << 32;
    more.userspace_addr += 1 << 32;
    net.wait_up(0, true);
    net.wait_up(1, true);
    let stop = std::sync::atomic::AtomicBool::new(false);
    let [a, b] = &mut guests;
    let tables = [&*a, &*b].map(regions);
    let changes = std::thread::scope(|scope| {
        let changer = scope.spawn(|| {
            let mut front_ends = front_ends;
            let mut changes = 0;
            while !stop.load(Ordering::Relaxed) {
                for (front_end, [low, high]) in front_ends.iter_mut().zip(tables) {
                    front_end.add_mem_region(&more).expect("added");
                    front_end.set_mem_table(&[low, high, more]).expect("set");
                    front_end.remove_mem_region(&more).expect("removed");
                    changes += 3;
                }
            }
            drop(front_ends);
            changes
        });
        for mark in 0..2000 {
            b.offer(0, 1);
            a.send(1, &frame(1, mark));
            assert_eq!(receive(b, 0), frame(1, mark));
        }
        stop.store(true, Ordering::Relaxed);
        changer.join().expect("the front ends")
    });
    assert!(changes > 0);
    net.stop();
}

/// The capabilities of the threads of this name, as the kernel tells.
fn capabilities(name: &str) -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("procfs");
    let status = |task: std::io::Result<std::fs::DirEntry>| {
        let status = std::fs::read_to_string(task.ok()?.path().join("status")).ok()?;
        let line = |key| status.lines().find_map(|line| line.strip_prefix(key));
        (line("Name:\t")? == name).then(|| {
            let sets = ["CapInh:\t", "CapPrm:\t", "CapEff:\t"].map(line);
            sets.map(Option::unwrap_or_default).concat()
        })
    };
    tasks.filter_map(status).collect()
}

/// A worker can neither change interfaces nor have modules loaded, whoever started the engine.
#[test]
fn workers_have_no_capabilities() {
    let net = Net::new(&[1], 2);
    wait("both workers' threads to start", || {
        let sets = ["softnet/0", "softnet/1"].map(capabilities);
        let none = |set: &String| set.bytes().all(|digit| digit == b'0');
        sets.iter()
            .all(|sets| !sets.is_empty() && sets.iter().all(none))
    });
    net.stop();
}
