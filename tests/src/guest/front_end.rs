//! The front end's side of the vhost-user socket: messages and files.

use std::io::{self, IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use crate::PATIENCE;

/// Requests, by their numbers.
pub mod request {
    #![allow(missing_docs, reason = "the names of the specification")]
    pub const GET_FEATURES: u32 = 1;
    pub const SET_FEATURES: u32 = 2;
    pub const SET_OWNER: u32 = 3;
    pub const SET_MEM_TABLE: u32 = 5;
    pub const SET_VRING_NUM: u32 = 8;
    pub const SET_VRING_ADDR: u32 = 9;
    pub const SET_VRING_BASE: u32 = 10;
    pub const GET_VRING_BASE: u32 = 11;
    pub const SET_VRING_KICK: u32 = 12;
    pub const SET_VRING_CALL: u32 = 13;
    pub const GET_PROTOCOL_FEATURES: u32 = 15;
    pub const SET_PROTOCOL_FEATURES: u32 = 16;
    pub const GET_QUEUE_NUM: u32 = 17;
    pub const SET_VRING_ENABLE: u32 = 18;
    pub const NET_SET_MTU: u32 = 20;
    pub const RESET_DEVICE: u32 = 34;
    pub const ADD_MEM_REG: u32 = 37;
    pub const REM_MEM_REG: u32 = 38;
}

const HEADER: usize = 12;
const VERSION: u32 = 1;
const NEED_REPLY: u32 = 1 << 3;
/// `MQ`, `REPLY_ACK`, `MTU`, `RESET_DEVICE` and `CONFIGURE_MEM_SLOTS`, where they are offered.
const PROTOCOL_FEATURES: u64 = 1 | 1 << 3 | 1 << 4 | 1 << 13 | 1 << 15;

/// A connection to a port.
#[derive(Debug)]
pub struct FrontEnd {
    socket: UnixStream,
}

impl FrontEnd {
    /// Connects to a port whose socket this is, and agrees on the protocol's features.
    ///
    /// # Errors
    /// If the port is not there, or goes.
    pub fn connect(path: &Path) -> io::Result<FrontEnd> {
        FrontEnd::start(UnixStream::connect(path)?)
    }

    /// Takes the connection of a port that is a client.
    ///
    /// # Errors
    /// If none waits, or the port goes.
    pub fn accept(listener: &UnixListener) -> io::Result<FrontEnd> {
        let (socket, _) = listener.accept()?;
        socket.set_nonblocking(false)?;
        FrontEnd::start(socket)
    }

    /// One that has said nothing yet.
    ///
    /// # Errors
    /// If this is no socket.
    pub fn silent(socket: UnixStream) -> io::Result<FrontEnd> {
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(FrontEnd { socket })
    }

    fn start(socket: UnixStream) -> io::Result<FrontEnd> {
        let mut front_end = FrontEnd::silent(socket)?;
        let offered = front_end.ask(request::GET_PROTOCOL_FEATURES, &[])?;
        let offered = offered.try_into().expect("eight bytes");
        let features = PROTOCOL_FEATURES & u64::from_ne_bytes(offered);
        front_end.send(request::SET_PROTOCOL_FEATURES, &features.to_ne_bytes(), &[])?;
        front_end.request(request::SET_OWNER, &[], &[])?;
        Ok(front_end)
    }

    /// Any bytes, in one call.
    ///
    /// # Errors
    /// If the port is gone.
    pub fn bytes(&mut self, bytes: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(files)));
        }
        let sent = sendmsg(
            &self.socket,
            &[IoSlice::new(bytes)],
            &mut control,
            SendFlags::NOSIGNAL,
        )?;
        assert_eq!(sent, bytes.len(), "the socket takes a message as a whole");
        Ok(())
    }

    /// A request that is not answered.
    ///
    /// # Errors
    /// If the port is gone.
    pub fn send(
        &mut self,
        number: u32,
        payload: &[u8],
        files: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        self.bytes(&message(number, VERSION, payload), files)
    }

    /// A request that is done when this returns.
    ///
    /// # Errors
    /// If the port is gone, or refused it.
    pub fn request(
        &mut self,
        number: u32,
        payload: &[u8],
        files: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        self.bytes(&message(number, VERSION | NEED_REPLY, payload), files)?;
        let answer = self.answer(number)?;
        assert_eq!(answer, [0; 8], "request {number}");
        Ok(())
    }

    /// The answer to a request that has one.
    ///
    /// # Errors
    /// If the port is gone.
    pub fn ask(&mut self, number: u32, payload: &[u8]) -> io::Result<Vec<u8>> {
        self.send(number, payload, &[])?;
        self.answer(number)
    }

    /// Waits for the answer to a request.
    ///
    /// # Errors
    /// If the port is gone.
    pub fn answer(&mut self, number: u32) -> io::Result<Vec<u8>> {
        let mut header = [0; HEADER];
        self.socket.read_exact(&mut header)?;
        let field = |at: usize| {
            let bytes = header[at..at + 4].try_into().expect("four bytes");
            u32::from_ne_bytes(bytes)
        };
        assert_eq!(field(0), number, "the answer to another request");
        let mut payload = vec![0; field(8) as usize];
        self.socket.read_exact(&mut payload)?;
        Ok(payload)
    }

    /// Ends the connection, as the death of the process would.
    pub fn close(&self) {
        // An error: it has ended.
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
    }

    /// Waits until the port has closed the connection.
    pub fn wait_closed(mut self) {
        let mut rest = Vec::new();
        match self.socket.read_to_end(&mut rest) {
            Ok(_) => {}
            Err(e) => assert_eq!(e.kind(), io::ErrorKind::ConnectionReset, "{e}"),
        }
    }

    /// True if the port has closed the connection.
    pub fn is_closed(&self) -> bool {
        use rustix::net::{RecvFlags, recv};
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        match recv(&self.socket, &mut [0; 1][..], flags) {
            Ok((n, _)) => n == 0,
            Err(error) => error != rustix::io::Errno::AGAIN,
        }
    }
}

/// A message.
pub fn message(number: u32, flags: u32, payload: &[u8]) -> Vec<u8> {
    let header = [number, flags, payload.len() as u32].map(u32::to_ne_bytes);
    [&header.concat()[..], payload].concat()
}

/// The payload that says a number of a ring.
pub fn of_ring(ring: usize, value: u32) -> [u8; 8] {
    let words = [ring as u32, value].map(u32::to_ne_bytes);
    words.concat().try_into().expect("two words")
}
