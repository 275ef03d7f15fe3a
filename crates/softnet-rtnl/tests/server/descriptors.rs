//! Clients that pass descriptors, which nobody asked for.

use std::io::{IoSlice, Write};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_linger, set_socket_timeout};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use softnet_rtnl::server::Listen;

use crate::client::{Socket, get_link};
use crate::files::{Folder, config, start};
use crate::service::{Links, NEWLINK};

/// A file whose last close waits as long as the other end, which is returned, does not read.
fn slow_to_close() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    let mut slow = TcpStream::connect(address).expect("it listens");
    let (other, _) = listener.accept().expect("connected");
    set_socket_linger(&slow, Some(Duration::from_secs(3600))).expect("an option");
    slow.set_nonblocking(true).expect("an option");
    while slow.write(&[0; 65536]).is_ok() {}
    slow.set_nonblocking(false).expect("an option");
    (slow, other)
}

/// Sends a datagram with a file.
fn pass(client: &Socket, datagram: &[u8], file: impl AsFd) -> rustix::io::Result<usize> {
    let files = [file.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&files)));
    let data = [IoSlice::new(datagram)];
    sendmsg(&client.0, &data, &mut control, SendFlags::NOSIGNAL)
}

/// `SO_PASSRIGHTS` is there.
fn kernel_refuses_descriptors() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("Linux");
    let mut numbers = release
        .split(['.', '-'])
        .map_while(|part| part.parse().ok());
    (numbers.next(), numbers.next()) >= (Some(6_u32), Some(16_u32))
}

#[test]
fn a_passed_file_that_is_slow_to_close_delays_nobody() {
    if !kernel_refuses_descriptors() {
        println!("skipped: Linux before 6.16");
        return;
    }
    let folder = Folder::new();
    let monitor = folder.join("monitor");
    let mut config = config(&folder.join("control"));
    config.monitor = Some(Listen {
        path: monitor.clone(),
        mode: 0o666,
        group: None,
    });
    let running = start(&config, Links::new(3));
    let witness = Socket::connect(&config.listen.path);
    // A server that closes the file answers nobody; the test then fails instead of waiting.
    let limit = Some(Duration::from_secs(30));
    set_socket_timeout(&witness.0, Timeout::Recv, limit).expect("an option");
    for path in [&monitor, &config.listen.path] {
        let client = Socket::connect(path);
        let (file, other) = slow_to_close();
        let refused = pass(&client, &get_link(1, 0, 1), &file);
        assert_eq!(refused, Err(rustix::io::Errno::PERM));
        assert_eq!(witness.ask(&get_link(1, 0, 1)).kind, NEWLINK);
        // Resets the connection, so that this end closes at once.
        drop(other);
        drop(file);
    }
    // Neither does the server's end.
    running.stop().expect("it ran");
}
