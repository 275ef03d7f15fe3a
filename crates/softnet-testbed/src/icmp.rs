//! ICMP echoes (RFC 792, RFC 4443).

use softnet_wire::checksum;

/// An echo request with these bytes of payload. ICMPv6's checksum is the kernel's to fill in.
pub fn request(v6: bool, ident: u16, sequence: u16, payload: &[u8]) -> Vec<u8> {
    let mut message = vec![if v6 { 128 } else { 8 }, 0, 0, 0];
    message.extend(ident.to_be_bytes());
    message.extend(sequence.to_be_bytes());
    message.extend(payload);
    if !v6 {
        let sum = checksum(&message).to_be_bytes();
        message[2..4].copy_from_slice(&sum);
    }
    message
}

/// Identifier, number and payload of the echo reply in `bytes`, if it is one.
pub fn reply(v6: bool, bytes: &[u8]) -> Option<(u16, u16, &[u8])> {
    let kind = if v6 { 129 } else { 0 };
    fields(bytes).filter(|_| bytes[0] == kind)
}

/// The same of any echo.
pub fn fields(bytes: &[u8]) -> Option<(u16, u16, &[u8])> {
    let (header, payload) = bytes.split_at_checked(8)?;
    let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    Some((word(4), word(6), payload))
}

/// The message behind the IPv4 header that a raw socket gets, too.
pub fn behind_header(packet: &[u8]) -> &[u8] {
    let words = packet.first().map_or(0, |first| first & 15);
    packet.get(usize::from(words) * 4..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_sums_to_zero() {
        for (ident, sequence) in [(0, 0), (0xffff, 0xffff), (0x1234, 0x8001)] {
            let request = request(false, ident, sequence, &[0x5a; 56]);
            assert_ne!(request[2..4], [0, 0]);
            assert_eq!(checksum(&request), 0);
        }
    }

    #[test]
    fn a_reply_is_told_from_a_request_and_from_less() {
        let mut packet = vec![0x45; 20];
        packet.extend(request(false, 7, 9, &[1, 2]));
        assert_eq!(reply(false, behind_header(&packet)), None);
        packet[20] = 0;
        let whole = reply(false, behind_header(&packet));
        assert_eq!(whole, Some((7, 9, &[1, 2][..])));
        for cut in 0..28 {
            assert_eq!(reply(false, behind_header(&packet[..cut])), None);
        }
    }
}
