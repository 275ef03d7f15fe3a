//! Options of bridges: `IFLA_INFO_DATA` of links of the kind `bridge` (`net/bridge/br_netlink.c`).

use std::time::Duration;

use softnet::wire::EthernetAddress;
use softnet_engine::forward::FdbState;
use softnet_engine::{BridgeOptions, Devices, Engine};

use super::fixed::{self, Fixed, Value};
use super::refusal;
use crate::nl::{Attr, Errno, Error, Message, Policy, Rule};

const AGEING_TIME: u16 = 4;
const VLAN_FILTERING: u16 = 7;
const ROOT_ID: u16 = 10;
const BRIDGE_ID: u16 = 11;
const FDB_FLUSH: u16 = 21;
const VLAN_DEFAULT_PVID: u16 = 39;
const MULTI_BOOLOPT: u16 = 46;

/// Options fixed to the kernel's default: there is no spanning tree, no snooping of multicast and
/// no netfilter.
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
    (23, Value::U8(0)),                               // MCAST_SNOOPING
    (24, Value::U8(0)),                               // MCAST_QUERY_USE_IFADDR
    (25, Value::U8(0)),                               // MCAST_QUERIER
    (26, Value::U32(16)),                             // MCAST_HASH_ELASTICITY
    (27, Value::U32(4096)),                           // MCAST_HASH_MAX
    (28, Value::U32(2)),                              // MCAST_LAST_MEMBER_CNT
    (29, Value::U32(2)),                              // MCAST_STARTUP_QUERY_CNT
    (30, Value::U64(100)),                            // MCAST_LAST_MEMBER_INTVL
    (31, Value::U64(26_000)),                         // MCAST_MEMBERSHIP_INTVL
    (32, Value::U64(25_500)),                         // MCAST_QUERIER_INTVL
    (33, Value::U64(12_500)),                         // MCAST_QUERY_INTVL
    (34, Value::U64(1000)),                           // MCAST_QUERY_RESPONSE_INTVL
    (35, Value::U64(3125)),                           // MCAST_STARTUP_QUERY_INTVL
    (36, Value::U8(0)),                               // NF_CALL_IPTABLES
    (37, Value::U8(0)),                               // NF_CALL_IP6TABLES
    (38, Value::U8(0)),                               // NF_CALL_ARPTABLES
    (41, Value::U8(0)),                               // VLAN_STATS_ENABLED
    (42, Value::U8(0)),                               // MCAST_STATS_ENABLED
    (43, Value::U8(2)),                               // MCAST_IGMP_VERSION
    (44, Value::U8(1)),                               // MCAST_MLD_VERSION
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
        (VLAN_DEFAULT_PVID, Rule::U16),
        (MULTI_BOOLOPT, Rule::Exact(8)),
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
    fixed::put(message, FIXED);
    fixed::put(message, READ_ONLY);
}

/// Changes a bridge's options, all or none.
pub(super) fn change<D: Devices>(
    control: &Engine<D>,
    index: u32,
    data: Option<Attr<'_>>,
) -> Result<(), Error> {
    let Some(data) = data else {
        return Ok(());
    };
    let attrs = data.nested(&POLICY)?;
    let help = "a bridge of Softnet cannot change this option";
    let before = control.bridge(index).map_err(refusal)?.options;
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
    if let Some(booleans) = attrs.get(MULTI_BOOLOPT) {
        let [value, mask]: [u32; 2] = booleans.fixed()?;
        if value & mask != 0 {
            return Err(Error::new(Errno::EOPNOTSUPP).help(help).at(&booleans));
        }
    }
    fixed::check(&attrs, FIXED, help)?;
    let read = [
        AGEING_TIME,
        VLAN_FILTERING,
        ROOT_ID,
        BRIDGE_ID,
        FDB_FLUSH,
        VLAN_DEFAULT_PVID,
        MULTI_BOOLOPT,
    ];
    let is_read = |kind| read.contains(&kind) || fixed::has(&[FIXED, READ_ONLY], kind);
    data.children().refuse_unread(is_read, help)?;
    if after != before {
        control.set_bridge(index, after).map_err(refusal)?;
    }
    if attrs.has(FDB_FLUSH) {
        let learnt = |entry: &softnet_engine::FdbEntry| entry.state == FdbState::Dynamic;
        control.flush_fdb(index, learnt).map_err(refusal)?;
    }
    Ok(())
}
