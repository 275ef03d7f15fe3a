//! The driver `tap` in an engine: a device is made when its port is opened, with the address and
//! the MTU of the link, and has a carrier while the link is up.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};

use softnet_engine::{Opened, Settings};

use super::make::{Device, Make, own_file};
use super::rx::longest_frame;
use super::{Buffers, OpenError, Tap, TapConfig, TapRx, TapSource, TapTx};
use crate::driver::Driver;
use crate::hand_off::{Continued, HandOff};
use crate::inherited::inherited_number;
use crate::rights::{self, AskError, Change, ChangeError, Subject};
use crate::{InterfaceAddress, InterfaceRoute, NetnsSpec};

/// A kernel TAP device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapSpec {
    /// Name of the interface, which stays when the link is renamed.
    pub interface: String,
    /// Network namespace the device is put into; ours if none.
    pub netns: Option<NetnsSpec>,
    /// Addresses of the interface.
    pub addresses: Vec<InterfaceAddress>,
    /// Routers of the default routes through it.
    pub gateways: Vec<IpAddr>,
    /// Other routes through it.
    pub routes: Vec<InterfaceRoute>,
    /// The device is there, and its interface stays as it is.
    pub attach: bool,
    /// A file of this process that is the queue of a device that is there.
    pub file: Option<TapFile>,
}

/// A file that this process was started with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TapFile {
    /// The one of this number.
    Number(i32),
    /// The first of this name (`$LISTEN_FDNAMES`).
    Name(String),
}

impl TapSpec {
    /// A device in our namespace, without an address.
    pub fn new(interface: impl Into<String>) -> TapSpec {
        TapSpec {
            interface: interface.into(),
            netns: None,
            addresses: Vec::new(),
            gateways: Vec::new(),
            routes: Vec::new(),
            attach: false,
            file: None,
        }
    }

    fn config(&self, settings: &Settings, queues: usize, source: TapSource) -> TapConfig {
        let defaults = self.gateways.iter().copied();
        let defaults = defaults.map(InterfaceRoute::default_by);
        TapConfig {
            queues,
            mtu: settings.mtu,
            mac: settings.address,
            carrier: settings.up,
            addresses: self.addresses.clone(),
            // In this order: a route may lead to the router.
            routes: self.routes.iter().copied().chain(defaults).collect(),
            source,
            ..TapConfig::new(&self.interface)
        }
    }

    /// The device, made or taken where the rights are.
    fn ask(
        &self,
        config: &TapConfig,
        buffers: &Buffers,
        files: &[BorrowedFd<'_>],
    ) -> Result<Tap, TapError> {
        let make = Make::new(config, longest_frame(buffers));
        let (made, files) = rights::ask(self.netns.as_ref(), make, files)?;
        let missing = || AskError::<OpenError>::Channel(io::ErrorKind::InvalidData.into());
        let device = Device::of(made, files).ok_or_else(missing)?;
        Ok(Tap::of(device, buffers))
    }

    /// Where the device comes from, with the file that goes along.
    fn source(&self) -> Result<(TapSource, Option<OwnedFd>), OpenError> {
        let number = match (&self.file, self.attach) {
            (None, true) => return Ok((TapSource::Attach, None)),
            (None, false) => return Ok((TapSource::Make, None)),
            (Some(TapFile::Number(number)), _) => *number,
            (Some(TapFile::Name(name)), _) => {
                inherited_number(name).ok_or_else(|| OpenError::NoFile(name.clone()))?
            }
        };
        Ok((TapSource::File(number), Some(own_file(number)?)))
    }

    /// True if the port makes the device.
    fn is_made(&self) -> bool {
        self.file.is_none() && !self.attach
    }
}

/// A TAP device cannot be opened or changed.
#[derive(Debug, thiserror::Error)]
pub enum TapError {
    /// The device.
    #[error(transparent)]
    Open(#[from] AskError<OpenError>),
    /// The settings of the interface.
    #[error(transparent)]
    Change(#[from] AskError<ChangeError>),
}

impl Driver for TapSpec {
    type Rx = TapRx;
    type Tx = TapTx;
    type Error = TapError;

    const KIND: Option<&'static str> = Some("tun");
    const IS_OF_HOST: bool = true;

    fn subjects(&self) -> Vec<Subject> {
        match self.file.is_none() && self.attach {
            true => {
                let interface = self.interface.clone();
                vec![Subject::Interface(self.netns.clone(), interface)]
            }
            false => Vec::new(),
        }
    }

    fn open(
        &self,
        settings: &Settings,
        queues: usize,
        buffers: &Buffers,
    ) -> Result<Opened<TapRx, TapTx>, TapError> {
        let (source, file) = self.source().map_err(AskError::Own)?;
        let config = self.config(settings, queues, source);
        let files: Vec<_> = file.iter().map(AsFd::as_fd).collect();
        let tap = self.ask(&config, buffers, &files)?;
        let Tap {
            rx, tx, features, ..
        } = tap;
        Ok(Opened { rx, tx, features })
    }

    fn continued(&self, opened: &Opened<TapRx, TapTx>) -> Option<Weak<dyn Continued>> {
        let queue = opened.tx.first()?;
        let link: Arc<dyn Continued> = queue.link().clone();
        Some(Arc::downgrade(&link))
    }

    fn resume(
        &self,
        settings: &Settings,
        queues: usize,
        buffers: &Buffers,
        handed: HandOff,
    ) -> Result<Opened<TapRx, TapTx>, TapError> {
        let source = TapSource::Handed {
            own: self.is_made(),
            named: self.file.is_none(),
        };
        let config = self.config(settings, queues, source);
        let files: Vec<_> = handed.files.iter().map(AsFd::as_fd).collect();
        let tap = self.ask(&config, buffers, &files)?;
        tap.link.count_from_now();
        let Tap {
            rx, tx, features, ..
        } = tap;
        Ok(Opened { rx, tx, features })
    }

    fn change(&self, before: &Settings, after: &Settings) -> Result<(), TapError> {
        if !self.is_made() {
            return Ok(());
        }
        if let Some(change) = Change::new(&self.interface, before, after) {
            rights::ask(self.netns.as_ref(), change, &[])?;
        }
        Ok(())
    }

    fn is_foreign(&self) -> bool {
        !self.is_made()
    }

    fn conflicts(&self, other: &TapSpec) -> bool {
        match (&self.file, &other.file) {
            (None, None) => (&self.interface, &self.netns) == (&other.interface, &other.netns),
            (one, other) => one == other,
        }
    }

    fn of_kind(kind: &str, name: &str) -> Option<TapSpec> {
        matches!(kind, "tun" | "tap").then(|| TapSpec::new(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_that_the_port_did_not_make_is_foreign() {
        let made = TapSpec::new("t");
        assert!(!made.is_foreign());
        let attached = TapSpec {
            attach: true,
            ..made.clone()
        };
        let passed = TapSpec {
            file: Some(TapFile::Number(3)),
            ..made
        };
        assert!(attached.is_foreign() && passed.is_foreign());
    }
}
