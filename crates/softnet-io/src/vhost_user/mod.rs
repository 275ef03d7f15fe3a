//! vhost-user: a virtual machine's network device, whose rings lie in memory that the machine
//! shares with this process.
//!
//! Nothing that comes from the other side is believed: see [`memory`] for its memory.

mod bus_error;
pub mod memory;
pub mod ring;
