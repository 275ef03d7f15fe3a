//! HTTP for who collects metrics: `GET /metrics`, one request a connection, one connection at a
//! time.

use std::io::{self, Read, Write};
#[cfg(test)]
use std::net::SocketAddr;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;
use std::time::{Duration, Instant};

use softnet_io::MetricsPlace;

use super::Format;

/// Bytes of a request's head.
const HEAD: usize = 8192;
/// Time that a client has for its request.
const PATIENCE: Duration = Duration::from_secs(2);
/// Time that a client has to read the answer.
const READING: Duration = Duration::from_secs(3);
/// Pause after a connection that could not be accepted, as when files have run out.
const PAUSE: Duration = Duration::from_millis(100);

/// A socket of a place for metrics, whose requests are answered once it listens and
/// [`start`](Server::start) was called.
#[derive(Debug)]
pub(crate) struct Server {
    place: MetricsPlace,
    listener: Listener,
}

#[derive(Debug)]
enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// A connection.
trait Stream: Read + Write {
    fn set_timeout(&self, timeout: Duration) -> io::Result<()>;
}

impl Stream for TcpStream {
    fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(timeout))?;
        self.set_write_timeout(Some(timeout))
    }
}

impl Stream for UnixStream {
    fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(timeout))?;
        self.set_write_timeout(Some(timeout))
    }
}

impl Server {
    /// With a socket that listens nowhere yet, made while this process may make some.
    pub(crate) fn new(place: &MetricsPlace) -> io::Result<Server> {
        Ok(Server::take(place.clone(), place.socket()?))
    }

    /// Goes on with the socket of another daemon, which listens.
    pub(crate) fn take(place: MetricsPlace, socket: OwnedFd) -> Server {
        let listener = match place {
            MetricsPlace::Tcp(_) => Listener::Tcp(socket.into()),
            MetricsPlace::Unix(_) => Listener::Unix(socket.into()),
        };
        Server { place, listener }
    }

    /// Where it is.
    pub(crate) fn place(&self) -> &MetricsPlace {
        &self.place
    }

    /// Listens. A socket that a dead daemon has left there is replaced. Where another server
    /// listens (`AddrInUse`), it may be tried again.
    pub(crate) fn listen(&self) -> io::Result<()> {
        self.place.listen(self.file())
    }

    fn file(&self) -> BorrowedFd<'_> {
        match &self.listener {
            Listener::Tcp(listener) => listener.as_fd(),
            Listener::Unix(listener) => listener.as_fd(),
        }
    }

    /// A copy of the socket, for another daemon.
    pub(crate) fn socket(&self) -> io::Result<OwnedFd> {
        self.file().try_clone_to_owned()
    }

    /// The address, if it is one: with its port, also where 0 was asked for.
    #[cfg(test)]
    fn address(&self) -> Option<SocketAddr> {
        match &self.listener {
            Listener::Tcp(listener) => listener.local_addr().ok(),
            Listener::Unix(_) => None,
        }
    }

    /// Answers requests on a thread, which lives as long as the process.
    pub(crate) fn start(
        self,
        metrics: impl Fn(Format) -> String + Send + 'static,
    ) -> io::Result<()> {
        let builder = thread::Builder::new().name("metrics".into());
        builder.spawn(move || {
            loop {
                let served = match &self.listener {
                    Listener::Tcp(listener) => {
                        listener.accept().map(|(stream, _)| serve(stream, &metrics))
                    }
                    Listener::Unix(listener) => {
                        listener.accept().map(|(stream, _)| serve(stream, &metrics))
                    }
                };
                if served.is_err() {
                    thread::sleep(PAUSE);
                }
            }
        })?;
        Ok(())
    }
}

/// Answers one request. A client that is slow or gone is left.
fn serve(mut stream: impl Stream, metrics: &impl Fn(Format) -> String) {
    if let Ok(Some(head)) = read_head(&mut stream) {
        let (head, body) = answer(&head, metrics);
        let until = Instant::now() + READING;
        let _ = send(&mut stream, head.as_bytes(), until)
            .and_then(|()| send(&mut stream, body.as_bytes(), until));
    }
}

/// Writes within a bound of time, however slowly the client reads.
fn send(stream: &mut impl Stream, mut rest: &[u8], until: Instant) -> io::Result<()> {
    while !rest.is_empty() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_timeout(left)?;
        match stream.write(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(length) => rest = rest.get(length..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The head of a request, within a bound of bytes and time; none if the client sends no such.
fn read_head(stream: &mut impl Stream) -> io::Result<Option<String>> {
    let until = Instant::now() + PATIENCE;
    let (mut head, mut part) = (Vec::new(), [0; 1024]);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || head.len() > HEAD {
            return Ok(None);
        }
        stream.set_timeout(left)?;
        let length = stream.read(&mut part)?;
        if length == 0 {
            return Ok(None);
        }
        head.extend_from_slice(part.get(..length).unwrap_or_default());
        if head.windows(4).any(|end| end == b"\r\n\r\n") {
            return Ok(String::from_utf8(head).ok());
        }
    }
}

/// The answer to a request (RFC 9112): its head, and the body, which may have megabytes.
fn answer(head: &str, metrics: &impl Fn(Format) -> String) -> (String, String) {
    let mut lines = head.split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (method, target) = (words.next(), words.next().unwrap_or_default());
    let path = target.split('?').next().unwrap_or_default();
    let plain = "text/plain; charset=utf-8";
    let accept = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("accept").then_some(value)
    });
    let format = Format::accepted(accept.unwrap_or_default());
    let (status, content, body) = match (method, path) {
        (Some("GET" | "HEAD"), "/metrics") => ("200 OK", format.content_type(), metrics(format)),
        (Some("GET" | "HEAD"), _) => (
            "404 Not Found",
            plain,
            "metrics are at /metrics\n".to_owned(),
        ),
        _ => ("405 Method Not Allowed", plain, "use GET\n".to_owned()),
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content}\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n"
    );
    match method {
        Some("HEAD") => (head, String::new()),
        _ => (head, body),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics(format: Format) -> String {
        format!("{format:?}\n")
    }

    #[test]
    fn requests_are_answered_as_they_ask() {
        let answer = |head: &str| {
            let (head, body) = answer(head, &metrics);
            head + &body
        };
        let status = |head: &str| answer(head).lines().next().map(str::to_owned);
        for (head, expected) in [
            ("GET /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK"),
            ("GET /metrics?x=1 HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK"),
            ("GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 404 Not Found"),
            (
                "POST /metrics HTTP/1.1\r\n\r\n",
                "HTTP/1.1 405 Method Not Allowed",
            ),
            ("\r\n\r\n", "HTTP/1.1 405 Method Not Allowed"),
        ] {
            assert_eq!(status(head).as_deref(), Some(expected), "{head:?}");
        }
        let plain = answer("GET /metrics HTTP/1.1\r\nAccept: */*\r\n\r\n");
        assert!(plain.ends_with("\r\n\r\nText\n"), "{plain}");
        let head = "GET /metrics HTTP/1.1\r\naccept: application/openmetrics-text\r\n\r\n";
        assert!(answer(head).ends_with("\r\n\r\nOpenMetrics\n"));
        assert!(answer("HEAD /metrics HTTP/1.1\r\n\r\n").ends_with("\r\n\r\n"));
    }

    /// One that listens at a port of the system's choice.
    fn server() -> Server {
        let place = MetricsPlace::parse("127.0.0.1:0").expect("an address");
        let server = Server::new(&place).expect("a socket");
        server.listen().expect("a port");
        server
    }

    /// Neither silence nor an endless head keeps the next client from its answer.
    #[test]
    fn who_sends_no_request_is_left() {
        let server = server();
        let address = server.address().expect("TCP");
        server.start(metrics).expect("a thread");
        let mut endless = TcpStream::connect(address).expect("it listens");
        let silent = TcpStream::connect(address).expect("it listens");
        let mut good = TcpStream::connect(address).expect("it listens");
        // More than it reads: some of it is refused.
        let _ = endless.write_all(&[b'x'; 4 * HEAD]);
        good.write_all(b"GET /metrics HTTP/1.1\r\n\r\n")
            .expect("it listens");
        let mut text = String::new();
        good.read_to_string(&mut text).expect("an answer");
        assert!(text.ends_with("Text\n"), "{text}");
        drop(silent);
    }

    /// A client that reads a little at a time, for ever, does not keep the next from its answer.
    #[test]
    fn who_reads_slowly_is_left() {
        let server = server();
        let address = server.address().expect("TCP");
        let body = "x".repeat(64 << 20);
        let served = std::sync::atomic::AtomicBool::new(false);
        let text = move |_| match served.swap(true, std::sync::atomic::Ordering::Relaxed) {
            false => body.clone(),
            true => "next\n".to_owned(),
        };
        server.start(text).expect("a thread");
        let request = b"GET /metrics HTTP/1.1\r\n\r\n";
        let mut slow = TcpStream::connect(address).expect("it listens");
        slow.write_all(request).expect("it reads");
        let mut part = [0; 1024];
        slow.read_exact(&mut part).expect("it is first");
        let reads = thread::spawn(move || {
            while slow.read(&mut part).is_ok_and(|length| length > 0) {
                thread::sleep(Duration::from_millis(20));
            }
        });
        let mut good = TcpStream::connect(address).expect("it listens");
        good.write_all(request).expect("it listens");
        let mut text = String::new();
        good.read_to_string(&mut text).expect("an answer");
        assert!(text.ends_with("next\n"), "{text}");
        drop(reads);
    }
}
