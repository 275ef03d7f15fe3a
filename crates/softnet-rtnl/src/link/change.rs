//! `RTM_NEWLINK`, `RTM_SETLINK`, `RTM_DELLINK` (`net/core/rtnetlink.c`).

use softnet::tx::MAX_QUEUES;
use softnet::wire::EthernetAddress;
use softnet_engine::{
    ALIAS_MAX, Devices, Engine, EngineError, PortOptions, PortSpec, Settings, Virtual,
};

use super::attributes::{INFO_POLICY, LINK_POLICY, iff, ifla, info};
use super::bridge_port;
use super::find;
use super::show::{Shown, fixed_flags};
use crate::nl::headers::IfInfoMsg;
use crate::nl::{
    Attr, Attrs, Client, Errno, Error, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, Request,
    Validation,
};

/// Highest number of queues that the kernel takes (`rtnl_create_link`).
const QUEUES_MAX: u32 = 4096;

/// Frames that a queue of an `ifb` holds (`TX_Q_LIMIT`).
const IFB_TX_QUEUE_LEN: u32 = 32;

/// Links there are at most when one is added by a client that is not the owner: each costs memory.
const LINKS: usize = 512;

/// Attributes that are read in a request; `EXT_MASK` says what an answer shows.
const READ: [u16; 14] = [
    ifla::LINK,
    ifla::ADDRESS,
    ifla::BROADCAST,
    ifla::IFNAME,
    ifla::MTU,
    ifla::MASTER,
    ifla::TXQLEN,
    ifla::LINKINFO,
    ifla::IFALIAS,
    ifla::GROUP,
    ifla::EXT_MASK,
    ifla::NUM_TX_QUEUES,
    ifla::NUM_RX_QUEUES,
    ifla::ALT_IFNAME,
];

/// The content of a request to add or change a link.
struct Wanted<'a> {
    header: IfInfoMsg,
    attrs: Attrs<'a>,
    kind: Option<&'a str>,
    /// `IFLA_INFO_DATA`.
    data: Option<Attr<'a>>,
    /// `IFLA_INFO_SLAVE_DATA`.
    slave_data: Option<Attr<'a>>,
}

impl<'a> Wanted<'a> {
    fn read(request: &Request<'a>) -> Result<Wanted<'a>, Error> {
        let header: IfInfoMsg = request.header()?;
        let attrs = request.attrs::<IfInfoMsg>(&LINK_POLICY, Validation::Liberal)?;
        let (mut kind, mut data, mut slave_data) = (None, None, None);
        if let Some(linkinfo) = attrs.get(ifla::LINKINFO) {
            let linkinfo = linkinfo.nested(&INFO_POLICY)?;
            kind = linkinfo
                .get(info::KIND)
                .map(|kind| kind.str())
                .transpose()?;
            data = linkinfo.get(info::DATA);
            slave_data = linkinfo.get(info::SLAVE_DATA);
        }
        for (attr, text) in [
            (
                ifla::NET_NS_PID,
                "links cannot be moved to a network namespace",
            ),
            (
                ifla::NET_NS_FD,
                "links cannot be moved to a network namespace",
            ),
            (ifla::PROTO_DOWN, "proto_down is not supported"),
            (ifla::CARRIER, "the carrier is the device's own"),
        ] {
            if let Some(attr) = attrs.get(attr) {
                return Err(Error::new(Errno::EOPNOTSUPP).help(text).at(&attr));
            }
        }
        let help = "Softnet's links have no such attribute";
        let all = request.attr_iter::<IfInfoMsg>()?;
        all.refuse_unread(|kind| READ.contains(&kind), help)?;
        Ok(Wanted {
            header,
            attrs,
            kind,
            data,
            slave_data,
        })
    }

    /// The settings with what the request changes.
    fn settings(&self, mut settings: Settings) -> Result<Settings, Error> {
        if let Some(name) = self.attrs.get(ifla::IFNAME) {
            let text = name.str()?;
            // A request that names a link by its number may leave the name empty.
            if !text.is_empty() {
                settings.name = text.to_owned();
            }
        }
        if let Some(address) = self.attrs.get(ifla::ADDRESS) {
            if address.data.len() != 6 {
                return Err(Error::new(Errno::EINVAL).at(&address));
            }
            settings.address = Some(EthernetAddress(address.mac()?));
        }
        if let Some(broadcast) = self.attrs.get(ifla::BROADCAST)
            && broadcast.data != [0xff; 6]
        {
            let help = "the broadcast address of Ethernet is ff:ff:ff:ff:ff:ff";
            return Err(Error::new(Errno::EOPNOTSUPP).help(help).at(&broadcast));
        }
        if let Some(mtu) = self.attrs.get(ifla::MTU) {
            settings.mtu = mtu.u32()?;
        }
        if let Some(length) = self.attrs.get(ifla::TXQLEN) {
            settings.tx_queue_len = length.u32()?;
        }
        if let Some(group) = self.attrs.get(ifla::GROUP) {
            settings.group = group.u32()?;
        }
        if let Some(alias) = self.attrs.get(ifla::IFALIAS) {
            let text = alias.str()?;
            if text.len() > ALIAS_MAX {
                return Err(Error::new(Errno::EINVAL).at(&alias));
            }
            settings.alias = text.to_owned();
        }
        let flags = self.header.flags;
        // 0 with flags stands for all, as in rtnl_dev_get_flags.
        let change = match (self.header.change, flags) {
            (0, 0) => 0,
            (0, _) => u32::MAX,
            (change, _) => change,
        };
        if change & iff::UP != 0 {
            settings.up = flags & iff::UP != 0;
        }
        Ok(settings)
    }

    /// Refuses other flags than a link of this kind has. Those that the kernel lets nobody set are
    /// passed over; so are all of a request that does not say which it changes.
    fn check_flags(&self, kind: Option<&str>) -> Result<(), Error> {
        let wrong = (self.header.flags ^ fixed_flags(kind)) & self.header.change;
        if wrong & !(iff::UP | iff::VOLATILE) != 0 {
            return Err(Error::new(Errno::EOPNOTSUPP).help("this flag of a link cannot be set"));
        }
        Ok(())
    }

    /// The new master, if the request names one.
    fn master(&self) -> Result<Option<Option<u32>>, Error> {
        let master = self.attrs.get(ifla::MASTER);
        let master = master.map(|master| master.u32()).transpose()?;
        Ok(master.map(|index| (index != 0).then_some(index)))
    }

    fn queues(&self) -> Result<usize, Error> {
        let number = |attr, text: &'static str| {
            let Some(attr) = self.attrs.get(attr) else {
                return Ok(None);
            };
            match attr.u32()? {
                count @ 1..=QUEUES_MAX => Ok(Some(count as usize)),
                _ => Err(Error::invalid(text).at(&attr)),
            }
        };
        let tx = number(ifla::NUM_TX_QUEUES, "Invalid number of transmit queues")?;
        let rx = number(ifla::NUM_RX_QUEUES, "Invalid number of receive queues")?;
        let queues = tx.or(rx).unwrap_or(1);
        if queues > MAX_QUEUES {
            let help = format!("a port has at most {MAX_QUEUES} queues");
            return Err(Error::invalid("Invalid number of transmit queues").help(help));
        }
        Ok(queues)
    }
}

/// The answer to a control call that is refused.
pub(crate) fn refusal(error: EngineError) -> Error {
    let errno = match &error {
        EngineError::NoLink(_) | EngineError::NoLinkNamed(_) => Errno::ENODEV,
        EngineError::NoGroup(_) => Errno::ENOENT,
        EngineError::GroupInUse(_) => Errno::EBUSY,
        EngineError::Exists(_) => Errno::EEXIST,
        EngineError::BadAddress => Errno::EADDRNOTAVAIL,
        EngineError::NoBridge(_)
        | EngineError::NoPort(_)
        | EngineError::NoVlans
        | EngineError::Foreign(_)
        | EngineError::Stays(_) => Errno::EOPNOTSUPP,
        EngineError::VlanExists => Errno::EEXIST,
        EngineError::TooDeep => Errno::ELOOP,
        EngineError::Device { .. } => Errno::EIO,
        _ => Errno::EINVAL,
    };
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    Error::new(errno).text(text)
}

/// `RTM_NEWLINK`: adds a link, or changes one that is there.
pub(super) fn new<D: Devices>(
    engine: &Engine<D>,
    request: &Request<'_>,
    client: &Client,
) -> Result<(), Error> {
    let wanted = Wanted::read(request)?;
    let known = find(engine, &wanted.header, &wanted.attrs)?;
    if let Some(index) = known {
        if request.has(NLM_F_EXCL) {
            return Err(Errno::EEXIST.into());
        }
        if request.has(NLM_F_REPLACE) {
            return Err(Errno::EOPNOTSUPP.into());
        }
        return change(engine, index, &wanted);
    }
    if !request.has(NLM_F_CREATE) {
        let group = wanted.attrs.get(ifla::GROUP);
        if let (0, None, Some(group)) =
            (wanted.header.index, wanted.attrs.get(ifla::IFNAME), group)
        {
            return change_group(engine, group.u32()?, &wanted);
        }
        return Err(Errno::ENODEV.into());
    }
    let unknown = || Error::new(Errno::EOPNOTSUPP).text("Unknown device type");
    let kind = wanted.kind.ok_or_else(unknown)?;
    if wanted.header.index != 0 {
        let help = "links number themselves";
        return Err(Error::new(Errno::EOPNOTSUPP).help(help));
    }
    if !client.own && engine.links().len() >= LINKS {
        let help = format!("members of the socket's group add links up to {LINKS}");
        return Err(Error::new(Errno::ENOSPC).help(help));
    }
    let settings = Settings {
        up: false,
        ..Settings::default()
    };
    wanted.check_flags(Some(kind))?;
    let mut settings = wanted.settings(settings)?;
    settings.name = name(engine, settings.name, kind)?;
    let master = wanted.master()?.flatten();
    if kind == "bridge" {
        if master.is_some() {
            return Err(Error::new(Errno::ELOOP).text("Can not enslave a bridge to a bridge"));
        }
        wanted.queues()?;
        let index = engine.add_bridge(settings).map_err(refusal)?;
        let made = super::bridge::change(engine, index, wanted.data);
        return made.inspect_err(|_| {
            let _ = engine.delete(index);
        });
    }
    let device = match kind {
        "vlan" => {
            let (parent, tag) = super::vlan_link::wanted(engine, &wanted.attrs, wanted.data)?;
            settings.address = settings.address.or_else(|| Some(parent.address()));
            if wanted.attrs.get(ifla::MTU).is_none() {
                settings.mtu = parent.settings.mtu;
            } else if settings.mtu > parent.settings.mtu {
                return Err(Errno::ERANGE.into());
            }
            engine.devices().vlan(&parent.settings.name, tag)
        }
        _ => {
            if let Some(link) = wanted.attrs.get(ifla::LINK) {
                let help = "links of this kind have no parent";
                return Err(Error::new(Errno::EOPNOTSUPP).help(help).at(&link));
            }
            engine.devices().of_kind(kind, &settings.name)
        }
    };
    let device = device.ok_or_else(unknown)?;
    let is_ifb = engine.devices().virtual_link(&device) == Some(Virtual::Ifb);
    if is_ifb && wanted.attrs.get(ifla::TXQLEN).is_none() {
        settings.tx_queue_len = IFB_TX_QUEUE_LEN;
    }
    if !client.own && engine.devices().is_of_host(&device) {
        let help = "root and the daemon's own user make devices of the host, and no others";
        return Err(Error::new(Errno::EPERM).help(help));
    }
    let queues = wanted.queues()?;
    let master = master.map(|index| engine.link(index)).transpose();
    let master = master.map_err(refusal)?;
    let new = PortSpec {
        settings,
        options: PortOptions {
            device,
            queues,
            ..PortOptions::default()
        },
        master: master.map(|link| link.settings.name.clone()),
        ..PortSpec::default()
    };
    let index = engine.add_port(new).map_err(refusal)?;
    let made = bridge_port::change(engine, index, wanted.slave_data);
    made.inspect_err(|_| {
        let _ = engine.delete(index);
    })
}

/// The name of a new link: as asked for, with a number in the place of `%d`, or made of its kind.
fn name<D: Devices>(engine: &Engine<D>, name: String, kind: &str) -> Result<String, Error> {
    let pattern = match name.as_str() {
        "" => format!("{kind}%d"),
        _ => name,
    };
    let Some((front, back)) = pattern.split_once("%d") else {
        return match pattern.contains('%') {
            true => Err(Errno::EINVAL.into()),
            false => Ok(pattern),
        };
    };
    if back.contains('%') {
        return Err(Errno::EINVAL.into());
    }
    // One more than there are links is enough.
    let mut numbers = 0..=engine.links().len();
    let free = numbers.find_map(|number| {
        let name = format!("{front}{number}{back}");
        engine.link_named(&name).is_err().then_some(name)
    });
    free.ok_or_else(|| Errno::ENOSPC.into())
}

/// `RTM_SETLINK`.
pub(super) fn set<D: Devices>(engine: &Engine<D>, request: &Request<'_>) -> Result<(), Error> {
    let wanted = Wanted::read(request)?;
    match find(engine, &wanted.header, &wanted.attrs)? {
        Some(index) => change(engine, index, &wanted),
        None => Err(Errno::ENODEV.into()),
    }
}

/// Changes all that the request says, or nothing.
fn change<D: Devices>(engine: &Engine<D>, index: u32, wanted: &Wanted<'_>) -> Result<(), Error> {
    let link = engine.link(index).map_err(refusal)?;
    let before = link.settings.clone();
    let is_bridge = link.is_bridge();
    // As `ops->changelink`, which TAP devices do not have.
    if wanted.data.is_some() && !(is_bridge && wanted.kind == Some("bridge")) {
        return Err(Errno::EOPNOTSUPP.into());
    }
    let kind = Shown::new(engine, &link).map_err(refusal)?.kind();
    wanted.check_flags(kind)?;
    let mut after = wanted.settings(before.clone())?;
    if after.name != before.name {
        after.name = name(engine, after.name, kind.unwrap_or_default())?;
    }
    let master = wanted.master()?;
    if is_bridge && master.flatten().is_some() {
        return Err(Error::new(Errno::ELOOP).text("Can not enslave a bridge to a bridge"));
    }
    // Before the port moves: a bridge that it leaves forgets its options and VLANs.
    let slave = match wanted.slave_data {
        Some(data) if !is_bridge => {
            let shown = Shown::new(engine, &link).map_err(refusal)?;
            let member = shown.member_of(master.unwrap_or(link.master), after.up);
            Some(bridge_port::Wanted::of(
                &shown,
                member.map_err(refusal)?.as_ref(),
                &data,
            )?)
        }
        _ => None,
    };
    let changed = engine.change(index, |link| link.clone_from(&after));
    changed.map_err(refusal)?;
    let rest = (|| {
        if let Some(master) = master {
            let options = slave.as_ref().map(|slave| slave.options);
            let moved = engine.set_master_as(index, master, options.unwrap_or_default());
            moved.map_err(refusal)?;
        }
        match slave {
            Some(slave) => slave.apply(engine, index),
            None if is_bridge => super::bridge::change(engine, index, wanted.data),
            None => Ok(()),
        }
    })();
    if rest.is_err() {
        let _ = engine.change(index, |link| *link = before);
    }
    rest
}

/// Changes the links of a group.
fn change_group<D: Devices>(
    engine: &Engine<D>,
    group: u32,
    wanted: &Wanted<'_>,
) -> Result<(), Error> {
    for index in of_group(engine, group) {
        change(engine, index, wanted)?;
    }
    Ok(())
}

fn of_group<D: Devices>(engine: &Engine<D>, group: u32) -> Vec<u32> {
    let links = engine.links();
    let links = links.values();
    let links = links.filter(|link| link.settings.group == group);
    links.map(|link| link.index).collect()
}

/// `RTM_DELLINK`.
pub(super) fn delete<D: Devices>(engine: &Engine<D>, request: &Request<'_>) -> Result<(), Error> {
    let header: IfInfoMsg = request.header()?;
    let attrs = request.attrs::<IfInfoMsg>(&LINK_POLICY, Validation::Liberal)?;
    if let Some(index) = find(engine, &header, &attrs)? {
        return engine.delete(index).map(drop).map_err(refusal);
    }
    let group = attrs.get(ifla::GROUP);
    if let (0, None, Some(group)) = (header.index, attrs.get(ifla::IFNAME), group) {
        let group = group.u32()?;
        // The default group cannot be deleted.
        if group == 0 {
            return Err(Errno::EPERM.into());
        }
        let links = of_group(engine, group);
        if links.is_empty() {
            return Err(Errno::ENODEV.into());
        }
        return engine.delete_all(&links).map(drop).map_err(refusal);
    }
    let named = header.index != 0 || attrs.get(ifla::IFNAME).is_some();
    Err(if named { Errno::ENODEV } else { Errno::EINVAL }.into())
}
