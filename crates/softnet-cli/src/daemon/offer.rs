//! Where metrics are offered: with a socket of this daemon's own, or with that of the daemon before
//! it.

use std::io;
use std::os::fd::OwnedFd;

use softnet_io::MetricsPlace;

use crate::failure::{Exit, Failure};
use crate::metrics::Server;
use crate::replace::{DYING, try_again};

/// A socket for metrics.
#[derive(Debug)]
pub(super) struct Offer {
    server: Server,
    listens: bool,
}

impl Offer {
    /// Listens, unless another server does so and this daemon `replaces` one, which that may be. To
    /// be called while this process may make sockets.
    pub(super) fn new(place: &MetricsPlace, replaces: bool) -> Result<Offer, Failure> {
        let server = Server::new(place).map_err(|error| cannot_offer(place, &error))?;
        let listens = match server.listen() {
            Ok(()) => true,
            Err(error) if replaces && is_in_use(&error) => false,
            Err(error) => return Err(cannot_offer(place, &error)),
        };
        Ok(Offer { server, listens })
    }

    /// Goes on with the socket of the daemon before this one, which listens at the same place.
    pub(super) fn take(&mut self, socket: OwnedFd) {
        if !self.listens {
            self.server = Server::take(self.server.place().clone(), socket);
            self.listens = true;
        }
    }

    /// The server that listens. If none does so far, the daemon before this one has given no
    /// socket: if it `is_gone`, it may still be closing that, which is waited for; else the place
    /// is another program's.
    pub(super) fn settle(self, is_gone: bool) -> Result<Server, Failure> {
        let Offer { server, listens } = self;
        if listens {
            return Ok(server);
        }
        let tried = try_again(
            DYING,
            || server.listen(),
            |tried| is_gone && tried.as_ref().is_err_and(is_in_use),
        );
        match tried {
            Ok(()) => Ok(server),
            Err(error) => Err(cannot_offer(server.place(), &error)),
        }
    }
}

fn is_in_use(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AddrInUse
}

fn cannot_offer(place: &MetricsPlace, error: &io::Error) -> Failure {
    let place = place.text().unwrap_or_default();
    let what = format!("cannot offer metrics at {place}");
    Failure::because(Exit::Config, what, error)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    #[test]
    fn a_place_is_the_daemon_s_before_or_another_program_s() {
        let path = std::env::temp_dir().join(format!("softnet-offer-{}", std::process::id()));
        // Of a run that was killed, and had the number of this process.
        let _ = fs::remove_file(&path);
        let place = MetricsPlace::Unix(path.clone());
        let other = UnixListener::bind(&path).expect("the name is free");
        let why = format!(
            "cannot offer metrics at {}: Address already in use",
            path.display()
        );
        let refused = |offer: Result<Server, Failure>| {
            let refused = offer.expect_err("it is another program's");
            assert!(refused.to_string().starts_with(&why), "{refused}");
            assert_eq!(refused.exit, Exit::Config);
        };
        refused(Offer::new(&place, false).and_then(|offer| offer.settle(true)));
        let offer = || Offer::new(&place, true).expect("it may be the daemon's before");
        refused(offer().settle(false));
        // It gives its socket.
        let mut given = offer();
        given.take(other.try_clone().expect("a descriptor").into());
        drop(given.settle(false).expect("it listens"));
        // It dies, and gives none.
        let waits = offer();
        drop(other);
        let server = waits.settle(true).expect("nobody else has the place");
        UnixStream::connect(&path).expect("it listens");
        drop(server);
        fs::remove_file(&path).expect("it is ours");
    }
}
