//! A virtqueue that the guest uses, and how it becomes what the front end wants.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::call::{Late, call};
use super::memory::GuestMemory;
use super::ring::{RingConfig, Virtqueue};

/// A virtqueue that the guest uses.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) queue: Virtqueue,
    pub(super) memory: Arc<GuestMemory>,
    /// The configuration that it was made from.
    config: RingConfig,
    /// Where the guest is told that buffers came back; none if it does not want to be.
    pub(super) call: Option<Arc<OwnedFd>>,
    /// True if packets may pass.
    pub(super) enabled: bool,
    /// True if the guest's frames are discarded: the ring was enabled and is not any more. A ring
    /// that has yet to be enabled keeps frames that were sent before its front end came back.
    discards: bool,
    /// True if a sender waits for the guest's notification.
    pub(super) armed: bool,
    /// To tell the guest took too long: the port is to be failed.
    pub(super) blocked: bool,
    /// Times that notifying the guest was a lot of work for the kernel.
    slow_calls: u32,
}

/// So often may telling the guest be a lot of work, which it is by chance, if rarely.
const SLOW_CALLS: u32 = 2;

impl Running {
    /// In the place of what was `before`.
    pub(super) fn new(queue: Virtqueue, wanted: &Wanted, before: Option<&Running>) -> Running {
        Running {
            queue,
            memory: wanted.memory.clone(),
            config: wanted.config,
            call: None,
            enabled: wanted.enabled,
            discards: before.is_some_and(|it| it.enabled || it.discards),
            armed: false,
            blocked: false,
            slow_calls: before.map_or(0, |it| it.slow_calls),
        }
    }

    /// Has the rest as wanted. Returns whether it was not that before.
    pub(super) fn update(&mut self, wanted: &Wanted) -> Result<bool, SetupError> {
        let file = |call: &Option<Arc<OwnedFd>>| call.as_ref().map(Arc::as_ptr);
        if file(&self.call) != file(&wanted.call) {
            self.call.clone_from(&wanted.call);
            // Whoever told the guest before may have been killed, and what was told by another
            // file the front end may have missed when it changed to this one.
            // What it is yet to be told of is told with that.
            self.queue.must_notify();
            self.call();
            if self.blocked {
                return Err(SetupError::Blocked);
            }
        }
        let changed = self.enabled != wanted.enabled;
        self.discards = !wanted.enabled && (self.enabled || self.discards);
        self.enabled = wanted.enabled;
        Ok(changed)
    }

    /// Tells the guest, if it wants to know, of what came back.
    pub(super) fn notify(&mut self) {
        // Without a file nobody is asked, which takes a full fence.
        if self.call.is_some() && self.queue.must_notify() {
            self.call();
        }
    }

    /// Tells the guest, whether it wants to know or not.
    pub(super) fn call(&mut self) {
        let Some(event) = &self.call else {
            return;
        };
        if let Err(late) = call(event) {
            self.was_late(late);
        }
    }

    /// To tell the guest took long.
    pub(super) fn was_late(&mut self, late: Late) {
        self.slow_calls += 1;
        if late == Late::Blocked || self.slow_calls > SLOW_CALLS {
            self.blocked = true;
            // Nobody is to wait once more.
            self.call = None;
        }
    }

    /// True if the front end has broken what the two share.
    pub(super) fn is_broken(&self) -> bool {
        self.blocked || self.memory.is_lost()
    }
}

/// The virtqueue, if packets may pass.
pub(super) fn enabled(ring: &mut Option<Running>) -> Option<&mut Running> {
    ring.as_mut().filter(|running| running.enabled)
}

/// The virtqueue, if it is to be received from: see [`Running::discards`].
pub(super) fn receivable(ring: &mut Option<Running>) -> Option<&mut Running> {
    ring.as_mut()
        .filter(|running| running.enabled || running.discards)
}

/// The ring that the front end asks for.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) config: RingConfig,
    pub(super) memory: Arc<GuestMemory>,
    pub(super) call: Option<Arc<OwnedFd>>,
    pub(super) kick: Arc<OwnedFd>,
    pub(super) enabled: bool,
}

/// Why a ring cannot be set up or watched.
#[derive(Debug, thiserror::Error)]
pub(super) enum SetupError {
    #[error(transparent)]
    Ring(#[from] super::ring::SetupError),
    #[error("its call event blocks")]
    Blocked,
    #[error("its kicks cannot be watched")]
    Kick(#[from] io::Error),
}

/// Has a ring that is in use go on as wanted, where it is. Returns whether it was not that before;
/// none if there is no such ring: it is to be made. What it was goes to `before`.
pub(super) fn go_on(
    ring: &mut Option<Running>,
    wanted: &Wanted,
    before: &mut Option<Running>,
) -> Result<Option<bool>, SetupError> {
    let same = |running: &Running| {
        Arc::ptr_eq(&running.memory, &wanted.memory) && running.config == wanted.config
    };
    if let Some(running) = ring
        && same(running)
    {
        return running.update(wanted).map(Some);
    }
    *before = ring.take();
    let Some(was) = before
        .as_ref()
        .filter(|was| was.queue.has_ring(&wanted.config))
    else {
        return Ok(None);
    };
    let queue = was.queue.renew(wanted.config, &wanted.memory)?;
    let running = ring.insert(Running::new(queue, wanted, Some(was)));
    running.update(wanted)?;
    Ok(Some(true))
}

/// A new ring, once its driver does not write a chain any more, for which `wait` is called until
/// it returns false.
pub(super) fn make(
    wanted: &Wanted,
    wait: &mut dyn FnMut() -> bool,
) -> Result<Virtqueue, SetupError> {
    loop {
        match Virtqueue::new(wanted.config, &wanted.memory) {
            Err(super::ring::SetupError::LeftOut) if wait() => {}
            made => return Ok(made?),
        }
    }
}
