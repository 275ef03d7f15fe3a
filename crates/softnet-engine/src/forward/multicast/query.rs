//! Frames of queries, as the kernel's bridge makes them (`br_ip4_multicast_alloc_query`,
//! `br_ip6_multicast_alloc_query`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use super::options::{Family, MulticastOptions};
use crate::forward::guard::link_local;
use softnet::wire::{EthernetAddress, checksum, fold, pseudo_header, sum_bytes};

/// A query of the bridge itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Query {
    pub(super) family: Family,
    /// None: all groups.
    pub(super) group: Option<IpAddr>,
    /// It is sent to the group, not to all hosts.
    pub(super) to_group: bool,
    pub(super) sources: Vec<IpAddr>,
}

/// A time in units, as a code of 8 bits or 16 can say it at most.
fn units(time: Duration, unit: Duration, max: u16) -> u16 {
    let units = time.as_millis() / unit.as_millis();
    u16::try_from(units).unwrap_or(max).min(max)
}

impl Query {
    /// A query for all groups.
    pub(super) fn general(family: Family) -> Query {
        Query {
            family,
            group: None,
            to_group: false,
            sources: Vec::new(),
        }
    }

    /// The frame that a bridge with this address sends.
    pub(super) fn frame(&self, options: &MulticastOptions, from: EthernetAddress) -> Vec<u8> {
        match self.family {
            Family::V4 => self.igmp(options, from),
            Family::V6 => self.mld(options, from),
        }
    }

    /// Time that hosts have to answer.
    fn response(&self, options: &MulticastOptions) -> Duration {
        match self.group {
            None => options.query_response_interval,
            Some(_) => options.last_member_interval,
        }
    }

    /// The part that only IGMPv3 and MLDv2 have: robustness 2, interval, sources.
    fn long(&self, options: &MulticastOptions) -> Vec<u8> {
        let interval = units(options.query_interval, Duration::from_secs(1), 0x7f);
        let mut bytes = vec![2, interval as u8];
        bytes.extend((self.sources.len() as u16).to_be_bytes());
        for source in &self.sources {
            match source {
                IpAddr::V4(source) => bytes.extend(source.octets()),
                IpAddr::V6(source) => bytes.extend(source.octets()),
            }
        }
        bytes
    }

    fn igmp(&self, options: &MulticastOptions, from: EthernetAddress) -> Vec<u8> {
        let group = match self.group {
            Some(IpAddr::V4(group)) => group,
            _ => Ipv4Addr::UNSPECIFIED,
        };
        let to = match self.to_group {
            true => group,
            false => Ipv4Addr::new(224, 0, 0, 1),
        };
        let long = options.has_sources(Family::V4);
        // A code of IGMPv3 from 128 on is a mantissa and an exponent.
        let most = if long { 0x7f } else { 0xff };
        let code = units(self.response(options), Duration::from_millis(100), most);
        let mut message = vec![0x11, code as u8, 0, 0];
        message.extend(group.octets());
        if long {
            message.extend(self.long(options));
        }
        put_sum(&mut message, 2, 0);
        let [_, b, c, d] = to.octets();
        let mut frame = vec![1, 0, 0x5e, b & 0x7f, c, d];
        frame.extend(from.0);
        frame.extend([8, 0]);
        let start = frame.len();
        // Precedence, no fragments, one hop; the sender has no address.
        frame.extend([0x46, 0xc0]);
        frame.extend((24 + message.len() as u16).to_be_bytes());
        frame.extend([0, 0, 0x40, 0, 1, 2, 0, 0, 0, 0, 0, 0]);
        frame.extend(to.octets());
        // Router alert.
        frame.extend([0x94, 4, 0, 0]);
        put_sum(&mut frame[start..], 10, 0);
        frame.extend(message);
        frame
    }

    fn mld(&self, options: &MulticastOptions, from: EthernetAddress) -> Vec<u8> {
        let group = match self.group {
            Some(IpAddr::V6(group)) => group,
            _ => Ipv6Addr::UNSPECIFIED,
        };
        let to = match self.to_group {
            true => group,
            false => Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1),
        };
        let long = options.has_sources(Family::V6);
        let most = if long { 0x7fff } else { 0xffff };
        let code = units(self.response(options), Duration::from_millis(1), most);
        let mut message = vec![130, 0, 0, 0];
        message.extend(code.to_be_bytes());
        message.extend([0, 0]);
        message.extend(group.octets());
        if long {
            message.extend(self.long(options));
        }
        let len = message.len() as u16;
        // RFC 3810 5.1.14: a link-local address, made of the bridge's.
        let (source, to) = (link_local(from).octets(), to.octets());
        let pseudo = pseudo_header(&source, &to, 58, len.into());
        put_sum(&mut message, 2, pseudo);
        let mut frame = vec![0x33, 0x33];
        frame.extend(&to[12..]);
        frame.extend(from.0);
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        frame.extend((len + 8).to_be_bytes());
        frame.extend([0, 1]);
        frame.extend(source);
        frame.extend(to);
        // Router alert, behind hop-by-hop options.
        frame.extend([58, 0, 5, 2, 0, 0, 1, 0]);
        frame.extend(message);
        frame
    }
}

/// Puts the checksum of all bytes, and of a sum beside them, where zero is.
fn put_sum(bytes: &mut [u8], at: usize, beside: u64) {
    let sum = match beside {
        0 => checksum(bytes),
        _ => !fold(sum_bytes(bytes) + beside),
    };
    bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use super::*;
    use softnet::wire::{Membership, multicast};

    /// The reader of the wire reads what is sent.
    #[test]
    fn queries_read_back() {
        let from = EthernetAddress([2, 0, 0, 0, 0, 9]);
        let v4: IpAddr = [239, 1, 2, 3].into();
        let v6: IpAddr = "ff05::7".parse().unwrap();
        for version in [false, true] {
            let options = MulticastOptions {
                igmp_version: if version { 3 } else { 2 },
                mld_version: if version { 2 } else { 1 },
                ..MulticastOptions::default()
            };
            for group in [None, Some(v4), Some(v6)] {
                for to_group in [false, true] {
                    let family = Family::of(group.is_some_and(|group| group.is_ipv4()));
                    let query = Query {
                        group,
                        to_group: to_group && group.is_some(),
                        ..Query::general(family)
                    };
                    let frame = query.frame(&options, from);
                    let read = multicast(&frame, frame.len(), false).unwrap().unwrap();
                    let Some(Membership::Query(read)) = read.message else {
                        panic!("{frame:?}");
                    };
                    assert_eq!((read.group, read.long), (group, version));
                    assert_eq!(read.max_response, query.response(&options));
                    assert_eq!((read.suppress, read.sources), (false, false));
                }
            }
        }
    }
}
