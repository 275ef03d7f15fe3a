//! State of a host that Softnet does not have: addresses, routes, neighbours. There are none, and
//! none can be made; the interface at the other end of a port has them.

use crate::nl::headers::RtGenMsg;
use crate::nl::{Errno, Error, Replies, Request};

const RTM_NEWADDR: u16 = 20;
const RTM_GETADDR: u16 = 22;
const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
const RTM_NEWNEIGH: u16 = 28;
const RTM_GETNEIGH: u16 = 30;

const RTM_NEWNSID: u16 = 88;
pub(crate) const RTM_GETNSID: u16 = 90;

/// Answers `RTM_GETNSID`, which `ip monitor` starts with: no namespace has a number here.
pub(crate) fn namespace(replies: &mut Replies) -> Result<(), Error> {
    const NETNSA_NSID: u16 = 1;
    replies.message(RTM_NEWNSID, 0, &RtGenMsg::default(), |message| {
        message.put_i32(NETNSA_NSID, -1);
    })
}

/// True for the types of requests about a host's addresses, routes and neighbours.
pub(crate) fn answers(kind: u16) -> bool {
    (RTM_NEWADDR..=RTM_GETNEIGH).contains(&kind)
}

/// Answers a request that is not a dump.
pub(crate) fn request(request: &Request<'_>) -> Result<(), Error> {
    let help = match request.kind {
        // As where no route matches.
        RTM_GETROUTE => return Err(Errno::ENETUNREACH.into()),
        RTM_NEWADDR..=RTM_GETADDR => "links of Softnet have no addresses",
        RTM_NEWROUTE..RTM_GETROUTE => "Softnet forwards Ethernet frames and has no routes",
        RTM_NEWNEIGH..=RTM_GETNEIGH => "links of Softnet have no neighbours",
        _ => return Err(Errno::EOPNOTSUPP.into()),
    };
    let help = format!("{help}; change those of the interface at the other end");
    Err(Error::new(Errno::EOPNOTSUPP).help(help))
}

/// Answers a dump: there is nothing.
pub(crate) fn dump(request: &Request<'_>) -> Result<(), Error> {
    match request.kind {
        RTM_GETADDR | RTM_GETROUTE | RTM_GETNEIGH => Ok(()),
        _ => Err(Errno::EOPNOTSUPP.into()),
    }
}
