//! One of the demo's hosts: an anonymous network namespace with one interface. Nothing names it,
//! so the kernel removes it with its last socket, also when the process is killed.

use std::io;
use std::net::Ipv4Addr;

use softnet_io::Netns;

/// A network namespace and the address that its interface has.
#[derive(Debug)]
pub(crate) struct Host {
    /// Where its sockets are opened.
    pub netns: Netns,
    /// The address of its interface.
    pub address: Ipv4Addr,
}

impl Host {
    /// Opens sockets in this host: `f` runs on a thread in the namespace, and what it opens stays
    /// there.
    pub(crate) fn open<T: Send>(&self, f: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        self.netns.run(f).map_err(io::Error::other)?
    }
}
