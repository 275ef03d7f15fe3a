//! The positions of a packet's data, for every size of buffer and every argument: no call of the
//! safe interface moves data out of its buffer or into the shared information in front of it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use proptest::prelude::*;

use super::*;

const LARGEST: usize = 65_536;

fn packet(buffer_size: usize) -> Packet {
    let buffers = 1;
    let config = PoolConfig {
        buffers,
        buffer_size,
    };
    Pool::new(config).unwrap().alloc().unwrap()
}

/// True if the call was refused.
fn panics(packet: &mut Packet, call: impl FnOnce(&mut Packet)) -> bool {
    catch_unwind(AssertUnwindSafe(|| call(packet))).is_err()
}

/// Headroom, length and tailroom.
fn place(packet: &mut Packet) -> (usize, usize, usize) {
    let tail = packet.tailroom_mut().len();
    (packet.headroom(), packet.len(), tail)
}

#[test]
fn extend_by_the_largest_number_is_refused() {
    let mut p = packet(2048);
    assert!(p.append(&[1; 100]));
    let before = place(&mut p);
    assert!(panics(&mut p, |p| p.extend(usize::MAX)));
    assert!(panics(&mut p, |p| p.extend(usize::MAX - 99)));
    assert_eq!(place(&mut p), before);
}

#[test]
fn reserve_of_almost_the_largest_number_is_refused() {
    let mut p = packet(2048);
    for headroom in [usize::MAX, usize::MAX - 32, usize::MAX - 63, 2048 - 63] {
        assert!(panics(&mut p, |p| p.reserve(headroom)), "{headroom}");
    }
    assert_eq!(place(&mut p), (HEADROOM, 0, 2048 - 256));
}

/// The data of a full buffer of the largest size, pulled to its end, stays in the buffer.
#[test]
fn the_end_of_the_largest_buffer_is_a_position() {
    let mut p = packet(LARGEST);
    assert!(panics(&mut p, |p| p.reserve(LARGEST - SHARED_INFO)));
    p.reserve(0);
    let all = p.tailroom_mut().len();
    p.tailroom_mut().fill(7);
    p.extend(all);
    assert_eq!(place(&mut p), (0, all, 0));
    p.pull_front(all);
    assert_eq!(place(&mut p), (all, 0, 0));
    assert_eq!(p.push_front(all).map(|data| data.len()), Some(all));
    assert!(p.data().iter().all(|&byte| byte == 7));
    p.pull_front(all);
    p.reserve(all);
    assert_eq!(place(&mut p), (all, 0, 0));
}

#[derive(Clone, Copy, Debug)]
enum Call {
    Extend(usize),
    Append(usize),
    PushFront(usize),
    PullFront(usize),
    Reserve(usize),
}

/// Small numbers, those around the sizes of buffers and of 16 bits, and any at all.
fn number() -> impl Strategy<Value = usize> {
    prop_oneof![
        0..600_usize,
        1_700..2_200_usize,
        65_200..65_800_usize,
        (0..600_usize).prop_map(|n| usize::MAX - n),
        any::<usize>(),
    ]
}

fn call() -> impl Strategy<Value = Call> {
    prop_oneof![
        number().prop_map(Call::Extend),
        number().prop_map(|n| Call::Append(n.min(70_000))),
        number().prop_map(Call::PushFront),
        number().prop_map(Call::PullFront),
        number().prop_map(Call::Reserve),
    ]
}

/// Bytes of a buffer.
static SIZES: [usize; 4] = [512, 2048, LARGEST - 64, LARGEST];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 512 }))]

    /// Against a model in unbounded numbers: what does not fit is refused and changes nothing, and
    /// headroom, data and tailroom are always the whole buffer.
    #[test]
    fn every_position_is_inside_the_buffer(
        size in prop::sample::select(&SIZES[..if cfg!(miri) { 2 } else { 4 }]),
        calls in prop::collection::vec(call(), 1..if cfg!(miri) { 5 } else { 24 }),
    ) {
        let mut p = packet(size);
        let whole = size.min(65_535) - SHARED_INFO;
        let (mut head, mut len) = (HEADROOM, 0_usize);
        for call in calls {
            let tail = whole - head - len;
            // True: not what the model says.
            let wrong = match call {
                Call::Extend(n) if n <= tail => {
                    p.extend(n);
                    len += n;
                    false
                }
                Call::Extend(n) => !panics(&mut p, |p| p.extend(n)),
                Call::Append(n) => {
                    let done = p.append(&vec![1; n]);
                    len += if n <= tail { n } else { 0 };
                    done != (n <= tail)
                }
                Call::PushFront(n) => {
                    let fits = n <= head;
                    let done = p.push_front(n).map(|data| data.fill(2)).is_some();
                    if fits {
                        (head, len) = (head - n, len + n);
                    }
                    done != fits
                }
                Call::PullFront(n) if n <= len => {
                    p.pull_front(n);
                    (head, len) = (head + n, len - n);
                    false
                }
                Call::PullFront(n) => !panics(&mut p, |p| p.pull_front(n)),
                Call::Reserve(n) if len == 0 && n <= whole => {
                    p.reserve(n);
                    head = n;
                    false
                }
                Call::Reserve(n) => !panics(&mut p, |p| p.reserve(n)),
            };
            prop_assert!(!wrong, "{call:?}");
            prop_assert_eq!(place(&mut p), (head, len, whole - head - len));
            p.data_mut().iter_mut().for_each(|byte| *byte = byte.wrapping_add(1));
        }
    }
}
