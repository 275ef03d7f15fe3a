//! The order in which filters are tried, and what comes of those that match.

use softnet::stats::DropReason;
use softnet_tc::{Control, FilterKind, FilterSpec, Flower, Handle, Prefix};

use super::matches::{View, matches};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Decision {
    Class(u16),
    None,
    Drop(DropReason),
}

/// The filters' decision on a packet, and how often each matched, in the order in which they were
/// added.
pub(super) fn decide(filters: &[FilterSpec], view: &View<'_>) -> (Decision, Vec<u64>) {
    let mut hits = vec![0; filters.len()];
    let (mut chain, mut restarts) = (0, 0);
    'restart: loop {
        let mut skip = None;
        for index in order(filters, chain) {
            let filter = &filters[index];
            let ours = filter.protocol == 3 || view.be(12, 2) == Some(filter.protocol.into());
            if skip == Some(filter.prio) || !ours {
                continue;
            }
            match matches(filter, view) {
                Some(true) => {}
                Some(false) => continue,
                None => {
                    skip = Some(filter.prio);
                    continue;
                }
            }
            hits[index] += 1;
            let action = filter.actions.as_slice().first();
            chain = match action.map_or(Control::Pass, |action| action.spec().control) {
                Control::Pass => {
                    let minor = filter.class.map_or(0, Handle::minor);
                    return (Decision::Class(minor), hits);
                }
                Control::Drop => return (Decision::Drop(DropReason::FilterDrop), hits),
                Control::Continue => {
                    if matches!(filter.kind, FilterKind::Flower(_) | FilterKind::Matchall) {
                        skip = Some(filter.prio);
                    }
                    continue;
                }
                Control::Reclassify => 0,
                Control::Goto(chain) => chain,
                other => panic!("{other:?}"),
            };
            restarts += 1;
            if restarts > 16 {
                return (Decision::Drop(DropReason::ReclassifyLoop), hits);
            }
            continue 'restart;
        }
        return (Decision::None, hits);
    }
}

/// The filters of a chain in the order in which they are tried.
fn order(filters: &[FilterSpec], chain: u32) -> Vec<usize> {
    let of_chain = |&i: &usize| filters[i].chain == chain;
    let mut order: Vec<usize> = (0..filters.len()).filter(of_chain).collect();
    order.sort_by_key(|&i| {
        let filter = &filters[i];
        let place = match &filter.kind {
            FilterKind::U32(_) => filter.handle as usize,
            FilterKind::Flower(flower) => {
                let alike = |other: &FilterSpec| {
                    let FilterKind::Flower(other_flower) = &other.kind else {
                        return false;
                    };
                    (other.chain, other.prio) == (chain, filter.prio)
                        && shape(other_flower) == shape(flower)
                };
                filters.iter().position(alike).expect("itself at least")
            }
            FilterKind::Basic(_) => usize::MAX - i,
            _ => 0,
        };
        (filter.prio, place)
    });
    order
}

/// The fields and bits that a `flower` filter looks at.
fn shape(flower: &Flower) -> String {
    let prefix = |prefix: Option<Prefix>| {
        prefix.map(|p| {
            format!(
                "{} {}",
                p.is_ipv4(),
                p.to_string().split('/').nth(1).unwrap_or("")
            )
        })
    };
    let ports = |ports: &Option<std::ops::RangeInclusive<u16>>| {
        ports.as_ref().map(|ports| ports.clone().count() > 1)
    };
    format!(
        "{:?}",
        (
            (flower.vlan_id.is_some(), flower.vlan_prio.is_some()),
            (flower.vlan_ethtype.is_some(), flower.ip_proto.is_some()),
            (prefix(flower.src_ip), prefix(flower.dst_ip)),
            (ports(&flower.src_port), ports(&flower.dst_port)),
            (
                flower.ip_tos.map(|tos| tos.1),
                flower.mark.map(|mark| mark.1)
            ),
        )
    )
}
