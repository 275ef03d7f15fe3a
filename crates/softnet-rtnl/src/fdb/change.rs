//! `RTM_NEWNEIGH`, `RTM_DELNEIGH` (`rtnl_fdb_add`, `rtnl_fdb_del`, `br_fdb_add`).

use softnet::wire::EthernetAddress;
use softnet_engine::forward::FdbState;
use softnet_engine::{Devices, Engine, EngineError, FdbSpec};

use super::attributes::{POLICY, nda, ntf, nud};
use super::{by_master, device, vlan};
use crate::link::refusal;
use crate::nl::headers::NdMsg;
use crate::nl::{Attrs, Errno, Error, NLM_F_CREATE, NLM_F_EXCL, Request, Validation};

const NO_HOST: &str = "a link of Softnet has no addresses of its own; name the bridge's with \
                       `master`";

/// An entry as a request describes it.
struct Wanted<'a> {
    header: NdMsg,
    attrs: Attrs<'a>,
    /// A port if `by_master`.
    index: u32,
    address: EthernetAddress,
    vlan: Option<u16>,
}

impl<'a> Wanted<'a> {
    fn read<D: Devices>(engine: &Engine<D>, request: &Request<'a>) -> Result<Self, Error> {
        let header: NdMsg = request.header()?;
        let attrs = request.attrs::<NdMsg>(&POLICY, Validation::Liberal)?;
        let read = [nda::LLADDR, nda::VLAN, nda::MASTER, nda::FLAGS_EXT];
        let help = "entries of Softnet's bridges have an address and a VLAN";
        let all = request.attr_iter::<NdMsg>()?;
        all.refuse_unread(|kind| read.contains(&kind), help)?;
        let index = device(engine, &header)?;
        let bytes = attrs.get(nda::LLADDR).map(|attr| attr.data);
        let address = bytes.and_then(|bytes| <[u8; 6]>::try_from(bytes).ok());
        let address = address.ok_or(Error::invalid("invalid address"))?;
        let vlan = vlan(&attrs)?;
        Ok(Wanted {
            header,
            attrs,
            index,
            address: EthernetAddress(address),
            vlan,
        })
    }

    fn by_master<D: Devices>(&self, engine: &Engine<D>) -> bool {
        let link = engine.link(self.index).ok();
        by_master(self.header.flags) && link.is_some_and(|link| link.master.is_some())
    }
}

/// The engine's reason for refusing an entry, with the kernel's errno.
fn fdb_refusal(error: EngineError) -> Error {
    let errno = match &error {
        EngineError::FdbEntryExists(_) => Errno::EEXIST,
        EngineError::NoFdbEntry(_) => Errno::ENOENT,
        EngineError::FdbFull(_) => Errno::ENOSPC,
        _ => return refusal(error),
    };
    Error {
        errno,
        ..refusal(error)
    }
}

/// Adds an entry, or changes one that is there.
pub(super) fn add<D: Devices>(engine: &Engine<D>, request: &Request<'_>) -> Result<(), Error> {
    let wanted = Wanted::read(engine, request)?;
    if !wanted.by_master(engine) || wanted.header.flags & ntf::SELF != 0 {
        return Err(Error::new(Errno::EOPNOTSUPP).help(NO_HOST));
    }
    let NdMsg { state, flags, .. } = wanted.header;
    let external = ntf::USE | ntf::EXT_LEARNED | ntf::OFFLOADED;
    if flags & external != 0 || wanted.attrs.u32(nda::FLAGS_EXT)?.unwrap_or(0) != 0 {
        let help = "entries are permanent, static or dynamic, and may be sticky";
        return Err(Error::new(Errno::EOPNOTSUPP).help(help));
    }
    let state = if state & nud::PERMANENT != 0 {
        FdbState::Permanent
    } else if state & nud::NOARP != 0 {
        FdbState::Static
    } else if state & nud::REACHABLE != 0 {
        FdbState::Dynamic
    } else {
        return Err(Errno::EINVAL.into());
    };
    let spec = FdbSpec {
        address: wanted.address,
        vlan: wanted.vlan,
        state,
        sticky: flags & ntf::STICKY != 0,
    };
    if !request.has(NLM_F_CREATE) {
        let master = engine.link(wanted.index).map_err(refusal)?.master;
        let known = match master {
            Some(bridge) => engine.fdb_entry(bridge, spec.address, spec.vlan),
            None => Ok(None),
        };
        known.map_err(refusal)?.ok_or(Errno::ENOENT)?;
    }
    let replace = !request.has(NLM_F_EXCL);
    let added = engine.add_fdb(wanted.index, spec, replace);
    added.map_err(fdb_refusal)
}

/// Removes an entry.
pub(super) fn delete<D: Devices>(engine: &Engine<D>, request: &Request<'_>) -> Result<(), Error> {
    let wanted = Wanted::read(engine, request)?;
    if !wanted.by_master(engine) {
        let refused = match wanted.header.flags & ntf::SELF {
            0 => Error::new(Errno::EOPNOTSUPP),
            // No link has any.
            _ => Error::new(Errno::ENOENT).help(NO_HOST),
        };
        return Err(refused);
    }
    let removed = engine.remove_fdb(wanted.index, wanted.address, wanted.vlan);
    removed.map_err(fdb_refusal)
}
