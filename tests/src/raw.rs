//! Raw frames: sending what no well-behaved host sends, and seeing what reaches a host before its
//! kernel looks at it.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_recv_buffer_size_force, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use softnet::wire::{VNET_HDR_LEN, VnetHeader};

use crate::{Host, sys};

/// All EtherTypes, outgoing frames too.
pub const ALL: u16 = 0x0003;
/// IPv4, incoming only.
pub const IPV4: u16 = 0x0800;
/// IPv6, incoming only.
pub const IPV6: u16 = 0x86dd;

/// The virtio-net header of a packet socket has no `num_buffers`.
const HEADER: usize = VNET_HDR_LEN - 2;

/// A packet socket on a host's interface, whose frames come with a virtio-net header.
#[derive(Debug)]
pub struct PacketSocket {
    socket: OwnedFd,
}

impl PacketSocket {
    /// Sees frames of one EtherType from now on.
    pub fn open(host: &Host, ethertype: u16) -> PacketSocket {
        let index = host.index();
        let socket = host.run(|| {
            // Protocol 0: nothing is received before it is bound.
            rustix::net::socket_with(
                AddressFamily::PACKET,
                SocketType::RAW,
                SocketFlags::CLOEXEC,
                None,
            )
        });
        let socket = socket.expect("a packet socket");
        sys::set_option(&socket, libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1);
        set_socket_recv_buffer_size_force(&socket, 32 << 20).expect("a receive buffer");
        sys::bind_packet(&socket, index, ethertype);
        PacketSocket { socket }
    }

    /// Sends one frame with this header.
    ///
    /// # Errors
    /// What the kernel says if it refuses the frame or its header.
    pub fn send(&self, header: VnetHeader, frame: &[u8]) -> io::Result<()> {
        let mut bytes = header.to_bytes()[..HEADER].to_vec();
        bytes.extend(frame);
        let n = rustix::net::send(&self.socket, &bytes, SendFlags::empty())?;
        assert_eq!(n, bytes.len(), "a frame was sent in part");
        Ok(())
    }

    /// The next frame; `None` if none comes within `limit`.
    pub fn receive(&self, limit: Duration) -> Option<(VnetHeader, Vec<u8>)> {
        // Zero would mean to wait for ever.
        let limit = limit.max(Duration::from_millis(1));
        set_socket_timeout(&self.socket, Timeout::Recv, Some(limit)).expect("a time limit");
        let mut bytes = vec![0; 1 << 17];
        let n = match rustix::net::recv(&self.socket, &mut bytes[..], RecvFlags::empty()) {
            Ok((n, _)) => n,
            Err(rustix::io::Errno::AGAIN) => return None,
            Err(e) => panic!("receiving frames: {e}"),
        };
        let mut header = [0; VNET_HDR_LEN];
        header[..HEADER].copy_from_slice(&bytes[..HEADER]);
        Some((VnetHeader::from_bytes(&header), bytes[HEADER..n].to_vec()))
    }

    /// The frames that wait to be received.
    pub fn drain(&self) -> Vec<(VnetHeader, Vec<u8>)> {
        std::iter::from_fn(|| self.receive(Duration::ZERO)).collect()
    }
}
