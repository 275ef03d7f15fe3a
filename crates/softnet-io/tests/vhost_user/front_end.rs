//! Front ends: that of the `vhost` crate, and one that says anything.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use softnet_tests::guest::{FrontEnd, Guest};
use vhost::vhost_user::message::{
    VhostUserHeaderFlag, VhostUserProtocolFeatures, VhostUserVirtioFeatures,
};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vmm_sys_util::eventfd::EventFd;

pub(crate) const VERSION_1: u64 = 1 << 32;
pub(crate) const MRG_RXBUF: u64 = 1 << 15;
pub(crate) const RING_PACKED: u64 = 1 << 34;

pub(crate) fn regions(guest: &Guest) -> [VhostUserMemoryRegionInfo; 2] {
    guest.regions().map(|spec| VhostUserMemoryRegionInfo {
        guest_phys_addr: spec.guest,
        memory_size: spec.len,
        userspace_addr: spec.user,
        mmap_offset: spec.offset,
        mmap_handle: guest.file().as_raw_fd(),
    })
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
    let [descriptors, available, used] = guest.addresses(number);
    let size = guest.config().size;
    front_end.set_vring_num(number, size).expect("a size");
    front_end.set_vring_base(number, 0).expect("a base");
    let config = VringConfigData {
        queue_max_size: size,
        queue_size: size,
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
        .set_vring_call(number, &event(guest.call_file(number)))
        .expect("a call");
    front_end
        .set_vring_kick(number, &event(guest.kick_file(number)))
        .expect("a kick");
    front_end.set_vring_enable(number, true).expect("enabled");
}

/// A guest with all of its rings running.
pub(crate) fn connect(path: &Path, guest: &Guest, features: u64) -> Frontend {
    start_all(
        negotiate(path, 2 * guest.config().pairs as u64, features),
        guest,
    )
}

/// The same over a connection that is there.
pub(crate) fn connect_stream(socket: UnixStream, guest: &Guest) -> Frontend {
    let rings = 2 * guest.config().pairs as u64;
    start_all(agree(Frontend::from_stream(socket, rings), 0), guest)
}

fn start_all(mut front_end: Frontend, guest: &Guest) -> Frontend {
    front_end.set_mem_table(&regions(guest)).expect("memory");
    for number in 0..2 * guest.config().pairs {
        start(&mut front_end, guest, number);
    }
    front_end
}

/// Connects with a front end that says what a test wants it to, in any order.
pub(crate) fn silent(path: &Path) -> FrontEnd {
    let socket = UnixStream::connect(path).expect("a port");
    FrontEnd::silent(socket).expect("a socket")
}

/// Sends a request that is not answered.
pub(crate) fn say(
    front_end: &mut FrontEnd,
    number: u32,
    payload: &[u8],
    files: &[BorrowedFd<'_>],
) {
    front_end.send(number, payload, files).expect("a port");
}

/// Asks for a number.
pub(crate) fn ask(front_end: &mut FrontEnd, number: u32) -> u64 {
    let answer = front_end.ask(number, &[]).expect("an answer");
    u64::from_ne_bytes(answer.try_into().expect("8 bytes"))
}
