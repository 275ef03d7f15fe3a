//! Checks of the two halves of a driver.

use softnet::mem::PacketList;
use softnet::qdisc::WireSum;
use softnet::time::Time;
use softnet::tx::{Sent, TxRing, Xmit};
use softnet_engine::rx::{Polled, Receive, RxQueue};

use super::super::{pass_on_rx, pass_on_tx};
use super::Checked;

/// Wire packets that `sent` says were dropped.
fn dropped(sent: &Sent) -> u64 {
    sent.dropped.iter().map(|(_, count)| count).sum()
}

impl<D: TxRing> TxRing for Checked<D> {
    fn xmit(&mut self, packets: &mut PacketList, sent: &mut Sent) -> Xmit {
        let check = &self.check;
        let offered: Vec<usize> = packets.iter().map(|packet| packet.identity()).collect();
        let total = WireSum::from(&*packets);
        let before = (sent.packets, sent.bytes, dropped(sent));
        packets
            .iter()
            .for_each(|packet| packet.set_holder(Some(check.holder)));
        let xmit = check.holder.run(|| self.driver.xmit(packets, sent));

        check.intact(packets);
        packets.iter().for_each(|packet| packet.set_holder(None));
        let left = packets.len();
        if xmit == Xmit::Complete {
            check.none(left as u64, "said Complete and left packets");
        }
        let taken = offered.len().checked_sub(left);
        let in_order = taken.is_some_and(|taken| {
            let left = packets.iter().map(|packet| packet.identity());
            offered[taken..].iter().copied().eq(left)
        });
        check.ensure(
            in_order,
            "left other packets than the last that it was offered, in order",
        );
        let rest = WireSum::from(&*packets);
        let taken = (total.packets - rest.packets, total.bytes - rest.bytes);
        let (packets, bytes) = (
            sent.packets.wrapping_sub(before.0),
            sent.bytes.wrapping_sub(before.1),
        );
        let refused = dropped(sent).wrapping_sub(before.2);
        let told = packets.wrapping_add(refused);
        check.none(
            told.saturating_sub(taken.0),
            "reports more wire packets sent or dropped than it took",
        );
        check.none(
            taken.0 - told,
            "took wire packets that it reports neither sent nor dropped",
        );
        let fits = bytes <= taken.1 && (refused != 0 || bytes == taken.1);
        check.ensure(fits, "reports other bytes than those of what it took");
        let kept = check.holder.held().saturating_sub(check.slots);
        check.none(kept as u64, "kept packets past their completion");
        xmit
    }

    fn available(&mut self, now: Time) -> Option<u64> {
        self.check.holder.run(|| self.driver.available(now))
    }

    fn restart(&mut self, now: Time) {
        self.check.holder.run(|| self.driver.restart(now));
    }

    pass_on_tx!(bind connect file);
}

impl<D: RxQueue> RxQueue for Checked<D> {
    fn poll(&mut self, rx: &mut Receive<'_>) -> Polled {
        let check = &self.check;
        let before = rx.packets().len();
        let polled = check.holder.run(|| self.driver.poll(rx));

        check.intact(rx.packets());
        let pools = self.driver.pools();
        let mut pushed = 0;
        for packet in rx.packets().iter().skip(before) {
            check.ensure(
                pushed < rx.budget as u64,
                "pushed packets after its budget was used up",
            );
            pushed += packet.wire_packets();
            check.ensure(
                packet.len() >= 14,
                "pushed a frame shorter than an Ethernet header",
            );
            check.ensure(
                pools.is_empty() || pools.iter().any(|pool| pool.owns(packet)),
                "pushed a packet of a pool that it does not name",
            );
            // Charged to it no more, but its name stays with the buffer.
            packet.set_holder(Some(check.holder));
            packet.set_holder(None);
        }
        polled
    }

    pass_on_rx!();
}
