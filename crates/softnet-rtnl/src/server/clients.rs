//! What clients ask and are owed. No input and no output happens here: datagrams come in and go
//! out by calls.

use std::collections::BTreeMap;
use std::sync::Arc;

use zerocopy::FromBytes;

use super::connection::Connection;
use super::dump::Dump;
use super::{OPERATION, OPTION, answer};
use crate::nl::{
    Client, Errno, Error, Event, NLM_F_ACK, NLM_F_BULK, NLM_F_ECHO, NLM_F_REQUEST, NLMSG_MIN_TYPE,
    Operation, Progress, Replies, Request, Requests, Service,
};

/// `RTM_MAX`: types above are none of rtnetlink.
const RTM_MAX: u16 = 123;
/// The only type that may delete many objects at once (`RTNL_FLAG_BULK_DEL_SUPPORTED`), besides
/// one that bridges have for multicast groups.
const RTM_DELNEIGH: u16 = 29;
/// Port ids that the server assigns start here.
const ASSIGNED: u32 = 0x8000_0000;
/// Length of the longest request for a dump or operation.
const DUMP_REQUEST: usize = 16 * 1024;
/// Bytes of text that all clients may have asked for and not read.
const TEXTS: usize = 64 * 1024 * 1024;
/// Events have groups from 1 to this.
const GROUPS: u32 = u64::BITS;

/// A client that wants to be one.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// The port id that its socket's name asks for.
    pub port: Option<u32>,
    /// Its user.
    pub uid: u32,
    /// Whether it may change anything.
    pub may_change: bool,
}

/// All clients, by port id.
#[derive(Debug)]
pub struct Clients {
    connections: BTreeMap<u32, Connection>,
    max: usize,
    /// The last port id that was assigned.
    assigned: u32,
}

/// `struct` behind the header of [`OPTION`].
#[derive(Clone, Copy, Debug, FromBytes)]
#[repr(C)]
struct SetOption {
    /// Whose option it is; 0: the sender's.
    port: u32,
    /// `NETLINK_*`, as in `setsockopt(SOL_NETLINK)`.
    option: u32,
    value: u32,
}

/// How a request ends.
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
            assigned: ASSIGNED,
        }
    }

    /// Lets a client in and returns its port id.
    ///
    /// # Errors
    /// If there are too many, or its port id is another client's.
    pub fn connect(&mut self, peer: Peer) -> Result<u32, Error> {
        let max = if peer.may_change {
            self.max
        } else {
            self.max - self.max / 8
        };
        if self.connections.len() >= max {
            return Err(Error::new(Errno::ENOBUFS).text("too many clients"));
        }
        let port = match peer.port {
            Some(port) if port == 0 || self.connections.contains_key(&port) => {
                return Err(Error::new(Errno::EADDRINUSE).text("port id in use"));
            }
            Some(port) => port,
            None => self.free_port(),
        };
        let client = Client {
            port,
            may_change: peer.may_change,
            strict: false,
        };
        self.connections
            .insert(port, Connection::new(client, peer.uid));
        Ok(port)
    }

    fn free_port(&mut self) -> u32 {
        // Ends: there are fewer clients than port ids.
        loop {
            self.assigned = self.assigned.wrapping_add(1).max(ASSIGNED);
            if !self.connections.contains_key(&self.assigned) {
                return self.assigned;
            }
        }
    }

    /// Forgets a client.
    pub fn disconnect(&mut self, port: u32) {
        self.connections.remove(&port);
    }

    /// The client reads no more; what it has asked for is done all the same.
    pub fn deafen(&mut self, port: u32, service: &mut impl Service) {
        if let Some(connection) = self.connections.get_mut(&port) {
            connection.deafen();
            self.resume(port, service);
        }
    }

    /// Whether requests of the client are read. Not while it does not read the answers.
    pub fn wants_input(&self, port: u32) -> bool {
        let connection = self.connections.get(&port);
        connection.is_some_and(|connection| !connection.is_full() && connection.input.is_empty())
    }

    /// Whether there is anything for the client.
    pub fn has_output(&self, port: u32) -> bool {
        let connection = self.connections.get(&port);
        connection
            .is_some_and(|connection| connection.front().is_some() || connection.dump.is_some())
    }

    /// Answers the requests of a datagram; those that come after too many answers wait.
    pub fn receive(&mut self, port: u32, datagram: &[u8], service: &mut impl Service) {
        let mut requests = Requests::new(datagram);
        while let Some(connection) = self.connections.get_mut(&port) {
            if connection.is_full() {
                connection.input = requests.rest().to_vec();
                return;
            }
            let Some(request) = requests.next() else {
                return;
            };
            self.handle(port, &request, service);
        }
    }

    /// Refuses a datagram that is too long to be read whole.
    pub fn refuse(&mut self, port: u32, start: &[u8]) {
        let mut header = [0; 16];
        let length = start.len().min(header.len());
        header[..length].copy_from_slice(&start[..length]);
        header[..4].copy_from_slice(&16_u32.to_ne_bytes());
        let (Some(connection), Some(request)) =
            (self.connections.get_mut(&port), Request::read(&header))
        else {
            return;
        };
        let error = Error::new(Errno::EMSGSIZE);
        connection.push(answer::acknowledge(&request, port, Some(&error), None));
    }

    /// What the client gets next, until [`sent`](Clients::sent).
    pub fn output(&mut self, port: u32, service: &mut impl Service) -> Option<Arc<[u8]>> {
        let connection = self.connections.get_mut(&port)?;
        if connection.front().is_none() {
            // An error was told with the first chunk.
            let _ = connection.advance(service);
        }
        connection.front().cloned()
    }

    /// The client has got what [`output`](Clients::output) returned.
    pub fn sent(&mut self, port: u32, service: &mut impl Service) {
        if let Some(connection) = self.connections.get_mut(&port) {
            connection.pop();
            self.resume(port, service);
        }
    }

    /// Answers the requests that wait, once there is capacity for it.
    fn resume(&mut self, port: u32, service: &mut impl Service) {
        if let Some(connection) = self.connections.get_mut(&port)
            && connection.may_resume()
            && !connection.input.is_empty()
        {
            let input = std::mem::take(&mut connection.input);
            self.receive(port, &input, service);
        }
    }

    /// Tells members of groups what has changed without a request.
    pub fn publish_changes(&mut self, service: &mut impl Service) {
        let mut replies = Replies::unasked();
        // An event that is too long for a message is lost; those before it are told.
        let _ = service.changes(&mut replies);
        for event in replies.events {
            self.publish(event, None);
        }
    }

    /// Tells the members of its group, except one that gets the echo.
    fn publish(&mut self, event: Event, echo: Option<u32>) {
        let Some(bit) = group_bit(event.group) else {
            return;
        };
        let datagram: Arc<[u8]> = event.message.into_bytes().into();
        for (port, connection) in &mut self.connections {
            if echo != Some(*port) && connection.groups & bit != 0 {
                connection.push_event(&datagram);
            }
        }
    }

    /// `netlink_rcv_skb` for one message.
    fn handle(&mut self, port: u32, request: &Request<'_>, service: &mut impl Service) {
        let Some(connection) = self.connections.get(&port) else {
            return;
        };
        let mut replies = Replies::new(request, &connection.client);
        let result = self.answer(port, request, &mut replies, service);
        let Replies {
            messages,
            events,
            warning,
            ..
        } = replies;
        // `nlmsg_notify`: whoever asks for the echo gets it once, as a reply.
        let echo = request.has(NLM_F_ECHO).then_some(port);
        for event in events {
            if let Some(connection) = echo.and_then(|port| self.connections.get_mut(&port)) {
                connection.push(event.message.clone());
            }
            self.publish(event, echo);
        }
        let Some(connection) = self.connections.get_mut(&port) else {
            return;
        };
        connection.push(messages);
        let error = match result {
            Ok(Answered::Dumping) => return,
            Ok(Answered::Done) if !request.has(NLM_F_ACK) && request.kind != OPTION => return,
            Ok(Answered::Done) => None,
            Err(error) => Some(error),
        };
        connection.push(answer::acknowledge(
            request,
            port,
            error.as_ref(),
            warning.as_deref(),
        ));
    }

    /// `rtnetlink_rcv_msg`.
    fn answer(
        &mut self,
        port: u32,
        request: &Request<'_>,
        replies: &mut Replies,
        service: &mut impl Service,
    ) -> Result<Answered, Error> {
        // Only requests are handled.
        if !request.has(NLM_F_REQUEST) {
            return Ok(Answered::Done);
        }
        if request.kind == OPTION {
            return self.set_option(port, request).map(|()| Answered::Done);
        }
        let Some(connection) = self.connections.get_mut(&port) else {
            return Ok(Answered::Done);
        };
        let client = connection.client;
        if request.kind == OPERATION {
            let (operation, argument) =
                u32::read_from_prefix(request.payload()).map_err(|_| Error::new(Errno::EINVAL))?;
            let operation =
                Operation::from_number(operation).ok_or(Error::new(Errno::EOPNOTSUPP))?;
            if operation == Operation::Reload && !client.may_change {
                return Err(not_permitted());
            }
            connection.may_dump(request)?;
            let held: usize = self.connections.values().map(Connection::text).sum();
            if held > TEXTS {
                return Err(Error::new(Errno::ENOBUFS).text("too many clients do not read"));
            }
            let text = service.operate(operation, argument, &client, replies)?;
            if let Some(connection) = self.connections.get_mut(&port) {
                connection.dump = Some(Dump::text(request, text));
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
        // Types come in fours: NEW, DEL, GET, SET.
        let get = request.kind & 3 == 2;
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

    /// What `setsockopt(SOL_NETLINK)` does. Extended and capped acknowledgments are what every
    /// client gets, so these options change nothing.
    fn set_option(&mut self, port: u32, request: &Request<'_>) -> Result<(), Error> {
        let (set, _) = SetOption::read_from_prefix(request.payload())
            .map_err(|_| Error::new(Errno::EINVAL))?;
        let uid = self.connections.get(&port).map(|connection| connection.uid);
        let target = if set.port == 0 { port } else { set.port };
        let target = self
            .connections
            .get_mut(&target)
            .ok_or(Error::new(Errno::ECONNREFUSED))?;
        if uid != Some(target.uid) && uid != Some(0) {
            return Err(Error::new(Errno::EPERM));
        }
        let on = set.value != 0;
        match i32::try_from(set.option) {
            Ok(libc::NETLINK_ADD_MEMBERSHIP) => target.groups |= member_bit(set.value)?,
            Ok(libc::NETLINK_DROP_MEMBERSHIP) => target.groups &= !member_bit(set.value)?,
            Ok(libc::NETLINK_NO_ENOBUFS) => target.silent_loss = on,
            Ok(libc::NETLINK_GET_STRICT_CHK) => target.client.strict = on,
            Ok(libc::NETLINK_CAP_ACK | libc::NETLINK_EXT_ACK) => {}
            _ => return Err(Error::new(Errno::ENOPROTOOPT)),
        }
        Ok(())
    }
}

impl Connection {
    /// Whether a dump can start. It keeps its request, which is short.
    fn may_dump(&self, request: &Request<'_>) -> Result<(), Error> {
        if self.dump.is_some() {
            return Err(Error::new(Errno::EBUSY));
        }
        match request.message().len() {
            ..=DUMP_REQUEST => Ok(()),
            _ => Err(Error::new(Errno::EMSGSIZE)),
        }
    }

    /// Bytes of text that it has not read.
    fn text(&self) -> usize {
        self.dump.as_ref().map_or(0, Dump::held)
    }

    /// Owes the client the next chunk of its dump.
    fn advance(&mut self, service: &mut impl Service) -> Result<(), Error> {
        let Some(mut dump) = self.dump.take() else {
            return Ok(());
        };
        if self.is_deaf() {
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
}

fn group_bit(group: u32) -> Option<u64> {
    (1..=GROUPS).contains(&group).then(|| 1 << (group - 1))
}

fn member_bit(group: u32) -> Result<u64, Error> {
    group_bit(group).ok_or(Error::new(Errno::EINVAL))
}

fn not_permitted() -> Error {
    Error::new(Errno::EPERM).text("Operation not permitted")
}
