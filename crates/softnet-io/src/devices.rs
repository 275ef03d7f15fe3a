//! The drivers as the control object opens them.

use std::io;

use softnet_engine::control::{Devices, Opened, Settings};

use crate::tap::OpenError;
use crate::vhost_user::{SocketSpec, VhostUserError};
use crate::{
    Buffers, InterfaceAddress, LinkError, Links, Netns, NetnsError, Null, PortRx, PortTx, Tap,
    TapConfig, VhostUser,
};

/// A driver and its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceSpec {
    /// A kernel TAP device, made when the port is opened, with the address and the MTU of the
    /// link.
    Tap {
        /// The interface's name, which stays when the link is renamed.
        interface: String,
        /// Name of the network namespace the device is put into; ours if none.
        netns: Option<String>,
        /// The interface's addresses.
        addresses: Vec<InterfaceAddress>,
    },
    /// A virtual machine's network device.
    VhostUser(SocketSpec),
    /// Swallows what is sent, receives nothing.
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
                    mac: Some(settings.address),
                    addresses: addresses.clone(),
                    netns,
                    ..TapConfig::new(interface)
                };
                let tap = Tap::open(&config, &self.buffers)?;
                Ok(Opened {
                    rx: tap.rx.into_iter().map(PortRx::from).collect(),
                    tx: tap.tx.into_iter().map(PortTx::from).collect(),
                    features: tap.features,
                })
            }
            DeviceSpec::VhostUser(socket) => {
                let port = VhostUser::open(socket, queues, settings.mtu, &self.buffers)?;
                Ok(Opened {
                    rx: port.rx.into_iter().map(PortRx::from).collect(),
                    tx: port.tx.into_iter().map(PortTx::from).collect(),
                    features: port.features,
                })
            }
            DeviceSpec::Null => {
                let null = Null::open(queues, settings.mtu).map_err(DeviceError::Null)?;
                Ok(Opened {
                    rx: null.rx.into_iter().map(PortRx::from).collect(),
                    tx: null.tx.into_iter().map(PortTx::from).collect(),
                    features: null.features,
                })
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
        if (before.mtu, before.address) == (after.mtu, after.address) {
            return Ok(());
        }
        let change = || -> Result<(), LinkError> {
            let mut links = Links::open()?;
            let index = links.index(interface)?;
            if before.mtu != after.mtu {
                links.set_mtu(index, after.mtu)?;
            }
            if before.address != after.address {
                let changed = links.set_mac(index, after.address.0);
                if changed.is_err() && before.mtu != after.mtu {
                    links.set_mtu(index, before.mtu)?;
                }
                changed?;
            }
            Ok(())
        };
        match netns.as_deref().map(Netns::named).transpose()? {
            Some(netns) => netns.run(change)??,
            None => change()?,
        }
        Ok(())
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
