//! Devices that go on in another process: the files that keep them as they are.
//!
//! A process that is replaced closes its devices, and hands off copies of their files
//! ([`OpenDevice`]). The successor's [`PortDevices`](crate::PortDevices) are given them first, and
//! open a port from them if it has the same device; a driver that cannot go on opens it anew. A
//! process whose successor failed gives itself back what it handed off.

use std::fmt::Debug;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::{DeviceSpec, Listener};

/// Parts of a device that another process goes on with.
#[derive(Debug, Default)]
pub struct HandOff {
    /// Files, in an order of the driver's.
    pub files: Vec<OwnedFd>,
    /// State of the driver beside the kernel's: parts of frames.
    pub rest: Vec<u8>,
}

/// A device of which a driver can say how another process goes on with it.
pub trait Continued: Debug + Send + Sync {
    /// Files and state. Called once the device is closed, so that nobody moves packets.
    ///
    /// # Errors
    /// If no file descriptors are left.
    fn hand_off(&self) -> io::Result<HandOff>;

    /// The socket whose file stays with the process that has the device.
    fn listener(&self) -> Option<&Listener> {
        None
    }
}

/// Copies of files.
pub(crate) fn copies<'a>(
    files: impl IntoIterator<Item = &'a Arc<OwnedFd>>,
) -> io::Result<Vec<OwnedFd>> {
    files.into_iter().map(|file| file.try_clone()).collect()
}

/// An open device. Its files stay open while this value lives, even if the device is closed.
#[derive(Debug)]
pub struct OpenDevice {
    /// Name of its port when it was opened.
    pub port: String,
    /// The device.
    pub spec: DeviceSpec,
    /// Number of its opening, from 1.
    pub serial: u64,
    device: Arc<dyn Continued>,
}

impl OpenDevice {
    /// Parts of the device for another process, or for this one to open it again. To be called
    /// when the device is closed; its socket's file is then no longer removed with it.
    ///
    /// # Errors
    /// If no file descriptors are left.
    pub fn hand_off(&self) -> io::Result<HandOff> {
        let handed = self.device.hand_off()?;
        if let Some(listener) = self.device.listener() {
            listener.keep();
        }
        Ok(handed)
    }

    /// Copies of the files of a device that is in use, for a process that starts after this one has
    /// ended in whatever way.
    ///
    /// # Errors
    /// If no file descriptors are left.
    pub fn files(&self) -> io::Result<Vec<OwnedFd>> {
        Ok(self.device.hand_off()?.files)
    }

    /// True if the driver's state is in the files alone, so that they are enough without
    /// [`HandOff::rest`].
    pub fn is_in_files(&self) -> bool {
        matches!(self.spec, DeviceSpec::Tap(_) | DeviceSpec::AfPacket(_))
    }
}

/// The devices that are open, and those that wait to be opened from what was handed off.
#[derive(Debug, Default)]
pub(crate) struct HandOffs(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    open: Vec<Open>,
    serial: u64,
    handed: Vec<(DeviceSpec, HandOff)>,
}

#[derive(Debug)]
struct Open {
    port: String,
    spec: DeviceSpec,
    serial: u64,
    device: Weak<dyn Continued>,
}

impl HandOffs {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A device was opened for a port.
    pub(crate) fn note(&self, port: &str, spec: &DeviceSpec, device: Weak<dyn Continued>) {
        let mut known = self.known();
        known.serial += 1;
        let open = Open {
            port: port.to_owned(),
            spec: spec.clone(),
            serial: known.serial,
            device,
        };
        known.open.push(open);
    }

    /// Devices opened so far, and those that are open. Both change seldom.
    pub(crate) fn openings(&self) -> (u64, usize) {
        let mut known = self.known();
        known.open.retain(|open| open.device.strong_count() > 0);
        (known.serial, known.open.len())
    }

    /// The devices that are open.
    pub(crate) fn open(&self) -> Vec<OpenDevice> {
        let known = self.known();
        let open = known.open.iter().filter_map(|open| {
            Some(OpenDevice {
                port: open.port.clone(),
                spec: open.spec.clone(),
                serial: open.serial,
                device: open.device.upgrade()?,
            })
        });
        open.collect()
    }

    /// This process alone has the devices.
    pub(crate) fn own(&self) {
        for open in self.open() {
            if let Some(listener) = open.device.listener() {
                // One that somebody else has replaced is theirs.
                let _ = listener.own();
            }
        }
    }

    /// The device is opened from these when it is opened next.
    pub(crate) fn give(&self, spec: DeviceSpec, handed: HandOff) {
        self.known().handed.push((spec, handed));
    }

    /// Parts that the device is to be opened from.
    pub(crate) fn take(&self, spec: &DeviceSpec) -> Option<HandOff> {
        let handed = &mut self.known().handed;
        let place = handed.iter().position(|(known, _)| known == spec)?;
        Some(handed.swap_remove(place).1)
    }

    /// Closes everything that nobody took.
    pub(crate) fn clear(&self) {
        drop(std::mem::take(&mut self.known().handed));
    }
}
