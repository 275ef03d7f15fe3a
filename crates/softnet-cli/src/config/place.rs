//! Places where the daemon listens for who collects metrics.

use std::net::SocketAddr;
use std::path::PathBuf;

/// A place where metrics are to be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl Place {
    /// An address with a port, or the path of a socket.
    pub(crate) fn parse(text: &str) -> Result<Place, String> {
        if text.contains('/') {
            return Ok(Place::Unix(text.into()));
        }
        let address = text.parse().map_err(|_| {
            format!(
                "{text:?} is no address with a port, like 127.0.0.1:9090 or [::1]:9090, and no \
                 path (which has a /)"
            )
        });
        address.map(Place::Tcp)
    }

    /// The text that [`parse`](Place::parse) reads; none if a path is no text.
    pub(crate) fn text(&self) -> Option<String> {
        match self {
            Place::Tcp(address) => Some(address.to_string()),
            Place::Unix(path) => path.to_str().map(str::to_owned),
        }
    }
}
