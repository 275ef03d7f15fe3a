//! A vhost-user port of a process that has no file descriptors left: a program of its own, as the
//! limit is the whole process's.

use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use softnet::time::Clock;
use softnet_engine::{Engine, Opened, OwnQueues, PortSpec};
use softnet_io::{Poller, PortRx, PortTx};
use softnet_tests::guest::{FrontEnd, Guest, GuestConfig, message, open_port, request};
use softnet_tests::wait_for;

#[test]
fn files_that_this_process_may_not_have_are_named_as_the_reason() {
    let (path, opened, pool) = open_port("files");
    let pollers = vec![Poller::new().expect("an epoll instance")];
    let engine = Engine::start(pollers, pool, Clock::monotonic(), OwnQueues::default());
    let engine = engine.expect("an engine");
    let setup = PortSpec::new("vm");
    let device = Opened {
        rx: opened.rx.into_iter().map(PortRx::from).collect(),
        tx: opened.tx.into_iter().map(PortTx::from).collect(),
        features: opened.features,
    };
    let id = engine.add_port_with(setup, device).expect("it is added");
    let guest = Guest::new(GuestConfig {
        pairs: 1,
        size: 256,
        packed: false,
        event_index: false,
        features: 0,
    });
    let stream = UnixStream::connect(&path).expect("a port");
    let mut front_end = FrontEnd::silent(stream).expect("a socket");
    // It is connected once it has answered.
    let features = front_end.ask(request::GET_FEATURES, &[]);
    features.expect("an answer");
    let free = rustix::io::dup(guest.file()).expect("a descriptor");
    let before = getrlimit(Resource::Nofile);
    let low = Rlimit {
        // Of two files one has a number.
        current: Some(free.as_raw_fd() as u64 + 1),
        ..before
    };
    drop(free);
    setrlimit(Resource::Nofile, low).expect("a lower limit");
    let table = message(request::SET_MEM_TABLE, 1, &guest.table());
    front_end.bytes(&table, &[guest.file(); 2]).expect("a port");
    front_end.wait_closed();
    setrlimit(Resource::Nofile, before).expect("the limit that was");
    wait_for("the reason", || {
        let status = engine.port_stats(id).expect("it is there").status;
        status.is_some_and(|status| status.contains("no file descriptors are left"))
    });
    assert!(engine.stop(Duration::ZERO).conservation().holds());
}
