//! The drivers as an engine opens them.

use std::io;

use softnet::tx::Features;
use softnet_engine::{Devices, Opened, Settings};

use crate::tap::OpenError;
use crate::vhost_user::{VhostUserError, VhostUserSpec};
use crate::{
    Buffers, InterfaceAddress, LinkError, Links, Netns, NetnsError, Null, PortRx, PortTx, Tap,
    TapConfig, VhostUser,
};

/// A driver and its parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DeviceSpec {
    /// A kernel TAP device, made when the port is opened, with the address and the MTU of the
    /// link. It has a carrier while the link is up.
    Tap {
        /// The interface's name, which stays when the link is renamed.
        interface: String,
        /// Name of the network namespace the device is put into; ours if none.
        netns: Option<String>,
        /// The interface's addresses.
        addresses: Vec<InterfaceAddress>,
    },
    /// A virtual machine's network device.
    VhostUser(VhostUserSpec),
    /// Swallows what is sent, receives nothing.
    #[default]
    Null,
}

/// Why a device cannot be opened or changed.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// Its namespace.
    #[error(transparent)]
    Netns(#[from] NetnsError),
    /// Its TAP device.
    #[error(transparent)]
    Tap(#[from] OpenError),
    /// Its vhost-user socket.
    #[error(transparent)]
    VhostUser(#[from] VhostUserError),
    /// Its interface's settings.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// Its files.
    #[error("cannot open a null port")]
    Null(#[source] io::Error),
}

/// Opens every driver of this crate.
#[derive(Debug)]
pub struct PortDevices {
    /// Where received frames go.
    pub buffers: Buffers,
}

/// The queues of a driver as those of any.
fn opened<Q: Into<PortRx>, R: Into<PortTx>>(
    rx: Vec<Q>,
    tx: Vec<R>,
    features: Features,
) -> Opened<PortRx, PortTx> {
    Opened {
        rx: rx.into_iter().map(Into::into).collect(),
        tx: tx.into_iter().map(Into::into).collect(),
        features,
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

impl Devices for PortDevices {
    type Rx = PortRx;
    type Tx = PortTx;
    type Spec = DeviceSpec;
    type Error = DeviceError;

    fn open(
        &self,
        spec: &DeviceSpec,
        settings: &Settings,
        queues: usize,
    ) -> Result<Opened<PortRx, PortTx>, DeviceError> {
        match spec {
            DeviceSpec::Tap {
                interface,
                netns,
                addresses,
            } => {
                let netns = netns.as_deref().map(Netns::named).transpose()?;
                let config = TapConfig {
                    queues,
                    mtu: settings.mtu,
                    mac: settings.address,
                    carrier: settings.up,
                    addresses: addresses.clone(),
                    netns,
                    ..TapConfig::new(interface)
                };
                let tap = Tap::open(&config, &self.buffers)?;
                Ok(opened(tap.rx, tap.tx, tap.features))
            }
            DeviceSpec::VhostUser(spec) => {
                let port = VhostUser::open(spec, queues, settings.mtu, &self.buffers)?;
                Ok(opened(port.rx, port.tx, port.features))
            }
            DeviceSpec::Null => {
                let null = Null::open(queues, settings.mtu).map_err(DeviceError::Null)?;
                Ok(opened(null.rx, null.tx, null.features))
            }
        }
    }

    fn change(
        &self,
        spec: &DeviceSpec,
        before: &Settings,
        after: &Settings,
    ) -> Result<(), DeviceError> {
        let DeviceSpec::Tap {
            interface, netns, ..
        } = spec
        else {
            return Ok(());
        };
        let parts = |settings: &Settings| (settings.mtu, settings.address, settings.up);
        if parts(before) == parts(after) {
            return Ok(());
        }
        let change = || -> Result<(), LinkError> {
            let mut links = Links::open()?;
            let index = links.index(interface)?;
            let changed = follow(&mut links, index, before, after);
            if changed.is_err() {
                // What was changed goes back. The first error is the one that says why.
                let _ = follow(&mut links, index, after, before);
            }
            changed
        };
        match netns.as_deref().map(Netns::named).transpose()? {
            Some(netns) => netns.run(change)??,
            None => change()?,
        }
        Ok(())
    }

    fn conflict(&self, one: &DeviceSpec, other: &DeviceSpec) -> bool {
        use DeviceSpec::{Null, Tap, VhostUser};
        match (one, other) {
            (
                Tap {
                    interface, netns, ..
                },
                Tap {
                    interface: other,
                    netns: of_other,
                    ..
                },
            ) => (interface, netns) == (other, of_other),
            (VhostUser(one), VhostUser(other)) => one.socket.path == other.socket.path,
            (Tap { .. } | VhostUser(_) | Null, _) => false,
        }
    }

    fn of_kind(&self, kind: &str, name: &str) -> Option<DeviceSpec> {
        match kind {
            "dummy" => Some(DeviceSpec::Null),
            "tun" | "tap" => Some(DeviceSpec::Tap {
                interface: name.to_owned(),
                netns: None,
                addresses: Vec::new(),
            }),
            _ => None,
        }
    }

    fn is_of_host(&self, spec: &DeviceSpec) -> bool {
        matches!(spec, DeviceSpec::Tap { .. })
    }

    fn kind(&self, spec: &DeviceSpec) -> Option<&'static str> {
        match spec {
            DeviceSpec::Tap { .. } => Some("tun"),
            DeviceSpec::VhostUser(_) => None,
            DeviceSpec::Null => Some("dummy"),
        }
    }

    fn no_queue(&self, spec: &DeviceSpec) -> bool {
        matches!(spec, DeviceSpec::Null)
    }

    fn mtus(&self, _: &DeviceSpec) -> (u32, u32) {
        /// The longest IP packet of an Ethernet frame of 65,535 bytes.
        const MOST: u32 = 65_521;
        (68, MOST)
    }
}
