//! A stand-in for the daemon: it knows one interface and one qdisc, and notes what it is asked.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept, bind,
    getpeername, listen, recv, send, socket_with,
};

pub(crate) const INTERFACE: &str = "port0";
/// An index that no interface of the host has.
pub(crate) const INDEX: u32 = 70_007;

const ERROR: u16 = 2;
const DONE: u16 = 3;
const SET_OPTION: u16 = 0x0f;
const NEW_LINK: u16 = 16;
const GET_LINK: u16 = 18;
const NEW_QDISC: u16 = 36;
const GET_QDISC: u16 = 38;
/// Answered with a message of this type and of 3,000 bytes.
const LARGE: u16 = 0x400;
/// Answered as if events had been lost.
const OVERRUN: u16 = 0x403;
const LOST: u16 = 4;
/// The daemon closes the connection.
const HANG_UP: u16 = 0x401;

const MULTI: u16 = 2;
const DUMP: u16 = 0x300;
const ENODEV: i32 = 19;
const ENOPROTOOPT: i32 = 92;

/// Requests and options that were received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    /// Types of requests, by the port they came from, or 0.
    pub(crate) requests: BTreeMap<u32, Vec<u16>>,
    /// Options that were set: port, option, value.
    pub(crate) options: Vec<(u32, u32, u32)>,
}

#[derive(Debug)]
pub(crate) struct Daemon {
    pub(crate) socket: PathBuf,
    asked: Arc<Mutex<Asked>>,
}

impl Daemon {
    /// Starts one. Its threads end with the test program.
    pub(crate) fn start(socket: PathBuf) -> Daemon {
        let listener = socket_with(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        );
        let listener = listener.expect("a socket");
        let address = SocketAddrUnix::new(&socket).expect("a short path");
        bind(&listener, &address).expect("binding");
        listen(&listener, 16).expect("listening");
        let asked = Arc::<Mutex<Asked>>::default();
        let shared = Arc::clone(&asked);
        thread::spawn(move || {
            while let Ok(connection) = accept(&listener) {
                let asked = Arc::clone(&shared);
                thread::spawn(move || serve(&connection, &asked));
            }
        });
        Daemon { socket, asked }
    }

    /// The requests made since the last time.
    pub(crate) fn asked(&self) -> Asked {
        std::mem::take(&mut self.asked.lock().expect("asked"))
    }
}

fn serve(connection: &OwnedFd, asked: &Mutex<Asked>) {
    let mut buffer = vec![0; 1 << 16];
    loop {
        let len = match recv(connection, &mut buffer[..], RecvFlags::empty()) {
            Ok((_, 0)) | Err(Errno::CONNRESET) => return,
            Ok((_, len)) => len,
            Err(error) => panic!("receiving: {error}"),
        };
        let mut datagram = &buffer[..len];
        while datagram.len() >= 16 {
            let len = u32_at(datagram, 0) as usize;
            let (request, rest) = datagram.split_at(len.next_multiple_of(4).min(datagram.len()));
            datagram = rest;
            let kind = u16_at(request, 4);
            note(connection, request, kind, &mut asked.lock().expect("asked"));
            if kind == HANG_UP {
                return;
            }
            for mut message in answer(request, kind) {
                // Clients drop what is not for their port.
                message[12..16].copy_from_slice(&port(connection).unwrap_or(0).to_ne_bytes());
                send(connection, &message, SendFlags::NOSIGNAL).expect("answering");
            }
        }
    }
}

/// The port that the client's address names.
fn port(connection: &OwnedFd) -> Option<u32> {
    let peer = SocketAddrUnix::try_from(getpeername(connection).ok()??).ok()?;
    let name = str::from_utf8(peer.abstract_name()?).ok()?.to_owned();
    name.strip_prefix("softnet-nl/")?.parse().ok()
}

fn note(connection: &OwnedFd, request: &[u8], kind: u16, asked: &mut Asked) {
    if kind == SET_OPTION {
        let numbers = [16, 20, 24].map(|at| u32_at(request, at));
        asked.options.push(numbers.into());
    } else {
        // A supervisor asks for one link by itself, and its address has none.
        let of_supervisor = kind == GET_LINK && u16_at(request, 6) & DUMP != DUMP;
        let port = port(connection).or_else(|| of_supervisor.then_some(0));
        let port = port.expect("the client's address has its port");
        asked.requests.entry(port).or_default().push(kind);
    }
}

fn answer(request: &[u8], kind: u16) -> Vec<Vec<u8>> {
    let dump = u16_at(request, 6) & DUMP == DUMP;
    let answers = |kind, payload: Vec<u8>| {
        let mut all = vec![message(request, kind, &payload)];
        if dump {
            all.push(message(request, DONE, &0_i32.to_ne_bytes()));
        }
        all
    };
    match kind {
        SET_OPTION if u32_at(request, 20) > 12 => vec![error(request, ENOPROTOOPT)],
        GET_LINK if dump || u32_at(request, 20) == INDEX || names_it(request) => {
            answers(NEW_LINK, link())
        }
        GET_LINK => vec![error(request, ENODEV)],
        GET_QDISC => answers(NEW_QDISC, qdisc()),
        OVERRUN => vec![message(request, LOST, &[])],
        LARGE => vec![message(request, LARGE, &[7; 2984])],
        _ => vec![error(request, 0)],
    }
}

/// True if the interface's name is the request's first attribute.
fn names_it(request: &[u8]) -> bool {
    let name = request.get(36..36 + INTERFACE.len() + 1);
    name == Some(format!("{INTERFACE}\0").as_bytes())
}

fn message(request: &[u8], kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut message = (16 + payload.len() as u32).to_ne_bytes().to_vec();
    message.extend_from_slice(&kind.to_ne_bytes());
    let flags = if u16_at(request, 6) & DUMP == DUMP {
        MULTI
    } else {
        0
    };
    message.extend_from_slice(&flags.to_ne_bytes());
    message.extend_from_slice(&request[8..12]);
    message.extend_from_slice(&[0; 4]);
    message.extend_from_slice(payload);
    message
}

fn error(request: &[u8], errno: i32) -> Vec<u8> {
    let mut payload = (-errno).to_ne_bytes().to_vec();
    payload.extend_from_slice(&request[..16]);
    message(request, ERROR, &payload)
}

fn link() -> Vec<u8> {
    // Family, type (Ethernet), index, flags (up, running), mask.
    let mut link = vec![0, 0, 1, 0];
    link.extend_from_slice(&INDEX.to_ne_bytes());
    link.extend_from_slice(&0x41_u32.to_ne_bytes());
    link.extend_from_slice(&0_u32.to_ne_bytes());
    attribute(&mut link, 4, &1500_u32.to_ne_bytes());
    attribute(&mut link, 13, &1000_u32.to_ne_bytes());
    attribute(&mut link, 3, format!("{INTERFACE}\0").as_bytes());
    link
}

fn qdisc() -> Vec<u8> {
    // Family, index, handle 8001:, parent root, reference count.
    let mut qdisc = vec![0; 4];
    for number in [INDEX, 0x8001_0000, u32::MAX, 2] {
        qdisc.extend_from_slice(&number.to_ne_bytes());
    }
    attribute(&mut qdisc, 1, b"pfifo\0");
    attribute(&mut qdisc, 2, &123_u32.to_ne_bytes());
    qdisc
}

fn attribute(message: &mut Vec<u8>, kind: u16, value: &[u8]) {
    message.extend_from_slice(&(4 + value.len() as u16).to_ne_bytes());
    message.extend_from_slice(&kind.to_ne_bytes());
    message.extend_from_slice(value);
    message.resize(message.len().next_multiple_of(4), 0);
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes(bytes[at..at + 2].try_into().expect("2 bytes"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}
