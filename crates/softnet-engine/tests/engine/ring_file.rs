//! Rings that say by a file when they have capacity again.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use softnet::mem::{PacketList, Pool};
use softnet::testing::{frame, pool};
use softnet::time::{Clock, Time};
use softnet::tx::{Features, Interest, RingFile, Sent, TxRing, Xmit};
use softnet_engine::rx::{NextPoll, Polled, Receive, RxQueue};
use softnet_engine::{Engine, EngineError, Opened, OwnQueues, PortSpec, Settings};
use softnet_io::Poller;

/// State of a [`SocketRing`] for the tests.
#[derive(Debug, Default)]
struct Seen {
    /// Times that it was full.
    busy: AtomicU64,
    /// It has a file that cannot be watched.
    unwatchable: AtomicBool,
}

/// A ring that writes frames to a socket.
#[derive(Debug)]
struct SocketRing {
    socket: UnixDatagram,
    seen: Arc<Seen>,
}

impl SocketRing {
    fn new() -> (SocketRing, UnixDatagram, Arc<Seen>) {
        let (socket, peer) = UnixDatagram::pair().unwrap();
        socket.set_nonblocking(true).unwrap();
        peer.set_nonblocking(true).unwrap();
        let seen = Arc::new(Seen::default());
        let ring = SocketRing {
            socket,
            seen: seen.clone(),
        };
        (ring, peer, seen)
    }
}

impl TxRing for SocketRing {
    fn xmit(&mut self, packets: &mut PacketList, sent: &mut Sent) -> Xmit {
        while let Some(packet) = packets.pop_front() {
            match self.socket.send(packet.data()) {
                Ok(_) => {
                    sent.count(&packet);
                }
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                    packets.push_front(packet);
                    self.seen.busy.fetch_add(1, Relaxed);
                    return Xmit::Busy;
                }
            }
        }
        Xmit::Complete
    }

    fn file(&self) -> io::Result<Option<RingFile>> {
        let fd: OwnedFd = if self.seen.unwatchable.load(Relaxed) {
            // epoll refuses plain files.
            std::fs::File::open("/proc/self/exe")?.into()
        } else {
            self.socket.try_clone()?.into()
        };
        let interest = Interest::Writable;
        Ok(Some(RingFile { fd, interest }))
    }
}

/// Delivers what it holds, and is then polled no more.
#[derive(Debug)]
struct Once(PacketList);

impl RxQueue for Once {
    fn poll(&mut self, rx: &mut Receive<'_>) -> Polled {
        let mut received = PacketList::new();
        self.0.split_wire_packets(rx.budget, &mut received);
        rx.extend(received);
        Polled {
            more: !self.0.is_empty(),
            next: NextPoll::At(Time::MAX),
            ..Polled::default()
        }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Frames sent at once: more than a socket takes, fewer than a qdisc holds.
const FRAMES: u32 = 900;

/// A worker whose sleep only a file or a wake-up ends, and two ports on a bridge.
struct Net {
    engine: Engine<OwnQueues<Once, SocketRing>>,
    pool: Pool,
    a: u32,
    b: u32,
}

impl Net {
    fn new(ring: SocketRing) -> Net {
        let pool = pool(8192);
        let pollers = vec![Poller::new().unwrap()];
        let engine = Engine::start(
            pollers,
            pool.clone(),
            Clock::monotonic(),
            OwnQueues::default(),
        )
        .unwrap();
        engine.add_bridge(Settings::new("br0")).unwrap();
        let a = add(&engine, "a", SocketRing::new().0).unwrap();
        let b = add(&engine, "b", ring).unwrap();
        Net { engine, pool, a, b }
    }

    /// Port a receives broadcasts, until the ring of port b is full. They reach its peer in order
    /// while the peer reads.
    fn fill_and_read(&self, peer: &UnixDatagram, seen: &Seen) {
        let list = (0..FRAMES).map(|n| {
            let mut packet = frame(&self.pool, 0, 1, 60, 0);
            packet.data_mut()[14..18].copy_from_slice(&n.to_le_bytes());
            packet
        });
        let rx = vec![Once(list.collect())];
        let tx = vec![SocketRing::new().0];
        self.engine.replace(self.a, rx, tx).unwrap();
        wait("the ring to be full", || seen.busy.load(Relaxed) > 0);
        let asleep = || self.engine.stats().workers[0].asleep;
        let before = asleep();
        wait("the worker to sleep", || asleep() > before);
        let (mut got, mut data) = (0, [0; 64]);
        wait("the frames", || {
            while let Ok(len) = peer.recv(&mut data) {
                assert_eq!((len, &data[14..18]), (60, &u32::to_le_bytes(got)[..]));
                got += 1;
            }
            got == FRAMES
        });
    }

    fn stop(self) {
        let stats = self.engine.stop(Duration::ZERO);
        assert!(stats.conservation().holds(), "{stats:?}");
        assert_eq!(stats.drops(), []);
    }
}

fn wait(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..10_000 {
        if condition() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("waited in vain for {what}");
}

fn add(
    engine: &Engine<OwnQueues<Once, SocketRing>>,
    name: &str,
    ring: SocketRing,
) -> Result<u32, EngineError> {
    let device = Opened {
        rx: Vec::new(),
        tx: vec![ring],
        features: Features::default(),
    };
    let port = PortSpec {
        master: Some("br0".into()),
        ..PortSpec::new(name)
    };
    engine.add_port_with(port, device)
}

/// The other end of a socket is closed, and so is every descriptor of it.
fn await_close(peer: &UnixDatagram) {
    wait("the ring's file to be closed", || {
        let sent = peer.send(b"x").map_err(|error| error.kind());
        matches!(sent, Err(kind) if kind != io::ErrorKind::WouldBlock)
    });
}

/// A ring that was full goes on when its file is ready, with no other event.
#[test]
fn a_full_ring_goes_on_when_its_file_is_ready() {
    let (ring, peer, seen) = SocketRing::new();
    let net = Net::new(ring);
    net.fill_and_read(&peer, &seen);

    // So does one that takes its place.
    let (ring, next, seen) = SocketRing::new();
    net.engine.replace(net.b, Vec::new(), vec![ring]).unwrap();
    await_close(&peer);
    net.fill_and_read(&next, &seen);
    net.engine.delete(net.b).unwrap();
    await_close(&next);
    net.stop();
}

/// A ring whose file cannot be watched is refused, and changes nothing.
#[test]
fn a_ring_that_cannot_be_watched_is_refused() {
    let (ring, peer, seen) = SocketRing::new();
    let net = Net::new(ring);
    for rings in 1..=2 {
        let made = (0..rings).map(|_| SocketRing::new());
        let (new, (peers, all)): (Vec<_>, (Vec<_>, Vec<_>)) =
            made.map(|(ring, peer, seen)| (ring, (peer, seen))).unzip();
        // The last of them: those before it are watched already.
        all[rings - 1].unwatchable.store(true, Relaxed);
        let refused = net.engine.replace(net.b, Vec::new(), new);
        assert!(matches!(refused, Err(EngineError::Watch { port, .. }) if port == "b"));
        peers.iter().for_each(await_close);
    }
    let (new, closed, unwatchable) = SocketRing::new();
    unwatchable.unwatchable.store(true, Relaxed);
    let refused = add(&net.engine, "c", new);
    assert!(matches!(refused, Err(EngineError::Watch { port, .. }) if port == "c"));
    await_close(&closed);
    assert_eq!(net.engine.stats().ports.len(), 2);
    net.fill_and_read(&peer, &seen);
    net.stop();
}
