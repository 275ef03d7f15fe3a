use super::*;

fn pcap(words: [u32; 5], records: &[([u32; 4], &[u8])], is_big_endian: bool) -> Vec<u8> {
    let put = |word: u32| match is_big_endian {
        true => word.to_be_bytes(),
        false => word.to_le_bytes(),
    };
    let magic = [words[0], 4 << 16 | 2, 0, 0, words[1], words[2]];
    let magic = match is_big_endian {
        true => [words[0], 2 << 16 | 4, 0, 0, words[1], words[2]],
        false => magic,
    };
    let mut file: Vec<u8> = magic.into_iter().flat_map(put).collect();
    for (head, data) in records {
        file.extend(head.iter().copied().flat_map(put));
        file.extend(*data);
    }
    file
}

/// Times, kinds, bytes and lengths of a file's packets, and how it ends.
type Read = (Vec<(u64, u32, Vec<u8>, u32)>, Result<(), String>);

fn read(file: &[u8]) -> Read {
    let mut frames = Vec::new();
    let mut file = match PacketFile::new(file) {
        Ok(file) => file,
        Err(error) => return (frames, Err(error.to_string())),
    };
    loop {
        match file.next_frame() {
            Ok(Some(f)) => frames.push((f.time, f.link_type, f.data.to_vec(), f.len)),
            Ok(None) => return (frames, Ok(())),
            Err(error) => return (frames, Err(error.to_string())),
        }
    }
}

fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let len = (12 + body.len().next_multiple_of(4)) as u32;
    let mut block = [kind.to_le_bytes(), len.to_le_bytes()].concat();
    block.extend(body);
    block.resize(len as usize - 4, 0);
    block.extend(len.to_le_bytes());
    block
}

fn section() -> Vec<u8> {
    let mut body = 0x1a2b_3c4d_u32.to_le_bytes().to_vec();
    body.extend([1, 0, 0, 0]);
    body.extend([0xff; 8]);
    block(SECTION, &body)
}

fn interface(link_type: u16, options: &[u8]) -> Vec<u8> {
    let mut body = link_type.to_le_bytes().to_vec();
    body.extend([0, 0, 0, 0, 0, 0]);
    body.extend(options);
    block(INTERFACE, &body)
}

fn enhanced(interface: u32, time: u64, captured: u32, len: u32, data: &[u8]) -> Vec<u8> {
    let words = [interface, (time >> 32) as u32, time as u32, captured, len];
    let mut body: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
    body.extend(data);
    block(ENHANCED_PACKET, &body)
}

#[test]
fn pcap_of_both_byte_orders_and_resolutions() {
    let records: &[([u32; 4], &[u8])] = &[([7, 5, 3, 3], b"abc"), ([8, 999_999, 2, 90], b"de")];
    for (magic, unit) in [(0xa1b2_c3d4, 1000), (0xa1b2_3c4d, 1)] {
        for is_big_endian in [false, true] {
            let file = pcap([magic, 65_535, 113, 0, 0], records, is_big_endian);
            let expected = vec![
                (7 * SECOND + 5 * unit, 113, b"abc".to_vec(), 3),
                (8 * SECOND + 999_999 * unit, 113, b"de".to_vec(), 90),
            ];
            assert_eq!(read(&file), (expected, Ok(())));
        }
    }
}

#[test]
fn pcapng_with_several_interfaces_and_sections() {
    let nanoseconds = [9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0];
    let binary = [9, 0, 1, 0, 0x81, 0, 0, 0];
    let file = [
        section(),
        interface(1, &[]),
        interface(101, &nanoseconds),
        interface(276, &binary),
        block(5, b"statistics"),
        enhanced(0, 1_000_001, 3, 3, b"abc"),
        enhanced(1, 2_000_000_001, 2, 70, b"de"),
        enhanced(2, 7, 1, 1, b"f"),
        block(SIMPLE_PACKET, b"\x04\0\0\0ghij"),
        section(),
        interface(228, &[]),
        enhanced(0, 4_000_000, 0, 0, b""),
    ]
    .concat();
    let expected = vec![
        (1_000_001_000, 1, b"abc".to_vec(), 3),
        (2_000_000_001, 101, b"de".to_vec(), 70),
        (3_500_000_000, 276, b"f".to_vec(), 1),
        (3_500_000_000, 1, b"ghij".to_vec(), 4),
        (4 * SECOND, 228, Vec::new(), 0),
    ];
    assert_eq!(read(&file), (expected, Ok(())));
    // Cut anywhere it ends with a reason, or where a block ends.
    for len in 0..file.len() {
        let (frames, end) = read(&file[..len]);
        assert!(frames.len() <= 5);
        if let Err(text) = end {
            assert!(
                text.contains("cut off") || text.contains("neither"),
                "{text}"
            );
        }
    }
}

#[test]
fn files_that_lie_are_refused() {
    let us = 0xa1b2_c3d4;
    let enhanced_behind = |block: Vec<u8>| [section(), interface(1, &[]), block].concat();
    let mut other_end = enhanced(0, 0, 1, 1, b"a");
    let end = other_end.len() - 4;
    other_end[end] ^= 4;
    for (file, said) in [
        (b"".to_vec(), "neither"),
        (b"\x1f\x8b\x08\x00".to_vec(), "neither"),
        (
            pcap([us, 1, 1, 0, 0], &[([0, 0, 262_145, 9], b"")], false),
            "packet 1: it claims to have more than 262144 bytes",
        ),
        (
            pcap([us, 1, 1, 0, 0], &[([0, 1_000_000, 0, 0], b"")], false),
            "packet 1: its time",
        ),
        (
            pcap([us, 1, 1, 0, 0], &[([0, 0, 9, 9], b"short")], false),
            "packet 1 is cut off",
        ),
        (
            enhanced_behind(enhanced(1, 0, 1, 1, b"a")),
            "packet 1: it is of no interface",
        ),
        (
            enhanced_behind(enhanced(0, 0, 5, 5, b"abcd")),
            "packet 1: it claims to have more bytes than its block",
        ),
        (
            enhanced_behind(enhanced(0, 0, u32::MAX, 5, b"abcd")),
            "packet 1: it claims to have more bytes than its block",
        ),
        (enhanced_behind(other_end), "packet 1: its block ends"),
        (
            enhanced_behind([6_u32, 0xffff_fffc].map(u32::to_le_bytes).concat()),
            "packet 1: its block has a length",
        ),
        (
            enhanced_behind([6_u32, 13].map(u32::to_le_bytes).concat()),
            "packet 1: its block has a length",
        ),
        (
            [section(), interface(1, &[9, 0, 1, 0, 19, 0, 0, 0])].concat(),
            "packet 1: an interface before it has times",
        ),
        (
            [section(), interface(1, &[]).repeat(MOST_INTERFACES + 1)].concat(),
            "packet 1: its section has too many interfaces",
        ),
    ] {
        let (_, end) = read(&file);
        let text = end.expect_err(said);
        assert!(text.contains(said), "{text}");
    }
}
