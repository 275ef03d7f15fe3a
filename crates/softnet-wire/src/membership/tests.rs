//! Messages as hosts and routers send them, and those that are refused.

use super::*;

/// A frame of these bytes behind the addresses.
fn frame(kind: u16, body: &[u8]) -> Vec<u8> {
    [
        &[1, 0, 0x5e, 0, 0, 1, 2, 0, 0, 0, 0, 1][..],
        &kind.to_be_bytes(),
        body,
    ]
    .concat()
}

fn set_sum(bytes: &mut [u8], at: usize) {
    let sum = checksum(bytes);
    bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
}

/// An IGMP message to a group, with a router alert.
fn igmp(to: [u8; 4], message: &[u8]) -> Vec<u8> {
    let mut message = message.to_vec();
    set_sum(&mut message, 2);
    let len = (24 + message.len()) as u8;
    let mut header = vec![0x46, 0, 0, len, 0, 0, 0, 0, 1, 2, 0, 0, 10, 0, 0, 1];
    header.extend(to);
    header.extend([0x94, 4, 0, 0]);
    set_sum(&mut header, 10);
    frame(0x0800, &[header, message].concat())
}

fn mld(from: Ipv6Addr, to: Ipv6Addr, message: &[u8]) -> Vec<u8> {
    let mut message = message.to_vec();
    let len = message.len() as u16;
    let (from, to) = (from.octets(), to.octets());
    let sum = pseudo_header(&from, &to, 58, len.into()) + sum_bytes(&message);
    message[2..4].copy_from_slice(&(!fold(sum)).to_be_bytes());
    let mut bytes = vec![0x60, 0, 0, 0];
    bytes.extend((len + 8).to_be_bytes());
    bytes.extend([0, 1]);
    bytes.extend(from);
    bytes.extend(to);
    bytes.extend([58, 0, 5, 2, 0, 0, 1, 0]);
    bytes.extend(message);
    frame(0x86dd, &bytes)
}

fn read(frame: &[u8]) -> Result<Option<Membership<'_>>, WireError> {
    let read = multicast(frame, frame.len(), false)?;
    Ok(read.expect("IP").message)
}

const LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);

#[test]
fn reports_and_leaves() {
    let group: IpAddr = [239, 1, 2, 3].into();
    let v2 = igmp([239, 1, 2, 3], &[0x16, 0, 0, 0, 239, 1, 2, 3]);
    assert_eq!(read(&v2), Ok(Some(Membership::Report(group))));
    let mut wrong = v2.clone();
    wrong[38] ^= 1;
    assert_eq!(read(&wrong), Err(WireError::BadHeader));
    let trusted = multicast(&wrong, wrong.len(), true).unwrap().unwrap();
    assert!(trusted.message.is_some());
    let leave = igmp([224, 0, 0, 2], &[0x17, 0, 0, 0, 239, 1, 2, 3]);
    assert_eq!(read(&leave), Ok(Some(Membership::Leave(group))));
    let six: Ipv6Addr = "ff02::1:ff00:1".parse().unwrap();
    let message = [&[131, 0, 0, 0, 0, 0, 0, 0][..], &six.octets()].concat();
    let report = mld(LOCAL, six, &message);
    assert_eq!(read(&report), Ok(Some(Membership::Report(six.into()))));
}

#[test]
fn records() {
    let mut message = vec![0x22, 0, 0, 0, 0, 0, 0, 3];
    message.extend([1, 0, 0, 2, 239, 1, 2, 3, 10, 0, 0, 1, 10, 0, 0, 2]);
    message.extend([9, 0, 0, 0, 239, 1, 2, 4]);
    message.extend([4, 0, 0, 0, 239, 1, 2, 5]);
    let bytes = igmp([224, 0, 0, 22], &message);
    let Ok(Some(Membership::Records(records))) = read(&bytes) else {
        panic!("no records");
    };
    let all: Vec<_> = records
        .map(|r| (r.kind, r.group, r.sources().len()))
        .collect();
    let first = (RecordKind::IsInclude, [239, 1, 2, 3].into(), 2);
    assert_eq!(
        all,
        [first, (RecordKind::ToExclude, [239, 1, 2, 5].into(), 0)]
    );
    message[7] = 4;
    let bytes = igmp([224, 0, 0, 22], &message);
    assert_eq!(
        read(&bytes),
        Err(WireError::BadHeader),
        "one record is missing"
    );
}

#[test]
fn queries() {
    let general = igmp([224, 0, 0, 1], &[0x11, 100, 0, 0, 0, 0, 0, 0]);
    let query = |bytes: &[u8]| match read(bytes) {
        Ok(Some(Membership::Query(query))) => query,
        other => panic!("{other:?}"),
    };
    let read_back = query(&general);
    assert_eq!((read_back.group, read_back.long), (None, false));
    assert_eq!(read_back.max_response, Duration::from_secs(10));
    let elsewhere = igmp([224, 0, 0, 2], &[0x11, 100, 0, 0, 0, 0, 0, 0]);
    assert_eq!(read(&elsewhere), Err(WireError::BadHeader));
    let v3 = igmp(
        [239, 1, 1, 1],
        &[0x11, 0x80, 0, 0, 239, 1, 1, 1, 8, 0, 0, 0],
    );
    let read_back = query(&v3);
    assert!(read_back.long && read_back.suppress && !read_back.sources);
    assert_eq!(read_back.max_response, Duration::from_millis(12_800));
    let message = [&[130, 0, 0, 0, 0x27, 0x10, 0, 0][..], &[0; 16]].concat();
    let six = mld(LOCAL, ALL_NODES, &message);
    assert_eq!(query(&six).max_response, Duration::from_secs(10));
    let global = mld("2001:db8::1".parse().unwrap(), ALL_NODES, &message);
    assert_eq!(read(&global), Err(WireError::BadHeader));
}

#[test]
fn routers_and_others() {
    let adv = igmp([224, 0, 0, 106], &[0x30, 20, 0, 0, 0, 0, 0, 0]);
    assert_eq!(read(&adv), Ok(Some(Membership::Router)));
    let other = igmp([239, 0, 0, 106], &[0x30, 20, 0, 0, 0, 0, 0, 0]);
    assert_eq!(read(&other), Ok(None));
    let arp = frame(0x0806, &[0; 28]);
    assert_eq!(multicast(&arp, arp.len(), false), Ok(None));
    let tagged = [&adv[..12], &[0x81, 0, 0, 5][..], &adv[12..]].concat();
    assert_eq!(read(&tagged), Ok(Some(Membership::Router)));
}

/// However a frame is cut off, nothing is read behind its end.
#[test]
fn cut_off_anywhere() {
    let mut message = vec![143, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 1];
    message.extend([0xff; 32]);
    let six = mld(LOCAL, "ff02::16".parse().unwrap(), &message);
    let four = igmp([224, 0, 0, 1], &[0x11, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    for bytes in [six, four] {
        assert!(read(&bytes).is_ok_and(|message| message.is_some()));
        for len in 0..bytes.len() {
            assert!(multicast(&bytes[..len], len, true).is_err());
            // What lies in another segment is not read.
            let _ = multicast(&bytes[..len], bytes.len(), true);
        }
    }
}
