//! A guest behind passt, and the server of the system that it talks to.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;
use softnet_tests::random::Random;

use super::common::{NamedNetns, passt_system};

/// Time for an answer. A passt that has ended took its connections along, and the guest is not
/// told.
const WAIT: Duration = Duration::from_secs(1);

/// The system, whose loopback passt shows at the router's address, and the guest.
pub(super) struct Uplink {
    pub(super) system: NamedNetns,
    pub(super) guest: NamedNetns,
    server: SocketAddr,
}

/// Sends back what comes, until this process ends.
fn serve(listener: &TcpListener) {
    for stream in listener.incoming().flatten() {
        thread::spawn(move || {
            let _ = io::copy(&mut &stream, &mut &stream);
            // passt 2023-03-09 may look for ever at an end with bytes on their way, and read no
            // frames: there is a reset instead.
            let _ = set_socket_linger(&stream, Some(Duration::ZERO));
        });
    }
}

/// Has the server send bytes back.
fn echo(mut stream: &TcpStream, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes)?;
    let mut back = vec![0; bytes.len()];
    stream.read_exact(&mut back)?;
    assert!(back == bytes, "other bytes came back");
    Ok(())
}

impl Uplink {
    pub(super) fn new() -> Uplink {
        let (system, guest) = (passt_system("alls"), NamedNetns::new("allg"));
        let listener = system.run(|| TcpListener::bind("127.0.0.1:0"));
        let listener = listener.expect("a port");
        let port = listener.local_addr().expect("its address").port();
        thread::spawn(move || serve(&listener));
        Uplink {
            system,
            guest,
            server: SocketAddr::from(([10, 55, 0, 1], port)),
        }
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let connect = || TcpStream::connect_timeout(&self.server, WAIT);
        let stream = self.guest.run(connect)?;
        stream.set_read_timeout(Some(WAIT))?;
        stream.set_write_timeout(Some(WAIT))?;
        Ok(stream)
    }

    /// True if the server sends bytes back.
    pub(super) fn answers(&self, bytes: &[u8]) -> bool {
        let answer = self.connect().and_then(|stream| echo(&stream, bytes));
        answer.is_ok()
    }

    /// Traffic to the server and back while `load` says so.
    pub(super) fn load(&self, load: &AtomicBool, stop: &AtomicBool) {
        let mut random = Random::new(0);
        let mut client: Option<TcpStream> = None;
        while !stop.load(Ordering::Relaxed) {
            if load.load(Ordering::Relaxed) {
                let (first, len) = (random.below(251), 1 + random.below(100_000));
                let bytes: Vec<u8> = (first..first + len).map(|i| (i % 251) as u8).collect();
                // The port may be away, or passt. Else a connection has a hundred exchanges.
                client = client.or_else(|| self.connect().ok());
                client = client.filter(|c| echo(c, &bytes).is_ok() && !random.one_in(100));
            } else {
                client = None;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}
