//! Requests that nobody should send: they are refused, and change nothing then.

use proptest::prelude::*;

use super::*;

fn kind() -> impl Strategy<Value = u16> {
    prop_oneof![RTM_NEWQDISC..=RTM_GETQDISC, RTM_NEWTCLASS..=RTM_GETTCLASS]
}

/// Names that are often those of something.
fn name() -> impl Strategy<Value = u32> {
    let small = (0_u32..3, 0_u32..4).prop_map(|(major, minor)| major << 16 | minor);
    let special = prop::sample::select(vec![0, u32::MAX, 0xffff_fff1, 0x8001_0000, 0xffff_0000]);
    prop_oneof![4 => small, 2 => special, 1 => any::<u32>()]
}

fn body() -> impl Strategy<Value = Vec<(u16, Vec<u8>)>> {
    let kinds = [
        "pfifo", "prio", "htb", "mq", "tbf", "fq", "fq_codel", "codel", "mqprio", "\u{ff}",
    ];
    let kind = prop::sample::select(kinds.to_vec()).prop_map(|kind| (TCA_KIND, kind.into()));
    let any = (0_u16..20, prop::collection::vec(any::<u8>(), 0..64));
    let prio = Just((TCA_OPTIONS, [&[3][..], &[0; 19]].concat()));
    prop::collection::vec(prop_oneof![kind, any, prio], 0..5)
}

/// Errnos of refused requests.
const REFUSALS: &[&str] = &[
    "E2BIG",
    "EBUSY",
    "EEXIST",
    "EINVAL",
    "ELOOP",
    "ENODEV",
    "ENOENT",
    "ENOSPC",
    "EOPNOTSUPP",
    "ERANGE",
];

impl World {
    /// The qdiscs and classes of all links.
    fn qdiscs_and_classes(&mut self) -> Vec<Vec<String>> {
        let all = (1..=3).flat_map(|link| [self.show_invisible(link), self.classes(link, "")]);
        all.collect()
    }
}

/// Asserts that a refusal is `TEXT (ERRNO)` or `ERRNO`, with one of `errnos`.
pub(super) fn assert_refused(error: &str, errnos: &[&str]) {
    let errno = match error
        .strip_suffix(')')
        .and_then(|error| error.rsplit_once(" ("))
    {
        Some((text, errno)) => {
            assert!(!text.trim().is_empty(), "{error}");
            errno
        }
        None => error,
    };
    assert!(errnos.contains(&errno), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn refused_qdisc_and_class_requests_change_nothing(
        requests in prop::collection::vec(
            (kind(), any::<u16>(), -1..5, name(), name(), body()),
            1..40,
        ),
    ) {
        let mut world = World::new();
        for (kind, flags, link, parent, handle, body) in requests {
            let header = TcMsg { ifindex: link, parent, handle, ..TcMsg::default() };
            let put = |out: &mut Message<'_>| {
                for (kind, bytes) in &body {
                    out.put_bytes(*kind, bytes);
                }
            };
            let before = world.qdiscs_and_classes();
            if let Err(error) = world.ask(kind, flags, header, &put) {
                assert_refused(&error, REFUSALS);
                prop_assert_eq!(world.qdiscs_and_classes(), before);
            }
        }
    }
}

#[test]
fn cut_short() {
    let mut world = World::new();
    let body = |out: &mut Message<'_>| {
        out.put_str(TCA_KIND, "pfifo");
        out.put_u32(TCA_OPTIONS, 7);
    };
    let messages = message(RTM_NEWQDISC, ADD, &at(1, "root", "1:"), body);
    let whole = messages.as_bytes();
    for length in 16..whole.len() {
        let mut bytes = whole[..length].to_vec();
        bytes[..4].copy_from_slice(&(length as u32).to_ne_bytes());
        let request = Request::read(&bytes).unwrap();
        let mut replies = Replies::new(&request, &CLIENT);
        let answer = world.rtnl.request(&request, &CLIENT, &mut replies);
        assert_eq!(answer.is_ok(), length >= 46, "{length}: {answer:?}");
        if answer.is_ok() {
            world.del(1, "root", "", "").unwrap();
        }
    }
}
