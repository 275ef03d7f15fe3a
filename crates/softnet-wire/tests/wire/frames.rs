//! Frames for tests: built by hand from a description, taken apart again by another implementation
//! (the etherparse crate), which shares no code with the one under test. The tests of `softnet`
//! include this file, too.

use etherparse::checksum::Sum16BitWords;
use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use proptest::collection::vec;
use proptest::prelude::*;

use softnet_wire::{Checksum, GsoKind, TCP_MIN_GSO_SIZE, UDP_MAX_SEGMENTS, VnetHeader};

/// Transport header of a [`Frame`].
#[derive(Clone, Debug)]
pub(crate) enum Transport {
    /// TCP with this many words of options and these flags.
    Tcp { options: usize, flags: u8 },
    /// UDP.
    Udp,
    /// An ICMP echo request.
    Icmp,
}

/// The parts of a frame.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    /// VLAN tags.
    pub(crate) vlans: usize,
    pub(crate) v6: bool,
    /// IPv4: words of options. IPv6: this many extension headers (up to 3), of growing length.
    pub(crate) options: usize,
    pub(crate) traffic_class: u8,
    pub(crate) id: u16,
    pub(crate) ports: (u16, u16),
    pub(crate) seq: u32,
    pub(crate) transport: Transport,
    pub(crate) payload: Vec<u8>,
    /// Bytes behind the IP packet.
    pub(crate) padding: usize,
}

impl Default for Frame {
    /// UDP over IPv4 with 22 bytes of payload: 64 bytes.
    fn default() -> Self {
        Frame {
            vlans: 0,
            v6: false,
            options: 0,
            traffic_class: 0xb8,
            id: 0xfffe,
            ports: (1024, 53),
            seq: 0xffff_fff0,
            transport: Transport::Udp,
            payload: (0..22).collect(),
            padding: 0,
        }
    }
}

impl Frame {
    /// A TCP frame with `len` bytes of payload.
    pub(crate) fn tcp(v6: bool, len: usize) -> Frame {
        let payload = (0..len).map(|i| (i * 7 + i / 251) as u8).collect();
        Frame {
            v6,
            payload,
            transport: Transport::Tcp {
                options: 3,
                flags: 0x18,
            },
            ..Frame::default()
        }
    }

    /// A UDP frame with `len` bytes of payload.
    pub(crate) fn udp(v6: bool, len: usize) -> Frame {
        Frame {
            transport: Transport::Udp,
            ..Frame::tcp(v6, len)
        }
    }

    /// The fewest payload bytes in each of its wire packets that an honest stack asks for.
    pub(crate) fn least_size(&self) -> u16 {
        match self.transport {
            Transport::Tcp { .. } => TCP_MIN_GSO_SIZE,
            _ => self.payload.len().div_ceil(UDP_MAX_SEGMENTS) as u16,
        }
    }

    pub(crate) fn network_offset(&self) -> usize {
        14 + 4 * self.vlans
    }

    pub(crate) fn transport_offset(&self) -> usize {
        let network_len = match (self.v6, self.options) {
            (false, words) => 20 + 4 * words,
            (true, extensions) => 40 + (1..=extensions).map(|n| 8 * n).sum::<usize>(),
        };
        self.network_offset() + network_len
    }

    pub(crate) fn header_len(&self) -> usize {
        self.transport_offset()
            + match self.transport {
                Transport::Tcp { options, .. } => 20 + 4 * options,
                Transport::Udp | Transport::Icmp => 8,
            }
    }

    pub(crate) fn protocol(&self) -> u8 {
        match (&self.transport, self.v6) {
            (Transport::Tcp { .. }, _) => 6,
            (Transport::Udp, _) => 17,
            (Transport::Icmp, false) => 1,
            (Transport::Icmp, true) => 58,
        }
    }

    /// The place of the TCP or UDP checksum.
    pub(crate) fn checksum(&self) -> Checksum {
        let offset = if matches!(self.transport, Transport::Udp) {
            6
        } else {
            16
        };
        Checksum {
            start: self.transport_offset() as u16,
            offset,
        }
    }

    /// The kind of it as a large frame.
    pub(crate) fn kind(&self) -> GsoKind {
        match (&self.transport, self.v6) {
            (Transport::Tcp { .. }, false) => GsoKind::TcpV4,
            (Transport::Tcp { .. }, true) => GsoKind::TcpV6,
            _ => GsoKind::Udp,
        }
    }

    /// The virtio-net header that an honest sender puts in front of the frame, to be segmented
    /// into wire packets of `size` bytes of payload.
    pub(crate) fn vnet_header(&self, size: u16) -> VnetHeader {
        VnetHeader {
            gso_type: self.kind() as u8,
            hdr_len: (self.header_len() as u16).into(),
            gso_size: size.into(),
            ..vnet_header(1, self.checksum())
        }
    }

    /// The frame's bytes. The transport checksum field holds the pseudo-header's sum, as a sender
    /// leaves it that wants the checksum to be filled in.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        for tag in 0..self.vlans {
            let ethertype: u16 = if tag + 1 < self.vlans { 0x88a8 } else { 0x8100 };
            frame.extend(ethertype.to_be_bytes());
            frame.extend([0x20, (tag as u8).wrapping_add(1)]);
        }
        let transport_len = self.header_len() - self.transport_offset() + self.payload.len();
        if self.v6 {
            self.put_ipv6(&mut frame, transport_len);
        } else {
            self.put_ipv4(&mut frame, transport_len);
        }
        assert_eq!(frame.len(), self.transport_offset());
        let (source, destination) = self.ports;
        let pseudo = self.pseudo_sum(transport_len);
        match self.transport {
            Transport::Tcp { options, flags } => {
                frame.extend(source.to_be_bytes());
                frame.extend(destination.to_be_bytes());
                frame.extend(self.seq.to_be_bytes());
                frame.extend(77_u32.to_be_bytes());
                frame.extend([((5 + options) << 4) as u8, flags, 0x10, 0]);
                frame.extend(pseudo.to_be_bytes());
                frame.extend([0; 2]);
                // No-operations.
                frame.extend(std::iter::repeat_n(1, 4 * options));
            }
            Transport::Udp => {
                frame.extend(source.to_be_bytes());
                frame.extend(destination.to_be_bytes());
                frame.extend((transport_len as u16).to_be_bytes());
                frame.extend(pseudo.to_be_bytes());
            }
            Transport::Icmp => frame.extend([if self.v6 { 128 } else { 8 }, 0, 0, 0, 0, 1, 0, 1]),
        }
        frame.extend(&self.payload);
        frame.extend(std::iter::repeat_n(0, self.padding));
        frame
    }

    const SOURCE6: [u8; 16] = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 8, 1];
    const DESTINATION6: [u8; 16] = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 8, 2];
    const SOURCE4: [u8; 4] = [10, 9, 8, 1];
    const DESTINATION4: [u8; 4] = [10, 9, 8, 2];

    fn put_ipv4(&self, frame: &mut Vec<u8>, transport_len: usize) {
        let len = 20 + 4 * self.options + transport_len;
        let start = frame.len() + 2;
        frame.extend([0x08, 0x00, 0x45 + self.options as u8, self.traffic_class]);
        frame.extend((len as u16).to_be_bytes());
        frame.extend(self.id.to_be_bytes());
        frame.extend([0x40, 0, 64, self.protocol(), 0, 0]);
        frame.extend(Frame::SOURCE4);
        frame.extend(Frame::DESTINATION4);
        frame.extend(std::iter::repeat_n(1, 4 * self.options));
        let sum = Sum16BitWords::new()
            .add_slice(&frame[start..])
            .ones_complement()
            .to_be();
        frame[start + 10..start + 12].copy_from_slice(&sum.to_be_bytes());
    }

    fn put_ipv6(&self, frame: &mut Vec<u8>, transport_len: usize) {
        let extensions: usize = (1..=self.options).map(|n| 8 * n).sum();
        let class = self.traffic_class;
        frame.extend([0x86, 0xdd, 0x60 | class >> 4, class << 4, 0, 7]);
        frame.extend(((extensions + transport_len) as u16).to_be_bytes());
        // Hop-by-hop options, destination options, routing (segments left: 0).
        let kinds = [0, 60, 43];
        let next = |n: usize| {
            if n < self.options {
                kinds[n]
            } else {
                self.protocol()
            }
        };
        frame.extend([next(0), 64]);
        frame.extend(Frame::SOURCE6);
        frame.extend(Frame::DESTINATION6);
        for (n, kind) in kinds.iter().enumerate().take(self.options) {
            let rest = 8 * (n + 1) - 4;
            match kind {
                43 => frame.extend([next(n + 1), n as u8, 4, 0]),
                // PadN over the whole header.
                _ => frame.extend([next(n + 1), n as u8, 1, rest as u8]),
            }
            frame.extend(std::iter::repeat_n(0, rest));
        }
    }

    fn pseudo_sum(&self, transport_len: usize) -> u16 {
        let sum = Sum16BitWords::new();
        let mut sum = if self.v6 {
            sum.add_slice(&Frame::SOURCE6)
                .add_slice(&Frame::DESTINATION6)
        } else {
            sum.add_slice(&Frame::SOURCE4)
                .add_slice(&Frame::DESTINATION4)
        };
        sum = sum.add_4bytes((transport_len as u32).to_be_bytes());
        sum = sum.add_2bytes([0, self.protocol()]);
        !sum.ones_complement().to_be()
    }
}

/// A virtio-net header with these flags that says where the checksum is.
pub(crate) fn vnet_header(flags: u8, checksum: Checksum) -> VnetHeader {
    VnetHeader {
        flags,
        csum_start: checksum.start.into(),
        csum_offset: checksum.offset.into(),
        ..VnetHeader::default()
    }
}

/// Frames of all kinds with up to `max_payload` bytes of payload.
pub(crate) fn frames(max_payload: usize) -> impl Strategy<Value = Frame> {
    let transport = prop_oneof![
        4 => (0..=10_usize, any::<u8>())
            .prop_map(|(options, flags)| Transport::Tcp { options, flags }),
        3 => Just(Transport::Udp),
        1 => Just(Transport::Icmp),
    ];
    let network = (
        0..=3_usize,
        any::<bool>(),
        prop_oneof![Just(0), 0..=10_usize],
        any::<u8>(),
        any::<u16>(),
    );
    let payload = prop_oneof![vec(any::<u8>(), 0..64), vec(any::<u8>(), 0..=max_payload)];
    (
        network,
        transport,
        any::<(u16, u16)>(),
        any::<u32>(),
        payload,
        prop_oneof![Just(0), 0..40_usize],
    )
        .prop_map(
            |(
                (vlans, v6, options, traffic_class, id),
                transport,
                ports,
                seq,
                payload,
                padding,
            )| {
                let options = if v6 { options % 4 } else { options };
                Frame {
                    vlans,
                    v6,
                    options,
                    traffic_class,
                    id,
                    ports,
                    seq,
                    transport,
                    payload,
                    padding,
                }
            },
        )
}

/// TCP and UDP frames with 2 or more bytes of payload and no padding: those that can be large
/// ones.
pub(crate) fn large_frames(max_payload: usize) -> impl Strategy<Value = Frame> {
    frames(max_payload).prop_map(|mut frame| {
        frame.padding = 0;
        if frame.payload.len() < 2 {
            frame.payload = vec![1, 2];
        }
        if matches!(frame.transport, Transport::Icmp) {
            frame.transport = Transport::Udp;
        }
        frame
    })
}

/// Damages up to 4 bytes of the first 100, and cuts the frame perhaps.
pub(crate) fn damage()
-> impl Strategy<Value = (Vec<(prop::sample::Index, u8)>, Option<prop::sample::Index>)> {
    (
        vec((any::<prop::sample::Index>(), any::<u8>()), 0..5),
        prop::option::weighted(0.2, any::<prop::sample::Index>()),
    )
}

/// Applies what [`damage`] chose.
pub(crate) fn damaged(
    mut bytes: Vec<u8>,
    (changes, cut): (Vec<(prop::sample::Index, u8)>, Option<prop::sample::Index>),
) -> Vec<u8> {
    for (at, value) in changes {
        let at = at.index(bytes.len().min(100));
        bytes[at] = value;
    }
    if let Some(cut) = cut {
        bytes.truncate(cut.index(bytes.len() + 1));
    }
    bytes
}

/// The transport payload of a wire packet, after checking with etherparse that all its lengths and
/// checksums are right.
pub(crate) fn verified_payload(bytes: &[u8]) -> Vec<u8> {
    let sliced = SlicedPacket::from_ethernet(bytes).expect("a well-formed packet");
    if let Some(NetSlice::Ipv4(ip)) = &sliced.net {
        let header = ip.header().to_header();
        assert_eq!(
            header.calc_header_checksum(),
            header.header_checksum,
            "IPv4 header checksum"
        );
    }
    let (right, found, payload) = match (&sliced.net, &sliced.transport) {
        (Some(NetSlice::Ipv4(ip)), Some(TransportSlice::Tcp(tcp))) => {
            let (source, destination) = (ip.header().source(), ip.header().destination());
            (
                tcp.calc_checksum_ipv4(source, destination),
                tcp.checksum(),
                tcp.payload(),
            )
        }
        (Some(NetSlice::Ipv6(ip)), Some(TransportSlice::Tcp(tcp))) => {
            let (source, destination) = (ip.header().source(), ip.header().destination());
            (
                tcp.calc_checksum_ipv6(source, destination),
                tcp.checksum(),
                tcp.payload(),
            )
        }
        (Some(NetSlice::Ipv4(ip)), Some(TransportSlice::Udp(udp))) => {
            let right = udp
                .to_header()
                .calc_checksum_ipv4(&ip.header().to_header(), udp.payload());
            (right, udp.checksum(), udp.payload())
        }
        (Some(NetSlice::Ipv6(ip)), Some(TransportSlice::Udp(udp))) => {
            let right = udp
                .to_header()
                .calc_checksum_ipv6(&ip.header().to_header(), udp.payload());
            (right, udp.checksum(), udp.payload())
        }
        other => panic!("neither TCP nor UDP over IP: {other:?}"),
    };
    let right = right.expect("lengths within bounds");
    if matches!(sliced.transport, Some(TransportSlice::Udp(_))) {
        assert_ne!(found, 0, "UDP without a checksum");
    }
    // One's complement has two zeros.
    let zero = |sum: u16| if sum == 0xffff { 0 } else { sum };
    assert_eq!(zero(right), zero(found), "transport checksum");
    payload.to_vec()
}
