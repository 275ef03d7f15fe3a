//! Requests, answers, and clients on sockets.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, connect,
    recv, send, socket_with,
};
use softnet_rtnl::nl::{NLM_F_ACK, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, Requests};
use softnet_rtnl::server::{OPERATION, OPTION, PORT_NAME};
use zerocopy::IntoBytes;

use crate::service::{GETLINK, IFNAME, NEWLINK, header};

pub(crate) const DUMP: u16 = 0x300;

/// A message as a client writes it, padded.
pub(crate) fn request(kind: u16, flags: u16, seq: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (16 + payload.len() as u32).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend(seq.to_ne_bytes());
    bytes.extend([0; 4]);
    bytes.extend(payload);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// `ip link show`, of one or all.
pub(crate) fn get_link(index: u32, flags: u16, seq: u32) -> Vec<u8> {
    request(
        GETLINK,
        NLM_F_REQUEST | flags,
        seq,
        header(index).as_bytes(),
    )
}

/// `ip link add`.
pub(crate) fn new_link(index: u32, flags: u16, seq: u32) -> Vec<u8> {
    let mut payload = header(index).as_bytes().to_vec();
    payload.extend([8, 0]);
    payload.extend(IFNAME.to_ne_bytes());
    payload.extend(b"new\0");
    request(NEWLINK, NLM_F_REQUEST | NLM_F_ACK | flags, seq, &payload)
}

/// `setsockopt(SOL_NETLINK)`.
pub(crate) fn option(port: u32, option: i32, value: u32, seq: u32) -> Vec<u8> {
    let payload = [port, option.cast_unsigned(), value];
    request(OPTION, NLM_F_REQUEST, seq, payload.as_bytes())
}

pub(crate) fn operation(operation: u32, argument: &[u8], seq: u32) -> Vec<u8> {
    let payload = [operation.as_bytes(), argument].concat();
    request(OPERATION, NLM_F_REQUEST, seq, &payload)
}

/// A message that came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) seq: u32,
    pub(crate) port: u32,
    pub(crate) payload: Vec<u8>,
}

impl Answer {
    /// The errno of an error or of a dump's end, 0 for success.
    pub(crate) fn errno(&self) -> i32 {
        assert!([NLMSG_ERROR, NLMSG_DONE].contains(&self.kind), "{self:?}");
        -i32::from_ne_bytes(*self.payload.first_chunk().expect("long enough"))
    }

    /// Type and payload of each TLV of an extended acknowledgment.
    pub(crate) fn tlvs(&self) -> Vec<(u16, Vec<u8>)> {
        let mut rest = &self.payload[if self.kind == NLMSG_DONE { 4 } else { 20 }..];
        let mut tlvs = Vec::new();
        while let [l0, l1, k0, k1, ..] = *rest {
            let length = usize::from(u16::from_ne_bytes([l0, l1]));
            tlvs.push((u16::from_ne_bytes([k0, k1]), rest[4..length].to_vec()));
            rest = &rest[length.next_multiple_of(4)..];
        }
        tlvs
    }

    /// The text of an extended acknowledgment.
    pub(crate) fn text(&self) -> Option<String> {
        let text = self.tlvs().into_iter().find(|(kind, _)| *kind == 1)?.1;
        Some(
            String::from_utf8(text)
                .expect("UTF-8")
                .trim_end_matches('\0')
                .into(),
        )
    }

    /// The number of a link.
    pub(crate) fn index(&self) -> u32 {
        u32::from_ne_bytes(self.payload[4..8].try_into().expect("4 bytes"))
    }
}

/// The messages of a datagram.
pub(crate) fn answers(datagram: &[u8]) -> Vec<Answer> {
    let read = |message: softnet_rtnl::nl::Request<'_>| Answer {
        kind: message.kind,
        flags: message.flags,
        seq: message.seq,
        port: message.pid,
        payload: message.payload().to_vec(),
    };
    Requests::new(datagram).map(read).collect()
}

/// A client on a socket.
#[derive(Debug)]
pub(crate) struct Socket(pub(crate) OwnedFd);

impl Socket {
    pub(crate) fn try_connect(path: &Path, port: Option<u32>) -> rustix::io::Result<Socket> {
        let kind = SocketType::SEQPACKET;
        let socket = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
        if let Some(port) = port {
            let name = format!("{PORT_NAME}{port}");
            bind(
                &socket,
                &SocketAddrUnix::new_abstract_name(name.as_bytes())?,
            )?;
        }
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        Ok(Socket(socket))
    }

    pub(crate) fn connect(path: &Path) -> Socket {
        Socket::try_connect(path, None).expect("a server listens")
    }

    pub(crate) fn send(&self, datagram: &[u8]) {
        send(&self.0, datagram, SendFlags::NOSIGNAL).expect("the server reads");
    }

    /// The messages of the next datagram; none at the end.
    pub(crate) fn receive(&self) -> Vec<Answer> {
        let mut buffer = vec![0; 256 * 1024];
        let (_, length) = recv(&self.0, &mut buffer, RecvFlags::TRUNC).expect("an answer");
        assert!(length <= buffer.len());
        answers(&buffer[..length])
    }

    /// Sends one request and returns the one message that answers it.
    pub(crate) fn ask(&self, datagram: &[u8]) -> Answer {
        self.send(datagram);
        let [answer] = self.receive().try_into().expect("one message");
        answer
    }

    /// Sends a request and returns what comes up to its end.
    pub(crate) fn dump(&self, datagram: &[u8]) -> Vec<Answer> {
        self.send(datagram);
        self.rest_of_dump()
    }

    pub(crate) fn rest_of_dump(&self) -> Vec<Answer> {
        let mut all: Vec<Answer> = Vec::new();
        while all
            .last()
            .is_none_or(|last| last.kind != NLMSG_DONE && last.kind != NLMSG_ERROR)
        {
            all.extend(self.receive());
        }
        all
    }
}
