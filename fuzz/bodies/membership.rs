//! The reader of membership messages: its own promises.
//!
//! Input: the length of the first segment (2 bytes, little-endian), then the frame.

use softnet_wire::{Membership, Multicast, multicast};

pub(crate) fn run(input: &[u8]) {
    let Some(([low, high], frame)) = input.split_first_chunk() else {
        return;
    };
    let cut = usize::from(u16::from_le_bytes([*low, *high])).min(frame.len());
    let whole = multicast(frame, frame.len(), false);
    let trusting = multicast(frame, frame.len(), true);
    match (whole, trusting) {
        (Ok(whole), Ok(trusting)) => assert_eq!(whole, trusting),
        (Ok(_), Err(error)) => panic!("refused with less to check: {error}"),
        (Err(_), _) => {}
    }
    if let Ok(Some(read)) = trusting {
        consistent(frame, &read);
    }
    // What is not in the first segment is unknown, never otherwise.
    if let (Ok(Some(first)), Ok(Some(whole))) =
        (multicast(&frame[..cut], frame.len(), true), trusting)
    {
        assert_eq!((first.source, first.group), (whole.source, whole.group));
        assert!(first.message.is_none() || first.message == whole.message);
    }
}

fn consistent(frame: &[u8], read: &Multicast<'_>) {
    let ipv4 = read.group.is_ipv4();
    assert_eq!(read.source.is_ipv4(), ipv4);
    match read.message {
        Some(Membership::Report(group) | Membership::Leave(group)) => {
            assert_eq!(group.is_ipv4(), ipv4);
        }
        Some(Membership::Query(query)) => {
            assert!(query.group.is_none_or(|group| group.is_ipv4() == ipv4));
            assert!(query.long || !query.suppress && !query.sources);
        }
        Some(Membership::Records(records)) => {
            let mut bytes = 0;
            for record in records {
                assert_eq!(record.group.is_ipv4(), ipv4);
                let sources = record.sources();
                bytes += 8 + 4 * sources.len();
                assert!(sources.into_iter().all(|source| source.is_ipv4() == ipv4));
            }
            assert!(bytes <= frame.len());
        }
        Some(Membership::Router) | None => {}
    }
}
