//! Between receiving and sending: which port a packet leaves through.

mod bridge;
mod by_rules;
mod elsewhere;
mod fdb;
mod flood;
mod forwarder;
mod guard;
mod hook;
mod mac_limit;
mod mirred;
mod multicast;
mod pending;
mod storm;
mod virtual_link;
mod vlan_tag;
mod vlans;

pub use bridge::{Bridge, BridgePortOptions, Verdict};
pub(crate) use bridge::{Member, Members};
pub(crate) use elsewhere::{LinkTable, OfQueues, Targets};
pub use fdb::{AGEING, FdbState};
pub(crate) use fdb::{Fdb, FdbRow, Fixed, SetError, Station};
pub(crate) use forwarder::{Entry, Forwarder};
pub(crate) use guard::Guard;
pub use guard::{MAX_MACS, PortSecurity};
pub use hook::HookCounts;
pub(crate) use hook::{Copies, Departure, Hooks, set_worker};
pub use mirred::{
    ActionStats, Actions, MIRRED_DEFER_LIMIT, MIRRED_NEST_LIMIT, Mirred, MirredDir, MirredMode,
};
#[cfg(all(test, not(miri), not(loom)))]
pub(crate) use multicast::testing as multicast_frames;
pub use multicast::{Group, McastRouter, MulticastOptions, PortMulticast};
pub(crate) use multicast::{Joined, Key, McastChange, MdbError, MdbRow};
pub(crate) use pending::{Begun, Pending};
pub use storm::StormLimits;
pub(crate) use virtual_link::{Arrival, GiveBack, MAX_HOPS, Role};
pub use virtual_link::{Virtual, VlanTag};
pub use vlans::{PortVlans, VLAN_IDS, VlanFlags};

#[cfg(all(test, not(any(loom, miri))))]
mod guard_tests;
#[cfg(all(test, not(any(loom, miri))))]
mod mirred_tests;
#[cfg(all(test, not(any(loom, miri))))]
mod rules_tests;
