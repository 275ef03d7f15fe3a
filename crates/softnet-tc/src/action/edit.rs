//! Changes of a frame's bytes that several actions make.

use softnet::mem::Packet;
use softnet::qdisc::Cx;

/// Bytes of an Ethernet header without tags.
pub(super) const ETHERNET: usize = 14;
/// Bytes of the two addresses.
pub(super) const ADDRESSES: usize = 12;
/// Bytes of a VLAN tag.
pub(super) const TAG: usize = 4;

/// True if it is the EtherType of a VLAN tag.
pub(super) fn is_tag(ethertype: [u8; 2]) -> bool {
    matches!(ethertype, [0x81, 0x00] | [0x88, 0xa8] | [0x91, 0x00])
}

/// The EtherType behind the addresses, which may be a tag's.
pub(super) fn ethertype(packet: &Packet) -> Option<[u8; 2]> {
    packet.data().get(ADDRESSES..)?.first_chunk().copied()
}

/// Where the EtherType behind the first tag is: the kernel has that tag beside the packet.
pub(super) fn ethertype_offset(packet: &Packet) -> usize {
    match ethertype(packet).is_some_and(is_tag) {
        true => ADDRESSES + TAG,
        false => ADDRESSES,
    }
}

/// Makes a packet one whose first bytes may be changed (`skb_ensure_writable`). False: they are
/// not in its first segment, or no buffer is left for a copy.
pub(super) fn make_writable(packet: &mut Packet, cx: &Cx, bytes: usize) -> bool {
    packet.data().len() >= bytes && packet.make_unique(&cx.pool)
}

/// Moves everything behind the addresses by a tag's length in the metadata.
fn moved(packet: &mut Packet, to: impl Fn(u16) -> Option<u16>) -> Option<()> {
    let (mut checksum, mut gso) = (packet.checksum(), packet.gso());
    if let Some(checksum) = &mut checksum {
        checksum.start = to(checksum.start)?;
    }
    if let Some(gso) = &mut gso {
        gso.header_len = to(gso.header_len)?;
    }
    packet.set_checksum(checksum);
    packet.set_gso(gso);
    Some(())
}

/// Puts bytes in front of the frame's byte `at` (up to which it is moved). The packet is not
/// shared. `None`: there is no space in front.
pub(super) fn insert(packet: &mut Packet, at: usize, bytes: &[u8]) -> Option<()> {
    let n = bytes.len();
    if packet.headroom() < n || packet.data().len() < at {
        return None;
    }
    moved(packet, |place| place.checked_add(u16::try_from(n).ok()?))?;
    packet.push_front(n)?;
    let data = packet.data_mut();
    data.copy_within(n..n + at, 0);
    data[at..at + n].copy_from_slice(bytes);
    Some(())
}

/// Removes `n` bytes behind the frame's first `at`. The packet is not shared. `None`: it has not so
/// many in its first segment, or its metadata points there.
pub(super) fn remove(packet: &mut Packet, at: usize, n: usize) -> Option<()> {
    if packet.data().len() < at + n {
        return None;
    }
    moved(packet, |place| {
        let place = place.checked_sub(u16::try_from(n).ok()?)?;
        (usize::from(place) >= at).then_some(place)
    })?;
    packet.data_mut().copy_within(0..at, n);
    packet.pull_front(n);
    Some(())
}

/// The contents of the first tag.
pub(super) fn tag(packet: &Packet) -> Option<u16> {
    let tagged = ethertype(packet).is_some_and(is_tag);
    let [high, low] = *packet.data().get(ETHERNET..)?.first_chunk()?;
    tagged.then(|| u16::from_be_bytes([high, low]))
}
