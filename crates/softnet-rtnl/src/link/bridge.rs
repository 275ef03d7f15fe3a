//! What `bridge link` asks for, and what a link says of its bridge.

use softnet_engine::control::{Control, Devices};

use crate::nl::{Attr, Chunk, Client, Errno, Error, Position, Progress, Request};

/// Changes a bridge by its `IFLA_INFO_DATA`.
pub(super) fn change<D: Devices>(
    _: &mut Control<D>,
    _: u32,
    data: Option<Attr<'_>>,
) -> Result<(), Error> {
    match data {
        None => Ok(()),
        Some(data) => Err(Error::new(Errno::EOPNOTSUPP).at(&data)),
    }
}

/// Changes a bridge's port by its `IFLA_INFO_SLAVE_DATA`.
pub(super) fn change_port<D: Devices>(
    _: &mut Control<D>,
    _: u32,
    data: Option<Attr<'_>>,
) -> Result<(), Error> {
    match data {
        None => Ok(()),
        Some(data) => Err(Error::new(Errno::EOPNOTSUPP).at(&data)),
    }
}

/// Dumps the ports of bridges.
pub(super) fn dump<D: Devices>(
    _: &Control<D>,
    _: &Request<'_>,
    _: &Client,
    _: &mut Position,
    _: &mut Chunk<'_>,
) -> Result<Progress, Error> {
    Ok(Progress::Done)
}
