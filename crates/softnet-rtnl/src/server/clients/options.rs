//! Options of a client's socket.

use zerocopy::FromBytes;

use super::{Clients, Peer, group_bit};
use crate::nl::{Errno, Error, Request};

/// `struct` behind the header of [`OPTION`](crate::server::OPTION).
#[derive(Clone, Copy, Debug, FromBytes)]
#[repr(C)]
struct SetOption {
    /// Whose option it is; 0: the sender's.
    port: u32,
    /// `NETLINK_*`, as in `setsockopt(SOL_NETLINK)`.
    option: u32,
    value: u32,
}

impl Clients {
    /// The effect of `setsockopt(SOL_NETLINK)`. Every client gets extended and capped
    /// acknowledgments, so these options change nothing.
    pub(super) fn set_option(&mut self, key: u64, request: &Request<'_>) -> Result<(), Error> {
        let (set, _) = SetOption::read_from_prefix(request.payload())
            .map_err(|_| Error::new(Errno::EINVAL))?;
        let asks = self.connections.get(&key).map(|asks| Peer {
            port: Some(set.port),
            uid: asks.uid,
            may_change: asks.client.may_change,
            own: asks.client.own,
        });
        let target = match set.port {
            0 => Some(key),
            _ => asks.and_then(|asks| self.holder(&asks)),
        };
        let target = target.and_then(|target| self.connections.get_mut(&target));
        let target = target.ok_or(Error::new(Errno::ECONNREFUSED))?;
        if asks.is_none_or(|asks| asks.uid != target.uid && asks.uid != 0) {
            return Err(Error::new(Errno::EPERM));
        }
        let on = set.value != 0;
        match i32::try_from(set.option) {
            Ok(libc::NETLINK_ADD_MEMBERSHIP) => target.groups |= member_bit(set.value)?,
            Ok(libc::NETLINK_DROP_MEMBERSHIP) => target.groups &= !member_bit(set.value)?,
            Ok(libc::NETLINK_NO_ENOBUFS) => target.silent_loss = on,
            Ok(libc::NETLINK_GET_STRICT_CHK) => target.client.strict = on,
            Ok(libc::NETLINK_CAP_ACK | libc::NETLINK_EXT_ACK) => {}
            _ => return Err(Error::new(Errno::ENOPROTOOPT)),
        }
        Ok(())
    }
}

fn member_bit(group: u32) -> Result<u64, Error> {
    group_bit(group).ok_or(Error::new(Errno::EINVAL))
}
