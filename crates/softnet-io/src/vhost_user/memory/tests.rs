//! Memory in files: what is mapped, what is refused, and what is taken away.

use std::fs::File;
use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use super::*;
use crate::vhost_user::bus_error::MAX_LEN;

/// Bytes that a guest may have.
const LIMIT: u64 = 1 << 40;

fn file(len: u64) -> OwnedFd {
    let file = memfd_create("guest", MemfdFlags::CLOEXEC).expect("a memory file");
    ftruncate(&file, len).expect("it can be as long");
    file
}

fn region(guest: u64, len: u64, user: u64, offset: u64) -> RegionSpec {
    RegionSpec {
        guest,
        len,
        user,
        offset,
    }
}

/// Two regions that follow each other in the guest, but not in the file, and one apart.
fn memory() -> (OwnedFd, GuestMemory) {
    let file = file(0x6000);
    let specs = [
        region(0x11_0000, 0x1000, 0x7000_0000, 0x4800),
        region(0x10_f000, 0x1000, 0x7100_0000, 0x1000),
        region(0x20_0000, 0x1000, 0x7200_0000, 0x2000),
    ];
    let map = |spec| Arc::new(Region::map(spec, &file, false).expect("it is in the file"));
    let regions = specs.into_iter().map(map).collect();
    (
        file,
        GuestMemory::new(regions, LIMIT).expect("they are apart"),
    )
}

#[test]
fn copies_go_over_adjacent_regions_and_no_further() {
    let (file, memory) = memory();
    let sent: Vec<u8> = (0..=255).cycle().take(0x2000).collect();
    memory.write_from(0x10_f000, &sent).unwrap();
    let mut read = vec![0; 0x1800];
    memory.read_into(0x10_f400, &mut read).unwrap();
    assert_eq!(read, sent[0x400..0x1c00]);
    let mut in_file = vec![0; 0x1000];
    rustix::io::pread(&file, &mut in_file, 0x4800).unwrap();
    assert_eq!(in_file, sent[0x1000..]);

    let outside = |at, len| memory.read_into(at, &mut vec![0; len]);
    assert_eq!(outside(0x10_f000, 0x2001), Err(OutOfRange(0x11_1000)));
    assert_eq!(outside(0x10_efff, 1), Err(OutOfRange(0x10_efff)));
    assert_eq!(outside(0x20_0ff0, 0x11), Err(OutOfRange(0x20_1000)));
    assert_eq!(outside(u64::MAX, 2), Err(OutOfRange(u64::MAX)));
    assert_eq!(outside(0, 0), Ok(()));
    assert_eq!(
        memory.write_from(0x11_0ffe, &[1, 2, 3]),
        Err(OutOfRange(0x11_1000))
    );
    assert!(!memory.is_lost());
}

#[test]
fn rings_lie_in_one_region_and_are_aligned() {
    let (_file, memory) = memory();
    let area = memory.area(0x7200_0040, 0x100, 16).unwrap();
    area.write(0, [1_u64, 2]);
    area.store_u16(16, 0xabcd);
    assert_eq!(area.read::<[u64; 2]>(0), [1, 2]);
    assert_eq!(area.load_u16(16), 0xabcd);
    let mut bytes = [0; 18];
    memory.read_into(0x20_0040, &mut bytes).unwrap();
    assert_eq!(bytes[16..], [0xcd, 0xab]);
    for (user, len) in [
        (0x7200_0041, 16),
        (0x7200_0f01, 0x100),
        (0x7200_1000, 1),
        (0x7200_0000, 0),
        (0x10_f000, 16),
        (u64::MAX, 16),
    ] {
        let refused = memory.area(user, len, 2);
        assert!(
            matches!(refused, Err(MemoryError::BadRing { .. })),
            "{user:#x}"
        );
    }
    // The whole region; and beyond it nothing, not even by the ring's own mistake.
    let area = memory.area(0x7200_0000, 0x1000, 4096).unwrap();
    for at in [0xfff, 0x1000, usize::MAX] {
        let beyond = std::panic::AssertUnwindSafe(|| area.load_u16(at));
        assert!(std::panic::catch_unwind(beyond).is_err());
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let file = memfd_create("guest", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING);
    let file: OwnedFd = file.expect("a memory file");
    ftruncate(&file, 0x3000).expect("it can be as long");
    let refused = |spec| Region::map(spec, &file, false).err();
    let bad = |spec| matches!(refused(spec), Some(MemoryError::BadRegion(_)));
    assert!(bad(region(0, 0, 0, 0)));
    assert!(bad(region(u64::MAX - 10, 0x1000, 0, 0)));
    assert!(bad(region(0, 0x1000, u64::MAX - 10, 0)));
    assert!(bad(region(0, u64::MAX, 0, 0)));
    for spec in [
        region(0, 0x3001, 0, 0),
        region(0, 0x1000, 0, 0x2001),
        region(0, 0x1000, 0, u64::MAX),
    ] {
        assert!(matches!(
            refused(spec),
            Some(MemoryError::BeyondFile { .. })
        ));
    }
    for file in [
        OwnedFd::from(File::open("/dev/zero").unwrap()),
        OwnedFd::from(File::open("/proc/self/maps").unwrap()),
        rustix::pipe::pipe().unwrap().0,
    ] {
        assert!(matches!(
            Region::map(region(0, 0x1000, 0, 0), &file, false),
            Err(MemoryError::NotMemory)
        ));
    }

    let map = |spec| Arc::new(Region::map(spec, &file, false).unwrap());
    let first = map(region(0x1000, 0x1000, 0x1000, 0));
    for other in [
        region(0x1fff, 0x1000, 0x8000, 0),
        region(0x800, 0x1000, 0x8000, 0),
        region(0x8000, 0x1000, 0x1fff, 0),
    ] {
        let both = vec![first.clone(), map(other)];
        assert!(matches!(
            GuestMemory::new(both, LIMIT),
            Err(MemoryError::Overlap(_))
        ));
    }
    let half = (MAX_LEN as u64 / 2) & !0xfff;
    let long = self::file(half);
    let map_long = |spec| Arc::new(Region::map(spec, &long, false).unwrap());
    let [one, two] = [0, 1 << 45].map(|at| map_long(region(at, half, at, 0)));
    let both = vec![one.clone(), two.clone()];
    assert!(GuestMemory::new(both, LIMIT).is_ok(), "1 TiB");
    assert!(matches!(
        GuestMemory::new(
            vec![one, two, map(region(1 << 46, 0x3000, 1 << 46, 0))],
            LIMIT
        ),
        Err(MemoryError::TooLong { .. })
    ));
    let least = vec![first.clone(), map(region(0x8000, 0x1001, 0x8000, 0))];
    assert!(GuestMemory::new(least.clone(), 0x2001).is_ok());
    let text = GuestMemory::new(least, 0x2000)
        .expect_err("it is longer")
        .to_string();
    assert!(
        text.contains("of 8193 bytes; the port's key memory allows 8192"),
        "{text}"
    );
    let most = (0..509).map(|i| map(region(i << 20, 0x1000, i << 20, 0)));
    assert!(GuestMemory::new(most.collect(), LIMIT).is_ok());
    assert!(matches!(
        Region::map(region(0, 0x1000, 0, 0), &file, true),
        Err(MemoryError::NotHuge)
    ));
    rustix::fs::fcntl_add_seals(&file, rustix::fs::SealFlags::FUTURE_WRITE).expect("a seal");
    assert!(matches!(
        Region::map(region(0, 0x1000, 0, 0), &file, false),
        Err(MemoryError::ReadOnly)
    ));
    let many = (0..510).map(|i| map_long(region(i << 20, 0x1000, i << 20, 0)));
    assert!(matches!(
        GuestMemory::new(many.collect(), LIMIT),
        Err(MemoryError::TooManyRegions)
    ));
}

#[test]
fn guest_memory_is_in_no_core_dump() {
    let (_file, memory) = memory();
    let maps = std::fs::read_to_string("/proc/self/smaps").expect("/proc");
    for region in memory.regions() {
        let start = format!("{:x}-", region.mapping().addr());
        let flags = maps.lines().skip_while(|line| !line.starts_with(&start));
        let flags = flags.skip(1).find(|line| line.starts_with("VmFlags:"));
        let flags = flags.expect("it is mapped");
        assert!(flags.contains(" dd"), "{flags}");
    }
}

/// A file that is truncated: the copy goes on with zeroes, the memory is lost, and other
/// memory is not.
#[test]
fn a_truncated_file_is_noticed_and_survived() {
    let (file, memory) = memory();
    let (_other_file, other) = self::memory();
    memory.write_from(0x10_f000, &[7; 0x2000]).unwrap();
    let area = memory.area(0x7000_0000, 16, 2).unwrap();
    ftruncate(&file, 0).unwrap();
    assert!(!memory.is_lost(), "nobody has looked");
    let mut read = [9; 64];
    memory.read_into(0x10_f000, &mut read).unwrap();
    assert_eq!(read, [0; 64]);
    assert!(memory.is_lost() && !area.is_lost() && !other.is_lost());
    area.store_u16(0, 5);
    assert!(area.is_lost());
    assert_eq!(area.load_u16(0), 5, "it is memory of our own now");
    drop((memory, area));
    // The place in the table is used again.
    let (_file, memory) = self::memory();
    assert!(!memory.is_lost());
}
