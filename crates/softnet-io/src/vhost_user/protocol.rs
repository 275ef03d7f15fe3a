//! The front end's messages so far, and the rings that follow from them.
//!
//! Messages are believed in any order: each is only noted, and after each the rings are made what
//! all of them together ask for ([`Protocol::apply`]). A ring runs when memory, features, size,
//! addresses and a kick are there. (QEMU, for one, enables rings before it sets features.)

mod replay;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use softnet_engine::LinkState;

pub use replay::{Messages, ReplayError};

use super::features::{PROTOCOL, extension, offered, taken, virtio};
use super::memory::{GuestMemory, MAX_REGIONS, MemoryError, Region, RegionSpec};
use super::message::{Request, RingAddresses, RingValue};
use super::port::{Port, SetupFailed};
use super::ring::{MAX_SIZE, RingConfig};
use super::running::Wanted;

/// A request of a front end that is not possible. The connection is closed.
#[derive(Debug, thiserror::Error)]
pub enum ProtocolError {
    /// Beyond what was offered.
    #[error("features {0:#x} were not offered")]
    Features(u64),
    /// There are not that many.
    #[error("ring {ring} of a port with {rings}: give the port more queues, or the guest fewer")]
    NoRing {
        /// The ring's number.
        ring: usize,
        /// Rings.
        rings: usize,
    },
    /// A number that is not possible.
    #[error("{what} of {value}")]
    BadValue {
        /// The quantity.
        what: &'static str,
        /// The number.
        value: u64,
    },
    /// Not an event descriptor: it could make a worker wait.
    #[error("the file of ring {0} is not an eventfd")]
    NotAnEvent(usize),
    /// A ring without a kick: it would have to be polled for ever.
    #[error("ring {0} without a kick")]
    NoKick(usize),
    /// Memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// A ring.
    #[error(transparent)]
    Setup(#[from] SetupFailed),
}

/// The front end's messages about a ring.
#[derive(Debug, Default)]
struct Ring {
    size: u16,
    addresses: Option<RingAddresses>,
    /// Where it is while it is not running.
    base: u32,
    /// There from the start of the ring until it is stopped.
    kick: Option<Arc<OwnedFd>>,
    call: Option<Arc<OwnedFd>>,
    enabled: Option<bool>,
}

/// The state of one connection.
#[derive(Debug)]
pub struct Protocol {
    port: Arc<Port>,
    /// Acknowledged.
    features: Option<u64>,
    protocol: u64,
    status: u64,
    /// 0: not said.
    mtu: u32,
    memory: Arc<GuestMemory>,
    /// Files of its regions, for a process that goes on with the connection.
    files: Vec<(RegionSpec, OwnedFd)>,
    /// Why regions are not part of `memory`.
    left_out: Option<MemoryError>,
    rings: Vec<Ring>,
}

impl Protocol {
    /// Nothing said yet.
    pub fn new(port: Arc<Port>) -> Protocol {
        let rings = (0..2 * port.pairs.len()).map(|_| Ring::default()).collect();
        Protocol {
            port,
            features: None,
            protocol: 0,
            status: 0,
            mtu: 0,
            memory: Arc::default(),
            files: Vec::new(),
            left_out: None,
            rings,
        }
    }

    /// True if requests are acknowledged when the front end asks for it.
    pub fn acknowledges(&self) -> bool {
        self.protocol & extension::REPLY_ACK != 0
    }

    /// Does what a message says. Returns the answer, to those that have one.
    ///
    /// # Errors
    /// If the front end asks for what cannot be: the connection is to be closed.
    pub fn handle(&mut self, request: Request) -> Result<Option<Vec<u8>>, ProtocolError> {
        let mut answer = None;
        let number = |value: u64| Some(value.to_ne_bytes().to_vec());
        match request {
            Request::GetFeatures => answer = number(self.offered()),
            Request::SetFeatures(features) => {
                check_features(features, self.offered())?;
                self.features = Some(features);
            }
            Request::GetProtocolFeatures => answer = number(PROTOCOL),
            Request::SetProtocolFeatures(features) => {
                check_features(features, PROTOCOL)?;
                self.protocol = features;
            }
            Request::GetQueueNum => answer = number(self.port.pairs.len() as u64),
            Request::GetMaxMemSlots => answer = number(MAX_REGIONS as u64),
            Request::GetStatus => answer = number(self.status),
            Request::SetOwner => {}
            Request::ResetOwner => self.stop_all(),
            Request::ResetDevice | Request::SetStatus(0) => self.reset(),
            Request::SetStatus(status) => self.status = status & 0xff,
            Request::NetSetMtu(mtu) => {
                self.mtu = u32::try_from(mtu)
                    .ok()
                    .filter(|mtu| (68..=65_521).contains(mtu))
                    .ok_or_else(|| bad_value("an MTU", mtu))?;
            }
            Request::SetMemTable(table) => self.set_memory(table)?,
            Request::AddMemReg(spec, file) => self.add_region(spec, file)?,
            Request::RemMemReg(spec) => self.remove_region(&spec)?,
            Request::SetVringNum(size) => {
                let value = size.value.get();
                let size16 = u16::try_from(value).ok();
                self.ring(&size)?.size = size16
                    .filter(|size| (1..=MAX_SIZE).contains(size))
                    .ok_or_else(|| bad_value("a ring size", value.into()))?;
            }
            Request::SetVringAddr(addresses) => {
                self.ring_at(addresses.ring.get() as usize)?.addresses = Some(addresses);
            }
            Request::SetVringBase(base) => self.ring(&base)?.base = base.value.get(),
            Request::GetVringBase(ring) => {
                let base = self.stop(ring.ring.get() as usize)?;
                let mut reply = ring;
                reply.value.set(base);
                answer = Some(zerocopy::IntoBytes::as_bytes(&reply).to_vec());
            }
            Request::SetVringKick(ring, file) => {
                let file = file.ok_or(ProtocolError::NoKick(ring))?;
                self.ring_at(ring)?.kick = Some(event(ring, file)?);
            }
            Request::SetVringCall(ring, file) => {
                let file = file.map(|file| event(ring, file)).transpose()?;
                self.ring_at(ring)?.call = file;
            }
            // A ring that fails ends the connection.
            Request::SetVringErr(ring, _) => {
                self.ring_at(ring)?;
            }
            Request::SetVringEnable(ring) => {
                let enabled = match ring.value.get() {
                    0 => false,
                    1 => true,
                    value => return Err(bad_value("an enabled ring", value.into())),
                };
                self.ring(&ring)?.enabled = Some(enabled);
            }
        }
        self.apply()?;
        Ok(answer)
    }

    fn ring(&mut self, value: &RingValue) -> Result<&mut Ring, ProtocolError> {
        self.ring_at(value.ring.get() as usize)
    }

    fn ring_at(&mut self, ring: usize) -> Result<&mut Ring, ProtocolError> {
        let rings = self.rings.len();
        let known = self.rings.get_mut(ring);
        known.ok_or(ProtocolError::NoRing { ring, rings })
    }

    fn offered(&self) -> u64 {
        offered(self.port.guest.offloads)
    }

    /// Maps a region. One of another kind of memory (a disk of the guest, a boot loader's ROM) is
    /// left out: QEMU passes all that have a file. An address in it is then none of the guest's.
    fn map(
        &mut self,
        spec: RegionSpec,
        file: &OwnedFd,
    ) -> Result<Option<Arc<Region>>, MemoryError> {
        use MemoryError::{NotHuge, NotMemory, ReadOnly};
        match Region::map(spec, file, self.port.guest.memory.hugetlb) {
            Ok(region) => Ok(Some(Arc::new(region))),
            Err(why @ (NotMemory | NotHuge | ReadOnly)) => {
                self.left_out = Some(why);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn set_regions(&mut self, regions: Vec<Arc<Region>>) -> Result<(), MemoryError> {
        let limit = self.port.guest.memory.bytes;
        self.memory = Arc::new(GuestMemory::new(regions, limit)?);
        Ok(())
    }

    fn set_memory(&mut self, table: Vec<(RegionSpec, OwnedFd)>) -> Result<(), ProtocolError> {
        self.left_out = None;
        let mut regions = Vec::new();
        let mut files = Vec::new();
        for (spec, file) in table {
            regions.extend(self.map(spec, &file)?);
            files.push((spec, file));
        }
        self.set_regions(regions)?;
        self.files = files;
        self.prune_files();
        Ok(())
    }

    /// QEMU 7.2 adds and removes each region once for each queue pair.
    fn add_region(&mut self, spec: RegionSpec, file: OwnedFd) -> Result<(), ProtocolError> {
        let mut regions = self.memory.regions().to_vec();
        if regions.iter().any(|region| *region.spec() == spec) {
            return Ok(());
        }
        regions.extend(self.map(spec, &file)?);
        self.set_regions(regions)?;
        self.files.push((spec, file));
        self.prune_files();
        Ok(())
    }

    fn remove_region(&mut self, spec: &RegionSpec) -> Result<(), ProtocolError> {
        let mut regions = self.memory.regions().to_vec();
        let before = regions.len();
        // Where it is in its file need not be said.
        regions.retain(|region| {
            let known = region.spec();
            (known.guest, known.user, known.len) != (spec.guest, spec.user, spec.len)
        });
        if regions.len() < before {
            self.set_regions(regions)?;
            self.prune_files();
        }
        Ok(())
    }

    /// Stops a ring, and says where it was.
    fn stop(&mut self, number: usize) -> Result<u32, ProtocolError> {
        let ring = self.ring_at(number)?;
        ring.kick = None;
        if let Some(base) = self.port.stop_ring(number) {
            self.rings[number].base = base;
        }
        Ok(self.rings[number].base)
    }

    fn stop_all(&mut self) {
        for ring in &mut self.rings {
            ring.kick = None;
        }
    }

    /// As before the guest's driver was there.
    fn reset(&mut self) {
        self.features = None;
        self.status = 0;
        self.rings.fill_with(Ring::default);
    }

    /// The ring that the messages ask for; none while something is missing.
    fn wanted(&self, ring: &Ring) -> Result<Option<Wanted>, ProtocolError> {
        let (Some(features), Some(addresses), Some(kick)) =
            (self.features, &ring.addresses, &ring.kick)
        else {
            return Ok(None);
        };
        if ring.size == 0 || self.memory.regions().is_empty() {
            return Ok(None);
        }
        let has = |bit| features & bit != 0;
        // A boot loader may come before a driver that does.
        if !has(virtio::VERSION_1) {
            return Ok(None);
        }
        // Without protocol features there is no message to enable it.
        let enabled = ring
            .enabled
            .unwrap_or_else(|| !has(virtio::PROTOCOL_FEATURES));
        Ok(Some(Wanted {
            config: RingConfig {
                size: ring.size,
                descriptors: addresses.descriptors.get(),
                driver: addresses.driver.get(),
                device: addresses.device.get(),
                packed: has(virtio::RING_PACKED),
                indirect: has(virtio::INDIRECT_DESC),
                event_index: has(virtio::EVENT_IDX),
                in_order: has(virtio::IN_ORDER),
                mergeable: has(virtio::MRG_RXBUF),
                takes: taken(features),
            },
            memory: self.memory.clone(),
            call: ring.call.clone(),
            kick: kick.clone(),
            enabled,
        }))
    }

    /// Makes the port what the front end has asked for so far.
    fn apply(&self) -> Result<(), ProtocolError> {
        let wanted = self.rings.iter().map(|ring| self.wanted(ring));
        let wanted = wanted.collect::<Result<Vec<_>, _>>()?;
        self.port.apply(&wanted)?;
        let features = self.features.unwrap_or(0);
        self.port.set_link(LinkState {
            up: self.port.is_receiving(),
            mtu: (self.mtu != 0).then_some(self.mtu),
            features: Some(taken(features)),
        });
        let running = wanted.iter().flatten().filter(|ring| ring.enabled).count();
        let layout = if features & virtio::RING_PACKED != 0 {
            "packed"
        } else {
            "split"
        };
        let all = self.rings.len();
        let legacy = self
            .features
            .is_some_and(|bits| bits & virtio::VERSION_1 == 0);
        let mut status = match running {
            0 if legacy => "connected, the guest's driver does not know virtio 1.0".into(),
            0 => "connected, the guest uses no queue".into(),
            n => format!("connected, {n} of {all} {layout} rings enabled"),
        };
        if let Some(why) = &self.left_out {
            status += &format!("; some of its memory is left out: {why}");
        }
        self.port.set_status(status);
        Ok(())
    }
}

fn bad_value(what: &'static str, value: u64) -> ProtocolError {
    ProtocolError::BadValue { what, value }
}

fn check_features(features: u64, offered: u64) -> Result<(), ProtocolError> {
    match features & !offered {
        0 => Ok(()),
        beyond => Err(ProtocolError::Features(beyond)),
    }
}

/// Takes a file only if it is an event descriptor, and makes it one that does not block.
fn event(ring: usize, file: OwnedFd) -> Result<Arc<OwnedFd>, ProtocolError> {
    use std::os::fd::AsRawFd;
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    let what = std::fs::read_link(link).unwrap_or_default();
    let set = || {
        let flags = rustix::fs::fcntl_getfl(&file)? | rustix::fs::OFlags::NONBLOCK;
        rustix::fs::fcntl_setfl(file.as_fd(), flags)
    };
    if what.as_os_str() != "anon_inode:[eventfd]" || set().is_err() {
        return Err(ProtocolError::NotAnEvent(ring));
    }
    Ok(Arc::new(file))
}
