//! Requests of clients, and the answers owed to them. No input and no output happens here:
//! datagrams come in and go out by calls.

mod options;

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use zerocopy::FromBytes;

use super::connection::Connection;
use super::dump::Dump;
use super::{OPERATION, OPTION, answer};
use crate::nl::{
    Client, Errno, Error, Event, NLM_F_ACK, NLM_F_BULK, NLM_F_ECHO, NLM_F_REQUEST, NLMSG_MIN_TYPE,
    Operation, Replies, Request, Requests, Service, Settled,
};

/// `RTM_MAX`: types above are none of rtnetlink.
const RTM_MAX: u16 = 123;
/// The only type that may delete many objects at once (`RTNL_FLAG_BULK_DEL_SUPPORTED`), besides
/// one that bridges have for multicast groups.
const RTM_DELNEIGH: u16 = 29;
/// Port ids that the server assigns start here.
const ASSIGNED: u32 = 0x8000_0000;
/// Bytes of text that all clients may have asked for and not read; those who may change nothing,
/// half of it.
const TEXTS: usize = 64 * 1024 * 1024;
/// Clients of one user that may change nothing.
const OF_USER: usize = 32;
/// Length of the longest datagram of a client that may change nothing.
const DATAGRAM_READER: usize = 32 * 1024;
/// Keys of clients that may change nothing start here, above all port ids.
pub(super) const READERS: u64 = 1 << 32;
/// Events have groups from 1 to this.
const GROUPS: u32 = u64::BITS;

/// A client that wants to be one.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// The port id that its socket's name asks for.
    pub port: Option<u32>,
    /// The user that it runs as.
    pub uid: u32,
    /// True if it may change anything.
    pub may_change: bool,
    /// True if it is root or the user that the server runs as.
    pub own: bool,
}

/// All clients, by key.
///
/// A client that may change something has a port id of its own, which is the key. For clients that
/// may not, each user has separate port ids: none can take the id that another client wants.
#[derive(Debug)]
pub struct Clients {
    connections: BTreeMap<u64, Connection>,
    max: usize,
    /// The last key of a client that may change nothing.
    reader: u64,
    /// The last port id that was assigned.
    assigned: u32,
}

/// The end of a request.
enum Answered {
    Done,
    /// A dump goes on; it has an end of its own.
    Dumping,
}

impl Clients {
    /// None yet, and at most `max`. The last eighth is for those that may change something.
    pub fn new(max: usize) -> Clients {
        Clients {
            connections: BTreeMap::new(),
            max,
            reader: READERS,
            assigned: ASSIGNED,
        }
    }

    /// Lets a client in and returns its key.
    ///
    /// # Errors
    /// If there are too many, or its port id is another client's.
    pub fn connect(&mut self, peer: Peer) -> Result<u64, Error> {
        let full = |text| Err(Error::new(Errno::ENOBUFS).text(text));
        let max = if peer.may_change {
            self.max
        } else {
            self.max - self.max / 8
        };
        if self.connections.len() >= max {
            return full("too many clients");
        }
        let of_user = |other: &&Connection| !other.client.may_change && other.uid == peer.uid;
        if !peer.may_change && self.connections.values().filter(of_user).count() >= OF_USER {
            return full("too many clients of this user");
        }
        let port = match peer.port {
            Some(port) if port == 0 || self.holder(&peer).is_some() => {
                return Err(Error::new(Errno::EADDRINUSE).text("port id in use"));
            }
            Some(port) => port,
            None => self.free_port(peer),
        };
        let client = Client {
            port,
            may_change: peer.may_change,
            own: peer.own,
            uid: peer.uid,
            strict: false,
        };
        let key = if peer.may_change {
            port.into()
        } else {
            self.reader += 1;
            self.reader
        };
        self.connections
            .insert(key, Connection::new(client, peer.uid));
        Ok(key)
    }

    /// The client that has the port id that this one wants.
    pub fn holder(&self, peer: &Peer) -> Option<u64> {
        let port = peer.port?;
        if peer.may_change {
            return self
                .connections
                .contains_key(&port.into())
                .then_some(port.into());
        }
        let mut readers = self.connections.range(READERS..);
        let holder = readers.find(|(_, other)| other.uid == peer.uid && other.client.port == port);
        holder.map(|(key, _)| *key)
    }

    fn free_port(&mut self, mut peer: Peer) -> u32 {
        // Ends: there are fewer clients than port ids.
        loop {
            self.assigned = self.assigned.wrapping_add(1).max(ASSIGNED);
            peer.port = Some(self.assigned);
            if self.holder(&peer).is_none() {
                return self.assigned;
            }
        }
    }

    /// Forgets a client.
    pub fn disconnect(&mut self, key: u64) {
        self.connections.remove(&key);
    }

    /// The client reads no more; what it has asked for is done all the same.
    pub fn deafen(&mut self, key: u64, service: &mut impl Service) {
        if let Some(connection) = self.connections.get_mut(&key) {
            connection.deafen();
            self.resume(key, service);
        }
    }

    /// True if requests of the client are read. Not while it does not read the answers.
    pub fn wants_input(&self, key: u64) -> bool {
        let connection = self.connections.get(&key);
        connection.is_some_and(|connection| {
            let is_over = connection.ended || connection.released;
            !connection.is_full() && connection.input.is_empty() && !is_over
        })
    }

    /// The client sends no more; what it has asked for it still gets.
    pub fn end_input(&mut self, key: u64) {
        if let Some(connection) = self.connections.get_mut(&key) {
            connection.ended = true;
        }
    }

    /// True if the client sends no more and has got all it asked for.
    pub fn is_done(&self, key: u64) -> bool {
        let connection = self.connections.get(&key);
        let is_over = connection.is_none_or(|connection| connection.ended || connection.released);
        is_over && !connection.is_some_and(Connection::is_owed)
    }

    /// True if the client's connection is the service's when it is done.
    pub fn is_released(&self, key: u64) -> bool {
        let connection = self.connections.get(&key);
        connection.is_some_and(|connection| connection.released)
    }

    /// True if there is anything for the client that waits for nothing.
    pub fn has_output(&self, key: u64) -> bool {
        let connection = self.connections.get(&key);
        connection.is_some_and(|connection| connection.is_owed() && !connection.is_held())
    }

    /// Answers the requests of a datagram; those that come after too many answers wait.
    pub fn receive(&mut self, key: u64, datagram: &[u8], service: &mut impl Service) {
        let connection = self.connections.get(&key);
        let may_change = connection.is_some_and(|connection| connection.client.may_change);
        if !may_change && datagram.len() > DATAGRAM_READER {
            return self.refuse(key, datagram);
        }
        service.begin_batch();
        let mut requests = Requests::new(datagram);
        while let Some(connection) = self.connections.get_mut(&key) {
            if connection.is_full() {
                connection.input = requests.rest().to_vec();
                break;
            }
            let Some(request) = requests.next() else {
                break;
            };
            self.handle(key, &request, service);
        }
        let number = service.end_batch();
        if let Some(number) = number
            && let Some(connection) = self.connections.get_mut(&key)
        {
            connection.hold(number);
        }
    }

    /// Refuses a datagram that is too long to be read whole.
    pub fn refuse(&mut self, key: u64, start: &[u8]) {
        let mut header = [0; 16];
        let length = start.len().min(header.len());
        header[..length].copy_from_slice(&start[..length]);
        header[..4].copy_from_slice(&16_u32.to_ne_bytes());
        let (Some(connection), Some(request)) =
            (self.connections.get_mut(&key), Request::read(&header))
        else {
            return;
        };
        let error = Error::new(Errno::EMSGSIZE);
        let port = connection.client.port;
        connection.push(answer::acknowledge(&request, port, Some(&error), None));
    }

    /// The datagram that the client gets next, until [`sent`](Clients::sent).
    pub fn output(&mut self, key: u64, service: &mut impl Service) -> Option<Arc<[u8]>> {
        let connection = self.connections.get_mut(&key)?;
        if connection.is_held() {
            return None;
        }
        if connection.front().is_none() {
            // An error was told with the first chunk.
            let _ = connection.advance(service);
        }
        connection.front().cloned()
    }

    /// The file that goes along with [`output`](Clients::output), until it was
    /// [sent](Clients::sent).
    pub fn file(&self, key: u64) -> Option<BorrowedFd<'_>> {
        let connection = self.connections.get(&key)?;
        connection.file.as_ref().map(OwnedFd::as_fd)
    }

    /// The client has got what [`output`](Clients::output) returned.
    pub fn sent(&mut self, key: u64, service: &mut impl Service) {
        if let Some(connection) = self.connections.get_mut(&key) {
            connection.pop();
            self.resume(key, service);
        }
    }

    /// Answers the requests that wait, once there is capacity for it.
    fn resume(&mut self, key: u64, service: &mut impl Service) {
        if let Some(connection) = self.connections.get_mut(&key)
            && connection.may_resume()
            && !connection.input.is_empty()
        {
            let input = std::mem::take(&mut connection.input);
            self.receive(key, &input, service);
        }
    }

    /// Lets answers go that wait for nothing more.
    pub fn settle(&mut self, settled: &Settled) {
        let connections = self.connections.values_mut();
        connections.for_each(|connection| connection.settle(settled));
    }

    /// Tells members of groups what has changed without a request.
    pub fn publish_changes(&mut self, service: &mut impl Service) {
        let mut replies = Replies::unasked();
        service.changes(&mut replies);
        if replies.overrun {
            self.overrun();
        }
        for event in replies.events {
            self.publish(event, None);
        }
    }

    /// Tells the members of all groups that events are missing.
    fn overrun(&mut self) {
        let connections = self.connections.values_mut();
        let members = connections.filter(|connection| connection.groups != 0);
        members.for_each(Connection::overrun);
    }

    /// Tells the members of its group, except one that gets the echo.
    fn publish(&mut self, event: Event, echo: Option<u64>) {
        let Some(bit) = group_bit(event.group) else {
            return;
        };
        let datagram: Arc<[u8]> = event.message.into_bytes().into();
        for (key, connection) in &mut self.connections {
            if echo != Some(*key) && connection.groups & bit != 0 {
                connection.push_event(&datagram);
            }
        }
    }

    /// `netlink_rcv_skb` for one message.
    fn handle(&mut self, key: u64, request: &Request<'_>, service: &mut impl Service) {
        let Some(connection) = self.connections.get(&key) else {
            return;
        };
        let mut replies = Replies::new(request, &connection.client);
        let result = self.answer(key, request, &mut replies, service);
        let Replies {
            messages,
            events,
            overrun,
            warning,
            ..
        } = replies;
        // `nlmsg_notify`: whoever asks for the echo gets it once, as a reply.
        let echo = request.has(NLM_F_ECHO).then_some(key);
        if overrun {
            self.overrun();
        }
        for event in events {
            let echo = echo.filter(|_| event.asked);
            if let Some(connection) = echo.and_then(|key| self.connections.get_mut(&key)) {
                connection.push(event.message.clone());
            }
            self.publish(event, echo);
        }
        let Some(connection) = self.connections.get_mut(&key) else {
            return;
        };
        connection.push(messages);
        let error = match result {
            Ok(Answered::Dumping) => return,
            Ok(Answered::Done) if !request.has(NLM_F_ACK) && request.kind != OPTION => return,
            Ok(Answered::Done) => None,
            Err(error) => Some(error),
        };
        if error.is_none() && is_change(request) {
            return connection.push_done(request, warning);
        }
        connection.push(answer::acknowledge(
            request,
            connection.client.port,
            error.as_ref(),
            warning.as_deref(),
        ));
    }

    /// `rtnetlink_rcv_msg`.
    fn answer(
        &mut self,
        key: u64,
        request: &Request<'_>,
        replies: &mut Replies,
        service: &mut impl Service,
    ) -> Result<Answered, Error> {
        // Only requests are handled.
        if !request.has(NLM_F_REQUEST) {
            return Ok(Answered::Done);
        }
        if request.kind == OPTION {
            return self.set_option(key, request).map(|()| Answered::Done);
        }
        let Some(connection) = self.connections.get_mut(&key) else {
            return Ok(Answered::Done);
        };
        let client = connection.client;
        if request.kind == OPERATION {
            let (operation, argument) =
                u32::read_from_prefix(request.payload()).map_err(|_| Error::new(Errno::EINVAL))?;
            let operation =
                Operation::from_number(operation).ok_or(Error::new(Errno::EOPNOTSUPP))?;
            if operation.is_reserved() && !client.may_change {
                return Err(not_permitted());
            }
            connection.may_dump(request)?;
            // A change has no text to speak of.
            if !operation.is_change() && !self.may_hold_text(&client) {
                return Err(Error::new(Errno::ENOBUFS).text("too many clients do not read"));
            }
            let text = service.operate(operation, argument, &client, replies)?;
            if let Some(connection) = self.connections.get_mut(&key) {
                connection.file = replies.file.take();
                connection.dump = Some(Dump::text(request, text));
                connection.released = operation == Operation::Replace;
            }
            return Ok(Answered::Dumping);
        }
        if request.kind < NLMSG_MIN_TYPE {
            return Ok(Answered::Done);
        }
        if request.kind > RTM_MAX {
            return Err(Error::new(Errno::EOPNOTSUPP));
        }
        if request.payload().is_empty() {
            return Ok(Answered::Done);
        }
        let get = !is_change(request);
        if !get && !client.may_change {
            return Err(not_permitted());
        }
        let bulk = request.kind & 3 == 1 && request.has(NLM_F_BULK);
        if bulk && request.kind != RTM_DELNEIGH {
            return Err(Error::new(Errno::EOPNOTSUPP).text("Bulk delete is not supported"));
        }
        if !get || !request.is_dump() {
            return service
                .request(request, &client, replies)
                .map(|()| Answered::Done);
        }
        connection.may_dump(request)?;
        connection.dump = Some(Dump::new(request, service));
        connection.advance(service)?;
        Ok(Answered::Dumping)
    }

    /// True if there is space for a text for the client.
    fn may_hold_text(&self, client: &Client) -> bool {
        let (first, most) = match client.may_change {
            true => (0, TEXTS),
            false => (READERS, TEXTS / 2),
        };
        let connections = self.connections.range(first..);
        let held: usize = connections.map(|(_, connection)| connection.text()).sum();
        held <= most
    }
}

/// Types come in fours: NEW, DEL, GET, SET.
fn is_change(request: &Request<'_>) -> bool {
    request.kind >= NLMSG_MIN_TYPE && request.kind & 3 != 2
}

fn group_bit(group: u32) -> Option<u64> {
    (1..=GROUPS).contains(&group).then(|| 1 << (group - 1))
}

fn not_permitted() -> Error {
    Error::new(Errno::EPERM).text("Operation not permitted")
}
