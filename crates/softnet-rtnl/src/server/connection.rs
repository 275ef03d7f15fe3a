//! One client: what it is owed, and what it has asked for that is not answered yet.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::answer;
use super::dump::Dump;
use crate::nl::{
    Client, Errno, Error, Messages, NLMSG_HDRLEN, Progress, Request, Service, Settled,
};

/// Bytes owed to a client, above which its requests wait and events for it are lost.
const QUEUE: usize = 256 * 1024;
/// The same for one that may change nothing.
const QUEUE_READER: usize = 32 * 1024;
/// Length of the longest request for a dump or operation.
const DUMP_REQUEST: usize = 16 * 1024;
/// Cost of a datagram besides its bytes.
const ENTRY: usize = 64;

/// A client. What it costs is bounded: [`QUEUE`] and the answers to one request, a datagram of
/// requests that wait, and a dump's state.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) client: Client,
    pub(super) uid: u32,
    /// The groups that it is a member of, from 1 in the lowest bit on.
    pub(super) groups: u64,
    /// `NETLINK_NO_ENOBUFS`.
    pub(super) silent_loss: bool,
    /// The dump in progress.
    pub(super) dump: Option<Dump>,
    /// Requests that wait for the client to read.
    pub(super) input: Vec<u8>,
    /// It sends no more.
    pub(super) ended: bool,
    /// Goes along with the next datagram.
    pub(super) file: Option<OwnedFd>,
    /// The connection goes to the service when the client has got what it asked for.
    pub(super) released: bool,
    queue: VecDeque<Owed>,
    /// Nothing of the queue goes before the batch of this number is settled.
    held: Option<u64>,
    /// The cost of the queue.
    queued: usize,
    /// The highest cost of the queue.
    limit: usize,
    /// Events have been lost since the queue was empty.
    congested: bool,
    /// It does not read any more.
    deaf: bool,
}

/// A datagram of the queue.
#[derive(Debug)]
struct Owed {
    datagram: Arc<[u8]>,
    /// The change that it acknowledges, until that is settled.
    done: Option<Done>,
}

/// A change that was made: the header of its request, and the warning about it.
#[derive(Debug)]
struct Done {
    request: [u8; NLMSG_HDRLEN],
    warning: Option<String>,
}

fn cost(datagram: &[u8]) -> usize {
    datagram.len() + ENTRY
}

impl Connection {
    pub(super) fn new(client: Client, uid: u32) -> Connection {
        Connection {
            client,
            uid,
            groups: 0,
            silent_loss: false,
            dump: None,
            input: Vec::new(),
            ended: false,
            released: false,
            file: None,
            queue: VecDeque::new(),
            held: None,
            queued: 0,
            limit: match client.may_change {
                true => QUEUE,
                false => QUEUE_READER,
            },
            congested: false,
            deaf: false,
        }
    }

    /// True if it must read before it is answered further.
    pub(super) fn is_full(&self) -> bool {
        self.queued > self.limit
    }

    /// True if half of its queue's limit is free again.
    pub(super) fn may_resume(&self) -> bool {
        self.queued <= self.limit / 2
    }

    /// Owes it an answer.
    pub(super) fn push(&mut self, messages: Messages) {
        if !messages.is_empty() {
            self.push_bytes(messages.into_bytes().into());
        }
    }

    /// Owes it the acknowledgment of a change.
    pub(super) fn push_done(&mut self, request: &Request<'_>, warning: Option<String>) {
        let request = request.message().first_chunk().copied().unwrap_or_default();
        self.push(answer::done_with(
            request,
            self.client.port,
            warning.as_deref(),
        ));
        if let Some(owed) = self.queue.back_mut() {
            owed.done = Some(Done { request, warning });
        }
    }

    /// Keeps what it is owed until the batch of this number is settled.
    pub(super) fn hold(&mut self, number: u64) {
        if !self.deaf {
            self.held = Some(number);
        }
    }

    /// True if what it is owed is kept.
    pub(super) fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Lets go what waits for nothing more.
    pub(super) fn settle(&mut self, settled: &Settled) {
        if self.held.is_none_or(|held| held > settled.upto) {
            return;
        }
        self.held = None;
        for owed in &mut self.queue {
            let Some((done, note)) = owed.done.take().zip(settled.note.as_deref()) else {
                continue;
            };
            let texts = done.warning.as_deref().into_iter().chain([note]);
            let warning = texts.collect::<Vec<_>>().join("; ");
            let told = answer::done_with(done.request, self.client.port, Some(&warning));
            self.queued -= cost(&owed.datagram);
            owed.datagram = told.into_bytes().into();
            self.queued += cost(&owed.datagram);
        }
        if let (Some(dump), Some(note)) = (&mut self.dump, &settled.note) {
            dump.note(note);
        }
    }

    /// Owes it an event, if there is capacity for it.
    pub(super) fn push_event(&mut self, event: &Arc<[u8]>) {
        // One that is longer than the limit comes alone.
        let is_too_much = self.queued > 0 && self.queued + cost(event) > self.limit;
        if self.congested || is_too_much {
            self.overrun();
            self.congested = true;
            return;
        }
        self.push_bytes(Arc::clone(event));
    }

    /// Tells it that events are missing here. Once it has been told that none come any more, that
    /// says it all.
    pub(super) fn overrun(&mut self) {
        if !self.congested && !self.silent_loss {
            self.push_bytes(answer::overrun(self.client.port).as_slice().into());
        }
        self.congested |= self.is_full();
    }

    fn push_bytes(&mut self, datagram: Arc<[u8]>) {
        if !self.deaf {
            self.queued += cost(&datagram);
            self.queue.push_back(Owed {
                datagram,
                done: None,
            });
        }
    }

    /// The datagram that it gets next.
    pub(super) fn front(&self) -> Option<&Arc<[u8]>> {
        self.queue.front().map(|owed| &owed.datagram)
    }

    /// True if there is anything for it.
    pub(super) fn is_owed(&self) -> bool {
        !self.queue.is_empty() || self.dump.is_some()
    }

    /// It has got that.
    pub(super) fn pop(&mut self) {
        self.file = None;
        if let Some(owed) = self.queue.pop_front() {
            self.queued -= cost(&owed.datagram);
        }
        self.congested &= !self.queue.is_empty();
    }

    /// Refuses a dump that cannot start. A dump keeps its request, which must be short.
    pub(super) fn may_dump(&self, request: &Request<'_>) -> Result<(), Error> {
        if self.dump.is_some() {
            return Err(Error::new(Errno::EBUSY));
        }
        match request.message().len() {
            ..=DUMP_REQUEST => Ok(()),
            _ => Err(Error::new(Errno::EMSGSIZE)),
        }
    }

    /// Bytes of text that it has not read.
    pub(super) fn text(&self) -> usize {
        self.dump.as_ref().map_or(0, Dump::held)
    }

    /// Owes the client the next chunk of its dump.
    pub(super) fn advance(&mut self, service: &mut impl Service) -> Result<(), Error> {
        let Some(mut dump) = self.dump.take() else {
            return Ok(());
        };
        if self.deaf {
            return Ok(());
        }
        let (chunks, progress) = dump.next(&self.client, service)?;
        for chunk in chunks {
            self.push(chunk);
        }
        if progress == Progress::More {
            self.dump = Some(dump);
        }
        Ok(())
    }

    /// It gets nothing more.
    pub(super) fn deafen(&mut self) {
        self.deaf = true;
        self.held = None;
        self.file = None;
        self.queue.clear();
        self.queued = 0;
        self.dump = None;
        self.groups = 0;
    }
}
