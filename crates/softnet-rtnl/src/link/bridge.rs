//! Options of bridges: `IFLA_INFO_DATA` of links of the kind `bridge` (`net/bridge/br_netlink.c`).

use std::time::Duration;

use softnet::wire::EthernetAddress;
use softnet_engine::forward::{FdbState, MulticastOptions};
use softnet_engine::{BridgeOptions, Devices, Engine};

use super::fixed::{self, Fixed, Value};
use super::refusal;
use crate::nl::{Attr, Attrs, Errno, Error, Message, Policy, Rule};

const AGEING_TIME: u16 = 4;
const VLAN_FILTERING: u16 = 7;
const ROOT_ID: u16 = 10;
const BRIDGE_ID: u16 = 11;
const FDB_FLUSH: u16 = 21;
const MCAST_SNOOPING: u16 = 23;
const MCAST_QUERIER: u16 = 25;
const MCAST_HASH_MAX: u16 = 27;
const MCAST_LAST_MEMBER_CNT: u16 = 28;
const MCAST_STARTUP_QUERY_CNT: u16 = 29;
const MCAST_LAST_MEMBER_INTVL: u16 = 30;
const MCAST_MEMBERSHIP_INTVL: u16 = 31;
const MCAST_QUERIER_INTVL: u16 = 32;
const MCAST_QUERY_INTVL: u16 = 33;
const MCAST_QUERY_RESPONSE_INTVL: u16 = 34;
const MCAST_STARTUP_QUERY_INTVL: u16 = 35;
const VLAN_DEFAULT_PVID: u16 = 39;
const MCAST_IGMP_VERSION: u16 = 43;
const MCAST_MLD_VERSION: u16 = 44;
const MULTI_BOOLOPT: u16 = 46;
const FDB_MAX_LEARNED: u16 = 49;

/// Options fixed to the kernel's default: there is no spanning tree, no netfilter, and
/// behind a bridge no host that could route.
static FIXED: &[Fixed] = &[
    (1, Value::U32(1500)),                            // FORWARD_DELAY
    (2, Value::U32(200)),                             // HELLO_TIME
    (3, Value::U32(2000)),                            // MAX_AGE
    (5, Value::U32(0)),                               // STP_STATE
    (6, Value::U16(PRIORITY)),                        // PRIORITY
    (8, Value::Bytes(&[0x81, 0])),                    // VLAN_PROTOCOL
    (9, Value::U16(0)),                               // GROUP_FWD_MASK
    (20, Value::Bytes(&[0x01, 0x80, 0xc2, 0, 0, 0])), // GROUP_ADDR
    (22, Value::U8(1)),                               // MCAST_ROUTER
    (24, Value::U8(0)),                               // MCAST_QUERY_USE_IFADDR
    (26, Value::U32(16)),                             // MCAST_HASH_ELASTICITY
    (36, Value::U8(0)),                               // NF_CALL_IPTABLES
    (37, Value::U8(0)),                               // NF_CALL_IP6TABLES
    (38, Value::U8(0)),                               // NF_CALL_ARPTABLES
    (41, Value::U8(0)),                               // VLAN_STATS_ENABLED
    (42, Value::U8(0)),                               // MCAST_STATS_ENABLED
    (45, Value::U8(0)),                               // VLAN_STATS_PER_PORT
];

/// State of the spanning tree, which the kernel lets nobody set.
static READ_ONLY: &[Fixed] = &[
    (12, Value::U16(0)), // ROOT_PORT
    (13, Value::U32(0)), // ROOT_PATH_COST
    (14, Value::U8(0)),  // TOPOLOGY_CHANGE
    (15, Value::U8(0)),  // TOPOLOGY_CHANGE_DETECTED
    (16, Value::U64(0)), // HELLO_TIMER
    (17, Value::U64(0)), // TCN_TIMER
    (18, Value::U64(0)), // TOPOLOGY_CHANGE_TIMER
    (19, Value::U64(0)), // GC_TIMER
];

const PRIORITY: u16 = 0x8000;
/// The `BR_BOOLOPT_*` of Linux 7.2, all of them off.
const BOOLEANS: u32 = 0x1f;

static POLICY: Policy = Policy::new(
    49,
    &[
        (1, Rule::U32),
        (2, Rule::U32),
        (3, Rule::U32),
        (AGEING_TIME, Rule::U32),
        (5, Rule::U32),
        (6, Rule::U16),
        (VLAN_FILTERING, Rule::U8),
        (8, Rule::U16),
        (9, Rule::U16),
        (20, Rule::Exact(6)),
        (22, Rule::U8),
        (MCAST_SNOOPING, Rule::U8),
        (24, Rule::U8),
        (MCAST_QUERIER, Rule::U8),
        (26, Rule::U32),
        (MCAST_HASH_MAX, Rule::U32),
        (MCAST_LAST_MEMBER_CNT, Rule::U32),
        (MCAST_STARTUP_QUERY_CNT, Rule::U32),
        (MCAST_LAST_MEMBER_INTVL, Rule::U64),
        (MCAST_MEMBERSHIP_INTVL, Rule::U64),
        (MCAST_QUERIER_INTVL, Rule::U64),
        (MCAST_QUERY_INTVL, Rule::U64),
        (MCAST_QUERY_RESPONSE_INTVL, Rule::U64),
        (MCAST_STARTUP_QUERY_INTVL, Rule::U64),
        (VLAN_DEFAULT_PVID, Rule::U16),
        (MCAST_IGMP_VERSION, Rule::U8),
        (MCAST_MLD_VERSION, Rule::U8),
        (MULTI_BOOLOPT, Rule::Exact(8)),
        (FDB_MAX_LEARNED, Rule::U32),
    ],
);

/// The identity of a bridge in the spanning tree: priority and address.
pub(super) fn identity(address: EthernetAddress) -> [u8; 8] {
    let ([high, low], [a, b, c, d, e, f]) = (PRIORITY.to_be_bytes(), address.0);
    [high, low, a, b, c, d, e, f]
}

/// Times are in `USER_HZ`.
const TICK: Duration = Duration::from_millis(10);

/// A time as `clock_t`.
pub(crate) fn ticks(time: Duration) -> u32 {
    u32::try_from(time.as_millis() / TICK.as_millis()).unwrap_or(u32::MAX)
}

/// Puts a bridge's options.
pub(super) fn put(message: &mut Message<'_>, options: &BridgeOptions, address: EthernetAddress) {
    message.put_u32(AGEING_TIME, ticks(options.ageing_time));
    message.put_u8(VLAN_FILTERING, options.vlan_filtering.into());
    message.put_u16(VLAN_DEFAULT_PVID, options.default_pvid.unwrap_or(0));
    message.put_bytes(ROOT_ID, &identity(address));
    message.put_bytes(BRIDGE_ID, &identity(address));
    message.put(MULTI_BOOLOPT, &[0, BOOLEANS]);
    put_multicast(message, &options.multicast);
    message.put_u32(FDB_MAX_LEARNED, options.fdb_max_learned);
    fixed::put(message, FIXED);
    fixed::put(message, READ_ONLY);
}

/// Times of snooping, by attribute.
fn times(options: &mut MulticastOptions) -> [(u16, &mut Duration); 6] {
    [
        (MCAST_LAST_MEMBER_INTVL, &mut options.last_member_interval),
        (MCAST_MEMBERSHIP_INTVL, &mut options.membership_interval),
        (MCAST_QUERIER_INTVL, &mut options.querier_interval),
        (MCAST_QUERY_INTVL, &mut options.query_interval),
        (
            MCAST_QUERY_RESPONSE_INTVL,
            &mut options.query_response_interval,
        ),
        (
            MCAST_STARTUP_QUERY_INTVL,
            &mut options.startup_query_interval,
        ),
    ]
}

/// Numbers of snooping, by attribute.
fn numbers(options: &mut MulticastOptions) -> [(u16, &mut u32); 3] {
    [
        (MCAST_HASH_MAX, &mut options.hash_max),
        (MCAST_LAST_MEMBER_CNT, &mut options.last_member_count),
        (MCAST_STARTUP_QUERY_CNT, &mut options.startup_query_count),
    ]
}

fn put_multicast(message: &mut Message<'_>, options: &MulticastOptions) {
    let mut options = *options;
    message.put_u8(MCAST_SNOOPING, options.snooping.into());
    message.put_u8(MCAST_QUERIER, options.querier.into());
    message.put_u8(MCAST_IGMP_VERSION, options.igmp_version);
    message.put_u8(MCAST_MLD_VERSION, options.mld_version);
    for (attr, time) in times(&mut options) {
        message.put(attr, &u64::from(ticks(*time)));
    }
    for (attr, number) in numbers(&mut options) {
        message.put_u32(attr, *number);
    }
}

/// Reads what a request says of snooping.
fn read_multicast(attrs: &Attrs<'_>, options: &mut MulticastOptions) -> Result<(), Error> {
    for (attr, flag) in [
        (MCAST_SNOOPING, &mut options.snooping),
        (MCAST_QUERIER, &mut options.querier),
    ] {
        if let Some(value) = attrs.u8(attr)? {
            *flag = value != 0;
        }
    }
    for (attr, version, least) in [
        (MCAST_IGMP_VERSION, &mut options.igmp_version, 2),
        (MCAST_MLD_VERSION, &mut options.mld_version, 1),
    ] {
        if let Some(value) = attrs.u8(attr)? {
            if value != least && value != least + 1 {
                return Err(Errno::EINVAL.into());
            }
            *version = value;
        }
    }
    for (attr, time) in times(options) {
        if let Some(value) = attrs.u64(attr)? {
            let ticks = u32::try_from(value).map_err(|_| Error::from(Errno::ERANGE))?;
            *time = TICK * ticks;
        }
    }
    for (attr, number) in numbers(options) {
        if let Some(value) = attrs.u32(attr)? {
            *number = value;
        }
    }
    Ok(())
}

/// Attributes of snooping.
fn is_multicast(kind: u16) -> bool {
    let mut options = MulticastOptions::default();
    let flags = [
        MCAST_SNOOPING,
        MCAST_QUERIER,
        MCAST_IGMP_VERSION,
        MCAST_MLD_VERSION,
    ];
    flags.contains(&kind)
        || times(&mut options).iter().any(|(attr, _)| *attr == kind)
        || numbers(&mut options).iter().any(|(attr, _)| *attr == kind)
}

/// Changes a bridge's options, all or none.
pub(super) fn change<D: Devices>(
    engine: &Engine<D>,
    index: u32,
    data: Option<Attr<'_>>,
) -> Result<(), Error> {
    let Some(data) = data else {
        return Ok(());
    };
    let attrs = data.nested(&POLICY)?;
    let help = "a bridge of Softnet cannot change this option";
    let before = engine.bridge(index).map_err(refusal)?.options;
    let mut after = before;
    if let Some(time) = attrs.u32(AGEING_TIME)? {
        after.ageing_time = TICK * time;
    }
    if let Some(filtering) = attrs.u8(VLAN_FILTERING)? {
        after.vlan_filtering = filtering != 0;
    }
    if let Some(pvid) = attrs.u16(VLAN_DEFAULT_PVID)? {
        after.default_pvid = (pvid != 0).then_some(pvid);
    }
    if let Some(size) = attrs.u32(FDB_MAX_LEARNED)? {
        after.fdb_max_learned = size;
    }
    if let Some(booleans) = attrs.get(MULTI_BOOLOPT) {
        let [value, mask]: [u32; 2] = booleans.fixed()?;
        if value & mask != 0 {
            return Err(Error::new(Errno::EOPNOTSUPP).help(help).at(&booleans));
        }
    }
    read_multicast(&attrs, &mut after.multicast)?;
    fixed::check(&attrs, FIXED, help)?;
    let read = [
        AGEING_TIME,
        VLAN_FILTERING,
        ROOT_ID,
        BRIDGE_ID,
        FDB_FLUSH,
        VLAN_DEFAULT_PVID,
        MULTI_BOOLOPT,
        FDB_MAX_LEARNED,
    ];
    let is_read =
        |kind| read.contains(&kind) || is_multicast(kind) || fixed::has(&[FIXED, READ_ONLY], kind);
    data.children().refuse_unread(is_read, help)?;
    if after != before {
        engine.set_bridge(index, after).map_err(refusal)?;
    }
    if attrs.has(FDB_FLUSH) {
        let learnt = |entry: &softnet_engine::FdbEntry| entry.state == FdbState::Dynamic;
        engine.flush_fdb(index, learnt).map_err(refusal)?;
    }
    Ok(())
}
