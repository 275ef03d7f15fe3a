//! Messages of two daemons.

use super::*;

#[test]
fn bytes_in_memory_come_back() {
    let file = memory(b"state").expect("memory");
    assert_eq!(bytes(file).expect("read"), b"state");
}
