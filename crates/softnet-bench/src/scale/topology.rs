//! Where cores are: clusters of 8 that share a cache, sockets of 128, numbered in this order.
//!
//! Only one distance is measured, that of this machine's two CPUs. The others are an assumption:
//! they stand to it as on a dual AMD EPYC 7R13, where a message from core to core takes 23 ns
//! within a cluster, 107 ns to another one of the socket and 197 ns to the other socket
//! (<https://github.com/nviennot/core-to-core-latency>).

const CLUSTER: usize = 8;
const SOCKET: usize = 128;
/// Nanoseconds of the message there, by distance.
const PUBLISHED: [f64; 3] = [23.0, 107.0, 197.0];
/// An atomic operation on a line of the other CPU that takes longer is one between clusters: twice
/// what it takes on this machine when the host has put both CPUs into one.
const DISTANT: f64 = 100.0;

/// Distance of two cores: 0 in one cluster, 1 in one socket, 2 elsewhere.
pub(super) fn distance(a: usize, b: usize) -> usize {
    match () {
        () if a / CLUSTER == b / CLUSTER => 0,
        () if a / SOCKET == b / SOCKET => 1,
        () => 2,
    }
}

/// The factors for the distances, where an atomic operation between the CPUs measured takes so
/// long. They are one cluster's or two clusters', and the model's first two cores are at the same
/// distance.
pub(super) fn factors(rmw: f64) -> [f64; 3] {
    match rmw < DISTANT {
        true => PUBLISHED.map(|nanos| nanos / PUBLISHED[0]),
        // The host gives no two CPUs of one cluster: there are none.
        false => PUBLISHED.map(|nanos| (nanos / PUBLISHED[1]).max(1.0)),
    }
}
