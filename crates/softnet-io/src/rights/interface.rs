//! Settings of an interface that a port has made.

use std::os::fd::OwnedFd;

use serde::{Deserialize, Serialize};
use softnet::wire::EthernetAddress;
use softnet_engine::Settings;

use super::{Ledger, Performed, Privileged};
use crate::{LinkError, Links, Netns, NetnsError};

/// Gives an interface other settings, all or none.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    interface: String,
    before: Values,
    after: Values,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Values {
    mtu: u32,
    mac: Option<[u8; 6]>,
    carrier: bool,
}

impl From<&Settings> for Values {
    fn from(settings: &Settings) -> Values {
        Values {
            mtu: settings.mtu,
            mac: settings.address.map(|EthernetAddress(bytes)| bytes),
            carrier: settings.up,
        }
    }
}

/// Why the settings are as they were.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// The namespace.
    #[error(transparent)]
    Netns(#[from] NetnsError),
    /// The kernel.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// No port of this process made it.
    #[error("the interface '{0}' is not one that a port made")]
    NotOurs(String),
}

impl Change {
    /// The change from some settings of a link to others; `None` if the interface has none that
    /// differ.
    pub(crate) fn new(interface: &str, before: &Settings, after: &Settings) -> Option<Change> {
        let (before, after) = (Values::from(before), Values::from(after));
        (before != after).then(|| Change {
            interface: interface.to_owned(),
            before,
            after,
        })
    }
}

impl Privileged for Change {
    type Answer = ();
    type Error = ChangeError;

    fn perform(self, _: Vec<OwnedFd>, ledger: &Ledger) -> Performed<(), ChangeError> {
        let mut links = Links::open()?;
        let index = links.index(&self.interface)?;
        if !ledger.has_interface(here()?, index) {
            return Err(ChangeError::NotOurs(self.interface));
        }
        let changed = follow(&mut links, index, self.before, self.after);
        if changed.is_err() {
            // What was changed goes back. The first error is the one that says why.
            let _ = follow(&mut links, index, self.after, self.before);
        }
        changed?;
        Ok(((), Vec::new()))
    }
}

/// The number of the calling thread's network namespace.
pub(crate) fn here() -> Result<u64, NetnsError> {
    let id = Netns::current()?.id();
    id.map_err(NetnsError::Enter)
}

/// Gives an interface the settings that differ.
fn follow(links: &mut Links, index: u32, before: Values, after: Values) -> Result<(), LinkError> {
    if before.mtu != after.mtu {
        links.set_mtu(index, after.mtu)?;
    }
    if let Some(address) = after.mac
        && before.mac != after.mac
    {
        links.set_mac(index, address)?;
    }
    if before.carrier != after.carrier {
        links.set_carrier(index, after.carrier)?;
    }
    Ok(())
}
