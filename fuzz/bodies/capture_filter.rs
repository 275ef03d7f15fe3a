//! Filters of captures: a filter says the same however it is wrapped.
//!
//! Input: the filter, a zero byte, and the frame.

use softnet_engine::capture::Filter;

pub(crate) fn run(input: &[u8]) {
    let mut parts = input.splitn(2, |&byte| byte == 0);
    let text = String::from_utf8_lossy(parts.next().unwrap_or_default());
    let frame = parts.next().unwrap_or_default();
    let filter = match Filter::parse(&text) {
        Ok(filter) => filter,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let matches = filter.matches_frame(frame, frame.len());
    let is_empty = filter == Filter::default();
    for (wrapped, expected) in [
        (format!("not ({text})"), !matches),
        (format!("({text}) and ({text})"), matches),
        (format!("({text}) or not ({text})"), true),
    ] {
        // What is wrapped may be too long or too deep, and nothing has no parentheses.
        match Filter::parse(&wrapped) {
            Ok(filter) => assert_eq!(filter.matches_frame(frame, frame.len()), expected),
            Err(_) => assert!(is_empty || text.len() > 30),
        }
    }
    // A cut frame has fewer headers, and is still a frame.
    for end in [0, 13, 14, 18, 33] {
        filter.matches_frame(frame.get(..end).unwrap_or(frame), frame.len());
    }
}
