//! The Internet checksum (RFC 1071): one's complement sums.
//!
//! A *partial sum* is a `u64` of 16-bit and 32-bit words added in the machine's byte order,
//! carries kept in the high bits (RFC 1071 section 2, (B) byte order independence). Partial sums
//! of parts that start at even offsets are simply added; only [`fold`] brings the result into
//! network order.

use crate::{Headers, Network};

/// Partial sum of `bytes`, as if they started at an even offset. Cannot overflow for any frame.
#[inline]
pub fn sum_bytes(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    // Four sums, so that the additions do not wait for each other and may go through vector
    // registers.
    let (fours, last) = words.as_chunks::<4>();
    let mut sums = [0_u64; 4];
    for four in fours {
        for (sum, word) in sums.iter_mut().zip(four) {
            *sum += u64::from(u32::from_ne_bytes(*word));
        }
    }
    let mut sum: u64 = sums.iter().sum();
    for word in last {
        sum += u64::from(u32::from_ne_bytes(*word));
    }
    let mut tail = [0; 4];
    tail[..rest.len()].copy_from_slice(rest);
    sum + u64::from(u32::from_ne_bytes(tail))
}

/// Brings a partial sum down to 16 bits. The result is a number whose big-endian bytes are the sum
/// on the wire (not yet complemented).
#[inline]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the last step leaves 16 bits"
)]
pub fn fold(sum: u64) -> u16 {
    // Each step adds the carries back; after the second the value fits 33 bits, after the fourth
    // 16.
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    u16::from_be(sum as u16)
}

/// The Internet checksum of `bytes`, ready to be stored in big-endian order. Zero for bytes that
/// contain their right checksum.
#[inline]
pub fn checksum(bytes: &[u8]) -> u16 {
    !fold(sum_bytes(bytes))
}

/// Partial sum of the pseudo-header of a transport checksum (RFC 9293 3.1, RFC 8200 8.1):
/// addresses of 4 or 16 bytes, protocol number, and length of transport header and payload in
/// bytes.
#[inline]
pub fn pseudo_header(source: &[u8], destination: &[u8], protocol: u8, len: u32) -> u64 {
    sum_bytes(source)
        + sum_bytes(destination)
        + u64::from(u16::from(protocol).to_be())
        + u64::from(len.to_be())
}

/// Partial sum of parts of any lengths, one behind the other.
#[derive(Clone, Copy, Debug, Default)]
pub struct PartialSum {
    sum: u64,
    /// True if the next part starts at an odd offset.
    odd: bool,
}

impl PartialSum {
    /// Adds the next part.
    #[inline]
    pub fn add(&mut self, part: &[u8]) {
        let sum = sum_bytes(part);
        self.sum += if self.odd {
            // RFC 1071 section 2, (A): the sum with its bytes swapped.
            u64::from(fold(sum).to_be().swap_bytes())
        } else {
            sum
        };
        self.odd ^= part.len() % 2 == 1;
    }

    /// The sum of all parts, as if the first started at an even offset.
    #[inline]
    pub fn get(self) -> u64 {
        self.sum
    }
}

impl Headers {
    /// [`pseudo_header`] of a packet with `len` bytes of transport header and payload, with the
    /// addresses of its IP header. `data` is what was parsed.
    #[inline]
    pub fn pseudo_header(&self, data: &[u8], len: u32) -> u64 {
        let at = usize::from(self.network_offset);
        let (start, size) = match self.network {
            Network::V4 => (at + 12, 4),
            Network::V6 => (at + 8, 16),
            Network::Other => return 0,
        };
        let addresses = data.get(start..start + 2 * size).unwrap_or(&[]);
        pseudo_header(addresses, &[], self.protocol, len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 1071, word for word: 16-bit big-endian words, carries added at the end.
    fn reference(bytes: &[u8]) -> u16 {
        let mut sum = 0_u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    #[test]
    fn example_of_rfc_1071() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(fold(sum_bytes(&bytes)), 0xddf2);
        assert_eq!(checksum(&bytes), 0x220d);
    }

    #[test]
    fn largest_sums_do_not_overflow() {
        let bytes = vec![0xff; 65_557];
        assert_eq!(checksum(&bytes), reference(&bytes));
        assert_eq!(fold(u64::MAX), 0xffff);
    }

    proptest::proptest! {
        #[test]
        fn agrees_with_the_definition(bytes: Vec<u8>) {
            assert_eq!(checksum(&bytes), reference(&bytes));
        }

        #[test]
        fn parts_add_up_at_any_cut(parts: Vec<Vec<u8>>) {
            let mut sum = PartialSum::default();
            for part in &parts {
                sum.add(part);
            }
            assert_eq!(!fold(sum.get()), checksum(&parts.concat()));
        }
    }
}
