//! A change in words: the type of its message, and the link that it is about.

use softnet_engine::{Devices, Engine};

use crate::nl::Request;
use crate::{fdb, link, mdb, tc};

/// `TCM_IFINDEX_MAGIC_BLOCK`: a block of filters in the place of a link.
const BLOCK: u32 = u32::MAX;

/// Front of the payload in all messages that name a link: a family and a link's number.
/// Behind that, the parent of what `tc` changes is at the fourth place.
type Front = [u32; 2];

/// `RTM_NEWQDISC dev web`.
pub(crate) fn words<D: Devices>(engine: &Engine<D>, request: &Request<'_>) -> String {
    let kind = match request.kind {
        link::RTM_NEWLINK => "RTM_NEWLINK",
        link::RTM_DELLINK => "RTM_DELLINK",
        link::RTM_SETLINK => "RTM_SETLINK",
        link::vlan::RTM_NEWVLAN => "RTM_NEWVLAN",
        fdb::RTM_NEWNEIGH => "RTM_NEWNEIGH",
        fdb::RTM_DELNEIGH => "RTM_DELNEIGH",
        mdb::RTM_NEWMDB => "RTM_NEWMDB",
        mdb::RTM_DELMDB => "RTM_DELMDB",
        tc::RTM_NEWQDISC => "RTM_NEWQDISC",
        tc::RTM_DELQDISC => "RTM_DELQDISC",
        tc::RTM_NEWTCLASS => "RTM_NEWTCLASS",
        tc::RTM_DELTCLASS => "RTM_DELTCLASS",
        tc::RTM_NEWTFILTER => "RTM_NEWTFILTER",
        tc::RTM_DELTFILTER => "RTM_DELTFILTER",
        tc::RTM_NEWACTION => "RTM_NEWACTION",
        tc::RTM_DELACTION => "RTM_DELACTION",
        tc::RTM_NEWCHAIN => "RTM_NEWCHAIN",
        tc::RTM_DELCHAIN => "RTM_DELCHAIN",
        other => return format!("message {other}"),
    };
    match subject(engine, request) {
        Some(subject) => format!("{kind} {subject}"),
        None => kind.to_owned(),
    }
}

fn subject<D: Devices>(engine: &Engine<D>, request: &Request<'_>) -> Option<String> {
    if (tc::RTM_NEWACTION..=tc::RTM_GETACTION).contains(&request.kind) {
        return None;
    }
    let [_, index] = request.header::<Front>().ok()?;
    let name = match index {
        BLOCK => {
            let [.., parent] = request.header::<[u32; 4]>().ok()?;
            return Some(format!("block {parent}"));
        }
        // One that comes has a name, and no number yet.
        0 => {
            let mut attributes = request.attr_iter::<[u32; 4]>().ok()?;
            let name = attributes.find(|attribute| attribute.kind() == libc::IFLA_IFNAME)?;
            name.str().ok()?.to_owned()
        }
        index => engine.link(index).ok()?.settings.name.clone(),
    };
    Some(format!("dev {name}"))
}
