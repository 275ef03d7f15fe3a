//! Front ends: that of the `vhost` crate, and one that sends any bytes in any order.

use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use vhost::vhost_user::message::{
    VhostUserHeaderFlag, VhostUserProtocolFeatures, VhostUserVirtioFeatures,
};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vmm_sys_util::eventfd::EventFd;

use crate::guest::{GUEST, Guest, LEN, SIZE, USER, addresses, spec};

pub(crate) const VERSION_1: u64 = 1 << 32;
pub(crate) const MRG_RXBUF: u64 = 1 << 15;
pub(crate) const RING_PACKED: u64 = 1 << 34;

pub(crate) fn region(guest: &Guest) -> VhostUserMemoryRegionInfo {
    VhostUserMemoryRegionInfo {
        guest_phys_addr: GUEST,
        memory_size: LEN,
        userspace_addr: USER,
        mmap_offset: 0,
        mmap_handle: guest.file.as_raw_fd(),
    }
}

/// The `vhost` crate's event descriptor for one of ours.
pub(crate) fn event(fd: BorrowedFd<'_>) -> EventFd {
    let fd = fd.try_clone_to_owned().expect("a descriptor");
    // SAFETY: owned, and an eventfd.
    unsafe { EventFd::from_raw_fd(fd.into_raw_fd()) }
}

/// Connects with the `vhost` crate and negotiates; each request is acknowledged. (It takes the
/// number of queues for that of rings, so it is not asked for here.)
pub(crate) fn negotiate(path: &Path, rings: u64, features: u64) -> Frontend {
    agree(Frontend::connect(path, rings).expect("a port"), features)
}

fn agree(mut front_end: Frontend, features: u64) -> Frontend {
    let offered = front_end.get_features().expect("features");
    let bits = VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits() | VERSION_1 | features;
    assert_eq!(offered & bits, bits, "{offered:#x}");
    let protocol = front_end.get_protocol_features().expect("features");
    let wanted = VhostUserProtocolFeatures::MQ
        | VhostUserProtocolFeatures::REPLY_ACK
        | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS;
    assert!(protocol.contains(wanted), "{protocol:?}");
    front_end
        .set_protocol_features(wanted)
        .expect("acknowledged");
    front_end.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
    front_end.set_owner().expect("acknowledged");
    front_end.set_features(bits).expect("acknowledged");
    front_end
}

/// Sets up a ring and starts it. It never knows where the ring is.
pub(crate) fn start(front_end: &mut Frontend, guest: &Guest, number: usize) {
    let ring = &guest.rings[number];
    let [descriptors, available, used] = addresses(number as u64);
    front_end.set_vring_num(number, SIZE).expect("a size");
    front_end.set_vring_base(number, 0).expect("a base");
    let config = VringConfigData {
        queue_max_size: SIZE,
        queue_size: SIZE,
        flags: 0,
        desc_table_addr: descriptors,
        used_ring_addr: used,
        avail_ring_addr: available,
        log_addr: None,
    };
    front_end
        .set_vring_addr(number, &config)
        .expect("addresses");
    front_end
        .set_vring_call(number, &event(ring.call.as_fd()))
        .expect("a call");
    front_end
        .set_vring_kick(number, &event(ring.kick.as_fd()))
        .expect("a kick");
    front_end.set_vring_enable(number, true).expect("enabled");
}

/// A guest with all of its rings running.
pub(crate) fn connect(path: &Path, guest: &Guest, features: u64) -> Frontend {
    start_all(negotiate(path, guest.rings.len() as u64, features), guest)
}

/// The same over a connection that is there.
pub(crate) fn connect_stream(socket: UnixStream, guest: &Guest) -> Frontend {
    let rings = guest.rings.len() as u64;
    start_all(agree(Frontend::from_stream(socket, rings), 0), guest)
}

fn start_all(mut front_end: Frontend, guest: &Guest) -> Frontend {
    front_end.set_mem_table(&[region(guest)]).expect("memory");
    for number in 0..guest.rings.len() {
        start(&mut front_end, guest, number);
    }
    front_end
}

/// A connection that carries any bytes.
pub(crate) struct Raw(pub(crate) UnixStream);

impl Raw {
    pub(crate) fn connect(path: &Path) -> Raw {
        let socket = UnixStream::connect(path).expect("a port");
        let timeout = Some(Duration::from_secs(10));
        socket.set_read_timeout(timeout).expect("a timeout");
        Raw(socket)
    }

    /// Sends bytes with files. False: nobody reads them any more.
    pub(crate) fn bytes(&self, bytes: &[u8], files: &[BorrowedFd<'_>]) -> bool {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(files)));
        }
        let slice = [IoSlice::new(bytes)];
        sendmsg(&self.0, &slice, &mut control, SendFlags::NOSIGNAL).is_ok()
    }

    /// Sends a request of version 1.
    pub(crate) fn request(&self, number: u32, payload: &[u8], files: &[BorrowedFd<'_>]) -> bool {
        self.bytes(&message(number, 1, payload), files)
    }

    /// Sends a request whose payload are two numbers of 32 bits.
    pub(crate) fn ring(&self, number: u32, ring: u32, value: u32) -> bool {
        let payload = [ring.to_ne_bytes(), value.to_ne_bytes()].concat();
        self.request(number, &payload, &[])
    }

    /// Reads an answer of 64 bits.
    pub(crate) fn answer(&mut self) -> u64 {
        let mut answer = [0; 20];
        self.0.read_exact(&mut answer).expect("an answer");
        u64::from_ne_bytes(answer[12..].try_into().expect("8 bytes"))
    }

    /// Waits until the port has closed the connection.
    pub(crate) fn closed(mut self) {
        let mut rest = Vec::new();
        match self.0.read_to_end(&mut rest) {
            Ok(_) => {}
            Err(e) => assert_eq!(e.kind(), std::io::ErrorKind::ConnectionReset, "{e}"),
        }
    }
}

/// A message.
pub(crate) fn message(number: u32, flags: u32, payload: &[u8]) -> Vec<u8> {
    let header = [number, flags, payload.len() as u32].map(u32::to_ne_bytes);
    [&header.concat()[..], payload].concat()
}

/// The payload of a memory table with the guest's region.
pub(crate) fn table() -> Vec<u8> {
    let spec = spec();
    let region = [1, spec.guest, spec.len, spec.user, spec.offset];
    region.map(u64::to_ne_bytes).concat()
}

/// The payload with the addresses of a ring.
pub(crate) fn ring_addresses(ring: u64) -> Vec<u8> {
    let [descriptors, available, used] = addresses(ring);
    [ring, descriptors, used, available, 0]
        .map(u64::to_ne_bytes)
        .concat()
}
