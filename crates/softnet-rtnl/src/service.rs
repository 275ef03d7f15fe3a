//! Every request to the module that answers its type.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use softnet_engine::{Devices, Engine};

use crate::nl::{
    Chunk, Client, Errno, Error, Operation, Position, Progress, Replies, Request, Service, Settled,
};
use crate::{audit, fdb, host, link, mdb, tc};

/// Makes changes last.
pub trait Keep: Send {
    /// Called after each datagram of requests that changed something. The answer to it goes when
    /// the number that is returned is [`settled`](Keep::settled).
    fn changed(&mut self) -> Option<u64>;

    /// Changes that last, or never will, as the note then says.
    fn settled(&self) -> Settled;
}

/// Does what rtnetlink has no message for: argument to text.
type Operate = Box<dyn FnMut(Operation, &[u8], &Client) -> Result<String, Error> + Send>;

/// Hears who changed what.
type Audit = Box<dyn FnMut(&Client, &str) + Send>;

/// Starts a capture: argument to text and file.
type StartCapture = Box<dyn FnMut(&[u8], &Client) -> Result<(String, OwnedFd), Error> + Send>;

/// Answers requests by an engine, which others use, too: it is locked for one request, or
/// one part of a dump.
pub struct Rtnl<D: Devices> {
    engine: Arc<Mutex<Engine<D>>>,
    turn: Arc<Mutex<()>>,
    operate: Operate,
    capture: StartCapture,
    /// Makes changes last before they are answered.
    keep: Option<Box<dyn Keep>>,
    /// Told of each request that changed something.
    audit: Audit,
    released: Box<dyn FnMut(OwnedFd) + Send>,
    /// Something was changed since.
    is_changed: bool,
}

/// Access to the engine before what clients ask for: a [`Mutex`] by itself may go to those
/// who lock it again and again, for as long as they do.
pub struct First<D: Devices> {
    engine: Arc<Mutex<Engine<D>>>,
    /// Held by who comes first until it has the engine; clients wait for it before that.
    turn: Arc<Mutex<()>>,
}

impl<D: Devices> fmt::Debug for First<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("First").finish_non_exhaustive()
    }
}

impl<D: Devices> First<D> {
    /// Waits for one request, or one part of a dump, at most.
    pub fn lock(&self) -> MutexGuard<'_, Engine<D>> {
        let _turn = lock(&self.turn);
        lock(&self.engine)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<D: Devices> fmt::Debug for Rtnl<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rtnl").finish_non_exhaustive()
    }
}

impl<D: Devices> Rtnl<D> {
    /// Acts on this engine.
    pub fn new(engine: Arc<Mutex<Engine<D>>>) -> Rtnl<D> {
        Rtnl {
            engine,
            turn: Arc::default(),
            operate: Box::new(|_, _, _| Err(Errno::EOPNOTSUPP.into())),
            keep: None,
            audit: Box::new(|_, _| {}),
            released: Box::new(drop),
            capture: Box::new(|_, _| Err(Errno::EOPNOTSUPP.into())),
            is_changed: false,
        }
    }

    /// Has `operate` answer [`Operation`]s. The engine is not locked meanwhile.
    pub fn on_operation(
        mut self,
        operate: impl FnMut(Operation, &[u8], &Client) -> Result<String, Error> + Send + 'static,
    ) -> Rtnl<D> {
        self.operate = Box::new(operate);
        self
    }

    /// Has `capture` answer [`Operation::Capture`]. The engine is not locked meanwhile.
    pub fn on_capture(
        mut self,
        capture: impl FnMut(&[u8], &Client) -> Result<(String, OwnedFd), Error> + Send + 'static,
    ) -> Rtnl<D> {
        self.capture = Box::new(capture);
        self
    }

    /// Has changes be kept before they are answered. The engine is not locked meanwhile.
    pub fn keep(mut self, keep: impl Keep + 'static) -> Rtnl<D> {
        self.keep = Some(Box::new(keep));
        self
    }

    /// Has `audit` told who made each change of rtnetlink, and which: type and link.
    pub fn audit(mut self, audit: impl FnMut(&Client, &str) + Send + 'static) -> Rtnl<D> {
        self.audit = Box::new(audit);
        self
    }

    /// Has `released` called with connections as [`Service::release`] says.
    pub fn on_release(mut self, released: impl FnMut(OwnedFd) + Send + 'static) -> Rtnl<D> {
        self.released = Box::new(released);
        self
    }

    /// For another user of the engine, who does not wait for many clients.
    pub fn first(&self) -> First<D> {
        First {
            engine: self.engine.clone(),
            turn: self.turn.clone(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Engine<D>> {
        drop(lock(&self.turn));
        lock(&self.engine)
    }
}

fn of_bridge(request: &Request<'_>) -> bool {
    i32::from(request.family()) == libc::AF_BRIDGE
}

impl<D: Devices> Service for Rtnl<D> {
    fn request(
        &mut self,
        request: &Request<'_>,
        client: &Client,
        replies: &mut Replies,
    ) -> Result<(), Error> {
        let engine = self.lock();
        // Types come in fours: NEW, DEL, GET, SET. A link that goes has a name before.
        let change = (request.kind & 3 != 2).then(|| audit::words(&engine, request));
        // Those of others, so that the rest is of the request.
        replies.without_request(|replies| publish(&engine, replies));
        let answered = match request.kind {
            link::RTM_NEWLINK..=link::RTM_SETLINK => {
                link::request(&engine, request, client, replies)
            }
            tc::RTM_NEWQDISC..=tc::RTM_GETACTION | tc::RTM_NEWCHAIN..=tc::RTM_GETCHAIN => {
                tc::request(&engine, request, replies)
            }
            fdb::RTM_NEWNEIGH..=fdb::RTM_GETNEIGH if of_bridge(request) => {
                fdb::request(&engine, request, replies)
            }
            mdb::RTM_NEWMDB..=mdb::RTM_GETMDB => mdb::request(&engine, request),
            link::vlan::RTM_NEWVLAN..link::vlan::RTM_GETVLAN => {
                let help = "use `bridge vlan add`, `bridge vlan del`";
                Err(Error::new(Errno::EOPNOTSUPP).help(help))
            }
            host::RTM_GETNSID => host::namespace(replies),
            kind if host::answers(kind) => host::request(request),
            _ => Err(Errno::EOPNOTSUPP.into()),
        };
        // What was changed is told, even if the request failed.
        publish(&engine, replies);
        drop(engine);
        self.is_changed |= change.is_some();
        if let (Ok(()), Some(change)) = (&answered, change) {
            (self.audit)(client, &change);
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
        let engine = self.lock();
        match request.kind {
            link::RTM_GETLINK => link::dump(&engine, request, client, position, chunk),
            tc::RTM_GETQDISC
            | tc::RTM_GETTCLASS
            | tc::RTM_GETTFILTER
            | tc::RTM_GETACTION
            | tc::RTM_GETCHAIN => tc::dump(&engine, request, position, chunk),
            link::vlan::RTM_GETVLAN => link::vlan::dump(&engine, request, position, chunk),
            fdb::RTM_GETNEIGH if of_bridge(request) => {
                fdb::dump(&engine, request, client, position, chunk)
            }
            mdb::RTM_GETMDB => mdb::dump(&engine, request, position, chunk),
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
        client: &Client,
        replies: &mut Replies,
    ) -> Result<String, Error> {
        replies.without_request(|replies| self.changes(replies));
        drop(lock(&self.turn));
        if operation == Operation::Capture {
            let (text, file) = (self.capture)(argument, client)?;
            replies.file = Some(file);
            return Ok(text);
        }
        let text = (self.operate)(operation, argument, client);
        self.is_changed |= operation.is_change() && text.is_ok();
        self.changes(replies);
        text
    }

    fn release(&mut self, connection: OwnedFd) {
        (self.released)(connection);
    }

    fn begin_batch(&mut self) {
        self.lock().hold();
    }

    fn end_batch(&mut self) -> Option<u64> {
        self.lock().release();
        match (std::mem::take(&mut self.is_changed), &mut self.keep) {
            (true, Some(keep)) => keep.changed(),
            _ => None,
        }
    }

    fn settled(&self) -> Settled {
        let keep = self.keep.as_ref();
        keep.map_or_else(Settled::default, |keep| keep.settled())
    }

    fn changes(&mut self, replies: &mut Replies) {
        publish(&self.lock(), replies);
    }
}

/// Tells of what has changed since the last call.
fn publish<D: Devices>(engine: &Engine<D>, replies: &mut Replies) {
    let (changes, lost) = engine.take_changes();
    if lost {
        replies.overrun();
    }
    for change in changes {
        // What cannot be shown is missing.
        if link::publish(engine, &change, replies).is_err() {
            replies.overrun();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    /// Who comes first gets the engine next, whatever clients ask for meanwhile.
    #[test]
    fn clients_are_served_in_the_order_in_which_they_come() {
        let (mut rtnl, engine) = crate::testing::rtnl(|_| {});
        let first = rtnl.first();
        let turn = rtnl.turn.clone();
        let (order, came) = channel();
        std::thread::scope(|threads| {
            let held = engine.lock().unwrap();
            let order_of_first = order.clone();
            threads.spawn(move || {
                let _engine = first.lock();
                order_of_first.send("first").unwrap();
            });
            while turn.try_lock().is_ok() {
                std::thread::yield_now();
            }
            threads.spawn(move || {
                rtnl.changes(&mut Replies::unasked());
                order.send("client").unwrap();
            });
            drop(held);
        });
        assert_eq!(came.iter().collect::<Vec<_>>(), ["first", "client"]);
    }
}
