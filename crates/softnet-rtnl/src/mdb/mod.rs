//! Groups of bridges: what `bridge mdb` asks for, `RTM_*MDB`.
//!
//! Source: `net/bridge/br_mdb.c`.

mod attributes;
mod change;
mod show;

use softnet_engine::{Devices, Engine};

pub(crate) use show::{dump, publish, publish_router};

use crate::nl::{Errno, Error, Request};

/// Types of messages.
pub(crate) const RTM_NEWMDB: u16 = 84;
pub(crate) const RTM_DELMDB: u16 = 85;
pub(crate) const RTM_GETMDB: u16 = 86;
/// Who hears of groups.
const RTNLGRP_MDB: u32 = 26;

/// Answers `RTM_*MDB`.
pub(crate) fn request<D: Devices>(
    control: &Engine<D>,
    request: &Request<'_>,
) -> Result<(), Error> {
    match request.kind {
        RTM_NEWMDB => change::add(control, request),
        RTM_DELMDB => change::delete(control, request),
        _ => Err(Errno::EOPNOTSUPP.into()),
    }
}
