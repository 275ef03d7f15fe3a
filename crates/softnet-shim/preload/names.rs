//! Names and indices of interfaces, asked of the daemon.
//!
//! `tc` and `ip` ask the C library for a name that the daemon does not know, and it would ask the
//! kernel: the index of the host's interface would then be taken for that of a port.

use core::ffi::c_int;

use super::c;
use super::route::{self, Route, put};

const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const REQUEST: u16 = 1;
const IFLA_IFNAME: u16 = 3;
/// Room for a name with its NUL.
pub(crate) const IF_NAMESIZE: usize = 16;
/// The start of an answer, as far as the name. The rest is cut.
const ANSWER: usize = 512;

/// The index of an interface.
pub(crate) fn index(name: &[u8]) -> Result<u32, c_int> {
    if name.is_empty() || name.len() >= IF_NAMESIZE {
        return Err(c::ENODEV);
    }
    let mut request = [0; 52];
    put(&mut request, 32, &(5 + name.len() as u16).to_ne_bytes());
    put(&mut request, 34, &IFLA_IFNAME.to_ne_bytes());
    put(&mut request, 36, name);
    let mut answer = [0; ANSWER];
    let answer = get(&mut request, &mut answer)?;
    let index = answer.get(20..24).and_then(|index| index.try_into().ok());
    index.map(u32::from_ne_bytes).ok_or(c::EPROTO)
}

/// The name of an interface, which ends with NUL.
pub(crate) fn name(index: u32) -> Result<[u8; IF_NAMESIZE], c_int> {
    let mut request = [0; 32];
    put(&mut request, 20, &index.to_ne_bytes());
    let mut answer = [0; ANSWER];
    let answer = get(&mut request, &mut answer)?;
    let mut attributes = answer.get(32..).unwrap_or_default();
    while let [a, b, c, d, rest @ ..] = attributes {
        let len = usize::from(u16::from_ne_bytes([*a, *b])).saturating_sub(4);
        let value = rest.get(..len).ok_or(c::EPROTO)?;
        if u16::from_ne_bytes([*c, *d]) == IFLA_IFNAME && len <= IF_NAMESIZE {
            let mut name = [0; IF_NAMESIZE];
            put(&mut name[..IF_NAMESIZE - 1], 0, value);
            return Ok(name);
        }
        attributes = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    Err(c::EPROTO)
}

/// Asks for a link; `request` lacks its header.
fn get<'r>(request: &mut [u8], answer: &'r mut [u8]) -> Result<&'r [u8], c_int> {
    let len = request.len() as u32;
    put(request, 0, &len.to_ne_bytes());
    put(request, 4, &RTM_GETLINK.to_ne_bytes());
    put(request, 6, &REQUEST.to_ne_bytes());
    let fd = Route::open(c::SOCK_RAW | c::SOCK_CLOEXEC)?;
    let result = match Route::of(fd) {
        Some(mut route) => route
            .attach(0)
            .and_then(|()| route::ask(fd, request, answer)),
        None => Err(c::EPROTO),
    };
    c::close(fd);
    let answer = result?;
    match route::kind(answer) {
        Some(RTM_NEWLINK) => Ok(answer),
        _ => Err(route::error(answer).err().unwrap_or(c::EPROTO)),
    }
}
