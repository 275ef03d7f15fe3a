//! Connections that are not made, and one that another process had.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc;

use rustix::event::{PollFd, PollFlags, epoll, poll};
use rustix::time::Timespec;
use softnet::mem::{Pool, PoolConfig};
use softnet::time::Time;
use softnet::tx::TxRing;
use softnet_engine::Link;
use softnet_engine::rx::RxQueue;

use super::life::connect;
use super::*;
use crate::vhost_user::SocketSpec;

fn buffers() -> Buffers {
    let config = PoolConfig {
        buffers: 64,
        buffer_size: 2048,
    };
    Buffers {
        small: Pool::new(config).expect("a pool"),
        large: None,
    }
}

/// A server whose backlog is full, for one: it is tried again after a pause, as after any error.
#[test]
fn a_connection_that_would_block_is_tried_again_later() {
    let (links, link) = mpsc::channel::<Arc<dyn Link>>();
    let (statuses, status) = mpsc::channel();
    let mut tries = 0;
    let make = move || -> io::Result<OwnedFd> {
        tries += 1;
        if tries == 2 {
            let link = link.recv().map_err(io::Error::other)?;
            let _ = statuses.send(link.status());
        }
        let kind = match tries {
            1 => io::ErrorKind::WouldBlock,
            _ => io::ErrorKind::NotFound,
        };
        Err(kind.into())
    };
    let stream = Stream::with(make, 1500, &buffers()).expect("a port");
    let link = stream.rx.link().expect("a link");
    links.send(link).expect("the thread has the other end");
    let status = status.recv().expect("it tries again").expect("a status");
    assert!(status.starts_with("not connected: "), "{status}");
}

/// Else the reason why passt ended is in no log.
#[test]
fn the_reason_for_no_connection_is_told() {
    let fail = || -> io::Result<OwnedFd> { Err(io::ErrorKind::NotFound.into()) };
    let stream = Stream::with(fail, 1500, &buffers()).expect("a port");
    let link = stream.rx.link().expect("a link");
    let event = link.fd().expect("an event");
    let mut files = [PollFd::new(&event, PollFlags::IN)];
    let patience = Timespec {
        tv_sec: 60,
        tv_nsec: 0,
    };
    assert_eq!(poll(&mut files, Some(&patience)), Ok(1));
    let status = link.status().expect("a status");
    assert!(status.starts_with("not connected: "), "{status}");
}

#[test]
fn a_port_says_where_it_is_waited_for_and_who_came() {
    let path = std::env::temp_dir().join(format!("softnet-stream-{}", std::process::id()));
    let spec = StreamSpec {
        socket: SocketSpec {
            path: path.clone(),
            server: true,
            mode: 0o600,
            group: None,
        },
        uplink: None,
    };
    let stream = Stream::open(&spec, 1500, &buffers()).expect("a port");
    let link = stream.rx.link().expect("a link");
    let waits = format!("not connected; listens at {}", path.display());
    assert_eq!(link.status(), Some(waits));
    let port = Port::new(None, Parts::default()).expect("a port");
    assert_eq!(port.status().as_deref(), Some("not connected"));
    let (_peer, ours) = UnixStream::pair().expect("sockets");
    let passt = Place::Start(Starts::new(1500));
    connect(&port, ours.into(), &passt).expect("a connection");
    assert_eq!(port.status().as_deref(), Some("connected to passt"));
}

/// A process was replaced when the socket had taken the start of a frame. The next one sends the
/// end when the socket is ready, whether or not a frame comes behind it.
#[test]
fn the_end_of_a_frame_is_sent_by_the_next_process() {
    let (mut peer, ours) = UnixStream::pair().expect("sockets");
    peer.set_nonblocking(true).expect("a socket");
    let spec = StreamSpec {
        socket: SocketSpec {
            path: "/nowhere".into(),
            server: false,
            mode: 0o600,
            group: None,
        },
        uplink: None,
    };
    let handed = Handed {
        connection: Some(ours.into()),
        parts: Parts {
            unsent: b"end".to_vec(),
            ..Parts::default()
        },
        ..Handed::default()
    };
    let mut stream = Stream::resume(&spec, 1500, &buffers(), handed).expect("a port");
    // The owner of a queue that is woken asks this first.
    assert_eq!(stream.tx.available(Time::ZERO), Some(u64::MAX));
    let mut got = [0; 3];
    peer.read_exact(&mut got).expect("it is there");
    assert_eq!(&got, b"end");
    assert_eq!(stream.tx.available(Time::ZERO), None);
}

/// The receive queue's file must not be ready for a connection that the port does not have, which
/// another process may have.
#[test]
fn a_connection_that_is_refused_by_one_queue_is_of_neither() {
    let port = Port::new(None, Parts::default()).expect("a port");
    let (mut peer, ours) = UnixStream::pair().expect("sockets");
    let _another = ours.try_clone().expect("a socket");
    let ours = OwnedFd::from(ours);
    let data = epoll::EventData::new_u64(0);
    epoll::add(&port.writable, &ours, data, epoll::EventFlags::OUT).expect("it is not there");
    let refused = port.connect(ours, "connected".to_owned());
    let refused = refused.map_err(|error| error.kind());
    assert_eq!(refused, Err(io::ErrorKind::AlreadyExists));
    assert!(!Link::state(&port).up);
    peer.write_all(b"frame").expect("a socket");
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let mut files = [PollFd::new(&port.readable, PollFlags::IN)];
    assert_eq!(poll(&mut files, Some(&now)), Ok(0));
}
