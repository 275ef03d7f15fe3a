//! Kit of the tests of requests: the part of a daemon that answers them, on an engine with devices
//! in memory, and requests.

use std::sync::{Arc, Mutex};

use softnet::testing::pool;
use softnet::time::Clock;
use softnet_engine::testing::{CondSleeper, FedDevices};
use softnet_engine::{Engine, EngineConfig, PortSpec, Settings};
use zerocopy::{Immutable, IntoBytes};

use crate::Rtnl;
use crate::nl::{
    Chunk, Client, Error, Head, Message, Messages, NLM_F_REQUEST, Position, Progress, Replies,
    Request, Service,
};

pub(crate) const CLIENT: Client = Client {
    port: 7,
    may_change: true,
    own: true,
    strict: false,
    uid: 0,
};

pub(crate) type Shared = Arc<Mutex<Engine<FedDevices>>>;

/// With the links that `setup` makes, of which nobody is told.
pub(crate) fn rtnl(setup: impl FnOnce(&Engine<FedDevices>)) -> (Rtnl<FedDevices>, Shared) {
    rtnl_with(EngineConfig::default(), FedDevices::default(), setup)
}

/// As [`rtnl`], of an engine with settings, and devices that the test knows.
pub(crate) fn rtnl_with(
    config: EngineConfig,
    devices: FedDevices,
    setup: impl FnOnce(&Engine<FedDevices>),
) -> (Rtnl<FedDevices>, Shared) {
    let sleepers = vec![CondSleeper::default()];
    let (pool, clock) = (pool(64), Clock::monotonic());
    let engine = Engine::with_config(sleepers, pool, clock, config, devices);
    let engine = engine.unwrap();
    setup(&engine);
    engine.take_changes();
    let engine = Arc::new(Mutex::new(engine));
    (Rtnl::new(engine.clone()), engine)
}

pub(crate) fn port(
    name: &str,
    device: &'static str,
    queues: usize,
    master: Option<&str>,
) -> PortSpec<&'static str> {
    let mut port = PortSpec {
        settings: Settings::new(name),
        master: master.map(str::to_owned),
        ..PortSpec::default()
    };
    (port.options.device, port.options.queues) = (device, queues);
    port
}

pub(crate) fn message<T: IntoBytes + Immutable + ?Sized>(
    kind: u16,
    flags: u16,
    header: &T,
    body: impl FnOnce(&mut Message<'_>),
) -> Messages {
    let mut messages = Messages::new();
    let head = Head {
        kind,
        flags: flags | NLM_F_REQUEST,
        seq: 1,
        pid: 0,
    };
    messages.message(head, header, body).unwrap();
    messages
}

/// Sends a request.
pub(crate) fn ask(
    rtnl: &mut Rtnl<FedDevices>,
    client: &Client,
    message: &Messages,
) -> (Result<(), Error>, Replies) {
    let request = Request::read(message.as_bytes()).unwrap();
    let mut replies = Replies::new(&request, client);
    let result = rtnl.request(&request, client, &mut replies);
    (result, replies)
}

/// The parts of a dump, each of which holds something.
pub(crate) fn dump(
    rtnl: &mut Rtnl<FedDevices>,
    client: &Client,
    message: &Messages,
) -> Result<Vec<Messages>, Error> {
    let request = Request::read(message.as_bytes()).unwrap();
    let (mut position, mut parts) = (Position::default(), Vec::new());
    loop {
        let mut part = Messages::new();
        let mut chunk = Chunk::new(&request, client, &mut part);
        let progress = rtnl.dump(&request, client, &mut position, &mut chunk)?;
        assert!(progress == Progress::Done || !part.is_empty());
        parts.push(part);
        if progress == Progress::Done {
            return Ok(parts);
        }
    }
}

/// Asserts that a hostile request is refused as the kernel would refuse it: with one of `errnos`,
/// and with a text that is not empty where there is one.
pub(crate) fn assert_refusal(error: &Error, errnos: &[crate::nl::Errno]) {
    assert!(errnos.contains(&error.errno), "{error:?}");
    assert_ne!(error.text.as_deref(), Some(""), "{error:?}");
}
