//! The kernel's end of a TAP device: made and configured by whoever has the rights.

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use softnet::tx::Features;
use softnet::wire::{EthernetAddress, MAX_FRAME, VNET_HDR_LEN};

use super::{MAX_QUEUES, OpenError, TapConfig, TapSource, sys};
use crate::link_events::LinkEvents;
use crate::rights::{self, Ledger, Performed, Privileged, Subject};
use crate::userns::tun_hint;
use crate::{InterfaceAddress, InterfaceRoute, LinkError, Links, Netns, NetnsSpec};

/// An Ethernet header with two VLAN tags.
const ETHERNET: usize = 22;

/// Makes a TAP device.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Make {
    name: String,
    queues: usize,
    mtu: u32,
    mac: Option<[u8; 6]>,
    addresses: Vec<InterfaceAddress>,
    routes: Vec<InterfaceRoute>,
    offload: bool,
    tx_queue_len: u32,
    up: bool,
    carrier: bool,
    /// Bytes of the longest frame that can be received.
    longest_frame: usize,
    source: TapSource,
}

/// A device that was made.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Made {
    pub(super) name: String,
    pub(super) index: u32,
    /// The interface is up.
    pub(super) up: bool,
    mtu: u32,
    /// Bits of [`sys::offload`].
    offload: u32,
}

impl Made {
    /// Features of what may be written to the device.
    pub(super) fn features(&self) -> Features {
        use sys::offload::{CSUM, TSO_ECN, TSO4, TSO6, USO};
        let has = |bits| self.offload & bits != 0;
        Features {
            scatter_gather: true,
            mtu: self.mtu,
            checksum: has(CSUM),
            tso4: has(TSO4),
            tso6: has(TSO6),
            ecn: has(TSO_ECN),
            uso: has(USO),
        }
    }
}

/// Files of a device.
#[derive(Debug)]
pub(super) struct Files {
    /// For questions.
    pub(super) links: Links,
    /// Reports of changes.
    pub(super) events: LinkEvents,
    pub(super) queues: Vec<OwnedFd>,
}

/// The kernel's end, made and configured.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) made: Made,
    pub(super) files: Files,
}

impl Device {
    /// Facts and files from where it was made; `None` if files are missing.
    pub(super) fn of(made: Made, files: Vec<OwnedFd>) -> Option<Device> {
        let mut files = files.into_iter();
        let (links, events) = (files.next()?.into(), files.next()?.into());
        let files = Files {
            links,
            events,
            queues: files.collect(),
        };
        (!files.queues.is_empty()).then_some(Device { made, files })
    }
}

impl Privileged for Make {
    type Answer = Made;
    type Error = OpenError;

    fn subject(&self, place: Option<&NetnsSpec>) -> Option<Subject> {
        let attach = self.source == TapSource::Attach;
        attach.then(|| Subject::Interface(place.cloned(), self.name.clone()))
    }

    fn perform(self, files: Vec<OwnedFd>, ledger: &Ledger) -> Performed<Made, OpenError> {
        let source = self.source;
        let Device { made, files } = self.device(files)?;
        if matches!(
            source,
            TapSource::Make | TapSource::Handed { own: true, .. }
        ) {
            ledger.note_interface(rights::here()?, made.index);
        }
        let mut all = vec![files.links.into(), files.events.into()];
        all.extend(files.queues);
        Ok((made, all))
    }
}

impl Make {
    pub(super) fn new(config: &TapConfig, longest_frame: usize) -> Make {
        let TapConfig {
            name,
            queues,
            mtu,
            mac,
            addresses,
            routes,
            netns: _,
            offload,
            tx_queue_len,
            up,
            carrier,
            source,
        } = config.clone();
        Make {
            name,
            queues,
            mtu,
            mac: mac.map(|EthernetAddress(bytes)| bytes),
            addresses,
            routes,
            offload,
            tx_queue_len,
            up,
            carrier,
            longest_frame,
            source,
        }
    }

    fn check(&self) -> Result<(), OpenError> {
        if !sys::is_name(&self.name) {
            return Err(OpenError::BadName(self.name.clone()));
        }
        if !(1..=MAX_QUEUES).contains(&self.queues) {
            return Err(OpenError::BadQueues(self.queues));
        }
        let max = self.longest_frame.min(MAX_FRAME).saturating_sub(ETHERNET) as u32;
        if self.mtu > max {
            return Err(OpenError::BadMtu {
                name: self.name.clone(),
                mtu: self.mtu,
                max,
            });
        }
        // Settings are those of the interface that has the device's name here. That is the device
        // if it is here, which is asked of one that has the configured name.
        let unnamed = TapSource::Handed {
            own: true,
            named: false,
        };
        if self.source == unnamed {
            return Err(OpenError::OtherFiles(self.name.clone()));
        }
        Ok(())
    }

    /// In the calling thread's namespace. `handed` are the queues of a device that another process
    /// had, or the one that the process that asks was started with.
    pub(super) fn device(&self, handed: Vec<OwnedFd>) -> Result<Device, OpenError> {
        self.check()?;
        let mut parts = Parts {
            name: self.name.clone(),
            offload: 0,
            queues: Vec::with_capacity(self.queues),
        };
        match self.source {
            TapSource::Make => {
                for _ in 0..self.queues {
                    parts.add_queue(self)?;
                }
            }
            TapSource::Attach => parts.attach(self)?,
            TapSource::File(number) => parts.take_file(self, number, handed)?,
            TapSource::Handed { named, .. } => parts.take_handed(self, named, handed)?,
        }
        let configured = parts.configure(self);
        let (made, links, events) = configured.map_err(|source| OpenError::Configure {
            name: parts.name.clone(),
            source,
        })?;
        let files = Files {
            links,
            events,
            queues: parts.queues,
        };
        Ok(Device { made, files })
    }
}

/// A descriptor of its own for a file that this process was started with.
pub(super) fn own_file(number: i32) -> Result<OwnedFd, OpenError> {
    sys::duplicate(number).map_err(|_| OpenError::BadFile(number))
}

/// The kernel's end while it is made.
struct Parts {
    name: String,
    /// Bits of [`sys::offload`].
    offload: u32,
    queues: Vec<OwnedFd>,
}

impl Parts {
    fn add_queue(&mut self, make: &Make) -> Result<(), OpenError> {
        let fd = sys::open().map_err(|source| {
            let hint = tun_hint(&source);
            OpenError::Control { source, hint }
        })?;
        let mut flags = sys::TAP | sys::NO_PI | sys::VNET_HDR;
        if make.queues > 1 {
            flags |= sys::MULTI_QUEUE;
        }
        if self.queues.is_empty() {
            flags |= sys::EXCL;
        }
        self.name = sys::set_iff(fd.as_fd(), &self.name, flags).map_err(|e| match e {
            Errno::BUSY | Errno::EXIST => OpenError::Exists(self.name.clone()),
            Errno::PERM | Errno::ACCESS => OpenError::NotAllowed(self.name.clone()),
            e => self.refused("a queue", e),
        })?;
        self.finish(fd, make)
    }

    /// Takes queues of a device that is there.
    fn attach(&mut self, make: &Make) -> Result<(), OpenError> {
        let failed = |source| OpenError::Configure {
            name: make.name.clone(),
            source,
        };
        // The kernel would make one.
        if Links::open().map_err(failed)?.index(&make.name).is_err() {
            return Err(OpenError::Missing(make.name.clone()));
        }
        let flags = sys::TAP | sys::NO_PI | sys::VNET_HDR;
        // It must be said what it is.
        let (mut multi, other) = match make.queues {
            1 => (0, sys::MULTI_QUEUE),
            _ => (sys::MULTI_QUEUE, sys::MULTI_QUEUE),
        };
        for _ in 0..make.queues {
            let open = || {
                sys::open().map_err(|source| {
                    let hint = tun_hint(&source);
                    OpenError::Control { source, hint }
                })
            };
            let mut fd = open()?;
            let mut attached = sys::set_iff(fd.as_fd(), &make.name, flags | multi);
            if attached == Err(Errno::INVAL) && multi != other {
                multi = other;
                fd = open()?;
                attached = sys::set_iff(fd.as_fd(), &make.name, flags | multi);
            }
            attached.map_err(|e| match e {
                Errno::BUSY | Errno::TOOBIG => OpenError::InUse(make.name.clone()),
                Errno::INVAL => OpenError::OtherKind(make.name.clone()),
                Errno::PERM | Errno::ACCESS => OpenError::NotAllowed(make.name.clone()),
                e => self.refused("a queue", e),
            })?;
            self.finish(fd, make)?;
        }
        Ok(())
    }

    /// Takes the device of a file, which has this number in the process that asks.
    fn take_file(
        &mut self,
        make: &Make,
        number: i32,
        files: Vec<OwnedFd>,
    ) -> Result<(), OpenError> {
        if make.queues != 1 {
            return Err(OpenError::BadQueues(make.queues));
        }
        let bad = || OpenError::BadFile(number);
        let fd = files.into_iter().next().ok_or_else(bad)?;
        let (name, flags) = sys::get_iff(fd.as_fd()).map_err(|_| bad())?;
        let needed = sys::TAP | sys::NO_PI | sys::VNET_HDR;
        if flags & needed != needed {
            return Err(bad());
        }
        rustix::io::ioctl_fionbio(&fd, true).map_err(|_| bad())?;
        self.name = name;
        self.finish(fd, make)
    }

    /// Takes the queues that another process had.
    fn take_handed(
        &mut self,
        make: &Make,
        named: bool,
        files: Vec<OwnedFd>,
    ) -> Result<(), OpenError> {
        let other = || OpenError::OtherFiles(make.name.clone());
        let here = rights::here()?;
        let mut needed = sys::TAP | sys::NO_PI | sys::VNET_HDR;
        if make.queues > 1 {
            needed |= sys::MULTI_QUEUE;
        }
        if files.len() != make.queues {
            return Err(other());
        }
        for file in files {
            let (name, flags) = sys::get_iff(file.as_fd()).map_err(|_| other())?;
            let netns = sys::get_netns(file.as_fd()).map(Netns::from);
            let is_here = netns
                .and_then(|netns| netns.id())
                .is_ok_and(|id| id == here);
            let is_other = named && name != make.name || flags & needed != needed;
            if is_other || named && !is_here {
                return Err(other());
            }
            self.name = name;
            self.finish(file, make)?;
        }
        Ok(())
    }

    /// Agrees with the kernel on what crosses a queue.
    fn finish(&mut self, fd: OwnedFd, make: &Make) -> Result<(), OpenError> {
        sys::set_vnet_header_len(fd.as_fd(), VNET_HDR_LEN)
            .map_err(|e| self.refused("the length of the virtio-net header", e))?;
        sys::set_vnet_little_endian(fd.as_fd())
            .map_err(|e| self.refused("the byte order of the virtio-net header", e))?;
        self.negotiate(&fd, make.offload)?;
        self.queues.push(fd);
        Ok(())
    }

    /// Asks for as much offload as the kernel has. It is a property of the device; saying it for
    /// each queue does no harm.
    fn negotiate(&mut self, fd: &OwnedFd, wanted: bool) -> Result<(), OpenError> {
        use sys::offload::{CSUM, TSO_ECN, TSO4, TSO6, USO};
        let tcp = CSUM | TSO4 | TSO6 | TSO_ECN;
        let offers: &[u32] = if wanted {
            &[tcp | USO, tcp, CSUM, 0]
        } else {
            &[0]
        };
        for &bits in offers {
            match sys::set_offload(fd.as_fd(), bits) {
                Ok(()) => {
                    self.offload = bits;
                    return Ok(());
                }
                Err(Errno::INVAL) => {}
                Err(e) => return Err(self.refused("offload", e)),
            }
        }
        Err(self.refused("offload", Errno::INVAL))
    }

    /// The interface, configured, and sockets of its namespace.
    fn configure(&self, make: &Make) -> Result<(Made, Links, LinkEvents), LinkError> {
        let mut links = Links::open()?;
        let index = links.index(&self.name)?;
        match make.source {
            TapSource::Make => set_up(&mut links, index, make)?,
            TapSource::Handed { own: true, .. } => settle(&mut links, index, make)?,
            _ => {}
        }
        // First, so that no change is missed.
        let events = LinkEvents::open(index)?;
        let state = links.state(index)?;
        let made = Made {
            name: self.name.clone(),
            index,
            up: state.up,
            mtu: make.mtu,
            offload: self.offload,
        };
        // Another socket, which has asked nothing.
        Ok((made, Links::open()?, events))
    }

    fn refused(&self, what: &'static str, e: Errno) -> OpenError {
        OpenError::Refused {
            name: self.name.clone(),
            what,
            source: e.into(),
        }
    }
}

/// Has an interface that another process made follow the link's settings.
fn settle(links: &mut Links, index: u32, make: &Make) -> Result<(), LinkError> {
    // The kernel forgets neighbours even if the address is the same.
    if let Some(mac) = make.mac
        && links.mac(index)? != Some(mac)
    {
        links.set_mac(index, mac)?;
    }
    links.set_mtu(index, make.mtu)?;
    links.set_tx_queue_len(index, make.tx_queue_len)?;
    if make.longest_frame < MAX_FRAME {
        links.set_gso_max_size(index, make.longest_frame as u32)?;
    }
    links.set_carrier(index, make.carrier)
}

/// Gives an interface its settings, and takes it up.
fn set_up(links: &mut Links, index: u32, make: &Make) -> Result<(), LinkError> {
    if let Some(mac) = make.mac {
        links.set_mac(index, mac)?;
    }
    links.set_mtu(index, make.mtu)?;
    links.set_tx_queue_len(index, make.tx_queue_len)?;
    if make.longest_frame < MAX_FRAME {
        links.set_gso_max_size(index, make.longest_frame as u32)?;
    }
    for &address in &make.addresses {
        links.add_address(index, address)?;
    }
    // The kernel switches it on with each queue.
    if !make.carrier {
        links.set_carrier(index, false)?;
    }
    if make.up {
        links.set_up(index, true)?;
    }
    for &route in &make.routes {
        links.add_route(index, route)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device of another namespace may have the name of somebody's interface here.
    #[test]
    fn no_port_has_made_a_device_of_any_name() {
        let checked = |own, named| {
            let source = TapSource::Handed { own, named };
            let config = TapConfig {
                source,
                ..TapConfig::new("t0")
            };
            Make::new(&config, MAX_FRAME).check()
        };
        for (own, named) in [(true, true), (false, true), (false, false)] {
            checked(own, named).expect("what ports ask for");
        }
        assert!(matches!(
            checked(true, false),
            Err(OpenError::OtherFiles(name)) if name == "t0"
        ));
    }
}
