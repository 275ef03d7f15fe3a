//! The vhost-user driver in an engine, against the front end of the `vhost` crate and against one
//! that says anything.

mod coming_and_going;
mod front_end;
mod hostile;
mod memory;
mod notification;
mod rings;

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
