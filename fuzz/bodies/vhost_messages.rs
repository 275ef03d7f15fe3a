//! A front end that says anything.
//!
//! The input is a list of messages: what files come along (1 byte: how many, and which), the
//! request (1), flags (1), the payload's length (2, little-endian) and the payload. What is well
//! known is abbreviated: a byte of `0xff` or `0xfe` for the request is followed by one that chooses
//! a message of an honest front end instead.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use softnet_io::vhost_user::memory::MemoryError;
use softnet_io::vhost_user::message::{HEADER_LEN, Header, MAX_FILES, MAX_PAYLOAD, Request};
use softnet_io::vhost_user::{GuestSpec, Port, Protocol, ProtocolError};

/// Queue pairs.
const PAIRS: usize = 2;
/// The guest's memory, in the guest, in the front end, and bytes.
const GUEST: u64 = 0x1_0000;
const USER: u64 = 0x7f00_0000;
const LEN: u64 = 0x1_0000;

struct Files {
    memory: OwnedFd,
    event: OwnedFd,
    other: OwnedFd,
}

impl Files {
    fn new() -> Files {
        let memory = rustix::fs::memfd_create("guest", rustix::fs::MemfdFlags::CLOEXEC);
        let memory = memory.expect("a memory file");
        rustix::fs::ftruncate(&memory, LEN).expect("it can be as long");
        let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK);
        Files {
            memory,
            event: event.expect("an event descriptor"),
            other: File::open("/dev/null").expect("it is there").into(),
        }
    }

    fn some(&self, what: u8) -> Vec<OwnedFd> {
        let file = match what >> 6 {
            0 | 3 => &self.memory,
            1 => &self.event,
            _ => &self.other,
        };
        let count = usize::from(what & 0x3f).min(MAX_FILES + 1);
        let copy = |_| file.try_clone().expect("a descriptor");
        (0..count).map(copy).collect()
    }
}

/// A message of an honest front end, about one ring.
fn honest(choice: u8) -> (u8, Vec<u8>, u8) {
    const EVENT: u8 = 1 << 6 | 1;
    let ring = u64::from(choice >> 4) % (2 * PAIRS as u64);
    let (number, payload, files): (u8, &[u64], u8) = match choice & 15 {
        0 => (1, &[], 0),
        1 => (2, &[1 << 32 | 1 << 30], 0),
        2 => (2, &[1 << 34 | 1 << 32 | 1 << 15], 0),
        3 => (16, &[0x1_a019], 0),
        4 => (5, &[1, GUEST, LEN, USER, 0], 1),
        5 => (37, &[0, GUEST + LEN, LEN, USER + LEN, 0], 1),
        6 => (38, &[0, GUEST + LEN, LEN, USER + LEN, 0], 0),
        7 => (8, &[8 << 32 | ring], 0),
        8 => (9, &[ring, USER, USER + 0x2000, USER + 0x1000, 0], 0),
        9 => (10, &[ring], 0),
        10 => (11, &[ring], 0),
        11 => (12, &[ring], EVENT),
        12 => (13, &[ring], EVENT),
        13 => (18, &[1 << 32 | ring], 0),
        14 => (39, &[0], 0),
        _ => (20, &[9000], 0),
    };
    let payload = payload.iter().flat_map(|word| word.to_ne_bytes());
    (number, payload.collect(), files)
}

/// A rarer message of an honest front end, with some numbers chosen.
fn rare(choice: u8) -> (u8, Vec<u8>, u8) {
    const EVENT: u8 = 1 << 6 | 1;
    let some = u64::from(choice >> 4);
    let ring = some % (2 * PAIRS as u64);
    let far = |n: u64| [GUEST + n * LEN, LEN, USER + n * LEN, 0];
    let [one, two] = [far(0), far(1 + some)];
    let table: Vec<u64> = [2].into_iter().chain(one).chain(two).collect();
    let region: Vec<u64> = [0].into_iter().chain(two).collect();
    let high = USER + LEN;
    let (number, payload, files): (u8, &[u64], u8) = match choice & 15 {
        0 => (
            2,
            &[0x1c0_0000_0000_0000 | 1 << 32 | 0x7840_bb8b | (some & 1) << 34],
            0,
        ),
        1 => (5, &table, 2),
        2 => (37, &region, 1),
        3 => (38, &region, 1),
        4 => (8, &[(some + 1) << 32 | ring], 0),
        5 => (9, &[ring, high, high + 0x2000, high + 0x1000, 0], 0),
        6 => (9, &[ring, high - 64, high + 0x2000, high + 0x1000, 0], 0),
        7 => (10, &[0x8000_8000 << 32 | ring], 0),
        8 => (10, &[some << 32 | ring], 0),
        9 => (18, &[ring], 0),
        10 => (34, &[], 0),
        11 => (4, &[], 0),
        12 => (39, &[some], 0),
        13 => (13, &[ring | 1 << 8], 0),
        14 => (14, &[ring], EVENT),
        _ => (20, &[68 << some], 0),
    };
    let payload = payload.iter().flat_map(|word| word.to_ne_bytes());
    (number, payload.collect(), files)
}

fn message<'a>(input: &mut impl Iterator<Item = &'a u8>) -> Option<(u8, u8, Vec<u8>, u8)> {
    let mut byte = || input.next().copied();
    let (files, number) = (byte()?, byte()?);
    if number >= 0xfe {
        let message = if number == 0xff { honest } else { rare };
        let (number, payload, files) = message(byte()?);
        return Some((number, 1, payload, files));
    }
    let (flags, len) = (byte()?, u16::from_le_bytes([byte()?, byte()?]));
    let payload = (0..usize::from(len)).map_while(|_| byte()).collect();
    Some((number, flags, payload, files))
}

pub(crate) fn run(input: &[u8]) {
    let files = Files::new();
    let mut protocol = Protocol::new(Arc::new(
        Port::new(PAIRS, GuestSpec::default()).expect("descriptors"),
    ));
    let mut input = input.iter();
    while let Some((number, flags, payload, with)) = message(&mut input) {
        let header = [number.into(), flags.into(), payload.len() as u32].map(u32::to_ne_bytes);
        let header: [u8; HEADER_LEN] = header.concat().try_into().expect("12 bytes");
        let Ok(header) = Header::parse(header) else {
            return;
        };
        assert!(header.payload_len() == payload.len() && payload.len() <= MAX_PAYLOAD);
        let Ok(request) = Request::parse(&header, &payload, files.some(with)) else {
            return;
        };
        match protocol.handle(request) {
            Ok(answer) => {
                let answer = answer.unwrap_or_default();
                let reply = header.reply(&answer);
                assert!(reply.len() == HEADER_LEN + answer.len() && answer.len() <= 8);
            }
            // Not for want of memory, of which the last input would have kept some.
            Err(ProtocolError::Memory(MemoryError::Map(error))) => panic!("{error}"),
            Err(_) => return,
        }
    }
}
