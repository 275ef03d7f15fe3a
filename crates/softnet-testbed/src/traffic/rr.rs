//! Flows of one request and one response at a time, over TCP from host a to host b.
//!
//! Few threads serve many flows each, by epoll, so that the generator costs little beside what is
//! measured. A request carries the flow's next number, and its response must be the same.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::threads::joined;
use rustix::event::epoll::EventFlags;

use super::events::Events;
use super::window::{Seen, Window};
use crate::error::TestbedError;
use crate::hosts::Topology;

const PORT: u16 = 5302;

/// The result.
#[derive(Debug)]
pub struct Transactions {
    /// From request to response, of those that came in the window.
    pub latencies_us: Vec<f64>,
}

/// Keeps `flows` of them going until the window closes.
pub fn run(
    topology: &Topology,
    flows: usize,
    window: Window,
) -> Result<(Transactions, Seen), TestbedError> {
    let (clients, servers) = connect(topology, flows)?;
    let threads = std::thread::available_parallelism()
        .map_or(1, usize::from)
        .min(flows);
    let share = flows.div_ceil(threads);
    let stop = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let servers: Vec<_> = parts(servers, share)
            .map(|part| scope.spawn(move || serve(part, stop)))
            .collect();
        let clients: Vec<_> = parts(clients, share)
            .map(|part| scope.spawn(move || ask(part, window)))
            .collect();
        let seen = window.watch(topology);
        let mut latencies_us = Vec::new();
        let mut problem = None;
        for client in clients {
            match joined(client) {
                Ok(part) => latencies_us.extend(part.into_iter().map(|ns| f64::from(ns) / 1e3)),
                Err(e) => problem = Some(e),
            }
        }
        stop.store(true, Ordering::Relaxed);
        for server in servers {
            let ended = joined(server);
            problem = problem.or_else(|| ended.err());
        }
        match problem {
            Some(problem) => Err(problem),
            None => Ok((Transactions { latencies_us }, seen?)),
        }
    })
}

/// `flows` connections: the clients' ends and the servers'.
fn connect(
    topology: &Topology,
    flows: usize,
) -> Result<(Vec<TcpStream>, Vec<TcpStream>), TestbedError> {
    let failed = |doing: &'static str| move |e| TestbedError::io(doing, e);
    let listener = topology.b().run(|| {
        TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).map_err(failed("listening on host b"))
    })?;
    let server = SocketAddrV4::new(topology.hosts[1].address, PORT);
    let ready = |stream: TcpStream| {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(stream)
    };
    topology.a().run(|| {
        let pair = |_| {
            let client = TcpStream::connect(server).and_then(ready);
            let client = client.map_err(failed("connecting to host b"))?;
            let accepted = listener.accept().and_then(|(stream, _)| ready(stream));
            Ok((client, accepted.map_err(failed("accepting on host b"))?))
        };
        (0..flows).map(pair).collect()
    })
}

/// The streams in parts of `size`.
fn parts(mut streams: Vec<TcpStream>, size: usize) -> impl Iterator<Item = Vec<TcpStream>> {
    std::iter::from_fn(move || {
        let rest = streams.split_off(size.min(streams.len()));
        let part = std::mem::replace(&mut streams, rest);
        (!part.is_empty()).then_some(part)
    })
}

fn watch(streams: &[TcpStream]) -> Result<Events, TestbedError> {
    let failed = |e| TestbedError::io("waiting for sockets", e);
    let events = Events::new().map_err(failed)?;
    for (number, stream) in streams.iter().enumerate() {
        events.add(stream, number, EventFlags::IN).map_err(failed)?;
    }
    Ok(events)
}

/// Sends back what comes.
fn serve(streams: Vec<TcpStream>, stop: &AtomicBool) -> Result<(), TestbedError> {
    let mut events = watch(&streams)?;
    let mut request = [0; 64];
    while !stop.load(Ordering::Relaxed) {
        let ready = events.wait().map_err(|e| TestbedError::io("waiting", e))?;
        for number in ready {
            let mut stream = &streams[number];
            match stream.read(&mut request) {
                // The clients are done.
                Ok(0) => return Ok(()),
                Ok(n) => stream
                    .write_all(&request[..n])
                    .map_err(|e| TestbedError::io("sending a response", e))?,
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                // A client that ends with a response under way resets the connection.
                Err(e) if e.kind() == ErrorKind::ConnectionReset => return Ok(()),
                Err(e) => return Err(TestbedError::io("receiving a request", e)),
            }
        }
    }
    Ok(())
}

/// Asks on each stream, again and again; how long each answer took in nanoseconds, of those that
/// came in the window.
fn ask(streams: Vec<TcpStream>, window: Window) -> Result<Vec<u32>, TestbedError> {
    let mut events = watch(&streams)?;
    let mut latencies = Vec::new();
    let mut flows = vec![(0u8, Instant::now()); streams.len()];
    let send = |mut stream: &TcpStream, number: u8| {
        let sent = stream.write_all(&[number]);
        sent.map_err(|e| TestbedError::io("sending a request", e))
    };
    for (stream, (_, asked)) in streams.iter().zip(&mut flows) {
        *asked = Instant::now();
        send(stream, 0)?;
    }
    loop {
        let ready = events.wait().map_err(|e| TestbedError::io("waiting", e))?;
        if Instant::now() >= window.to {
            return Ok(latencies);
        }
        for number in ready {
            let mut stream = &streams[number];
            let (expected, asked) = &mut flows[number];
            let mut answer = [0; 64];
            match stream.read(&mut answer) {
                Ok(1) if answer[0] == *expected => {}
                Ok(n) => {
                    return Err(TestbedError::Measure(format!(
                        "request {expected} was answered by {:?}",
                        &answer[..n]
                    )));
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => continue,
                Err(e) => return Err(TestbedError::io("receiving a response", e)),
            }
            let now = Instant::now();
            if now >= window.from && now < window.to {
                let nanoseconds = now.duration_since(*asked).as_nanos();
                latencies.push(u32::try_from(nanoseconds).unwrap_or(u32::MAX));
            }
            *expected = expected.wrapping_add(1);
            *asked = now;
            send(stream, *expected)?;
        }
    }
}
