//! Random requests: each is answered, and bounded.

use proptest::prelude::*;

use super::*;

/// Errnos of refused requests.
const REFUSALS: &[Errno] = &[
    Errno::EADDRNOTAVAIL,
    Errno::EBUSY,
    Errno::EEXIST,
    Errno::EINVAL,
    Errno::ELOOP,
    Errno::ENETUNREACH,
    Errno::ENODEV,
    Errno::ENOENT,
    Errno::ENOSPC,
    Errno::EOPNOTSUPP,
    Errno::ERANGE,
];

/// Values that mean something somewhere, so that a random request gets far.
fn number() -> impl Strategy<Value = u32> {
    prop_oneof![
        0_u32..6,
        Just(7),
        Just(0x40),
        Just(0x80),
        Just(4094),
        any::<u32>()
    ]
}

/// Attributes one after the other, with nests and wrong lengths.
fn attributes() -> impl Strategy<Value = Vec<u8>> {
    let kind = prop_oneof![0_u16..64, any::<u16>()];
    let leaf = prop_oneof![
        number().prop_map(|value| value.to_ne_bytes().to_vec()),
        number().prop_map(|value| (value as u16).to_ne_bytes().to_vec()),
        Just(STATION.to_vec()),
        Just(b"bridge\0".to_vec()),
        proptest::collection::vec(any::<u8>(), 0..12),
    ];
    leaf.prop_recursive(3, 24, 5, move |inner| {
        let attr = (kind.clone(), inner, -1_i16..=1);
        proptest::collection::vec(attr, 0..5).prop_map(|attrs| {
            let mut bytes = Vec::new();
            for (kind, data, lie) in attrs {
                let length = (data.len() as u16 + 4).saturating_add_signed(lie);
                bytes.extend(length.to_ne_bytes());
                bytes.extend(kind.to_ne_bytes());
                bytes.extend(&data);
                bytes.resize(bytes.len().next_multiple_of(4), 0);
            }
            bytes
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 256 }))]

    /// A request that is refused is refused with an errno and changes nothing; the engine goes on.
    #[test]
    fn refused_hostile_requests_change_nothing(
        requests in proptest::collection::vec(
            (
                prop_oneof![16_u16..32, 112_u16..115],
                prop_oneof![Just(0_u16), Just(NLM_F_BULK), Just(NLM_F_CREATE), any::<u16>()],
                (prop_oneof![Just(AF_BRIDGE), any::<u8>()], number(), number()),
                attributes(),
                any::<bool>(),
            ),
            1..12,
        ),
    ) {
        let mut bench = Bench::new();
        for (kind, flags, (family, index, word), body, dump) in requests {
            let mut payload = vec![family, 0, 0, 0];
            payload.extend(index.to_ne_bytes());
            payload.extend(word.to_ne_bytes());
            // `ifinfomsg` is longer than `ndmsg`.
            if kind < 20 {
                payload.extend([0; 4]);
            }
            payload.extend(body);
            let message = message(kind, flags, payload.as_slice(), |_| {});
            let before = bench.state();
            let answer = if dump {
                testing::dump(&mut bench.rtnl, &CLIENT, &message).map(drop)
            } else {
                testing::ask(&mut bench.rtnl, &CLIENT, &message).0
            };
            if let Err(error) = answer {
                testing::assert_refusal(&error, REFUSALS);
                prop_assert_eq!(bench.state(), before);
            }
        }
        let control = bench.control.lock().unwrap();
        prop_assert!(control.stats().conservation().holds());
    }
}
