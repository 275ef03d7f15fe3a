//! The driver `tap` in an engine: a device is made when its port is opened, with the address and
//! the MTU of the link, and has a carrier while the link is up.

use softnet_engine::{Opened, Settings};

use super::{Buffers, OpenError, Tap, TapConfig, TapRx, TapTx};
use crate::driver::{Driver, ETHERNET_MTUS};
use crate::{InterfaceAddress, LinkError, Links, Netns, NetnsError};

/// A kernel TAP device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapSpec {
    /// Name of the interface, which stays when the link is renamed.
    pub interface: String,
    /// Name of the network namespace the device is put into; ours if none.
    pub netns: Option<String>,
    /// Addresses of the interface.
    pub addresses: Vec<InterfaceAddress>,
}

impl TapSpec {
    /// A device in our namespace, without an address.
    pub fn new(interface: impl Into<String>) -> TapSpec {
        TapSpec {
            interface: interface.into(),
            netns: None,
            addresses: Vec::new(),
        }
    }

    fn namespace(&self) -> Result<Option<Netns>, NetnsError> {
        self.netns.as_deref().map(Netns::named).transpose()
    }
}

/// A TAP device cannot be opened or changed.
#[derive(Debug, thiserror::Error)]
pub enum TapError {
    /// The namespace.
    #[error(transparent)]
    Netns(#[from] NetnsError),
    /// The device.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The settings of the interface.
    #[error(transparent)]
    Link(#[from] LinkError),
}

impl Driver for TapSpec {
    type Rx = TapRx;
    type Tx = TapTx;
    type Error = TapError;

    const KIND: Option<&'static str> = Some("tun");
    const IS_OF_HOST: bool = true;
    const NO_QUEUE: bool = false;
    const MTUS: (u32, u32) = ETHERNET_MTUS;

    fn open(
        &self,
        settings: &Settings,
        queues: usize,
        buffers: &Buffers,
    ) -> Result<Opened<TapRx, TapTx>, TapError> {
        let config = TapConfig {
            queues,
            mtu: settings.mtu,
            mac: settings.address,
            carrier: settings.up,
            addresses: self.addresses.clone(),
            netns: self.namespace()?,
            ..TapConfig::new(&self.interface)
        };
        let Tap {
            rx, tx, features, ..
        } = Tap::open(&config, buffers)?;
        Ok(Opened { rx, tx, features })
    }

    fn change(&self, before: &Settings, after: &Settings) -> Result<(), TapError> {
        let parts = |settings: &Settings| (settings.mtu, settings.address, settings.up);
        if parts(before) == parts(after) {
            return Ok(());
        }
        let change = || -> Result<(), LinkError> {
            let mut links = Links::open()?;
            let index = links.index(&self.interface)?;
            let changed = follow(&mut links, index, before, after);
            if changed.is_err() {
                // What was changed goes back. The first error is the one that says why.
                let _ = follow(&mut links, index, after, before);
            }
            changed
        };
        match self.namespace()? {
            Some(netns) => netns.run(change)??,
            None => change()?,
        }
        Ok(())
    }

    fn conflicts(&self, other: &TapSpec) -> bool {
        (&self.interface, &self.netns) == (&other.interface, &other.netns)
    }

    fn of_kind(kind: &str, name: &str) -> Option<TapSpec> {
        matches!(kind, "tun" | "tap").then(|| TapSpec::new(name))
    }
}

/// Gives an interface the settings that differ.
fn follow(
    links: &mut Links,
    index: u32,
    before: &Settings,
    after: &Settings,
) -> Result<(), LinkError> {
    if before.mtu != after.mtu {
        links.set_mtu(index, after.mtu)?;
    }
    if let Some(address) = after.address
        && before.address != after.address
    {
        links.set_mac(index, address.0)?;
    }
    if before.up != after.up {
        links.set_carrier(index, after.up)?;
    }
    Ok(())
}
