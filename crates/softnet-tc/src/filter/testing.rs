//! Packets for tests of filters, which leave them as they are.

use softnet::mem::{Packet, Pool, PoolConfig};
use softnet::qdisc::Cx;

use super::{Classified, Filters};

thread_local! {
    static POOL: Pool = {
        let config = PoolConfig { buffers: 64, buffer_size: 4096 };
        Pool::new(config).unwrap()
    };
}

/// The same bytes and metadata, segment by segment.
fn copy(packet: &Packet, pool: &Pool) -> Packet {
    let segment = |bytes: &[u8]| {
        let mut segment = pool.alloc().unwrap();
        assert!(segment.append(bytes));
        segment
    };
    let mut segments = packet.segments();
    let mut copy = segment(segments.next().unwrap());
    segments.for_each(|bytes| copy.append_segment(segment(bytes)));
    copy.copy_metadata(packet);
    copy
}

impl Filters {
    /// Where a copy of the packet goes.
    pub(super) fn try_on(&self, packet: &Packet) -> Classified {
        POOL.with(|pool| {
            let mut copy = copy(packet, pool);
            self.classify(&mut copy, &mut Cx::new(pool))
        })
    }
}
