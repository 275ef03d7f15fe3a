//! Pointers into regions, for miri, which maps no files: on memory that is mapped without one.

use super::*;

const LEN: usize = 4096;

/// Starts in the middle of its mapping.
fn region(guest: u64, user: u64) -> Arc<Region> {
    Arc::new(Region::without_file(RegionSpec {
        guest,
        len: LEN as u64,
        user,
        offset: 0,
    }))
}

/// Three regions, of which two follow each other in the guest.
fn memory() -> GuestMemory {
    let regions = [(0x1000, 0x9000), (0x2000, 0x5000), (0x8000, 0x7000)];
    let regions = regions.map(|(guest, user)| region(guest, user));
    GuestMemory::new(regions.into(), 1 << 40).expect("they are apart")
}

#[test]
fn copies_stay_inside() {
    let memory = memory();
    let bytes: Vec<u8> = (0..=255).cycle().take(2 * LEN).collect();
    memory.write_from(0x1000, &bytes).expect("two regions");
    let mut read = vec![0; 2 * LEN];
    memory.read_into(0x1000, &mut read).expect("two regions");
    assert_eq!(read, bytes);
    assert!(memory.read_into(0x1001, &mut read).is_err());
    assert!(memory.write_from(0x8fff, &[1, 2]).is_err());

    let mut last = 0;
    let mut span = memory.span(0x1ff0, 100, &mut last).expect("it is there");
    assert_eq!(span.len(), 16, "up to the region's end");
    let mut part = [0; 10];
    assert_eq!(span.read_into(&mut part), 10);
    assert_eq!(part, bytes[0xff0..0xffa]);
    assert_eq!(span.read_into(&mut part), 6);
    assert_eq!((span.read_into(&mut part), span.is_empty()), (0, true));
    let mut span = memory.span(0x8ffe, 9, &mut last).expect("it is there");
    assert_eq!((span.write_from(&[5; 9]), last), (2, 2));
    assert_eq!(span.write_from(&[5; 9]), 0, "behind it is another mapping");
    let mut end = [0; 2];
    memory.read_into(0x8ffe, &mut end).expect("it is there");
    assert_eq!(end, [5, 5]);
    let mut empty = Span::EMPTY;
    assert_eq!(empty.read_into(&mut end) + empty.write_from(&end), 0);
}

/// A window has what lies in its region as a whole, and nothing else.
#[test]
fn windows_end_with_their_region() {
    let memory = memory();
    let window = memory.window(1);
    let region = 0x2000..0x3000_u64;
    for at in [0, 0x1fff, 0x2000, 0x2001, 0x2fff, 0x3000, 0x8000, u64::MAX] {
        for n in [0, 1, 2, LEN - 1, LEN, LEN + 1, u32::MAX as usize] {
            let inside = region.contains(&at) && n as u64 <= region.end - at;
            let span = window.span(at, n);
            assert_eq!(span.is_some(), inside, "{n} bytes at {at:#x}");
            let Some(mut span) = span else { continue };
            let (bytes, mut read) = (vec![n as u8; n], vec![0; n]);
            assert_eq!((span.write_from(&bytes), span.is_empty()), (n, true));
            memory.read_into(at, &mut read).expect("it is there");
            assert_eq!(read, bytes);
        }
    }
    assert!(
        memory.window(3).span(0, 0).is_none(),
        "there is no such region"
    );
}

/// A header is there whether it was before or not, and needs all of its place.
#[test]
fn headers_become_what_they_should_be() {
    let memory = memory();
    let (first, second) = (0x0102_0304_0506_0708_u64, 0x1112_1314_u32);
    let wanted = [&first.to_ne_bytes()[..], &second.to_ne_bytes()].concat();
    let mut same = [0x55; 13];
    same[1..].copy_from_slice(&wanted);
    let (mut one, mut other) = (same, same);
    (one[3], other[12]) = (0x55, 0x55);
    for before in [[0x55; 13], same, one, other] {
        memory.write_from(0x1ff3, &before).expect("it is there");
        let span = |at| memory.span(at, 100, &mut 0).expect("it is there");
        assert!(!span(0x1ff5).update(first, second), "11 bytes");
        let mut place = span(0x1ff4);
        assert!(place.update(first, second) && place.is_empty());
        let mut after = [0; 13];
        memory.read_into(0x1ff3, &mut after).expect("it is there");
        assert_eq!(after, same, "and nothing else");
    }
}

/// The flags of a line are the last two bytes of each of its descriptors; all of it is to be there.
#[test]
fn flags_of_a_line_are_read_together() {
    let memory = memory();
    let area = memory.area(0x5000, 0x80, 16).expect("a region");
    for n in 0..8 {
        area.store_u16(16 * usize::from(n) + 14, n);
    }
    assert_eq!(area.load_flags(0x10), [1, 2, 3, 4]);
    assert_eq!(area.load_flags(0x40), [4, 5, 6, 7]);
    let beyond = std::panic::AssertUnwindSafe(|| area.load_flags(0x50));
    assert!(std::panic::catch_unwind(beyond).is_err());
}

/// A ring's fields, which outlive the memory that they were found in.
#[test]
fn fields_keep_their_region() {
    let memory = memory();
    let whole = memory.area(0x5000, LEN, 16).expect("a region");
    let other = memory.area(0x5000 + 16, LEN - 16, 16).expect("a part");
    drop(memory);
    whole.store_u16(16, 0x1234);
    assert_eq!(other.load_u16(0), 0x1234);
    other.write(LEN - 32, [1_u64, 2]);
    assert_eq!(whole.read::<[u64; 2]>(LEN - 16), [1, 2]);
    drop(whole);
    std::thread::spawn(move || assert_eq!(other.read::<u16>(0), 0x1234))
        .join()
        .expect("it is mapped");
}
