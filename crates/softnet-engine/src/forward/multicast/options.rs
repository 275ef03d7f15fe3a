//! Options of a bridge and its ports about groups, with the kernel's names and defaults
//! (`br_multicast_ctx_init`).

use std::time::Duration;

/// Snooping of a bridge (`ip link set … type bridge mcast_…`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MulticastOptions {
    /// Frames to a group go to its members and to multicast routers only, as long as somebody
    /// queries.
    pub snooping: bool,
    /// The bridge itself queries, while no other querier is heard.
    pub querier: bool,
    /// Groups that the bridge knows at most.
    pub hash_max: u32,
    /// Version of IGMP that it speaks and heeds, 2 or 3.
    pub igmp_version: u8,
    /// Version of MLD that it speaks and heeds, 1 or 2.
    pub mld_version: u8,
    /// Queries for a group that somebody has left.
    pub last_member_count: u32,
    /// Queries of a querier that has just begun that follow each other faster.
    pub startup_query_count: u32,
    /// Time between queries for a group that somebody has left.
    pub last_member_interval: Duration,
    /// Time for which a report counts.
    pub membership_interval: Duration,
    /// Time for which another querier counts, and the port behind which it is for a router's.
    pub querier_interval: Duration,
    /// Time between two queries.
    pub query_interval: Duration,
    /// Time in which hosts answer.
    pub query_response_interval: Duration,
    /// Time between the first queries.
    pub startup_query_interval: Duration,
}

impl Default for MulticastOptions {
    fn default() -> Self {
        MulticastOptions {
            snooping: true,
            querier: false,
            hash_max: 4096,
            igmp_version: 2,
            mld_version: 1,
            last_member_count: 2,
            startup_query_count: 2,
            last_member_interval: Duration::from_secs(1),
            membership_interval: Duration::from_secs(260),
            querier_interval: Duration::from_secs(255),
            query_interval: Duration::from_secs(125),
            query_response_interval: Duration::from_secs(10),
            startup_query_interval: Duration::from_millis(31_250),
        }
    }
}

impl MulticastOptions {
    /// The options with times that do not keep the bridge busy; the kernel's have such bounds, too
    /// (`BR_MULTICAST_QUERY_INTVL_MIN`).
    pub(super) fn bounded(self) -> MulticastOptions {
        const SECOND: Duration = Duration::from_secs(1);
        const TENTH: Duration = Duration::from_millis(100);
        MulticastOptions {
            query_interval: self.query_interval.max(SECOND),
            startup_query_interval: self.startup_query_interval.max(SECOND),
            last_member_interval: self.last_member_interval.max(TENTH),
            ..self
        }
    }

    /// Sources count: IGMPv3, or MLDv2.
    pub(super) fn has_sources(&self, family: Family) -> bool {
        match family {
            Family::V4 => self.igmp_version == 3,
            Family::V6 => self.mld_version == 2,
        }
    }

    /// Time after which nobody is a member who did not answer (`br_multicast_gmi`).
    pub(super) fn group_interval(&self) -> Duration {
        self.query_interval * 2 + self.query_response_interval
    }

    /// Time that those who are still members have after somebody has left (`br_multicast_lmqt`).
    pub(super) fn last_member_time(&self) -> Duration {
        self.last_member_interval
            .saturating_mul(self.last_member_count)
    }
}

/// Presence of multicast routers behind a port (`bridge link set … mcast_router`). The numbers are
/// the kernel's `MDB_RTR_TYPE_*`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum McastRouter {
    /// Never.
    Off = 0,
    /// As long as one is heard.
    #[default]
    Learn = 1,
    /// Always.
    On = 2,
    /// As long as one is heard, and now as if one was.
    Refresh = 3,
}

impl McastRouter {
    /// The value of a number.
    pub fn of(number: u8) -> Option<McastRouter> {
        Some(match number {
            0 => McastRouter::Off,
            1 => McastRouter::Learn,
            2 => McastRouter::On,
            3 => McastRouter::Refresh,
            _ => return None,
        })
    }
}

/// Snooping at a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortMulticast {
    /// Presence of multicast routers behind it.
    pub router: McastRouter,
    /// Who leaves a group was its only member there (IGMPv2 and MLDv1).
    pub fastleave: bool,
    /// Groups that the port may be a member of; 0: as many as the bridge gives a port.
    pub max_groups: u32,
}

/// IGMP, or MLD.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Family {
    V4 = 0,
    V6 = 1,
}

impl Family {
    pub(super) const ALL: [Family; 2] = [Family::V4, Family::V6];

    pub(super) fn of(ipv4: bool) -> Family {
        if ipv4 { Family::V4 } else { Family::V6 }
    }
}
