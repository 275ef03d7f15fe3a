//! Every request to the module that answers its type.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use softnet_engine::control::{Control, Devices};

use crate::link;
use crate::nl::{Chunk, Client, Errno, Error, Position, Progress, Replies, Request, Service};

/// Answers requests by a control object, which others use, too: it is locked for one request, or
/// one part of a dump.
#[derive(Debug)]
pub struct Rtnl<D: Devices> {
    control: Arc<Mutex<Control<D>>>,
}

impl<D: Devices> Rtnl<D> {
    /// Acts on this control object.
    pub fn new(control: Arc<Mutex<Control<D>>>) -> Rtnl<D> {
        Rtnl { control }
    }

    fn lock(&self) -> MutexGuard<'_, Control<D>> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<D: Devices> Service for Rtnl<D> {
    fn request(
        &mut self,
        request: &Request<'_>,
        _: &Client,
        replies: &mut Replies,
    ) -> Result<(), Error> {
        let mut control = self.lock();
        let answered = match request.kind {
            link::RTM_NEWLINK..=link::RTM_SETLINK => link::request(&mut control, request, replies),
            _ => Err(Errno::EOPNOTSUPP.into()),
        };
        // What was changed is told, whoever changed it.
        for change in control.take_changes() {
            link::publish(&control, &change, replies)?;
        }
        answered
    }

    fn dump(
        &mut self,
        request: &Request<'_>,
        client: &Client,
        position: &mut Position,
        chunk: &mut Chunk<'_>,
    ) -> Result<Progress, Error> {
        let control = self.lock();
        match request.kind {
            link::RTM_GETLINK => link::dump(&control, request, client, position, chunk),
            _ => Err(Errno::EOPNOTSUPP.into()),
        }
    }

    fn generation(&self, request: &Request<'_>) -> u64 {
        match request.kind {
            link::RTM_GETLINK => self.lock().generation(),
            _ => 0,
        }
    }
}
