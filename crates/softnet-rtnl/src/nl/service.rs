//! The service that answers requests, and the buffers for its answers.

use std::os::fd::OwnedFd;

use zerocopy::{Immutable, IntoBytes};

use super::{Errno, Error, Full, Head, Message, Messages, NLM_F_MULTI, Request};

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client {
    /// Port id: `nlmsg_pid` of what it gets.
    pub port: u32,
    /// True if it may change anything. The server has refused a request of another kind than `GET`
    /// if not.
    pub may_change: bool,
    /// True if it may make devices of the host, too: for root, and the user that the server runs
    /// as.
    pub own: bool,
    /// User that it runs as.
    pub uid: u32,
    /// `NETLINK_GET_STRICT_CHK`: headers and attributes of `GET` requests are checked strictly,
    /// and filter what is dumped.
    pub strict: bool,
}

/// Where a dump is between two chunks; what the fields mean is up to the service. All 0 at first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// A link, by index or by place.
    pub link: u32,
    /// Part of the link.
    pub stage: u32,
    /// Object in the part.
    pub key: u64,
}

/// The progress of a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The chunk is full; [`Position`] says where the next one starts.
    More,
    /// All objects are in chunks.
    Done,
}

/// Answers requests. The server calls it from one thread.
pub trait Service {
    /// Answers a request that is not a dump. The server adds the acknowledgment or error.
    ///
    /// The type is at least `NLMSG_MIN_TYPE`, the payload has at least one byte, and the client
    /// may do what the type does. Types that the service does not know: [`Errno::EOPNOTSUPP`].
    fn request(
        &mut self,
        request: &Request<'_>,
        client: &Client,
        replies: &mut Replies,
    ) -> Result<(), Error>;

    /// Writes the next chunk of a dump: objects from `position` on, until one does not fit
    /// ([`Full`]), which then is where `position` points. It is called when the client has taken
    /// the last chunk, so objects may have come and gone in between.
    ///
    /// An error ends the dump. Type without dumps: [`Errno::EOPNOTSUPP`].
    fn dump(
        &mut self,
        request: &Request<'_>,
        client: &Client,
        position: &mut Position,
        chunk: &mut Chunk<'_>,
    ) -> Result<Progress, Error>;

    /// A number that changes with every change that makes a dump of this type inconsistent: with
    /// links, one that comes or goes. If it is another one than at the first chunk, messages carry
    /// `NLM_F_DUMP_INTR`. The kernel has one for links, addresses, neighbours and routes, none for
    /// qdiscs, classes and filters.
    fn generation(&self, request: &Request<'_>) -> u64;

    /// Does what rtnetlink has no message for, and returns text. `argument` means what the
    /// operation says.
    fn operate(
        &mut self,
        operation: Operation,
        argument: &[u8],
        client: &Client,
        replies: &mut Replies,
    ) -> Result<String, Error>;

    /// Several requests follow, of one client at a time, and are answered after
    /// [`end_batch`](Service::end_batch).
    fn begin_batch(&mut self) {}

    /// The end of the batch: its changes are in effect when this returns. If a number is returned,
    /// the client is answered when [`settled`](Service::settled) has reached it.
    fn end_batch(&mut self) -> Option<u64> {
        None
    }

    /// The state of what answers wait for. The server asks when it was woken up.
    fn settled(&self) -> Settled {
        Settled::default()
    }

    /// Publishes what has changed without a request. The server asks when it was woken up for it.
    fn changes(&mut self, replies: &mut Replies);

    /// Gets the connection of a client that has asked for [`Operation::Replace`], and has got the
    /// text.
    fn release(&mut self, connection: OwnedFd) {
        drop(connection);
    }
}

/// Batches whose answers wait for nothing more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settled {
    /// The last one, by the number that [`end_batch`](Service::end_batch) returned.
    pub upto: u64,
    /// A warning that goes along with the answers to their changes.
    pub note: Option<String>,
}

/// A request to the daemon beside rtnetlink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Operation {
    /// Live counters, as text.
    Stats = 1,
    /// The running state as a configuration file.
    DumpConfig = 2,
    /// Applies the configuration file anew; only for those who may change something.
    Reload = 3,
    /// Adds, changes or removes a port or a rate group by keys of the configuration; only for
    /// those who may change something.
    Change = 4,
    /// The ports with their keys.
    Show = 5,
    /// Differences that a reload would make; only for those who may change something: the file has
    /// what is not applied yet.
    DryRun = 6,
    /// Level of the log: `error`, `warning`, `notice`, `info`; only for those who may change
    /// something.
    Log = 7,
    /// Captures packets of a port; only for those who may change something. A stream socket comes
    /// with the answer.
    Capture = 8,
    /// Another daemon takes over: the running state. The connection is released then, for what the
    /// two have to say.
    Replace = 32,
}

impl Operation {
    /// By its number.
    pub fn from_number(number: u32) -> Option<Operation> {
        let all = [
            Operation::Stats,
            Operation::DumpConfig,
            Operation::Reload,
            Operation::Change,
            Operation::Show,
            Operation::DryRun,
            Operation::Log,
            Operation::Capture,
            Operation::Replace,
        ];
        all.into_iter()
            .find(|operation| *operation as u32 == number)
    }

    /// True if it changes something.
    pub fn is_change(self) -> bool {
        matches!(
            self,
            Operation::Reload | Operation::Change | Operation::Replace
        )
    }

    /// True if only those who may change something may ask for it.
    pub fn is_reserved(self) -> bool {
        self.is_change()
            || matches!(
                self,
                Operation::DryRun | Operation::Log | Operation::Capture
            )
    }
}

/// Events of one request; more are lost.
const EVENTS: usize = 4096;

/// A message for all members of a group.
#[derive(Debug)]
pub struct Event {
    /// `RTNLGRP_*`.
    pub group: u32,
    /// The message.
    pub message: Messages,
    /// True if the request that is answered is the cause.
    pub asked: bool,
}

/// The answers to a request besides the acknowledgment, and the events for other clients.
#[derive(Debug)]
pub struct Replies {
    head: Head,
    /// [`Event::asked`] of the events that follow.
    asked: bool,
    pub(crate) messages: Messages,
    pub(crate) events: Vec<Event>,
    /// Events are lost, of which members are told before those that are not.
    pub(crate) overrun: bool,
    pub(crate) warning: Option<String>,
    /// Goes along with the text of an operation.
    pub(crate) file: Option<OwnedFd>,
}

impl Replies {
    /// For a request of a client.
    pub fn new(request: &Request<'_>, client: &Client) -> Replies {
        let head = Head {
            seq: request.seq,
            pid: client.port,
            ..Head::default()
        };
        Replies {
            head,
            asked: true,
            messages: Messages::new(),
            events: Vec::new(),
            overrun: false,
            warning: None,
            file: None,
        }
    }

    /// For what happened without a request.
    pub fn unasked() -> Replies {
        Replies {
            head: Head::default(),
            asked: false,
            messages: Messages::new(),
            events: Vec::new(),
            overrun: false,
            warning: None,
            file: None,
        }
    }

    /// Answers with a message.
    pub fn message<T: IntoBytes + Immutable + ?Sized>(
        &mut self,
        kind: u16,
        flags: u16,
        fixed: &T,
        body: impl FnOnce(&mut Message<'_>),
    ) -> Result<(), Error> {
        let head = Head {
            kind,
            flags,
            ..self.head
        };
        self.messages
            .message(head, fixed, body)
            .map_err(|Full| too_long())
    }

    /// The events that `f` publishes happened without the request that is answered: they bear
    /// neither its number nor its client's port id, and are no echo.
    pub fn without_request<T>(&mut self, f: impl FnOnce(&mut Replies) -> T) -> T {
        let (head, asked) = (std::mem::take(&mut self.head), self.asked);
        self.asked = false;
        let result = f(self);
        (self.head, self.asked) = (head, asked);
        result
    }

    /// Tells the members of a group, and the client if it asked so (`NLM_F_ECHO`; as
    /// `nlmsg_notify`). Of a message that is too long, or one too many,
    /// they are told that it is missing.
    pub fn publish<T: IntoBytes + Immutable + ?Sized>(
        &mut self,
        group: u32,
        kind: u16,
        flags: u16,
        fixed: &T,
        body: impl FnOnce(&mut Message<'_>),
    ) {
        let mut message = Messages::new();
        let head = Head {
            kind,
            flags,
            ..self.head
        };
        let is_full = self.events.len() == EVENTS;
        if is_full || message.message(head, fixed, body).is_err() {
            return self.overrun();
        }
        let asked = self.asked;
        self.events.push(Event {
            group,
            message,
            asked,
        });
    }

    /// Tells the members of all groups that events are lost (`NLMSG_OVERRUN`).
    pub fn overrun(&mut self) {
        self.overrun = true;
    }

    /// Text that goes along with a success, as the kernel's extended ACK without an error.
    pub fn warning(&mut self, text: impl Into<String>) {
        self.warning = Some(text.into());
    }

    /// The answers so far, for tests of a service.
    pub fn messages(&self) -> &Messages {
        &self.messages
    }

    /// The events so far, for tests of a service.
    pub fn events(&self) -> &[Event] {
        &self.events
    }
}

fn too_long() -> Error {
    Error::new(Errno::EMSGSIZE)
}

/// A part of a dump.
#[derive(Debug)]
pub struct Chunk<'a> {
    head: Head,
    messages: &'a mut Messages,
}

impl<'a> Chunk<'a> {
    /// For a dump that a client asked for.
    pub fn new(request: &Request<'_>, client: &Client, messages: &'a mut Messages) -> Chunk<'a> {
        Chunk {
            head: Head {
                seq: request.seq,
                pid: client.port,
                ..Head::default()
            },
            messages,
        }
    }

    /// Appends an object. When it does not fit, set the position to it and return
    /// [`Progress::More`]. One that does not fit an empty chunk never will, and is left out: the
    /// others are shown all the same.
    pub fn message<T: IntoBytes + Immutable + ?Sized>(
        &mut self,
        kind: u16,
        flags: u16,
        fixed: &T,
        body: impl FnOnce(&mut Message<'_>),
    ) -> Result<(), Full> {
        let head = Head {
            kind,
            flags: flags | NLM_F_MULTI,
            ..self.head
        };
        let is_first = self.messages.is_empty();
        match self.messages.message(head, fixed, body) {
            Err(Full) if is_first => Ok(()),
            result => result,
        }
    }
}
