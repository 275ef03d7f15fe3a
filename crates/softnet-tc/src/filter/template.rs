//! Templates of chains: the bits that filters of a chain may look at.

use std::ops::RangeInclusive;

use super::{ETH_P_ALL, FilterError, FilterKind, FilterSpec, Flower, FlowerField, Prefix};

/// The template of a chain (`tc chain add`): its filters are `flower`, and look at no other bits
/// than this one does, as in the kernel (`fl_mask_fits_tmplt`). Its values do not matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainTemplate {
    /// [`ETH_P_ALL`]: the filters are for that, too. Else they may be for any protocol.
    pub protocol: u16,
    /// The bits.
    pub flower: Flower,
}

impl ChainTemplate {
    /// Checks a filter of the chain.
    pub(super) fn check(&self, filter: &FilterSpec) -> Result<(), FilterError> {
        let FilterKind::Flower(flower) = &filter.kind else {
            return Err(FilterError::TemplateKind);
        };
        let protocol_fits = self.protocol != ETH_P_ALL || filter.protocol == ETH_P_ALL;
        if protocol_fits && fits(flower, &self.flower) {
            Ok(())
        } else {
            Err(FilterError::Template)
        }
    }
}

/// True if a filter looks at no bits that a template does not look at.
fn fits(filter: &Flower, template: &Flower) -> bool {
    let masks = |of: &Flower| {
        [
            whole(of.indev.is_some()),
            whole(of.vlan_id.is_some()),
            whole(of.vlan_prio.is_some()),
            whole(of.vlan_ethtype.is_some()),
            whole(of.ip_proto.is_some()),
            of.ip_tos.map_or(0, |(_, mask)| mask.into()),
            of.mark.map_or(0, |(_, mask)| mask.into()),
            whole(of.src_port.as_ref().is_some_and(|ports| !is_one(ports))),
            whole(of.dst_port.as_ref().is_some_and(|ports| !is_one(ports))),
        ]
    };
    let fields = filter.fields.iter().map(|of| of.field);
    let fields = fields.chain([FlowerField::SrcPort, FlowerField::DstPort]);
    let of_fields = fields.map(|field| (mask(filter, field), mask(template, field)));
    masks(filter)
        .into_iter()
        .zip(masks(template))
        .chain(of_fields)
        .all(|(own, allowed)| own & !allowed == 0)
        && prefix_fits(filter.src_ip, template.src_ip)
        && prefix_fits(filter.dst_ip, template.dst_ip)
}

fn whole(is_there: bool) -> u64 {
    if is_there { u64::MAX } else { 0 }
}

fn is_one(ports: &RangeInclusive<u16>) -> bool {
    ports.start() == ports.end()
}

/// The bits of a field. Whole ports have a place of their own.
fn mask(of: &Flower, field: FlowerField) -> u64 {
    let ports = match field {
        FlowerField::SrcPort => of.src_port.as_ref(),
        FlowerField::DstPort => of.dst_port.as_ref(),
        _ => None,
    };
    if ports.is_some_and(is_one) {
        return u16::MAX.into();
    }
    let own = of.fields.iter().find(|own| own.field == field);
    own.map_or(0, |own| own.mask)
}

fn prefix_fits(own: Option<Prefix>, allowed: Option<Prefix>) -> bool {
    match (own, allowed) {
        (None, _) => true,
        (Some(own), Some(allowed)) => {
            own.is_ipv4() == allowed.is_ipv4() && own.bits() <= allowed.bits()
        }
        (Some(_), None) => false,
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use super::*;
    use crate::Block;
    use crate::filter::{ETH_P_IP, FieldMatch, FilterKey, FilterList, FilterOp, Indev, U32};
    use crate::handle::Handle;

    fn flower(change: impl FnOnce(&mut Flower)) -> FilterSpec {
        let mut flower = Flower::default();
        change(&mut flower);
        FilterSpec {
            chain: 5,
            protocol: ETH_P_IP,
            ..FilterSpec::new(flower, Handle::new(1, 1))
        }
    }

    fn prefix(text: &str, bits: u8) -> Option<Prefix> {
        Prefix::new(text.parse().unwrap(), bits)
    }

    /// For TCP and UDP, some bits of addresses, the whole destination port, and bits of fields.
    fn template() -> ChainTemplate {
        let flower = Flower {
            src_ip: prefix("0.0.0.0", 24),
            ip_proto: Some(6),
            ip_tos: Some((0, 0xfc)),
            dst_port: Some(0..=0),
            fields: vec![
                FieldMatch::new(FlowerField::DstMac, 0, 0xffff_ff00_0000),
                FieldMatch::new(FlowerField::SrcPort, 0, 0xff00),
            ],
            ..Flower::default()
        };
        ChainTemplate {
            protocol: ETH_P_IP,
            flower,
        }
    }

    #[test]
    fn filters_look_at_no_other_bits() {
        let field =
            |field, mask| move |of: &mut Flower| of.fields = vec![FieldMatch::new(field, 7, mask)];
        for fitting in [
            flower(|_| {}),
            flower(|of| of.src_ip = prefix("10.1.2.0", 24)),
            flower(|of| of.src_ip = prefix("10.0.0.0", 8)),
            flower(|of| (of.ip_proto, of.dst_port) = (Some(17), Some(53..=53))),
            flower(|of| of.ip_tos = Some((0x10, 0x10))),
            flower(field(FlowerField::DstMac, 0x00ff_0000_0000)),
            flower(field(FlowerField::SrcPort, 0x8000)),
            flower(field(FlowerField::DstPort, 0x00f0)),
            FilterSpec {
                protocol: ETH_P_ALL,
                ..flower(|_| {})
            },
        ] {
            assert_eq!(template().check(&fitting), Ok(()), "{fitting:?}");
        }
        for other in [
            flower(|of| of.src_ip = prefix("10.1.2.0", 25)),
            flower(|of| of.src_ip = prefix("fd00::", 8)),
            flower(|of| of.dst_ip = prefix("10.0.0.0", 8)),
            flower(|of| of.dst_port = Some(53..=54)),
            flower(|of| of.src_port = Some(53..=53)),
            flower(|of| of.ip_tos = Some((0, 0xff))),
            flower(|of| of.indev = Some(Indev::new("a"))),
            flower(|of| of.vlan_id = Some(1)),
            flower(|of| of.mark = Some((1, 1))),
            flower(field(FlowerField::DstMac, 1)),
            flower(field(FlowerField::SrcPort, 0x80)),
            flower(field(FlowerField::IpTtl, 1)),
        ] {
            let refused = Err(FilterError::Template);
            assert_eq!(template().check(&other), refused, "{other:?}");
        }
        let of_all = ChainTemplate {
            protocol: ETH_P_ALL,
            ..template()
        };
        assert_eq!(of_all.check(&flower(|_| {})), Err(FilterError::Template));
        // Whichever link it is.
        let received = |name: &str| flower(|of| of.indev = Some(Indev::new(name)));
        let FilterKind::Flower(bits) = received("a").kind else {
            panic!("flower")
        };
        let of_links = ChainTemplate {
            protocol: ETH_P_IP,
            flower: bits,
        };
        assert_eq!(of_links.check(&received("b")), Ok(()));
        // A port with all bits of its mask is a whole port.
        let of_ports = ChainTemplate {
            protocol: ETH_P_IP,
            flower: Flower {
                fields: vec![FieldMatch::new(FlowerField::DstPort, 0, 0xffff)],
                ..Flower::default()
            },
        };
        let to_port = flower(|of| of.dst_port = Some(53..=53));
        assert_eq!(of_ports.check(&to_port), Ok(()));
        let kinds = [
            FilterKind::Matchall,
            FilterKind::U32(U32::default()),
            FilterKind::fw(1),
        ];
        for kind in kinds {
            let other = FilterSpec::new(kind, Handle::new(1, 1));
            assert_eq!(template().check(&other), Err(FilterError::TemplateKind));
        }
    }

    /// It stays with the chain, and goes with it.
    #[test]
    fn a_chain_keeps_its_template() {
        let mut list = FilterList::default();
        let all = FilterKey {
            chain: 5,
            ..FilterKey::default()
        };
        let wrong = flower(|of| of.vlan_id = Some(1));
        list.add_chain(5, Some(template())).unwrap();
        let without = {
            let mut list = FilterList::default();
            list.add_chain(5, None).unwrap();
            list
        };
        assert_ne!(list, without);
        for _ in 0..2 {
            assert_eq!(list.template(5), Some(&template()));
            let refused = list.put(FilterOp::Add, wrong.clone());
            assert_eq!(refused, Err(FilterError::Template));
            assert_eq!(list.iter().count(), 0);
            list.put(FilterOp::Add, flower(|_| {})).unwrap();
            list.delete(all).unwrap();
        }
        list.delete_chain(5).unwrap();
        assert_eq!(list.template(5), None);
        list.put(FilterOp::Add, wrong).unwrap();
    }

    /// A chain that comes again may have another template, for all copies of the filters.
    #[test]
    fn copies_follow_the_first_list() {
        let mut list = FilterList::default();
        list.add_chain(5, Some(template())).unwrap();
        let mut block = Block::new(1);
        block.set(list);
        let other = flower(|of| of.vlan_id = Some(1));
        let refused = block.put(FilterOp::Add, other.clone());
        assert_eq!(refused, Err(FilterError::Template));
        block.delete_chain(5).unwrap();
        block.add_chain(5, None).unwrap();
        block.put(FilterOp::Add, other).unwrap();
    }
}
