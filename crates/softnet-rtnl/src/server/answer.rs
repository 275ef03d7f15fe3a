//! The messages of the protocol itself: acknowledgment, error, end of a dump, loss.

use crate::nl::headers::NlMsgHdr;
use crate::nl::{
    Error, Full, Head, Message, Messages, NLM_F_ACK_TLVS, NLM_F_CAPPED, NLM_F_MULTI, NLMSG_DONE,
    NLMSG_ERROR, NLMSG_HDRLEN, NLMSG_OVERRUN, Request,
};
use zerocopy::{Immutable, IntoBytes};

/// `NLMSGERR_ATTR_*`.
const ATTR_MSG: u16 = 1;
const ATTR_OFFS: u16 = 2;
const ATTR_MISS_TYPE: u16 = 5;
const ATTR_MISS_NEST: u16 = 6;
/// Bytes of a text that a client gets.
const TEXT: usize = 4096;

/// `struct nlmsgerr`.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct NlMsgErr {
    error: i32,
    message: [u8; NLMSG_HDRLEN],
}

/// The answer to a request: an acknowledgment, with a warning or not, or an error.
pub(super) fn acknowledge(
    request: &Request<'_>,
    port: u32,
    error: Option<&Error>,
    warning: Option<&str>,
) -> Messages {
    let message = request.message().first_chunk().copied().unwrap_or_default();
    error_message(
        message,
        Head {
            seq: request.seq,
            pid: port,
            ..Head::default()
        },
        error,
        warning,
    )
}

/// The acknowledgment of a request with this header, with a warning or not.
pub(super) fn done_with(
    message: [u8; NLMSG_HDRLEN],
    port: u32,
    warning: Option<&str>,
) -> Messages {
    let header: NlMsgHdr = zerocopy::transmute!(message);
    let head = Head {
        seq: header.seq,
        pid: port,
        ..Head::default()
    };
    error_message(message, head, None, warning)
}

/// The answer to a client that is not let in.
pub(super) fn refuse(error: &Error) -> Messages {
    error_message([0; NLMSG_HDRLEN], Head::default(), Some(error), None)
}

fn error_message(
    message: [u8; NLMSG_HDRLEN],
    head: Head,
    error: Option<&Error>,
    warning: Option<&str>,
) -> Messages {
    let fixed = NlMsgErr {
        error: error.map_or(0, |error| -error.errno.0),
        message,
    };
    let mut messages = Messages::new();
    // The header of the request is all that is here of it: `tc` calls an offset wrong that is
    // beyond the answer, and says so besides the text.
    let text = error.and_then(|error| error.text.as_ref());
    let text = text.map_or(0, |text| text.len().min(TEXT));
    let reach = (NLMSG_HDRLEN + size_of::<NlMsgErr>() + text) as u32;
    let flags = NLM_F_CAPPED | tlv_flag(error, warning, reach);
    let head = Head {
        kind: NLMSG_ERROR,
        flags,
        ..head
    };
    let written = messages.message(head, &fixed, |message| {
        put_tlvs(message, error, warning, reach);
    });
    debug_assert_eq!(written, Ok(()), "the text is cut to a length that fits");
    messages
}

/// The end of a dump.
pub(super) fn done(
    messages: &mut Messages,
    head: Head,
    error: Option<&Error>,
) -> Result<(), Full> {
    let flags = head.flags | NLM_F_MULTI | tlv_flag(error, None, u32::MAX);
    let head = Head {
        kind: NLMSG_DONE,
        flags,
        ..head
    };
    let errno = error.map_or(0, |error| -error.errno.0);
    messages.message(head, &errno, |message| {
        put_tlvs(message, error, None, u32::MAX)
    })
}

/// Says that events were lost here.
pub(super) fn overrun(port: u32) -> [u8; NLMSG_HDRLEN] {
    let length = NLMSG_HDRLEN as u32;
    let header = NlMsgHdr {
        length,
        kind: NLMSG_OVERRUN,
        flags: 0,
        seq: 0,
        pid: port,
    };
    zerocopy::transmute!(header)
}

fn tlv_flag(error: Option<&Error>, warning: Option<&str>, reach: u32) -> u16 {
    let some = error.is_some_and(|error| {
        error.text.is_some()
            || error.offset.is_some_and(|offset| offset <= reach)
            || error.missing.is_some()
            || error.missing_from.is_some()
    });
    if some || warning.is_some() {
        NLM_F_ACK_TLVS
    } else {
        0
    }
}

/// Puts what there is, an offset only up to `reach`.
fn put_tlvs(message: &mut Message<'_>, error: Option<&Error>, warning: Option<&str>, reach: u32) {
    let text = error.and_then(|error| error.text.as_deref()).or(warning);
    if let Some(text) = text {
        message.put_str(ATTR_MSG, &text[..text.floor_char_boundary(TEXT)]);
    }
    let Some(error) = error else {
        return;
    };
    let numbers = [
        (ATTR_OFFS, error.offset.filter(|&offset| offset <= reach)),
        (ATTR_MISS_TYPE, error.missing),
        (ATTR_MISS_NEST, error.missing_from),
    ];
    for (kind, number) in numbers {
        if let Some(number) = number {
            message.put_u32(kind, number);
        }
    }
}
