//! The requests of a script that were refused: a script hides what tc says of them
//! (`2>/dev/null`), and goes on.

use std::sync::{Arc, Mutex, PoisonError};

use softnet_rtnl::nl::headers::{IfInfoMsg, TcMsg};
use softnet_rtnl::nl::{
    Chunk, Client, Errno, Error, Operation, Position, Progress, Replies, Request, Service, Settled,
};
use softnet_tc::Handle;

/// Refusals that are told; a script may loop.
const MOST: usize = 20;

/// Refused requests, a line each, and how many there were.
#[derive(Clone, Debug, Default)]
pub(super) struct Refused(Arc<Mutex<(Vec<String>, usize)>>);

impl Refused {
    /// Lines for people.
    pub(super) fn lines(&self) -> Vec<String> {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut lines, all) = (held.0.clone(), held.1);
        if all > lines.len() {
            lines.push(format!("{} more requests were refused", all - lines.len()));
        }
        lines
    }

    fn note(&self, request: &Request<'_>, error: &Error) {
        // Types come in fours: NEW, DEL, GET, SET.
        let verb = match request.kind & 3 {
            0 => "adding",
            1 => "deleting",
            3 => "setting",
            _ => return,
        };
        // Scripts begin with the deletion of what may not be there.
        if verb == "deleting" && matches!(error.errno, Errno::ENOENT | Errno::ENODEV) {
            return;
        }
        // `ip link` begins with one that names nothing, to see if such messages are known.
        if request.kind == libc::RTM_NEWLINK && request.payload().len() <= size_of::<IfInfoMsg>() {
            return;
        }
        let header = request.header::<TcMsg>().unwrap_or_default();
        let handle = Handle::from_raw(header.handle);
        let parent = Handle::from_raw(header.parent);
        let what = match request.kind {
            16..20 => "a link".to_owned(),
            36..40 if handle == Handle::NONE => format!("a qdisc at {parent}"),
            36..40 => format!("qdisc {handle} at {parent}"),
            40..44 => format!("class {handle} at {parent}"),
            44..48 => format!("a filter at {parent}"),
            48..52 => "an action".to_owned(),
            100..104 => format!("a chain at {parent}"),
            kind => format!("an object by a message of type {kind}"),
        };
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.1 += 1;
        if held.0.len() < MOST {
            held.0.push(format!("{verb} {what} was refused: {error}"));
        }
    }
}

/// A service that notes what it refuses.
pub(super) struct Noting<S> {
    pub(super) service: S,
    pub(super) refused: Refused,
}

impl<S: Service> Service for Noting<S> {
    fn request(
        &mut self,
        request: &Request<'_>,
        client: &Client,
        replies: &mut Replies,
    ) -> Result<(), Error> {
        let answered = self.service.request(request, client, replies);
        answered.inspect_err(|error| self.refused.note(request, error))
    }

    fn dump(
        &mut self,
        request: &Request<'_>,
        client: &Client,
        position: &mut Position,
        chunk: &mut Chunk<'_>,
    ) -> Result<Progress, Error> {
        self.service.dump(request, client, position, chunk)
    }

    fn generation(&self, request: &Request<'_>) -> u64 {
        self.service.generation(request)
    }

    fn operate(
        &mut self,
        operation: Operation,
        argument: &[u8],
        client: &Client,
        replies: &mut Replies,
    ) -> Result<String, Error> {
        self.service.operate(operation, argument, client, replies)
    }

    fn begin_batch(&mut self) {
        self.service.begin_batch();
    }

    fn end_batch(&mut self) -> Option<u64> {
        self.service.end_batch()
    }

    fn settled(&self) -> Settled {
        self.service.settled()
    }

    fn changes(&mut self, replies: &mut Replies) {
        self.service.changes(replies);
    }
}
