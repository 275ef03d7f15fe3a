//! Where metrics are offered: with a socket of this daemon's own, or with that of the daemon before
//! it.

use std::io;
use std::os::fd::OwnedFd;
use std::thread;

use softnet_io::MetricsPlace;

use super::LOOK_SUCCESSOR;
use crate::failure::{Exit, Failure};
use crate::metrics::Server;
use crate::replace::DYING_LOOKS;

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

    /// What listens. If nothing does so far, the daemon before this one has given no socket: if it
    /// `is_gone`, it may still be closing that, which is waited for; else the place is another
    /// program's.
    pub(super) fn settle(self, is_gone: bool) -> Result<Server, Failure> {
        let Offer { server, listens } = self;
        if listens {
            return Ok(server);
        }
        let mut tried = server.listen();
        for _ in 0..DYING_LOOKS {
            if !is_gone || !tried.as_ref().is_err_and(is_in_use) {
                break;
            }
            thread::sleep(LOOK_SUCCESSOR);
            tried = server.listen();
        }
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
