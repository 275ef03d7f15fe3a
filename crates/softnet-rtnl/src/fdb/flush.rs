//! `bridge fdb flush` (`br_fdb_delete_bulk`).

use softnet_engine::forward::FdbState;
use softnet_engine::{Devices, Engine, FdbEntry};

use super::attributes::{POLICY, nda, ntf, nud};
use super::{by_master, device, vlan};
use crate::link::refusal;
use crate::nl::headers::NdMsg;
use crate::nl::{Errno, Error, Request, Validation};

/// The states that an entry is said to be in here: a permanent one is static, too.
fn states(state: FdbState) -> u16 {
    match state {
        FdbState::Permanent => nud::PERMANENT | nud::NOARP,
        FdbState::Static => nud::NOARP,
        FdbState::Dynamic => 0,
    }
}

/// Removes the entries that a request describes.
pub(super) fn flush<D: Devices>(engine: &Engine<D>, request: &Request<'_>) -> Result<(), Error> {
    let header: NdMsg = request.header()?;
    let index = device(engine, &header)?;
    let attrs = request.attrs::<NdMsg>(&POLICY, Validation::KnownOnly)?;
    let link = engine.link(index).map_err(refusal)?;
    let bridge = match link.master {
        Some(master) if by_master(header.flags) => master,
        _ if header.flags & ntf::SELF != 0 && link.is_bridge() => index,
        _ => return Err(Errno::EOPNOTSUPP.into()),
    };
    let vlan = vlan(&attrs)?;
    let flags = header.flags & !(ntf::MASTER | ntf::SELF);
    let flags_mask = attrs.fixed::<u8>(nda::NDM_FLAGS_MASK)?;
    let known = ntf::USE | ntf::EXT_LEARNED | ntf::OFFLOADED | ntf::STICKY;
    if (flags | flags_mask.unwrap_or(0)) & !known != 0 {
        return Err(Error::invalid("Unsupported fdb flush ndm flag bits set"));
    }
    let state_mask = attrs.u16(nda::NDM_STATE_MASK)?;
    if (header.state | state_mask.unwrap_or(0)) & !(nud::PERMANENT | nud::NOARP) != 0 {
        return Err(Error::invalid("Unsupported fdb flush ndm state bits set"));
    }
    let port = match attrs.u32(nda::IFINDEX)? {
        Some(port) => {
            let link = engine.link(port).ok();
            let link = link
                .ok_or_else(|| Error::new(Errno::ENODEV).text("Unknown flush device ifindex"))?;
            if link.is_bridge() {
                return Err(Error::invalid("Flush device cannot be a bridge"));
            }
            if link.master.is_none() {
                return Err(Error::invalid("Flush device is not a bridge port"));
            }
            if link.master != Some(bridge) {
                let text = "Flush device is not a port of the specified bridge";
                return Err(Error::invalid(text));
            }
            Some(port)
        }
        None => (bridge != index).then_some(index),
    };
    // States and flags together, as in the kernel: without a mask, what they say does not matter.
    let bits = |state: u16, flags: u8| u32::from(state) << 8 | u32::from(flags);
    let mask = bits(state_mask.unwrap_or(0), flags_mask.unwrap_or(0));
    let wanted = bits(header.state, flags);
    let selected = |entry: &FdbEntry| {
        // Of the flags, only that of sticky entries is known of an entry.
        let sticky = if entry.sticky { ntf::STICKY } else { 0 };
        port.is_none_or(|port| entry.port == port)
            && vlan.is_none_or(|vlan| entry.vlan == Some(vlan))
            && (mask == 0 || bits(states(entry.state), sticky) & mask == wanted)
    };
    engine
        .flush_fdb(bridge, selected)
        .map(drop)
        .map_err(refusal)
}
