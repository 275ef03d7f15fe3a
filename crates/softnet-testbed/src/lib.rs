//! Hosts in network namespaces, the programs that run in them and the traffic between them: what
//! the demo, the tests and the experiments share.
//!
//! [`hosts`] makes namespaces, [`process`] runs programs, [`place`] says where those of others come
//! from, [`files`] reads and writes, [`cleanup`] removes all of it whatever ends the program.
//! [`traffic`], [`mmsg`] and [`icmp`] are traffic, [`ping`] times it, [`cpu`] says what it costs,
//! and [`in_process`] is a switch that is part of the program.

#![deny(unsafe_code)]

pub mod cleanup;
pub mod cpu;
pub mod error;
pub mod files;
pub mod hosts;
pub mod icmp;
pub mod in_process;
#[allow(unsafe_code, reason = "sendmmsg and recvmmsg have no safe wrapper")]
pub mod mmsg;
pub mod ping;
pub mod place;
pub mod process;
pub mod random;
pub mod threads;
pub mod traffic;

pub use error::TestbedError;
