//! Packets whose buffers the kernel has.
//!
//! The pool's memory is the socket's (UMEM), its buffers the chunks. A descriptor says where in
//! that memory a frame is; the packet that owns the buffer is kept here meanwhile, under the number
//! of the buffer. So a buffer has one owner at any time, and what the kernel says leads to a packet
//! that it was given, or to none.

use softnet::mem::{Packet, Pool};

/// The memory of a pool as the kernel sees it: buffers one behind the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Area {
    pub(super) start: u64,
    pub(super) len: u64,
    /// Bytes of a buffer: a power of two.
    pub(super) buffer: u64,
}

/// Smallest and largest buffer that the kernel takes as a chunk.
const CHUNKS: (usize, usize) = (2048, 4096);

impl Area {
    /// The memory of `pool`, if the kernel takes it.
    pub(super) fn of(pool: &Pool) -> Option<Area> {
        let (memory, buffer) = (pool.area(), pool.buffer_size());
        let fits = buffer.is_power_of_two()
            && (CHUNKS.0..=CHUNKS.1).contains(&buffer)
            && memory.addr().get().is_multiple_of(CHUNKS.1);
        fits.then(|| Area {
            start: memory.cast::<u8>().as_ptr().expose_provenance() as u64,
            len: memory.len() as u64,
            buffer: buffer as u64,
        })
    }

    /// The place of these bytes, if they are in it.
    fn place(&self, bytes: &[u8]) -> Option<u64> {
        let place = (bytes.as_ptr().addr() as u64).checked_sub(self.start)?;
        (place < self.len).then_some(place)
    }

    fn number(&self, place: u64) -> usize {
        (place / self.buffer) as usize
    }
}

/// Packets by the numbers of the buffers that hold their data.
#[derive(Debug)]
pub(super) struct Lent {
    area: Area,
    packets: Box<[Option<Packet>]>,
    count: usize,
}

impl Lent {
    pub(super) fn new(area: Area) -> Lent {
        let buffers = area.number(area.len);
        Lent {
            area,
            packets: std::iter::repeat_with(|| None).take(buffers).collect(),
            count: 0,
        }
    }

    /// Packets that are lent.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Lends a packet, to be sent. Returns the place of its data.
    ///
    /// # Errors
    /// With the packet, unless its data is in one buffer of the pool that nobody else uses.
    pub(super) fn lend(&mut self, packet: Packet) -> Result<u64, Packet> {
        let alone = !packet.is_chained() && !packet.is_shared();
        match self.area.place(packet.data()) {
            Some(place) if alone => self.keep(packet, place),
            _ => Err(packet),
        }
    }

    /// Lends an empty packet, to be received into. Returns the place of its first free byte.
    ///
    /// # Errors
    /// With the packet, if its buffer is not one of the pool's.
    pub(super) fn lend_empty(&mut self, mut packet: Packet) -> Result<u64, Packet> {
        match self.area.place(packet.tailroom_mut()) {
            Some(place) => self.keep(packet, place),
            None => Err(packet),
        }
    }

    fn keep(&mut self, packet: Packet, place: u64) -> Result<u64, Packet> {
        match self.packets.get_mut(self.area.number(place)) {
            Some(slot @ None) => {
                *slot = Some(packet);
                self.count += 1;
                Ok(place)
            }
            _ => Err(packet),
        }
    }

    /// Takes back the packet in whose buffer a place is, and where there. `None`: it was not lent.
    pub(super) fn take_back(&mut self, place: u64) -> Option<(Packet, usize)> {
        let number = usize::try_from(place / self.area.buffer).ok()?;
        let packet = self.packets.get_mut(number)?.take()?;
        self.count -= 1;
        Some((packet, (place % self.area.buffer) as usize))
    }
}

#[cfg(test)]
mod tests {
    use softnet::mem::{HEADROOM, PoolConfig, SHARED_INFO};

    use super::*;

    fn pool(buffers: usize, buffer_size: usize) -> Pool {
        let config = PoolConfig {
            buffers,
            buffer_size,
        };
        Pool::new(config).expect("a pool")
    }

    #[test]
    fn a_packet_comes_back_once() {
        let pool = pool(16, 2048);
        let mut lent = Lent::new(Area::of(&pool).expect("pages"));
        let packets: Vec<_> = (0..16).map(|_| pool.alloc().expect("a buffer")).collect();
        let places = packets.into_iter().map(|packet| lent.lend_empty(packet));
        let places: Vec<u64> = places.map(|place| place.expect("its memory")).collect();
        assert_eq!(lent.len(), 16);
        for &place in &places {
            let start = (SHARED_INFO + HEADROOM) as u64;
            assert_eq!(place % 2048, start, "the headroom that XDP leaves");
            // Anywhere in the buffer.
            let (mut packet, at) = lent.take_back(place + 100).expect("it was lent");
            assert_eq!((packet.len(), at as u64), (0, start + 100));
            assert!(lent.take_back(place).is_none());
            assert!(packet.append(b"frame"));
            assert_eq!(lent.lend(packet).expect("its memory"), place);
            lent.take_back(place).expect("it was lent");
        }
        for place in [16 * 2048, 1 << 40, u64::MAX] {
            assert!(lent.take_back(place).is_none());
        }
        assert_eq!((lent.len(), pool.stats().free), (0, 16));
    }

    /// Data of others, or that others use, is not lent.
    #[test]
    fn others_data_is_refused() {
        let (ours, other) = (pool(16, 2048), pool(16, 2048));
        let mut lent = Lent::new(Area::of(&ours).expect("pages"));
        assert!(
            lent.lend(other.packet(b"frame").expect("a buffer"))
                .is_err()
        );
        assert!(lent.lend_empty(other.alloc().expect("a buffer")).is_err());
        let mut packet = ours.packet(b"frame").expect("a buffer");
        let copy = packet.share(&other).expect("a buffer");
        let packet = lent.lend(packet).expect_err("two use it");
        drop(packet);
        let place = lent.lend(copy).expect("it is alone");
        assert!(lent.take_back(place).is_some());
        let long = ours.packet(&[0; 3000]).expect("buffers");
        assert!(lent.lend(long).is_err());
        assert_eq!(lent.len(), 0);
        assert!(Area::of(&pool(16, 1024)).is_none());
        assert!(Area::of(&pool(16, 3072)).is_none());
    }
}
