//! The driver `vhost_user` in an engine.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use softnet_engine::{Opened, Settings};

use super::memory::MemoryLimits;
use super::{VhostUser, VhostUserError, VhostUserRx, VhostUserTx};
use crate::driver::Driver;
use crate::hand_off::{Continued, HandOff};
use crate::rights::Subject;
use crate::{Buffers, Descriptors, Listen, ListenError, Listener, SocketKind, group_id};

/// Socket to a port's front end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketSpec {
    /// Path of the socket.
    pub path: PathBuf,
    /// The socket is ours, and the front end connects to it; else it is the front end's.
    pub server: bool,
    /// Mode of our socket: who may connect.
    pub mode: u32,
    /// Group of our socket, by name or number; none: the process's own.
    pub group: Option<String>,
}

impl SocketSpec {
    /// Our socket: the one that another process had, or a new one. See [`Listener::bind`].
    ///
    /// # Errors
    /// [`ListenError`].
    pub(crate) fn listener(
        &self,
        had: Option<OwnedFd>,
        kind: SocketKind,
        backlog: i32,
        descriptors: Descriptors,
    ) -> Result<Listener, ListenError> {
        let listen = Listen {
            path: self.path.clone(),
            mode: self.mode,
            group: self.group.as_deref().map(group_id).transpose()?,
        };
        match had {
            Some(socket) => Ok(Listener::take(&listen, socket)),
            None => Listener::bind(&listen, kind, backlog, descriptors),
        }
    }
}

/// Limits of a port's guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuestSpec {
    /// Limits of its memory.
    pub memory: MemoryLimits,
    /// The guest is offered large frames and frames with a missing checksum. A guest that
    /// has taken the offer and then switches it off cannot tell this side.
    pub offloads: bool,
}

impl Default for GuestSpec {
    /// As much as most guests need.
    fn default() -> GuestSpec {
        GuestSpec {
            memory: MemoryLimits::default(),
            offloads: true,
        }
    }
}

/// A port for a virtual machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VhostUserSpec {
    /// Socket to its front end.
    pub socket: SocketSpec,
    /// Limits of the guest.
    pub guest: GuestSpec,
}

impl From<SocketSpec> for VhostUserSpec {
    fn from(socket: SocketSpec) -> VhostUserSpec {
        VhostUserSpec {
            socket,
            guest: GuestSpec::default(),
        }
    }
}

impl Driver for VhostUserSpec {
    type Rx = VhostUserRx;
    type Tx = VhostUserTx;
    type Error = VhostUserError;

    fn subjects(&self) -> Vec<Subject> {
        match self.socket.server {
            true => Vec::new(),
            false => vec![Subject::Socket(self.socket.path.clone())],
        }
    }

    fn open(
        &self,
        settings: &Settings,
        queues: usize,
        buffers: &Buffers,
    ) -> Result<Opened<VhostUserRx, VhostUserTx>, VhostUserError> {
        self.resume(settings, queues, buffers, HandOff::default())
    }

    fn continued(&self, opened: &Opened<VhostUserRx, VhostUserTx>) -> Option<Weak<dyn Continued>> {
        let kept: Arc<dyn Continued> = opened.rx.first()?.kept().clone();
        Some(Arc::downgrade(&kept))
    }

    fn resume(
        &self,
        settings: &Settings,
        queues: usize,
        buffers: &Buffers,
        handed: HandOff,
    ) -> Result<Opened<VhostUserRx, VhostUserTx>, VhostUserError> {
        let VhostUser { rx, tx, features } =
            VhostUser::resume(self, queues, settings.mtu, buffers, handed.into())?;
        Ok(Opened { rx, tx, features })
    }

    fn conflicts(&self, other: &VhostUserSpec) -> bool {
        self.socket.path == other.socket.path
    }
}
