//! Messages as `netlink-packet-route` writes and reads them, and messages that nobody should send.

use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use netlink_packet_route::tc::{TcAttribute, TcMessage as PeerTcMessage};
use proptest::prelude::*;

use super::headers::{IfInfoMsg, TcMsg};
use super::*;
use crate::testing;

const KIND: u16 = 1;
const OPTIONS: u16 = 2;
const NEST: Policy = Policy::new(3, &[(1, Rule::U32), (2, Rule::U32Range(3, 5))]);
const POLICY: Policy = Policy::new(
    9,
    &[
        (KIND, Rule::Str { max: 3 }),
        (OPTIONS, Rule::NestedAny),
        (3, Rule::U32),
        (4, Rule::Flag),
        (5, Rule::Binary { max: 4 }),
        (6, Rule::U32Range(3, 5)),
        (8, Rule::Exact(8)),
    ],
);

/// An attribute as it is on the wire.
fn attr(kind: u16, data: &[u8]) -> Vec<u8> {
    let mut bytes = (data.len() as u16 + 4).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(data);
    bytes.resize(align(bytes.len()), 0);
    bytes
}

/// A message of type 36 with a `tcmsg`.
fn message(attrs: &[u8]) -> Vec<u8> {
    let length = (NLMSG_HDRLEN + size_of::<TcMsg>() + attrs.len()) as u32;
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend(36_u16.to_ne_bytes());
    bytes.extend([0; 10 + size_of::<TcMsg>()]);
    bytes.extend(attrs);
    bytes
}

fn parse(attrs: &[u8], validation: Validation) -> Result<Vec<u16>, Error> {
    let message = message(attrs);
    let request = Request::read(&message).expect("a message");
    let attrs = request.attrs::<TcMsg>(&POLICY, validation)?;
    if let Some(nest) = attrs.get(OPTIONS) {
        nest.nested(&NEST)?;
    }
    Ok(attrs.iter().map(|attr| attr.kind()).collect())
}

#[test]
fn a_peers_request_is_read() {
    let mut peer = PeerTcMessage::default();
    peer.header.index = 7;
    peer.header.handle = 0x1_0000_u32.into();
    peer.attributes = vec![TcAttribute::Kind("tbf".into()), TcAttribute::Chain(5)];
    let mut peer = NetlinkMessage::from(RouteNetlinkMessage::NewQueueDiscipline(peer));
    peer.header.sequence_number = 9;
    peer.header.flags = NLM_F_REQUEST | NLM_F_CREATE;
    peer.finalize();
    let mut bytes = vec![0; peer.buffer_len()];
    peer.serialize(&mut bytes);

    let request = Request::read(&bytes).expect("a message");
    assert_eq!((request.kind, request.seq), (libc::RTM_NEWQDISC, 9));
    assert!(request.has(NLM_F_REQUEST | NLM_F_CREATE) && !request.has(NLM_F_EXCL));
    let header: TcMsg = request.header().expect("long enough");
    assert_eq!((header.ifindex, header.handle), (7, 0x1_0000));
    let policy = Policy::new(20, &[(KIND, Rule::Str { max: 16 }), (11, Rule::U32)]);
    let attrs = request
        .attrs::<TcMsg>(&policy, Validation::Strict)
        .expect("well-formed");
    assert_eq!(attrs.str(KIND), Ok(Some("tbf")));
    assert_eq!(attrs.u32(11), Ok(Some(5)));
    assert!(!attrs.has(OPTIONS));
}

#[test]
fn a_peer_reads_what_is_written() {
    let mut messages = Messages::new();
    let head = Head {
        kind: libc::RTM_NEWLINK,
        flags: NLM_F_MULTI,
        seq: 3,
        pid: 4,
    };
    for index in 1..3 {
        let fixed = IfInfoMsg {
            index,
            ..IfInfoMsg::default()
        };
        let written = messages.message(head, &fixed, |message| {
            message.put_str(libc::IFLA_IFNAME, "web");
            message.put_u32(libc::IFLA_MTU, 1500);
            message.nest_unless_empty(libc::IFLA_LINKINFO, |_| {});
            message.nest(libc::IFLA_LINKINFO, |nest| nest.put_str(1, "dummy"));
        });
        assert_eq!(written, Ok(()));
    }
    let first = NetlinkMessage::<RouteNetlinkMessage>::deserialize(messages.as_bytes());
    let first = first.expect("well-formed");
    let NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) = first.payload else {
        panic!("{first:?}");
    };
    assert_eq!(
        (first.header.sequence_number, first.header.port_number),
        (3, 4)
    );
    let LinkMessage {
        header, attributes, ..
    } = link;
    assert_eq!(header.index, 1);
    assert_eq!(attributes[0], LinkAttribute::IfName("web".into()));
    assert_eq!(attributes[1], LinkAttribute::Mtu(1500));
    assert!(matches!(&attributes[2], LinkAttribute::LinkInfo(info) if info.len() == 1));
    assert_eq!(attributes.len(), 3);
    assert_eq!(Requests::new(messages.as_bytes()).count(), 2);
}

/// Errno, text, offset of the attribute.
type Expected = Option<(Errno, &'static str, Option<u32>)>;

/// Text, errno and offset are those of `validate_nla` and `__nla_validate_parse`.
#[test]
fn refusals_are_the_kernels() {
    use Validation::{KnownOnly, Liberal, Strict};
    const FAILED: &str = "Attribute failed policy validation";
    const LENGTH: &str = "invalid attribute length";
    let (einval, erange) = (Errno::EINVAL, Errno::ERANGE);
    let nested = OPTIONS | NLA_F_NESTED;
    let in_nest = |kind, data: &[u8]| attr(kind, &attr(2, data));
    let six = u32::to_ne_bytes(6);
    let cases: &[(Vec<u8>, Validation, Expected)] = &[
        (attr(3, &[1; 4]), Strict, None),
        (attr(3, &[1; 3]), Liberal, Some((erange, FAILED, Some(36)))),
        (attr(3, &[1; 5]), Liberal, None),
        (attr(3, &[1; 5]), Strict, Some((einval, LENGTH, Some(36)))),
        (attr(KIND, b"tbf\0"), Strict, None),
        (
            attr(KIND, b"tbfx"),
            Liberal,
            Some((erange, FAILED, Some(36))),
        ),
        (attr(KIND, b""), Liberal, Some((erange, FAILED, Some(36)))),
        (attr(4, b"x"), Liberal, Some((erange, FAILED, Some(36)))),
        (attr(5, &[0; 5]), Liberal, Some((erange, FAILED, Some(36)))),
        (
            attr(8, &[0; 7]),
            Liberal,
            Some((erange, "binary attribute size out of range", Some(36))),
        ),
        (attr(8, &[0; 9]), Liberal, None),
        (
            attr(8, &[0; 9]),
            Strict,
            Some((erange, "binary attribute size out of range", Some(36))),
        ),
        (attr(9, &[4]), Liberal, None),
        (
            attr(9, &[4]),
            Strict,
            Some((einval, "Unsupported attribute", Some(36))),
        ),
        (attr(10, &[4]), Liberal, None),
        (
            attr(10, &[4]),
            KnownOnly,
            Some((einval, "Unknown attribute type", Some(36))),
        ),
        (
            attr(0, &[]),
            KnownOnly,
            Some((einval, "Unknown attribute type", Some(36))),
        ),
        (attr(OPTIONS, b""), Liberal, None),
        (
            attr(OPTIONS, b"abc"),
            Liberal,
            Some((erange, FAILED, Some(36))),
        ),
        (
            in_nest(OPTIONS, &six),
            Liberal,
            Some((erange, "integer out of range", Some(40))),
        ),
        (in_nest(OPTIONS, &u32::to_ne_bytes(3)), Liberal, None),
        (
            in_nest(OPTIONS, &u32::to_ne_bytes(2)),
            Liberal,
            Some((erange, "integer out of range", Some(40))),
        ),
        (in_nest(nested, &u32::to_ne_bytes(5)), Strict, None),
        (
            in_nest(OPTIONS, &six),
            Strict,
            Some((einval, "NLA_F_NESTED is missing", Some(36))),
        ),
        (
            attr(3 | NLA_F_NESTED, &[1; 4]),
            Strict,
            Some((einval, "NLA_F_NESTED not expected", Some(36))),
        ),
        (
            attr(6, &six),
            Liberal,
            Some((erange, "integer out of range", Some(36))),
        ),
        (attr(6, &[5; 3]), Liberal, Some((erange, FAILED, Some(36)))),
        ([attr(3, &[1; 4]), vec![4, 0, 3]].concat(), Liberal, None),
        (
            [attr(3, &[1; 4]), vec![4, 0, 3]].concat(),
            KnownOnly,
            Some((einval, "bytes leftover after parsing attributes", None)),
        ),
        // Lengths that lie.
        (
            vec![5, 0, 3, 0],
            KnownOnly,
            Some((einval, "bytes leftover after parsing attributes", None)),
        ),
        (vec![3, 0, 3, 0], Liberal, None),
        (vec![0xff, 0xff, 3, 0], Liberal, None),
    ];
    for (bytes, validation, expected) in cases {
        let error = parse(bytes, *validation).err();
        let error = error.as_ref().map(|error| {
            (
                error.errno,
                error.text.as_deref().unwrap_or_default(),
                error.offset,
            )
        });
        assert_eq!(error, *expected, "{bytes:?} {validation:?}");
    }
}

#[test]
fn strict_types_of_a_liberal_policy() {
    let policy = Policy {
        max: 3,
        strict_from: 2,
        rules: &[(1, Rule::U32), (2, Rule::U32)],
    };
    let check = |kind| {
        let message = message(&attr(kind, &[1; 5]));
        let request = Request::read(&message).expect("a message");
        request
            .attrs::<TcMsg>(&policy, Validation::Liberal)
            .map(|_| ())
    };
    assert_eq!(check(1), Ok(()));
    assert_eq!(check(2).map_err(|error| error.errno), Err(Errno::EINVAL));
    assert_eq!(check(3).map_err(|error| error.errno), Err(Errno::EINVAL));
}

#[test]
fn last_duplicate_attribute_counts() {
    let message = message(&[attr(3, &[1; 4]), attr(3, &[2; 4])].concat());
    let request = Request::read(&message).expect("a message");
    let attrs = request
        .attrs::<TcMsg>(&POLICY, Validation::Strict)
        .expect("well-formed");
    assert_eq!(attrs.u32(3), Ok(Some(0x0202_0202)));
    let missing = attrs.required(5).expect_err("not there");
    assert_eq!((missing.errno, missing.missing), (Errno::EINVAL, Some(5)));
}

#[test]
fn short_headers_are_refused() {
    let mut bytes = message(&[]);
    let length = bytes.len() - 1;
    bytes[..4].copy_from_slice(&(length as u32).to_ne_bytes());
    let request = Request::read(&bytes).expect("a message");
    assert_eq!(
        request.header::<TcMsg>(),
        Err(Error::invalid("Invalid header length"))
    );
    assert!(
        request
            .attrs::<TcMsg>(&POLICY, Validation::Liberal)
            .is_err()
    );
    // A length beyond the datagram, or below a header, ends it.
    for length in [0, 15, 37] {
        bytes[..4].copy_from_slice(&u32::to_ne_bytes(length));
        assert!(Request::read(&bytes).is_none(), "{length}");
    }
    // The last of several need not be padded.
    bytes[..4].copy_from_slice(&u32::to_ne_bytes(17));
    assert_eq!(Requests::new(&bytes[..17]).count(), 1);
}

#[test]
fn nests_end_at_a_depth() {
    let mut bytes = attr(3, &[1; 4]);
    for _ in 0..20 {
        bytes = attr(1 | NLA_F_NESTED, &bytes);
    }
    let message = message(&bytes);
    let request = Request::read(&message).expect("a message");
    let any = Policy::new(3, &[(1, Rule::NestedAny)]);
    let mut attrs = request
        .attrs::<TcMsg>(&any, Validation::Liberal)
        .expect("well-formed");
    let mut depth = 1;
    let error = loop {
        match attrs.get(1).expect("a nest").nested(&any) {
            Ok(inner) => attrs = inner,
            Err(error) => break error,
        }
        depth += 1;
    };
    assert_eq!(depth, u32::from(MAX_DEPTH));
    assert_eq!(
        error.text.as_deref(),
        Some("allowed policy recursion depth exceeded")
    );
}

#[test]
fn object_that_does_not_fit_is_not_written() {
    let mut messages = Messages::new();
    let fixed = TcMsg::default();
    let mut put = |length: usize, nested: bool| {
        messages.message(Head::default(), &fixed, |message| {
            let puts = |message: &mut Message<'_>| {
                for _ in 0..length / 1000 {
                    message.put_bytes(1, &[0; 996]);
                }
            };
            if nested {
                message.nest(2, puts)
            } else {
                puts(message)
            }
        })
    };
    // The only message of a datagram may be larger than the datagrams that hold several; an
    // attribute never exceeds what its length can say.
    assert_eq!(put(2_000_000, false), Err(Full));
    assert_eq!(put(66_000, true), Err(Full));
    assert_eq!(put(30_000, true), Ok(()));
    assert_eq!(put(30_000, true), Err(Full));
    assert_eq!(put(1000, false), Ok(()));
    let lengths: Vec<_> = Requests::new(messages.as_bytes())
        .map(|m| m.message().len())
        .collect();
    assert_eq!(lengths, [36 + 4 + 30_000, 36 + 1000]);
    let mut large = Messages::new();
    let written = large.message(Head::default(), &fixed, |message| {
        for _ in 0..40 {
            message.put_bytes(1, &[0; 996]);
        }
    });
    assert_eq!(written, Ok(()));
    assert_eq!(large.message(Head::default(), &fixed, |_| {}), Err(Full));
    large.set_flags(NLM_F_DUMP_INTR);
    assert!(Requests::new(large.as_bytes()).all(|message| message.flags == NLM_F_DUMP_INTR));
}

#[test]
fn help_follows_the_kernels_text() {
    let error = Error::invalid("Invalid qdisc name").help("Softnet has pfifo and bfifo");
    assert_eq!(
        error.text.as_deref(),
        Some("Invalid qdisc name. Softnet has pfifo and bfifo")
    );
}

proptest! {
    /// The attributes that the table accepts can be read; others are refused with an errno, at a
    /// place in the message.
    #[test]
    fn arbitrary_bytes_are_read_or_refused_with_a_reason(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        strict: bool,
    ) {
        let validation = if strict { Validation::Strict } else { Validation::Liberal };
        for request in Requests::new(&bytes) {
            let _ = (request.header::<TcMsg>(), request.family());
        }
        let message = message(&bytes);
        let request = Request::read(&message).expect("a message");
        let attrs = request.attrs::<TcMsg>(&POLICY, validation);
        if let Err(error) = &attrs {
            testing::assert_refusal(error, &[Errno::EINVAL, Errno::ERANGE]);
            prop_assert!(error.offset.is_none_or(|offset| (offset as usize) < message.len()));
        }
        if let Ok(attrs) = attrs {
            for kind in 0..12 {
                let _ = (attrs.str(kind), attrs.u64(kind));
            }
            prop_assert!(attrs.u32(3).is_ok());
            if let Some(nest) = attrs.get(OPTIONS) {
                let inner = nest.nested(&NEST);
                prop_assert!(inner.is_err() || inner.is_ok_and(|inner| inner.u32(1).is_ok()));
            }
        }
    }
}
