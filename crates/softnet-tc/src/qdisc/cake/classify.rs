//! The tin and the flow of a packet.

use softnet::mem::Packet;
use softnet::qdisc::Cx;
use softnet::wire::{clear_dscp, keyed_hash, traffic_class};

use super::Cake;
use super::table::{PLACES, Table};
use super::tins::NETWORK_CONTROL;
use crate::filter::Lost;
use crate::handle::Handle;
use crate::qdisc::flow_hash::{flow_hash, keyed};

/// Verdict of a filter on a packet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Named {
    flow: Option<u32>,
    host: Option<u32>,
}

impl Cake {
    /// Verdict of all filters on a packet.
    ///
    /// # Errors
    /// If a filter takes it out.
    #[inline]
    pub(super) fn classify(&self, packet: &mut Packet, cx: &mut Cx) -> Result<Named, Lost> {
        if self.filters.is_empty() {
            return Ok(Named::default());
        }
        let class = self.filters.classify(packet, cx).class()?;
        Ok(class.map_or_else(Named::default, |class| {
            let within = |number: u16| {
                let number = u32::from(number);
                (1..=PLACES as u32).contains(&number).then(|| number - 1)
            };
            Named {
                flow: within(class.minor()),
                host: within(class.major()),
            }
        }))
    }

    /// The tin of a packet, whose code point is cleared where that is asked for.
    #[inline]
    pub(super) fn tin_of(&self, packet: &mut Packet, cx: &Cx) -> usize {
        let code = traffic_class(packet.data()).map(|class| class >> 2);
        if self.spec.wash && code.is_some_and(|code| code != 0) && packet.make_unique(&cx.pool) {
            clear_dscp(packet.data_mut());
        }
        self.tin_at(packet, code)
    }

    #[inline]
    pub(super) fn tin_at(&self, packet: &Packet, code: Option<u8>) -> usize {
        let order = self.mode.order;
        if order.len() == 1 {
            return 0;
        }
        let fwmark = self.spec.fwmark;
        let mark = (packet.mark() & fwmark)
            .checked_shr(fwmark.trailing_zeros())
            .unwrap_or(0);
        let named = Handle::from_raw(packet.priority());
        let named = match named.qdisc() == self.handle && self.handle != Handle::NONE {
            true => named.minor(),
            false => 0,
        };
        let chosen = [mark, u32::from(named)].into_iter();
        let chosen = chosen.filter(|&number| number != 0).find_map(|number| {
            let tin = order.get(number as usize - 1)?;
            Some(usize::from(*tin))
        });
        chosen.unwrap_or_else(|| {
            let code = code.unwrap_or_else(|| {
                let is_arp = packet.data().get(12..14) == Some(&[8, 6]);
                if is_arp { NETWORK_CONTROL } else { 0 }
            });
            usize::from(self.mode.by_code[usize::from(code)])
        })
    }

    /// The flow of a packet in its tin.
    #[inline]
    pub(super) fn flow_of(&mut self, tin: usize, packet: &mut Packet, named: Named) -> u16 {
        let (seed, isolation) = (self.seed, self.spec.isolation);
        let ends = |packet: &Packet| {
            if let Some(host) = named.host {
                return [host, host];
            }
            let headers = packet.parse().ok();
            let ends = headers.and_then(|headers| headers.addresses(packet.data()));
            let hash = |address| {
                let number = match address {
                    std::net::IpAddr::V4(address) => u64::from(address.to_bits()),
                    std::net::IpAddr::V6(address) => {
                        let [high, low] = halves(address.to_bits());
                        u64::from(keyed_hash(high)) << 32 ^ low
                    }
                };
                keyed_hash(number)
            };
            ends.map_or([0; 2], |(source, destination)| {
                [hash(source), hash(destination)]
            })
        };
        let tag = if let Some(flow) = named.flow {
            flow
        } else if isolation.by_flow() {
            keyed(flow_hash(packet), seed)
        } else if !isolation.by_source() && !isolation.by_destination() {
            0
        } else {
            let [source, destination] = ends(packet);
            let source = if isolation.by_source() { source } else { 0 };
            let destination = if isolation.by_destination() {
                destination
            } else {
                0
            };
            source ^ destination.rotate_left(16)
        };
        let loads = self.tins[tin].table.is_none().then(|| self.gate.loads(tin));
        let tin = &mut self.tins[tin];
        let mut ways = tin.counters.ways;
        let table = tin.table.get_or_insert_with(|| Table::new(loads.flatten()));
        let flow = table.find(tag, || ends(packet), isolation, &mut ways);
        tin.counters.ways = ways;
        flow
    }
}

/// The upper and the lower half.
fn halves(number: u128) -> [u64; 2] {
    [(number >> 64) as u64, number as u64]
}
