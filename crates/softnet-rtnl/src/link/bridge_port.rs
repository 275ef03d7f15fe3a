//! Options of a bridge's port: `IFLA_INFO_SLAVE_DATA`, and `IFLA_PROTINFO` of the family
//! `AF_BRIDGE` (`br_port_fill_attrs`, `br_setport`).

use softnet::wire::EthernetAddress;
use softnet_engine::forward::{BridgePortOptions, FdbState, McastRouter};
use softnet_engine::{Devices, Engine, FdbEntry};

use super::bridge::identity;
use super::fixed::{self, Fixed, Value};
use super::refusal;
use super::show::Shown;
use crate::nl::{Attr, Attrs, Errno, Error, Message, Policy, Rule};

const STATE: u16 = 1;
const COST: u16 = 3;
const MODE: u16 = 4;
const FAST_LEAVE: u16 = 7;
const LEARNING: u16 = 8;
const UNICAST_FLOOD: u16 = 9;
const ROOT_ID: u16 = 13;
const BRIDGE_ID: u16 = 14;
const DESIGNATED_PORT: u16 = 15;
const ID: u16 = 17;
const NO: u16 = 18;
const FLUSH: u16 = 24;
const MULTICAST_ROUTER: u16 = 25;
const MCAST_FLOOD: u16 = 27;
const BCAST_FLOOD: u16 = 30;
const ISOLATED: u16 = 33;
const LOCKED: u16 = 39;
const MCAST_N_GROUPS: u16 = 41;
const MCAST_MAX_GROUPS: u16 = 42;
/// The last one of Linux 7.2 (`IFLA_BRPORT_MAX`).
const NEIGH_FORWARD_GRAT: u16 = 45;

/// Options fixed to the kernel's default.
static FIXED: &[Fixed] = &[
    (2, Value::U16(PRIORITY)), // PRIORITY
    (5, Value::U8(0)),         // GUARD
    (6, Value::U8(0)),         // PROTECT
    (10, Value::U8(0)),        // PROXYARP
    (12, Value::U8(0)),        // PROXYARP_WIFI
    (28, Value::U8(0)),        // MCAST_TO_UCAST
    (29, Value::U8(0)),        // VLAN_TUNNEL
    (31, Value::U16(0)),       // GROUP_FWD_MASK
    (40, Value::U8(0)),        // MAB
];

/// Answers of the bridge for stations of which it knows the address.
static ANSWERS: &[Fixed] = &[
    (32, Value::U8(0)), // NEIGH_SUPPRESS
    (43, Value::U8(0)), // NEIGH_VLAN_SUPPRESS
    (NEIGH_FORWARD_GRAT, Value::U8(0)),
];

/// State of the spanning tree, which the kernel lets nobody set.
static READ_ONLY: &[Fixed] = &[
    (16, Value::U16(0)), // DESIGNATED_COST
    (19, Value::U8(0)),  // TOPOLOGY_CHANGE_ACK
    (20, Value::U8(0)),  // CONFIG_PENDING
    (21, Value::U64(0)), // MESSAGE_AGE_TIMER
    (22, Value::U64(0)), // FORWARD_DELAY_TIMER
    (23, Value::U64(0)), // HOLD_TIMER
];

/// Attributes that are read in a request, or shown of the port only.
const READ: [u16; 19] = [
    STATE,
    COST,
    MODE,
    FAST_LEAVE,
    LEARNING,
    UNICAST_FLOOD,
    ROOT_ID,
    BRIDGE_ID,
    DESIGNATED_PORT,
    ID,
    NO,
    FLUSH,
    MULTICAST_ROUTER,
    MCAST_FLOOD,
    BCAST_FLOOD,
    ISOLATED,
    LOCKED,
    MCAST_N_GROUPS,
    MCAST_MAX_GROUPS,
];

const PRIORITY: u16 = 32;
/// `BR_STATE_DISABLED`, `BR_STATE_FORWARDING`.
const DISABLED: u8 = 0;
const FORWARDING: u8 = 3;

static POLICY: Policy = Policy::new(
    NEIGH_FORWARD_GRAT,
    &[
        (STATE, Rule::U8),
        (2, Rule::U16),
        (COST, Rule::U32),
        (MODE, Rule::U8),
        (5, Rule::U8),
        (6, Rule::U8),
        (FAST_LEAVE, Rule::U8),
        (LEARNING, Rule::U8),
        (UNICAST_FLOOD, Rule::U8),
        (10, Rule::U8),
        (12, Rule::U8),
        (MULTICAST_ROUTER, Rule::U8),
        (MCAST_FLOOD, Rule::U8),
        (28, Rule::U8),
        (29, Rule::U8),
        (BCAST_FLOOD, Rule::U8),
        (31, Rule::U16),
        (32, Rule::U8),
        (ISOLATED, Rule::U8),
        (LOCKED, Rule::U8),
        (40, Rule::U8),
        (MCAST_MAX_GROUPS, Rule::U32),
        (43, Rule::U8),
        (NEIGH_FORWARD_GRAT, Rule::U8),
    ],
);

/// The kernel's path cost (`port_cost`) of a TAP device's 10 Gbit/s, and of a device without a
/// speed.
fn cost(kind: Option<&str>) -> u32 {
    match kind {
        Some("tun") => 2,
        _ => 100,
    }
}

/// A bridge's options for a link that is its port, as shown.
pub(super) struct Member {
    pub(super) options: BridgePortOptions,
    /// Address of the bridge.
    pub(super) bridge: EthernetAddress,
    /// True if frames pass.
    pub(super) forwards: bool,
    /// The number of the port.
    pub(super) number: u16,
    /// Multicast groups that it is a member of.
    pub(super) groups: u32,
}

impl Member {
    pub(super) fn state(&self) -> u8 {
        if self.forwards { FORWARDING } else { DISABLED }
    }

    /// Puts all attributes.
    pub(super) fn put(&self, message: &mut Message<'_>, kind: Option<&str>) {
        let BridgePortOptions {
            isolated,
            locked,
            learning,
            flood,
            mcast_flood,
            bcast_flood,
            hairpin,
            multicast,
        } = self.options;
        message.put_u8(STATE, self.state());
        message.put_u32(COST, cost(kind));
        for (attr, option) in [
            (MODE, hairpin),
            (FAST_LEAVE, multicast.fastleave),
            (LEARNING, learning),
            (UNICAST_FLOOD, flood),
            (MCAST_FLOOD, mcast_flood),
            (BCAST_FLOOD, bcast_flood),
            (ISOLATED, isolated),
            (LOCKED, locked),
        ] {
            message.put_u8(attr, option.into());
        }
        message.put_u8(MULTICAST_ROUTER, multicast.router as u8);
        message.put_u32(MCAST_N_GROUPS, self.groups);
        message.put_u32(MCAST_MAX_GROUPS, multicast.max_groups);
        // `br_make_port_id`: 6 bits of priority, 10 of the number.
        let id = PRIORITY << 10 | self.number & 0x3ff;
        message.put_u16(DESIGNATED_PORT, id);
        message.put_u16(ID, id);
        message.put_u16(NO, self.number);
        message.put_bytes(ROOT_ID, &identity(self.bridge));
        message.put_bytes(BRIDGE_ID, &identity(self.bridge));
        fixed::put(message, FIXED);
        fixed::put(message, ANSWERS);
        fixed::put(message, READ_ONLY);
    }
}

/// Changes to a port that a request asks for.
pub(super) struct Wanted {
    pub(super) options: BridgePortOptions,
    flush: bool,
}

impl Wanted {
    /// Reads attributes, and refuses those that say what cannot be.
    pub(super) fn read<D: Devices>(
        engine: &Engine<D>,
        index: u32,
        data: &Attr<'_>,
    ) -> Result<Wanted, Error> {
        let link = engine.link(index).map_err(refusal)?;
        let shown = Shown::new(engine, &link).map_err(refusal)?;
        Wanted::of(&shown, shown.member.as_ref(), data)
    }

    /// As [`read`](Wanted::read), of what is to be this member of a bridge.
    pub(super) fn of<D: Devices>(
        shown: &Shown<'_, D>,
        member: Option<&Member>,
        data: &Attr<'_>,
    ) -> Result<Wanted, Error> {
        let attrs = data.nested(&POLICY)?;
        let Some(member) = member else {
            return Err(Errno::EOPNOTSUPP.into());
        };
        let help = "a port of Softnet's bridges cannot change this option";
        let refused = |kind| match attrs.get(kind) {
            Some(attr) => Error::new(Errno::EOPNOTSUPP).help(help).at(&attr),
            None => Errno::EOPNOTSUPP.into(),
        };
        if attrs
            .u8(STATE)?
            .is_some_and(|state| state != member.state())
        {
            return Err(refused(STATE));
        }
        let known = cost(shown.kind());
        if attrs.u32(COST)?.is_some_and(|cost| cost != known) {
            return Err(refused(COST));
        }
        fixed::check(&attrs, FIXED, help)?;
        let no_table = "Softnet keeps no table of neighbours to answer from; mcast_querier of the \
                        bridge has solicitations go only where they are for";
        fixed::check(&attrs, ANSWERS, no_table)?;
        let is_read =
            |kind| READ.contains(&kind) || fixed::has(&[FIXED, ANSWERS, READ_ONLY], kind);
        data.children().refuse_unread(is_read, help)?;
        Ok(Wanted {
            options: options(&attrs, member.options)?,
            flush: attrs.has(FLUSH),
        })
    }

    /// Does it.
    pub(super) fn apply<D: Devices>(&self, engine: &Engine<D>, index: u32) -> Result<(), Error> {
        let known = engine.bridge_port(index).map_err(refusal)?.options;
        if known != self.options {
            let set = engine.set_bridge_port(index, self.options);
            set.map_err(refusal)?;
        }
        if self.flush
            && let Some(master) = engine.link(index).map_err(refusal)?.master
        {
            let learnt =
                |entry: &FdbEntry| entry.state == FdbState::Dynamic && entry.port == index;
            engine.flush_fdb(master, learnt).map_err(refusal)?;
        }
        Ok(())
    }
}

fn options(attrs: &Attrs<'_>, mut options: BridgePortOptions) -> Result<BridgePortOptions, Error> {
    for (attr, option) in [
        (MODE, &mut options.hairpin),
        (FAST_LEAVE, &mut options.multicast.fastleave),
        (LEARNING, &mut options.learning),
        (UNICAST_FLOOD, &mut options.flood),
        (MCAST_FLOOD, &mut options.mcast_flood),
        (BCAST_FLOOD, &mut options.bcast_flood),
        (ISOLATED, &mut options.isolated),
        (LOCKED, &mut options.locked),
    ] {
        if let Some(value) = attrs.u8(attr)? {
            *option = value != 0;
        }
    }
    if let Some(router) = attrs.u8(MULTICAST_ROUTER)? {
        options.multicast.router = McastRouter::of(router).ok_or(Errno::EINVAL)?;
    }
    if let Some(max) = attrs.u32(MCAST_MAX_GROUPS)? {
        options.multicast.max_groups = max;
    }
    Ok(options)
}

/// Changes a bridge's port by its `IFLA_INFO_SLAVE_DATA`.
pub(super) fn change<D: Devices>(
    engine: &Engine<D>,
    index: u32,
    data: Option<Attr<'_>>,
) -> Result<(), Error> {
    match data {
        None => Ok(()),
        Some(data) => Wanted::read(engine, index, &data)?.apply(engine, index),
    }
}
