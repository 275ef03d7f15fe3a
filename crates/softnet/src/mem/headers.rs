//! What [`wire`](crate::wire) reads on bytes, on packets: their headers and virtio-net header.

use super::Packet;
use crate::stats::DropReason;
use crate::wire::{self, EthernetAddress, Headers, Offload, VnetHeader};

impl Packet {
    /// Reads the headers, which must lie in the first segment.
    ///
    /// # Errors
    /// Those of [`wire::parse`].
    #[inline]
    pub fn parse(&self) -> Result<Headers, DropReason> {
        Ok(wire::parse(self.data(), self.len())?)
    }

    /// Destination and source MAC address.
    ///
    /// # Errors
    /// [`DropReason::Runt`] if the first segment is shorter than an Ethernet header.
    #[inline]
    pub fn ethernet(&self) -> Result<(EthernetAddress, EthernetAddress), DropReason> {
        Ok(wire::ethernet(self.data())?)
    }

    /// The virtio-net header for a driver that leaves checksum and segmentation to its other side.
    #[inline]
    pub fn vnet_header(&self) -> VnetHeader {
        VnetHeader::new(&Offload {
            checksum: self.checksum(),
            checksum_verified: self.checksum_verified(),
            gso: self.gso(),
        })
    }

    /// Notes what `header` says about the packet, a frame just received with it. What is
    /// accepted, [`segment`](crate::offload::segment()) and
    /// [`fill_checksum`](crate::offload::fill_checksum) can finish in software.
    ///
    /// # Errors
    /// Those of [`VnetHeader::offload`]; the packet is unchanged then.
    #[inline]
    pub fn apply(&mut self, header: &VnetHeader) -> Result<(), DropReason> {
        if header.is_plain() {
            return Ok(());
        }
        self.apply_offload(header)
    }

    fn apply_offload(&mut self, header: &VnetHeader) -> Result<(), DropReason> {
        let len = self.len();
        let offload = header.offload(self.data_mut(), len)?;
        self.set_checksum(offload.checksum);
        self.set_checksum_verified(offload.checksum_verified);
        self.set_gso(offload.gso);
        Ok(())
    }
}
