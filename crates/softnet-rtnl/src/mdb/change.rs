//! `RTM_NEWMDB`, `RTM_DELMDB` (`br_mdb_add`, `br_mdb_del`).

use std::net::IpAddr;

use softnet_engine::forward::Group;
use softnet_engine::{Devices, Engine, EngineError, MdbSpec};

use super::attributes::{group, set};
use crate::link::refusal;
use crate::nl::headers::{BrMdbEntry, BrPortMsg};
use crate::nl::{Errno, Error, NLM_F_REPLACE, Policy, Request, Rule, Validation};

static POLICY: Policy = Policy::new(
    set::ENTRY_ATTRS,
    &[
        (set::ENTRY, Rule::Exact(size_of::<BrMdbEntry>())),
        (set::ENTRY_ATTRS, Rule::NestedAny),
    ],
);
static ATTRS: Policy = Policy::new(set::SOURCE, &[]);

const NO_HOST: &str = "behind a bridge of Softnet there is no host that could be a member";
const ONLY_SOURCE: &str = "an entry of Softnet's bridges has a group, a VLAN and one source";

/// The port and the entries that a request means: one, or one for each VLAN of the port.
fn read<D: Devices>(
    control: &Engine<D>,
    request: &Request<'_>,
) -> Result<(u32, Vec<MdbSpec>), Error> {
    let header: BrPortMsg = request.header()?;
    if header.ifindex == 0 {
        return Err(Error::invalid("Invalid ifindex"));
    }
    let bridge = control.link(header.ifindex);
    let bridge = bridge.map_err(|_| Error::new(Errno::ENODEV).text("Device doesn't exist"))?;
    if !bridge.is_bridge() {
        return Err(Error::new(Errno::EOPNOTSUPP).text("Device is not a bridge"));
    }
    let attrs = request.attrs::<BrPortMsg>(&POLICY, Validation::KnownOnly)?;
    let missing = Error::invalid("Missing MDBA_SET_ENTRY attribute");
    let entry = attrs.get(set::ENTRY).ok_or(missing)?;
    let wanted: BrMdbEntry = entry.fixed()?;
    if wanted.ifindex == bridge.index {
        return Err(Error::new(Errno::EOPNOTSUPP).help(NO_HOST).at(&entry));
    }
    let port = control.link(wanted.ifindex);
    let port = port.map_err(|_| Error::new(Errno::ENODEV).text("Port doesn't exist"))?;
    if port.master != Some(bridge.index) {
        return Err(Error::invalid("Port belongs to a different bridge device"));
    }
    let unknown = Error::invalid("Invalid entry protocol");
    let group = group(&wanted).ok_or_else(|| unknown.at(&entry))?;
    let mut source = None;
    if let Some(nest) = attrs.get(set::ENTRY_ATTRS) {
        nest.children()
            .refuse_unread(|kind| kind == set::SOURCE, ONLY_SOURCE)?;
        let inner = nest.nested(&ATTRS)?;
        if let Some(attr) = inner.get(set::SOURCE) {
            let read = match group {
                Group::Ip(IpAddr::V4(_)) => attr.ipv4().map(IpAddr::from),
                _ => attr.ipv6().map(IpAddr::from),
            };
            source = Some(read?);
        }
    }
    let spec = |vlan| MdbSpec {
        group,
        vlan,
        source,
        permanent: wanted.state == 1,
    };
    let filters = control
        .bridge(bridge.index)
        .map_err(refusal)?
        .options
        .vlan_filtering;
    let specs = match wanted.vid {
        0 if filters => {
            let known = control.bridge_port(port.index).map_err(refusal)?;
            let vlans = known.vlans.iter();
            vlans.map(|(vlan, _)| spec(Some(vlan))).collect()
        }
        0 => vec![spec(None)],
        vlan => vec![spec(Some(vlan))],
    };
    Ok((port.index, specs))
}

/// The engine's reason for refusing an entry, with the kernel's errno.
fn mdb_refusal(error: EngineError) -> Error {
    let errno = match &error {
        EngineError::MdbEntryExists(_) => Errno::EEXIST,
        EngineError::MdbFull(_) => Errno::E2BIG,
        EngineError::NoMdbEntry(_) | EngineError::BadGroup(_) | EngineError::NoSnooping => {
            Errno::EINVAL
        }
        _ => return refusal(error),
    };
    Error {
        errno,
        ..refusal(error)
    }
}

/// Makes a port a member.
pub(super) fn add<D: Devices>(control: &Engine<D>, request: &Request<'_>) -> Result<(), Error> {
    if request.has(NLM_F_REPLACE) {
        let help = "remove the entry first";
        return Err(Error::new(Errno::EOPNOTSUPP).help(help));
    }
    let (port, specs) = read(control, request)?;
    for spec in specs {
        control.add_mdb(port, spec).map_err(mdb_refusal)?;
    }
    Ok(())
}

/// Removes a port.
pub(super) fn delete<D: Devices>(control: &Engine<D>, request: &Request<'_>) -> Result<(), Error> {
    let (port, specs) = read(control, request)?;
    for spec in specs {
        control.remove_mdb(port, spec).map_err(mdb_refusal)?;
    }
    Ok(())
}
