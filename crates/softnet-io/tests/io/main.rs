//! Drivers against the kernel, and hostile input. Some tests start programs, which have all files
//! of this process for a moment: that a device goes with its last file is for another program
//! (`tap_limits`).

#[path = "../common/mod.rs"]
mod common;
#[path = "../../../../fuzz/bodies/corpus.rs"]
mod corpus;

mod af_packet;
mod attend;
mod frames_fuzz;
mod middleware;
mod netns;
mod tap;
mod vhost_fuzz;
