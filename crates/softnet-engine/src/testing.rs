//! For tests of this crate and of others (feature `testing`): receive queues that the test feeds,
//! a sleeper without system calls, and whole engines of both.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use softnet::mem::{Packet, PacketList, Pool};
use softnet::testing::{Script, ScriptedRing, pool};
use softnet::time::{Clock, Time};
use softnet::tx::{Features, RingFile, Wake};
use softnet_tc::QdiscSpec;

use crate::engine::{
    DeviceOf, Devices, Engine, EngineConfig, EngineError, EngineStats, Opened, OwnQueues,
    PortSpec, Settings,
};
use crate::forward::{Virtual, VlanTag};
use crate::link::Link;
use crate::rx::{Polled, Receive, RxQueue, Sleep};

/// A receive queue that delivers what the test puts in.
#[derive(Clone, Default)]
pub struct FedQueue {
    feed: Arc<Mutex<Feed>>,
    /// A worker waits for `feed`, or uses it.
    polling: Arc<AtomicBool>,
    /// A file that a worker waits for.
    pub file: Option<Arc<OwnedFd>>,
    /// Link of its port.
    pub link: Option<Arc<dyn Link>>,
}

/// Packets that a [`FedQueue`] delivers next, or its end.
#[derive(Debug, Default)]
pub struct Feed {
    /// The packets.
    pub packets: PacketList,
    /// The device has gone away.
    pub gone: bool,
}

impl FedQueue {
    /// Feed of the queue. No worker polls it as long as the guard lives.
    pub fn feed(&self) -> MutexGuard<'_, Feed> {
        self.feed.lock().unwrap()
    }

    /// Stalls the worker that polls the queue, as long as the guard lives: it is in the middle of a
    /// poll when this returns.
    pub fn stall(&self) -> MutexGuard<'_, Feed> {
        let feed = self.feed();
        wait("the worker to stall", || {
            self.polling.load(Ordering::SeqCst)
        });
        feed
    }

    /// All other handles of the queue are gone: its worker has closed it.
    pub fn is_closed(&self) -> bool {
        Arc::strong_count(&self.feed) == 1
    }
}

impl fmt::Debug for FedQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.feed.fmt(f)
    }
}

impl RxQueue for FedQueue {
    fn poll(&mut self, rx: &mut Receive<'_>) -> Polled {
        self.polling.store(true, Ordering::SeqCst);
        let mut feed = self.feed();
        let mut received = PacketList::new();
        feed.packets.split_wire_packets(rx.budget, &mut received);
        rx.extend(received);
        self.polling.store(false, Ordering::SeqCst);
        Polled {
            more: !feed.packets.is_empty(),
            gone: feed.gone,
            ..Polled::default()
        }
    }

    fn link(&self) -> Option<Arc<dyn Link>> {
        self.link.clone()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(|file| file.as_fd())
    }
}

/// Sleeps on a condition variable.
#[derive(Debug)]
pub struct CondSleeper {
    waker: Arc<CondWaker>,
    /// The longest sleep. A worker without timers else sleeps until it is woken.
    pub longest: Option<Duration>,
    /// Refuses to watch files.
    pub refuses_files: bool,
    /// Reports all files as readable after each sleep.
    pub reports_files: bool,
    watched: Vec<usize>,
    /// Cloned, it counts the sleepers that are alive.
    pub alive: Arc<()>,
    /// Times that the thread was raised, and lowered by itself and by others.
    pub classes: Arc<Classes>,
}

/// Changes of a thread's scheduling class.
#[derive(Debug, Default)]
pub struct Classes {
    /// Raised by itself.
    pub raised: AtomicUsize,
    /// Lowered by itself.
    pub lowered: AtomicUsize,
    /// Lowered by itself, and not raised since.
    pub normal: AtomicBool,
    /// Lowered by another thread.
    pub taken: AtomicUsize,
}

impl Default for CondSleeper {
    /// Fed queues have no file to wait for, so that the sleep is short.
    fn default() -> CondSleeper {
        CondSleeper {
            waker: Arc::default(),
            longest: Some(Duration::from_millis(1)),
            refuses_files: false,
            reports_files: false,
            watched: Vec::new(),
            alive: Arc::default(),
            classes: Arc::default(),
        }
    }
}

#[derive(Debug, Default)]
struct CondWaker {
    woken: Mutex<bool>,
    condition: Condvar,
}

impl Wake for CondWaker {
    fn wake(&self) {
        *self.woken.lock().unwrap() = true;
        self.condition.notify_one();
    }
}

impl Sleep for CondSleeper {
    fn watch(&mut self, _: BorrowedFd<'_>, token: usize) -> io::Result<()> {
        if self.refuses_files {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        self.watched.push(token);
        Ok(())
    }

    fn watch_ring(&mut self, file: &RingFile, token: usize) -> io::Result<()> {
        self.watch(file.fd.as_fd(), token)
    }

    fn unwatch(&mut self, _: BorrowedFd<'_>) {}

    fn sleep(&mut self, _: Time, until: Option<Time>, ready: &mut Vec<usize>) {
        if self.reports_files {
            ready.extend(&self.watched);
        }
        let CondWaker { woken, condition } = &*self.waker;
        let asleep = |woken: &mut bool| !*woken;
        let guard = woken.lock().unwrap();
        match self.longest {
            None if until.is_some() => {}
            None => *condition.wait_while(guard, asleep).unwrap() = false,
            Some(longest) => {
                let waited = condition.wait_timeout_while(guard, longest, asleep);
                *waited.unwrap().0 = false;
            }
        }
    }

    fn raise(&mut self) {
        self.classes.raised.fetch_add(1, Ordering::Relaxed);
        self.classes.normal.store(false, Ordering::Relaxed);
    }

    fn lower(&mut self) {
        self.classes.lowered.fetch_add(1, Ordering::Relaxed);
        self.classes.normal.store(true, Ordering::Relaxed);
    }

    fn lower_from_elsewhere(&self) -> Box<dyn Fn() + Send + Sync> {
        let classes = self.classes.clone();
        Box::new(move || {
            classes.taken.fetch_add(1, Ordering::Relaxed);
        })
    }

    fn waker(&self) -> Arc<dyn Wake> {
        self.waker.clone()
    }
}

/// A port, and its queues.
pub type Setup<X> = (PortSpec<()>, Opened<X, ScriptedRing>);

/// A port with default settings, and its queues.
pub fn setup<X>(name: &str, rx: Vec<X>, tx: Vec<ScriptedRing>) -> Setup<X> {
    let features = Features::default();
    (PortSpec::new(name), Opened { rx, tx, features })
}

/// A port with another qdisc.
pub fn with_qdisc<X>(qdisc: QdiscSpec, (spec, device): Setup<X>) -> Setup<X> {
    (PortSpec { qdisc, ..spec }, device)
}

impl<D: Devices> Engine<D> {
    /// Adds a port, as [`add_port_with`](Engine::add_port_with).
    ///
    /// # Errors
    /// As there.
    pub fn add(
        &self,
        (spec, device): (PortSpec<D::Spec>, DeviceOf<D>),
    ) -> Result<u32, EngineError> {
        self.add_port_with(spec, device)
    }

    /// Adds a bridge of ports.
    ///
    /// # Errors
    /// As [`add_bridge`](Engine::add_bridge) and [`set_master`](Engine::set_master).
    pub fn add_bridge_of(&self, name: &str, ports: &[u32]) -> Result<u32, EngineError> {
        let bridge = self.add_bridge(Settings::new(name))?;
        self.join(bridge, ports)?;
        Ok(bridge)
    }

    /// Makes ports part of a bridge.
    ///
    /// # Errors
    /// As [`set_master`](Engine::set_master).
    pub fn join(&self, bridge: u32, ports: &[u32]) -> Result<(), EngineError> {
        let mut ports = ports.iter();
        self.at_once(|engine| ports.try_for_each(|&port| engine.set_master(port, Some(bridge))))
    }
}

/// Waits for another thread.
pub fn wait(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..10_000 {
        if condition() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("waited in vain for {what}");
}

/// A port of a [`Net`].
#[derive(Debug)]
pub struct Port {
    /// Number of its link.
    pub id: u32,
    /// Receive queue.
    pub queue: FedQueue,
    /// Script of its transmit ring.
    pub script: Arc<Script>,
}

/// An engine whose ports, `p0` and so on, are on one bridge.
#[derive(Debug)]
pub struct Net {
    /// The engine.
    pub engine: Engine<OwnQueues<FedQueue, ScriptedRing>>,
    /// Number of the bridge.
    pub bridge: u32,
    /// Ports of the engine.
    pub ports: Vec<Port>,
    /// The engine's pool.
    pub pool: Pool,
    /// Scheduling classes of its workers.
    pub classes: Vec<Arc<Classes>>,
}

impl Net {
    /// `ports` ports, served by `workers` workers.
    pub fn new(workers: usize, ports: usize) -> Net {
        Net::with(workers, ports, 1024, EngineConfig::default())
    }

    /// As [`new`](Net::new), with `buffers` buffers.
    pub fn with(workers: usize, ports: usize, buffers: usize, config: EngineConfig) -> Net {
        Net::at(Clock::monotonic(), workers, ports, buffers, config)
    }

    /// As [`with`](Net::with), by another clock.
    pub fn at(
        clock: Clock,
        workers: usize,
        ports: usize,
        buffers: usize,
        config: EngineConfig,
    ) -> Net {
        let pool = pool(buffers);
        let sleepers: Vec<_> = (0..workers).map(|_| CondSleeper::default()).collect();
        let classes = sleepers
            .iter()
            .map(|sleeper| sleeper.classes.clone())
            .collect();
        let engine =
            Engine::with_config(sleepers, pool.clone(), clock, config, OwnQueues::default());
        let engine = engine.unwrap();
        let port = |n| {
            let (queue, (ring, script)) = (FedQueue::default(), ScriptedRing::new());
            let setup = setup(&format!("p{n}"), vec![queue.clone()], vec![ring]);
            let id = engine.add(setup).unwrap();
            Port { id, queue, script }
        };
        let ports: Vec<_> = (0..ports).map(port).collect();
        let ids: Vec<_> = ports.iter().map(|port| port.id).collect();
        let bridge = engine.add_bridge_of("br0", &ids).unwrap();
        Net {
            engine,
            bridge,
            ports,
            pool,
            classes,
        }
    }

    /// A port receives packets.
    pub fn receive(&self, port: usize, packets: impl IntoIterator<Item = Packet>) {
        let mut list: PacketList = packets.into_iter().collect();
        self.feed(port).packets.append(&mut list);
    }

    /// Feed of a port.
    pub fn feed(&self, port: usize) -> MutexGuard<'_, Feed> {
        self.ports[port].queue.feed()
    }

    /// Waits for the engine.
    pub fn wait(&self, what: &str, condition: impl FnMut() -> bool) {
        wait(what, condition);
    }

    /// The marks of what a port sent.
    pub fn marks(&self, port: usize) -> Vec<u32> {
        self.ports[port].script.marks()
    }

    /// Waits until nothing is on its way.
    pub fn settle(&self) {
        for port in 0..self.ports.len() {
            wait("reception", || self.feed(port).packets.is_empty());
        }
        // What was polled is counted when the poll has ended.
        self.engine.sync();
        wait("rest", || {
            let c = self.engine.stats().conservation();
            c.holds() && c.queued == 0
        });
    }

    /// Stops the engine; nothing is lost, queued or left in a buffer.
    pub fn stop(self) -> EngineStats {
        let Net { engine, pool, .. } = self;
        let stats = engine.stop(Duration::from_secs(5));
        assert!(stats.conservation().holds(), "{stats:?}");
        assert_eq!(stats.conservation().queued, 0);
        assert_eq!(pool.stats().free, pool.stats().buffers);
        stats
    }
}

/// A device in memory: its name, its receive queue, its transmit ring.
pub type OpenedDevice = (String, FedQueue, Arc<Script>);

/// Devices in memory, which refuse what a test tells them to.
#[derive(Clone, Debug, Default)]
pub struct FedDevices {
    /// Devices that were opened, by name, the latest last.
    pub opened: Arc<Mutex<Vec<OpenedDevice>>>,
    /// Settings that they were told to follow.
    pub changed: Arc<Mutex<Vec<Settings>>>,
    /// They refuse to be opened or to follow.
    pub refuses: Arc<AtomicBool>,
    /// Packets that the next device has received when it is opened.
    pub waiting: Arc<Mutex<PacketList>>,
}

/// A device in memory refuses.
#[derive(Debug, thiserror::Error)]
#[error("the test wants it so")]
pub struct Refused;

impl FedDevices {
    fn answer(&self) -> Result<(), Refused> {
        let refuses = self.refuses.load(Ordering::SeqCst);
        if refuses { Err(Refused) } else { Ok(()) }
    }

    /// The receive queue and the transmit ring of the device that was opened last under a name.
    pub fn last(&self, name: &str) -> (FedQueue, Arc<Script>) {
        let opened = self.opened.lock().unwrap();
        let (_, queue, script) = opened.iter().rfind(|(known, ..)| known == name).unwrap();
        (queue.clone(), script.clone())
    }
}

impl Devices for FedDevices {
    type Rx = FedQueue;
    type Tx = ScriptedRing;
    /// A link of this kind.
    type Spec = &'static str;
    type Error = Refused;

    fn open(
        &self,
        spec: &&'static str,
        settings: &Settings,
        queues: usize,
    ) -> Result<Opened<FedQueue, ScriptedRing>, Refused> {
        self.answer()?;
        let (rings, scripts) = ScriptedRing::many(queues);
        let queue = FedQueue::default();
        queue.feed().packets = self.waiting.lock().unwrap().take();
        let known = (settings.name.clone(), queue.clone(), scripts[0].clone());
        self.opened.lock().unwrap().push(known);
        Ok(Opened {
            rx: match self.virtual_link(spec) {
                None => vec![queue],
                Some(_) => Vec::new(),
            },
            tx: rings,
            features: Features::default(),
        })
    }

    fn change(&self, _: &&'static str, _: &Settings, after: &Settings) -> Result<(), Refused> {
        self.answer()?;
        self.changed.lock().unwrap().push(after.clone());
        Ok(())
    }

    fn conflict(&self, one: &&'static str, other: &&'static str) -> bool {
        one == other && !["tun", "dummy", "ifb"].contains(one)
    }

    fn of_kind(&self, kind: &str, _: &str) -> Option<&'static str> {
        ["dummy", "tun", "ifb"]
            .into_iter()
            .find(|known| *known == kind)
    }

    fn is_of_host(&self, spec: &&'static str) -> bool {
        *spec == "tun"
    }

    fn kind(&self, spec: &&'static str) -> Option<&'static str> {
        Some(spec.split('.').next().unwrap_or(spec))
    }

    /// `ifb`, `lo`, or a VLAN as `vlan.PARENT.ID`.
    fn virtual_link(&self, spec: &&'static str) -> Option<Virtual> {
        let mut words = spec.split('.');
        match words.next() {
            Some("ifb") => Some(Virtual::Ifb),
            Some("lo") => Some(Virtual::Loopback),
            Some("vlan") => Some(Virtual::Vlan {
                parent: words.next().unwrap().to_owned(),
                tag: VlanTag {
                    proto: 0x8100,
                    id: words.next().unwrap().parse().unwrap(),
                },
            }),
            _ => None,
        }
    }

    fn no_queue(&self, spec: &&'static str) -> bool {
        *spec == "dummy"
    }

    fn is_foreign(&self, spec: &&'static str) -> bool {
        *spec == "foreign"
    }

    fn mtus(&self, _: &&'static str) -> (u32, u32) {
        (68, 9000)
    }
}
