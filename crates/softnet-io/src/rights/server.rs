//! The helper: performs one request after the other, until the one who asks is gone.
//!
//! A request for a namespace is performed on a thread in it. A namespace that belongs to another
//! user namespace of the same user, as those of containers without root do, takes a process that
//! enters both: a helper of this helper, which lives as long.

use std::collections::BTreeMap;
use std::error::Error;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Child, Command};

use rustix::io::Errno;
use rustix::net::SendFlags;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde::{Deserialize, Serialize};

use super::channel::{Channel, FILES};
use super::client::{exchange, spawn};
use super::request::{Answered, Reply, Requested};
use super::{Ledger, Performed, Privileged, Request, Subject, here};
use crate::netns::Netns;
use crate::{NetnsError, NetnsSpec};

/// Helpers of a helper at a time: namespaces of other users' namespaces with ports.
const NESTED: usize = 1024;

/// Argument of a helper that first enters the namespaces whose files it is sent.
pub const ENTER: &str = "--enter";

/// Ways in which a helper serves.
#[derive(Clone, Copy, Debug)]
pub struct Serve {
    /// It first enters the namespaces whose files it is sent.
    pub enter: bool,
    /// A command that serves in a new process; with [`ENTER`] as its argument, it has `enter`.
    pub again: fn() -> Command,
}

/// Serves requests that come over `socket` until its other end is closed. What is about a
/// [`Subject`] is refused unless `allows` says that the configuration has it.
///
/// # Errors
/// If the connection fails.
pub fn serve(
    socket: OwnedFd,
    how: Serve,
    allows: &mut dyn FnMut(&Subject) -> bool,
) -> io::Result<()> {
    let Serve { enter, again } = how;
    let mut server = Server {
        channel: Channel(socket),
        ledger: Ledger::default(),
        nested: BTreeMap::new(),
        again,
    };
    server
        .ledger
        .set_asker(Channel(server.channel.0.try_clone()?));
    if enter && !server.enter()? {
        return Ok(());
    }
    let mut is_first = true;
    while let Some((bytes, files)) = server.channel.receive_bytes()? {
        let is_late = !std::mem::take(&mut is_first);
        match serde_json::from_slice::<Requested>(&bytes) {
            Ok(requested) => {
                let subject = requested.request.subject(requested.place.as_ref());
                // The one that has this one enter has asked.
                let refused = subject.filter(|subject| !enter && !allows(subject));
                let mut refused: Option<Box<dyn Error + Send + Sync>> =
                    refused.map(|subject| NotConfigured(subject).into());
                if is_late && matches!(requested.request, Request::Home(_)) {
                    refused = Some(Late.into());
                }
                server.answer(requested, files, refused)?;
            }
            Err(error) => server.reply(&Reply::refused(&error), &[])?,
        }
    }
    Ok(())
}

/// Has devices be made in the network namespace whose file comes along. It is asked first or never:
/// whoever takes over the daemon later does not choose where the interfaces of the configuration
/// are looked for.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Home {}

impl Privileged for Home {
    type Answer = ();
    type Error = NetnsError;
    const OF_NETWORK: bool = false;

    fn perform(self, files: Vec<OwnedFd>, ledger: &Ledger) -> Performed<(), NetnsError> {
        let home = files.into_iter().next().map(Netns::from);
        let here = here()?;
        // Nobody has to enter the one that he is in.
        let is_here = |home: &Netns| home.id().is_ok_and(|id| id == here);
        ledger.set_home(home.filter(|home| !is_here(home)));
        Ok(((), Vec::new()))
    }
}

/// It is not in the configuration.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0} is not in the configuration file, and the privileged helper opens no other{more}",
    more = remedy(.0)
)]
struct NotConfigured(Subject);

/// The rest of the sentence: how ports come to it.
fn remedy(subject: &Subject) -> String {
    let Some(words) = subject.words() else {
        return String::new();
    };
    format!(
        ": add it there and reload, or let ports added at run time open it with `allow = \
         [{words:?}]` in [engine]"
    )
}

/// It was asked for after something else.
#[derive(Debug, thiserror::Error)]
#[error("where devices are made is said before anything else")]
struct Late;

struct Server {
    channel: Channel,
    ledger: Ledger,
    /// By the inode of the network namespace.
    nested: BTreeMap<u64, Nested>,
    again: fn() -> Command,
}

impl Server {
    /// Enters the namespaces that the first message has. False: it may not.
    fn enter(&self) -> io::Result<bool> {
        let Some((_, files)) = self.channel.receive_bytes()? else {
            return Ok(false);
        };
        let [user, network] = files.as_slice() else {
            return Ok(false);
        };
        let enter = |file: &OwnedFd, kind| move_into_link_name_space(file.as_fd(), Some(kind));
        let entered = enter(user, LinkNameSpaceType::User)
            .and_then(|()| enter(network, LinkNameSpaceType::Network));
        let reply = match entered {
            Ok(()) => Reply::Done(serde_json::Value::Null),
            Err(error) => Reply::refused(&io::Error::from(error)),
        };
        self.reply(&reply, &[])?;
        Ok(entered.is_ok())
    }

    /// Performs a request unless it is refused, for this reason, and answers.
    fn answer(
        &mut self,
        requested: Requested,
        files: Vec<OwnedFd>,
        refused: Option<Box<dyn Error + Send + Sync>>,
    ) -> io::Result<()> {
        let Requested {
            place,
            answer,
            request,
        } = requested;
        let performed = match refused {
            Some(why) => Err(why),
            None => self.perform(place.as_ref(), request, files),
        };
        if !answer {
            return Ok(());
        }
        match performed {
            Ok((answer, files)) => {
                let files: Vec<BorrowedFd<'_>> = files.iter().map(AsFd::as_fd).collect();
                let mut rest = files.as_slice();
                while rest.len() > FILES {
                    let (some, more) = rest.split_at(FILES);
                    self.reply(&Reply::Files, some)?;
                    rest = more;
                }
                self.reply(&Reply::Done(answer), rest)
            }
            Err(error) => self.reply(&Reply::refused(&*error), &[]),
        }
    }

    fn reply(&self, reply: &Reply, files: &[BorrowedFd<'_>]) -> io::Result<()> {
        match self.channel.send(reply, files, SendFlags::empty()) {
            // Too long: only a sentence can be.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                let refused = Reply::refused(&error);
                self.channel.send(&refused, &[], SendFlags::empty())
            }
            sent => sent,
        }
    }

    fn perform(
        &mut self,
        place: Option<&NetnsSpec>,
        request: Request,
        files: Vec<OwnedFd>,
    ) -> Answered {
        let home = || self.ledger.home().filter(|_| request.is_of_network());
        let netns = match place {
            Some(place) => Some(place.open()?),
            None => home(),
        };
        let Some(netns) = netns else {
            return request.perform(files, &self.ledger);
        };
        // Asked first, as the request can be performed once.
        match netns.run(|| ()) {
            Ok(()) => netns.run(|| request.perform(files, &self.ledger))?,
            Err(NetnsError::Enter(error)) if error.kind() == io::ErrorKind::PermissionDenied => {
                let nested = self.nested(&netns);
                let nested = nested.map_err(|_| NetnsError::Enter(error))?;
                nested.ask(request, &files)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The helper in a namespace that this process may not enter.
    fn nested(&mut self, netns: &Netns) -> io::Result<&mut Nested> {
        let id = netns.id()?;
        if self.nested.get_mut(&id).is_some_and(Nested::has_ended) {
            self.nested.remove(&id);
        }
        if !self.nested.contains_key(&id) {
            if self.nested.len() >= NESTED {
                return Err(Errno::USERS.into());
            }
            let mut command = (self.again)();
            command.arg(ENTER);
            let nested = Nested::start(netns, command)?;
            self.nested.insert(id, nested);
        }
        let nested = self.nested.get_mut(&id);
        nested.ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// A helper of this helper. It ends when this is dropped.
struct Nested {
    channel: Channel,
    child: Child,
}

impl Nested {
    fn start(netns: &Netns, command: Command) -> io::Result<Nested> {
        let user = netns.owner()?;
        let (channel, child) = spawn(command)?;
        let nested = Nested { channel, child };
        let files = [user.as_fd(), netns.as_fd()];
        nested.channel.send(&(), &files, SendFlags::empty())?;
        match nested.channel.receive::<Reply>()? {
            Some((Reply::Done(_), _)) => Ok(nested),
            _ => Err(Errno::PERM.into()),
        }
    }

    fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    fn ask(&mut self, request: Request, files: &[OwnedFd]) -> Answered {
        let files: Vec<BorrowedFd<'_>> = files.iter().map(AsFd::as_fd).collect();
        match exchange(&self.channel, None, request, &files)? {
            (Reply::Done(answer), files) => Ok((answer, files)),
            (Reply::Refused { text, errno }, _) => Err(Refused {
                text,
                errno: errno.map(io::Error::from_raw_os_error),
            }
            .into()),
            (Reply::Files, _) => Err(Box::new(io::Error::from(io::ErrorKind::InvalidData))),
        }
    }
}

impl Drop for Nested {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Refusal of a nested helper.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
struct Refused {
    text: String,
    #[source]
    errno: Option<io::Error>,
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::thread::JoinHandle;

    use rustix::net::sockopt::socket_acceptconn;

    use super::*;
    use crate::MetricsPlace;
    use crate::listener::ListenForMetrics;

    /// A helper on a thread, which ends when the channel is dropped.
    fn helper(
        mut allows: impl FnMut(&Subject) -> bool + Send + 'static,
    ) -> (Channel, JoinHandle<io::Result<()>>) {
        let (ours, theirs) = Channel::pair().expect("a pair");
        let helper = std::thread::spawn(move || {
            let how = Serve {
                enter: false,
                again: || Command::new("false"),
            };
            serve(theirs.0, how, &mut allows)
        });
        (ours, helper)
    }

    #[test]
    fn devices_have_one_home() {
        let (ours, helper) = helper(|_| false);
        let netns = Netns::current().expect("its own");
        let ask = || {
            let (reply, _) = exchange(&ours, None, Home {}, &[netns.as_fd()]).expect("an answer");
            reply
        };
        assert!(matches!(ask(), Reply::Done(_)));
        let late = ask();
        assert!(
            matches!(&late, Reply::Refused { text, .. } if text.contains("before anything else")),
            "{late:?}"
        );
        drop(ours);
        let ended = helper.join().expect("it does not panic");
        ended.expect("it has served until the end");
    }

    /// A daemon that was taken over gets no other socket to listen, and no other place.
    #[test]
    fn metrics_are_had_where_the_configuration_says() {
        let place = |text| MetricsPlace::parse(text).expect("a place");
        // The system chooses the port.
        let named = place("127.0.0.1:0");
        let allowed = named.clone();
        let (ours, helper) =
            helper(move |subject| matches!(subject, Subject::Metrics(place) if *place == allowed));
        let ask = |place: &MetricsPlace, files: &[BorrowedFd<'_>]| {
            let place = place.clone();
            let (reply, _) =
                exchange(&ours, None, ListenForMetrics { place }, files).expect("an answer");
            reply
        };
        let refused = |reply: Reply, with: &str| {
            let has = matches!(&reply, Reply::Refused { text, .. } if text.contains(with));
            assert!(has, "{reply:?}");
        };
        let socket = named.socket().expect("a socket");
        for other in ["127.0.0.2:0", "127.0.0.1:1", "[::1]:0", "/tmp/metrics"] {
            let other = place(other);
            refused(
                ask(&other, &[socket.as_fd()]),
                "not in the configuration file",
            );
        }
        refused(ask(&named, &[]), "invalid input");
        let datagrams = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        refused(ask(&named, &[datagrams.as_fd()]), "invalid input");
        let of_another_kind = place("/tmp/metrics").socket().expect("a socket");
        refused(ask(&named, &[of_another_kind.as_fd()]), "invalid input");
        assert!(!socket_acceptconn(&socket).expect("it is a socket"));
        let done = ask(&named, &[socket.as_fd()]);
        assert!(matches!(done, Reply::Done(_)), "{done:?}");
        assert!(socket_acceptconn(&socket).expect("it is a socket"));
        drop(ours);
        let ended = helper.join().expect("it does not panic");
        ended.expect("it has served until the end");
    }
}
