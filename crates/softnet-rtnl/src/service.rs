//! Every request to the module that answers its type.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use softnet_engine::control::{Control, Devices};

use crate::nl::{
    Chunk, Client, Errno, Error, Operation, Position, Progress, Replies, Request, Service,
};
use crate::{fdb, host, link, tc};

/// Does what rtnetlink has no message for: argument to text.
type Operate = Box<dyn FnMut(Operation, &[u8]) -> Result<String, Error> + Send>;

/// Answers requests by a control object, which others use, too: it is locked for one request, or
/// one part of a dump.
pub struct Rtnl<D: Devices> {
    control: Arc<Mutex<Control<D>>>,
    operate: Operate,
}

impl<D: Devices> fmt::Debug for Rtnl<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rtnl").finish_non_exhaustive()
    }
}

impl<D: Devices> Rtnl<D> {
    /// Acts on this control object.
    pub fn new(control: Arc<Mutex<Control<D>>>) -> Rtnl<D> {
        Rtnl {
            control,
            operate: Box::new(|_, _| Err(Errno::EOPNOTSUPP.into())),
        }
    }

    /// Has `operate` answer [`Operation`]s. The control object is not locked meanwhile.
    pub fn on_operation(
        mut self,
        operate: impl FnMut(Operation, &[u8]) -> Result<String, Error> + Send + 'static,
    ) -> Rtnl<D> {
        self.operate = Box::new(operate);
        self
    }

    fn lock(&self) -> MutexGuard<'_, Control<D>> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn of_bridge(request: &Request<'_>) -> bool {
    i32::from(request.family()) == libc::AF_BRIDGE
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
            tc::RTM_NEWQDISC..=tc::RTM_GETTFILTER | tc::RTM_NEWCHAIN..=tc::RTM_GETCHAIN => {
                tc::request(&mut control, request, replies)
            }
            fdb::RTM_NEWNEIGH..=fdb::RTM_GETNEIGH if of_bridge(request) => {
                fdb::request(&mut control, request, replies)
            }
            link::vlan::RTM_NEWVLAN..link::vlan::RTM_GETVLAN => {
                let help = "use `bridge vlan add`, `bridge vlan del`";
                Err(Error::new(Errno::EOPNOTSUPP).help(help))
            }
            host::RTM_GETNSID => host::namespace(replies),
            kind if host::answers(kind) => host::request(request),
            _ => Err(Errno::EOPNOTSUPP.into()),
        };
        drop(control);
        // What was changed is told, whoever changed it.
        self.changes(replies)?;
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
            tc::RTM_GETQDISC | tc::RTM_GETTCLASS | tc::RTM_GETTFILTER | tc::RTM_GETCHAIN => {
                tc::dump(&control, request, position, chunk)
            }
            link::vlan::RTM_GETVLAN => link::vlan::dump(&control, request, position, chunk),
            fdb::RTM_GETNEIGH if of_bridge(request) => {
                fdb::dump(&control, request, client, position, chunk)
            }
            kind if host::answers(kind) => host::dump(request).map(|()| Progress::Done),
            _ => Err(Errno::EOPNOTSUPP.into()),
        }
    }

    fn generation(&self, request: &Request<'_>) -> u64 {
        match request.kind {
            link::RTM_GETLINK | link::vlan::RTM_GETVLAN => self.lock().generation(),
            _ => 0,
        }
    }

    fn operate(
        &mut self,
        operation: Operation,
        argument: &[u8],
        _: &Client,
        replies: &mut Replies,
    ) -> Result<String, Error> {
        let text = (self.operate)(operation, argument);
        self.changes(replies)?;
        text
    }

    fn changes(&mut self, replies: &mut Replies) -> Result<(), Error> {
        let mut control = self.lock();
        for change in control.take_changes() {
            link::publish(&control, &change, replies)?;
        }
        Ok(())
    }
}
