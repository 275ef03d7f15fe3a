//! Datagrams with the time at which the kernel got them: `SO_TIMESTAMPNS`, taken where a device
//! hands the packet to the stack, before any process is woken.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;

/// Space for the control message, aligned as the kernel wants it.
#[repr(C, align(8))]
struct Control([u8; 64]);

/// Makes the kernel stamp what arrives at `socket`.
pub(super) fn enable(socket: &UdpSocket) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the option's value is an int, which lives through the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_TIMESTAMPNS,
            (&raw const on).cast(),
            size_of_val(&on) as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Waits for a datagram; its length, and when the kernel got it, in nanoseconds of
/// `CLOCK_REALTIME` (None: it did not say).
pub(super) fn receive(socket: &UdpSocket, data: &mut [u8]) -> io::Result<(usize, Option<u64>)> {
    let mut control = Control([0; 64]);
    let mut part = libc::iovec {
        iov_base: data.as_mut_ptr().cast(),
        iov_len: data.len(),
    };
    // SAFETY: msghdr is plain data (integers and pointers), for which all zeroes is a value: no
    // name.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    header.msg_control = (&raw mut control).cast();
    header.msg_controllen = size_of_val(&control);
    // SAFETY: the header points at one buffer and one control area of the lengths it says, which
    // live through the call.
    let length = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, 0) };
    let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: the kernel has set the length of the control messages in the area that the header
    // points at.
    let mut message = unsafe { libc::CMSG_FIRSTHDR(&raw const header) };
    while !message.is_null() {
        // SAFETY: the macros return null or a message within the area.
        let (level, kind) = unsafe { ((*message).cmsg_level, (*message).cmsg_type) };
        if level == libc::SOL_SOCKET && kind == libc::SCM_TIMESTAMPNS {
            // SAFETY: a message of this type holds a timespec, not necessarily aligned.
            let time: libc::timespec = unsafe {
                libc::CMSG_DATA(message)
                    .cast::<libc::timespec>()
                    .read_unaligned()
            };
            return Ok((length, Some(nanoseconds(time))));
        }
        // SAFETY: as above.
        message = unsafe { libc::CMSG_NXTHDR(&raw const header, message) };
    }
    Ok((length, None))
}

fn nanoseconds(time: libc::timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    use super::*;

    fn now() -> u64 {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |t| t.as_nanos() as u64)
    }

    #[test]
    fn a_stamp_lies_between_sending_and_receiving() {
        let receiver = UdpSocket::bind("127.0.0.1:0").expect("there is a port");
        receiver
            .set_read_timeout(Some(Duration::from_secs(10)))
            .expect("it can be set");
        enable(&receiver).expect("the kernel has it");
        let sender = UdpSocket::bind("127.0.0.1:0").expect("there is a port");
        let to = receiver.local_addr().expect("it is bound");
        let mut data = [0; 16];
        // The kernel takes a moment to start stamping; until then it does so when the datagram is
        // taken.
        let stamped_on_arrival = (0..200).any(|_| {
            let before = now();
            sender.send_to(b"seven b", to).expect("it is sent");
            std::thread::sleep(Duration::from_millis(5));
            let (length, stamp) = receive(&receiver, &mut data).expect("it arrives");
            assert_eq!(&data[..length], b"seven b");
            let stamp = stamp.expect("it is stamped");
            assert!(before <= stamp && stamp <= now());
            stamp <= now() - 4_000_000
        });
        assert!(stamped_on_arrival);
    }
}
