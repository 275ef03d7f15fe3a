//! Traffic between hosts with ordinary sockets. Every byte that arrives is compared with what was
//! sent.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::thread;
use std::time::Duration;

use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto};
use softnet_testbed::icmp;

use crate::{Host, PATIENCE, sys, wait_for};

/// The identifier of all pings.
const IDENTIFIER: u16 = 0x5046;

/// Bytes that look random and depend on `seed`, so that no piece can pass for another.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut words = Vec::with_capacity(len + 8);
    while words.len() < len {
        // SplitMix64.
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = (state ^ state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ word >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        words.extend((word ^ word >> 31).to_le_bytes());
    }
    words.truncate(len);
    words
}

/// Receives again where the process was stopped and went on: sockets with a time limit fail then.
fn uninterrupted<T>(mut receive: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match receive() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            received => return received,
        }
    }
}

/// A TCP connection between two hosts.
#[derive(Debug)]
pub struct Connection {
    from: TcpStream,
    to: TcpStream,
}

impl Connection {
    /// Connects `from` to `to`.
    pub fn open(from: &Host, to: &Host, v6: bool) -> Connection {
        let listener = to.run(|| TcpListener::bind((to.ip(v6), 0)));
        let listener = listener.expect("a listener");
        let address = listener.local_addr().expect("its address");
        let connect = || TcpStream::connect_timeout(&address, PATIENCE);
        let from = from.run(connect).expect("a connection");
        let to = listener.accept().expect("the connection's other end").0;
        for stream in [&from, &to] {
            let limit = Some(PATIENCE);
            stream.set_read_timeout(limit).expect("a time limit");
            stream.set_write_timeout(limit).expect("a time limit");
        }
        Connection { from, to }
    }

    /// Sends `len` bytes from end to end and closes; the bytes must arrive as they are, and no
    /// others.
    pub fn transfer(self, seed: u64, len: usize) {
        self.send(&pattern(seed, len), |sent| sent >= len);
    }

    /// Sends until `done`, which is told how many bytes were sent.
    pub fn transfer_until(self, seed: u64, done: impl Fn(usize) -> bool + Send) {
        self.send(&pattern(seed, 1 << 20), done);
    }

    /// Sends `data` again and again until `done`, at least once.
    fn send(self, data: &[u8], done: impl Fn(usize) -> bool + Send) {
        let Connection { mut from, mut to } = self;
        thread::scope(|scope| {
            let sender = scope.spawn(move || {
                let mut sent = 0;
                loop {
                    from.write_all(data).expect("sending");
                    sent += data.len();
                    if done(sent) {
                        break;
                    }
                }
                from.shutdown(std::net::Shutdown::Write).expect("closing");
                sent
            });
            let (mut buffer, mut at) = (vec![0; 1 << 18], 0);
            loop {
                // At most to the end of `data`, which begins again there.
                let expected = &data[at % data.len()..];
                let most = buffer.len().min(expected.len());
                let n = uninterrupted(|| to.read(&mut buffer[..most])).expect("receiving");
                if n == 0 {
                    break;
                }
                assert!(buffer[..n] == expected[..n], "wrong bytes at {at}");
                at += n;
            }
            let sent = sender.join().expect("the sender");
            assert_eq!(at, sent, "the connection ended early");
        });
    }
}

/// Two UDP sockets, one in each host, each connected to the other.
#[derive(Debug)]
pub struct Flow {
    /// In the first host.
    pub a: UdpSocket,
    /// In the second host.
    pub b: UdpSocket,
}

impl Flow {
    /// Opens both.
    pub fn open(a: &Host, b: &Host, v6: bool) -> Flow {
        let flow = Flow {
            a: udp(a, a.ip(v6)),
            b: udp(b, b.ip(v6)),
        };
        for (from, to) in [(&flow.a, &flow.b), (&flow.b, &flow.a)] {
            from.connect(to.local_addr().expect("an address"))
                .expect("connecting");
        }
        flow
    }

    /// One datagram of `len` bytes each way.
    pub fn echo(&self, len: usize) {
        for (from, to, seed) in [(&self.a, &self.b, 1), (&self.b, &self.a, 2)] {
            let data = pattern(seed + len as u64, len);
            let sent = from.send(&data);
            assert_eq!(sent.expect("sending a datagram"), len);
            receive(to, &data);
        }
    }

    /// Like [`echo`](Flow::echo) when queues may still be full of what was sent before: a
    /// datagram that finds no room is sent again.
    pub fn echo_after_load(&self, len: usize) {
        for (from, to, seed) in [(&self.a, &self.b, 1), (&self.b, &self.a, 2)] {
            let data = pattern(seed + len as u64, len);
            let again = Some(Duration::from_millis(200));
            to.set_read_timeout(again).expect("a time limit");
            wait_for("a datagram to pass", || {
                // The host may say that the other was not reachable a moment ago.
                let _ = from.send(&data);
                to.peek(&mut [0]).is_ok()
            });
            receive(to, &data);
            to.set_read_timeout(Some(PATIENCE)).expect("a time limit");
        }
    }

    /// Sends `len` bytes from `a` in one call, to be cut into datagrams of `size` bytes by the
    /// layer that does it best (`UDP_SEGMENT`). They must arrive in order.
    pub fn send_segmented(&self, len: usize, size: usize) {
        sys::set_option(
            &self.a,
            libc::SOL_UDP,
            libc::UDP_SEGMENT,
            i32::try_from(size).expect("a size"),
        );
        let data = pattern(len as u64, len);
        let sent = self.a.send(&data);
        assert_eq!(sent.expect("sending datagrams"), len);
        for datagram in data.chunks(size) {
            receive(&self.b, datagram);
        }
        sys::set_option(&self.a, libc::SOL_UDP, libc::UDP_SEGMENT, 0);
    }
}

/// A socket of a host with a large receive buffer, on any port of this address.
pub fn udp(host: &Host, ip: IpAddr) -> UdpSocket {
    let socket = host.run(|| UdpSocket::bind(SocketAddr::new(ip, 0)));
    let socket = socket.expect("a UDP socket");
    set_socket_recv_buffer_size_force(&socket, 16 << 20).expect("a receive buffer");
    socket
        .set_read_timeout(Some(PATIENCE))
        .expect("a time limit");
    socket
}

/// Receives one datagram, which must be `expected`.
pub fn receive(socket: &UdpSocket, expected: &[u8]) {
    let mut buffer = vec![0; 1 << 16];
    let n = uninterrupted(|| socket.recv(&mut buffer));
    let n = n.unwrap_or_else(|e| panic!("a datagram of {} bytes: {e}", expected.len()));
    assert_eq!(n, expected.len(), "a datagram of another length");
    assert!(buffer[..n] == *expected, "a datagram with other bytes");
}

/// True if nothing waits to be received.
pub fn is_silent(socket: &UdpSocket) -> bool {
    let mut one = [0];
    let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
    rustix::net::recv(socket.as_fd(), &mut one[..], flags) == Err(rustix::io::Errno::AGAIN)
}

/// Pings: an ICMP echo with `len` bytes of payload, which must come back as they are.
pub fn ping(from: &Host, to: &Host, v6: bool, len: usize) {
    Pinger::open(from, to, v6).ping(len);
}

/// A socket that pings one host from another.
#[derive(Debug)]
pub struct Pinger {
    socket: OwnedFd,
    v6: bool,
}

impl Pinger {
    /// Opens it.
    pub fn open(from: &Host, to: &Host, v6: bool) -> Pinger {
        let (family, protocol) = if v6 {
            (AddressFamily::INET6, ipproto::ICMPV6)
        } else {
            (AddressFamily::INET, ipproto::ICMP)
        };
        let address = SocketAddr::new(to.ip(v6), 0);
        let socket = from.run(|| {
            let flags = SocketFlags::CLOEXEC;
            let socket = rustix::net::socket_with(family, SocketType::RAW, flags, Some(protocol))?;
            rustix::net::connect(&socket, &address)?;
            Ok::<_, rustix::io::Errno>(socket)
        });
        let socket = socket.expect("a raw socket");
        let limit = rustix::net::sockopt::Timeout::Recv;
        rustix::net::sockopt::set_socket_timeout(&socket, limit, Some(PATIENCE)).expect("a limit");
        Pinger { socket, v6 }
    }

    /// Sends an echo of `len` bytes of payload, and waits for the answer.
    pub fn ping(&self, len: usize) {
        let payload = pattern(len as u64, len);
        let message = icmp::request(self.v6, IDENTIFIER, len as u16, &payload);
        let sent = rustix::net::send(&self.socket, &message, SendFlags::empty());
        assert_eq!(sent.expect("a ping"), message.len());
        let mut buffer = vec![0; 1 << 16];
        loop {
            let mut receive =
                || rustix::net::recv(&self.socket, &mut buffer[..], RecvFlags::empty());
            let received = uninterrupted(|| Ok(receive()?));
            let (n, _) = received.expect("the answer to a ping");
            let mut answer = &buffer[..n];
            if !self.v6 {
                answer = icmp::behind_header(answer);
            }
            if let Some(reply) = icmp::reply(self.v6, answer) {
                let expected = (IDENTIFIER, len as u16, &payload[..]);
                assert!(reply == expected, "a ping came back changed");
                return;
            }
        }
    }
}
