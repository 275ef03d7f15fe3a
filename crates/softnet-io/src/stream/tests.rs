//! Connections that are not made.

use std::sync::mpsc;

use softnet::mem::{Pool, PoolConfig};
use softnet_engine::Link;
use softnet_engine::rx::RxQueue;

use super::*;

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
