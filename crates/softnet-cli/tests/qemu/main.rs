//! `softnet run` with virtual machines: Linux guests in QEMU, and hosts, on one bridge; and in one.

#[path = "../common/mod.rs"]
mod common;

mod l4s;
mod router;
mod sockets;
mod vhost_user;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use common::{NamedNetns, PATIENCE, text};
use softnet_tests::qemu::Guest;
use softnet_tests::traffic::pattern;

const ONE: &str = "10.9.0.1";
const TWO: &str = "10.9.0.2";
const HOST: &str = "10.9.0.9";

/// Emulation needs all CPUs there are: one test at a time.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The guest and the host send each other bytes over TCP, which are compared.
fn exchange(host: &NamedNetns, guest: &mut Guest, address: &str) {
    let sum = sum_of_data(guest);
    let connect = |port: u16| {
        let address: SocketAddr = format!("{address}:{port}").parse().expect("an address");
        let connect = || TcpStream::connect_timeout(&address, PATIENCE);
        let stream = host.run(connect).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
        stream.set_write_timeout(Some(PATIENCE)).expect("a limit");
        stream
    };
    let mut received = Vec::new();
    connect(10).read_to_end(&mut received).expect("its data");
    assert_eq!(sha256(&received), sum);
    let data = pattern(7, 4 << 20);
    let mut stream = connect(9);
    stream.write_all(&data).expect("it takes it");
    stream.shutdown(Shutdown::Write).expect("the end");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("a sum");
    assert_eq!(first_word(&answer), sha256(&data));
    // The other way to connect.
    let listener = host.run(|| TcpListener::bind((HOST, 0)));
    let listener = listener.expect("a listener");
    let port = listener.local_addr().expect("bound").port();
    let command = format!("nc {HOST} {port} </data");
    guest.tell(&command);
    let mut received = Vec::new();
    let mut stream = listener.accept().expect("a connection").0;
    stream.read_to_end(&mut received).expect("its data");
    drop(stream);
    assert_eq!(guest.answer(&command).0, 0);
    assert_eq!(sha256(&received), sum);
    let wrong = host.run(|| checksum_errors(&read("/proc/thread-self/net/snmp")));
    assert_eq!(wrong, 0, "the host saw wrong checksums");
}

fn read(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(path).expect("a file of the kernel's")
}

fn first_word(text: &str) -> String {
    text.split_whitespace()
        .next()
        .unwrap_or_default()
        .to_owned()
}

fn sha256(data: &[u8]) -> String {
    let mut child = Command::new("sha256sum")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("sha256sum");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(data).expect("it reads");
    drop(stdin);
    first_word(&text(&child.wait_with_output().expect("a sum").stdout))
}

/// The checksum of the data that a guest sends.
fn sum_of_data(guest: &mut Guest) -> String {
    first_word(&guest.ok("sha256sum /data"))
}

/// `InCsumErrors` of IP, TCP, UDP and ICMP, together.
fn checksum_errors(snmp: &str) -> u64 {
    let lines: Vec<Vec<&str>> = snmp
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let errors: Vec<u64> = lines
        .chunks_exact(2)
        .filter_map(|pair| {
            let at = pair[0].iter().position(|name| *name == "InCsumErrors")?;
            pair[1][at].parse().ok()
        })
        .collect();
    assert!(errors.len() >= 3, "{snmp}");
    errors.iter().sum()
}

/// Pings and TCP between two guests, both ways.
fn between(one: &mut Guest, two: &mut Guest) {
    one.ok(&format!("ping -c 3 -i 0.1 -W 20 {TWO}"));
    two.ok(&format!("ping -c 3 -i 0.1 -W 20 {ONE}"));
    let sum = sum_of_data(two);
    assert_eq!(
        first_word(&one.ok(&format!("nc {TWO} 10 | sha256sum"))),
        sum
    );
    assert_eq!(first_word(&two.ok(&format!("nc {ONE} 9 </data"))), sum);
    for guest in [one, two] {
        assert_eq!(checksum_errors(&guest.ok("cat /proc/net/snmp")), 0);
    }
}
