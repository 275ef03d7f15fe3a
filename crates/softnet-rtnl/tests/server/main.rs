//! The server: the protocol without sockets, the fuzzer's corpus, and clients on real sockets.

mod client;
mod descriptors;
mod dialogue;
mod files;
mod hostile;
mod kept;
mod members;
mod sockets;

#[path = "../../../../fuzz/bodies/corpus.rs"]
mod corpus;
#[path = "../../../../fuzz/bodies/rtnl_messages.rs"]
mod rtnl_messages;
#[path = "../../../../fuzz/bodies/rtnl_service.rs"]
mod service;

use proptest::prelude::*;

#[test]
fn the_fuzzers_corpus() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    corpus::replay(root.as_ref(), "rtnl_messages", rtnl_messages::run);
    corpus::replay(root.as_ref(), "rtnl_messages", rtnl_messages::control);
    corpus::replay(root.as_ref(), "rtnl_control", rtnl_messages::control);
}

proptest! {
    /// Any requests in any order, most of them well-formed.
    #[test]
    fn any_dialogue(steps in proptest::collection::vec(step(), 0..30)) {
        rtnl_messages::run(&steps.concat());
        rtnl_messages::control(&steps.concat());
    }
}

fn step() -> impl Strategy<Value = Vec<u8>> {
    let kind = prop_oneof![
        Just(service::NEWLINK),
        Just(service::DELLINK),
        Just(service::GETLINK),
        0_u16..130,
    ];
    let message = (
        kind,
        any::<u16>(),
        proptest::collection::vec(any::<u8>(), 0..60),
        any::<i8>(),
    );
    (any::<[u8; 2]>(), proptest::collection::vec(message, 0..4)).prop_map(|(step, messages)| {
        let mut datagram = Vec::new();
        for (kind, flags, payload, lie) in messages {
            let request = client::request(kind, flags | 1, 1, &payload);
            let at = datagram.len();
            datagram.extend(request);
            // One in 16 has a length that is wrong.
            if lie % 16 == 0 {
                datagram[at] = datagram[at].wrapping_add_signed(lie);
            }
        }
        let length = (datagram.len() as u16).to_le_bytes();
        if step[0] % 8 < 4 {
            step.to_vec()
        } else {
            [&step[..], &length, &datagram].concat()
        }
    })
}
