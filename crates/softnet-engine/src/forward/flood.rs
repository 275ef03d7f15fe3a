//! Frames that arrive together and are flooded to the same ports: one list for each port, where one
//! after the other would be a call of a device for each copy.

use super::bridge::Members;
use super::forwarder::{Batch, copy};
use crate::Device;
use softnet::mem::PacketList;
use softnet::stats::DropReason;
use softnet::tx::TxRing;

/// Sends packets to all members of a bridge without VLANs but the one that they came from, in a
/// list each, as far as all of their copies may be made. What has to wait for that stays in `run`,
/// and so does a single packet. Each port gets them in order; those that are left are behind them.
#[cold]
pub(super) fn flood_lists<R: TxRing>(
    batch: &mut Batch<'_, R>,
    source: &Device<R>,
    members: &Members,
    from: u16,
    run: &mut PacketList,
) {
    let mut others = members.ports.iter().copied().filter(|port| *port != from);
    // It gets the packets themselves.
    let Some(last) = others.next_back() else {
        return;
    };
    if run.len() < 2 || *batch.copies() == 0 {
        return;
    }
    let each = others.clone().count();
    let fit = batch.copies().checked_div(each).unwrap_or(0);
    let frames = run.len().min(fit);
    if frames < 2 {
        return;
    }
    *batch.copies() -= frames * each;
    let mut list = PacketList::new();
    run.split_front(frames, &mut list);
    let pool = &batch.forwarder().pool;
    for port in others {
        let mut copies = PacketList::new();
        list.for_each_mut(|packet| {
            batch.count_copied(packet.wire_packets());
            let mut made = copy(packet, pool);
            if made.is_none() && !copies.is_empty() {
                // The port's device may give back what it has sent.
                batch.send_list(port, copies.take());
                made = copy(packet, pool);
            }
            match made {
                Some(copy) => copies.push_back(copy),
                None => source.drops().lose(DropReason::NoBuffer, Some(&*packet)),
            }
        });
        batch.send_list(port, copies);
    }
    batch.send_list(last, list);
}
