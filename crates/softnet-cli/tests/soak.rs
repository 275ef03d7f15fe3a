//! An operator's days in a few seconds: ports, policies and captures come and go, metrics are
//! read, the daemon is replaced, and killed; no tenant has more than its rate, or another's
//! packets, and at each rest every packet is accounted for.
//!
//! `SOFTNET_SOAK_SECONDS` says how long it takes.

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::UdpSocket;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use common::{
    NamedNetns, Running, Scratch, ask, has_program, may_make_networks, softnet, text, wait_for,
};
use rustix::process::Signal;
use serde_json::Value;

/// Bytes of a datagram, and of the frame around it.
const DATAGRAM: usize = 1000;
const FRAME: u64 = 1042;
/// Highest rates of the tenants, in bytes a second.
const RATES: [u64; 2] = [1_000_000, 2_000_000];
/// Bytes that a tenant may have at once when a daemon starts: the burst, and what waits in sockets
/// and in the queues that are emptied at the end.
const BURST: u64 = 200_000;

/// A tenant: a source behind one port, a sink behind another, in a bridge of their own. All
/// tenants have the same addresses.
struct Tenant {
    hosts: [NamedNetns; 2],
    received: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Tenant {
    fn new(number: usize) -> Tenant {
        Tenant {
            hosts: ["s", "t"].map(|end| NamedNetns::new(&format!("soak{end}{number}"))),
            received: Arc::default(),
            threads: Vec::new(),
        }
    }

    fn config(&self, number: usize, limit: &str) -> String {
        let port = |end: usize, letter: &str, limit: &str| {
            let netns = &self.hosts[end].name;
            format!(
                "[[port]]\nname = \"{letter}{number}\"\ndriver = \"tap\"\nnetns = {netns:?}\n\
                 address = [\"10.9.0.{}/24\"]\n{limit}\n",
                end + 1
            )
        };
        port(0, "s", "")
            + &port(1, "t", limit)
            + &format!(
                "[[bridge]]\nname = \"br{number}\"\nports = [\"s{number}\", \"t{number}\"]\n"
            )
    }

    /// Sends three times what it may until `stop`, and nothing at `rest`; what arrives must be its
    /// own.
    fn start(&mut self, number: usize, stop: &Arc<AtomicBool>, rest: &Arc<AtomicBool>) {
        let mark = [number as u8; DATAGRAM];
        let from = self.hosts[0].run(|| UdpSocket::bind("10.9.0.1:7").expect("an address"));
        let to = self.hosts[1].run(|| UdpSocket::bind("10.9.0.2:7").expect("an address"));
        let pause = Duration::from_micros(FRAME * 1_000_000 / (3 * RATES[number]));
        let (stops, rests) = (stop.clone(), rest.clone());
        self.threads.push(thread::spawn(move || {
            while !stops.load(Ordering::Relaxed) {
                if !rests.load(Ordering::Relaxed) {
                    // While a daemon is away there may be no device.
                    let _ = from.send_to(&mark, "10.9.0.2:7");
                }
                thread::sleep(pause);
            }
        }));
        let (stops, received) = (stop.clone(), self.received.clone());
        let patience = Some(Duration::from_millis(100));
        to.set_read_timeout(patience).expect("a socket");
        self.threads.push(thread::spawn(move || {
            let mut datagram = [0; 2 * DATAGRAM];
            while !stops.load(Ordering::Relaxed) {
                match to.recv(&mut datagram) {
                    Ok(length) => {
                        assert_eq!(datagram[..length], mark, "a datagram of another tenant");
                        received.fetch_add(FRAME, Ordering::Relaxed);
                    }
                    Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
                }
            }
        }));
    }
}

/// The bytes that tenants had at a moment.
struct Window {
    begin: Instant,
    before: [u64; 2],
}

impl Window {
    fn open(tenants: &[Tenant; 2]) -> Window {
        Window {
            begin: Instant::now(),
            before: received(tenants),
        }
    }

    /// No tenant has had more than its rate since, but for a burst, and what waited.
    fn check(&self, tenants: &[Tenant; 2]) {
        let after = received(tenants);
        let micros = self.begin.elapsed().as_micros() as u64;
        for (number, rate) in RATES.into_iter().enumerate() {
            let had = after[number] - self.before[number];
            let most = micros * rate / 1_000_000 + 2 * BURST;
            assert!(had <= most, "tenant {number}: {had} bytes in {micros} us");
        }
    }
}

fn received(tenants: &[Tenant; 2]) -> [u64; 2] {
    let received = tenants.each_ref();
    received.map(|tenant| tenant.received.load(Ordering::Relaxed))
}

/// Numbers that look random.
struct Draws(u64);

impl Draws {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % bound
    }
}

struct Place {
    scratch: Scratch,
}

impl Place {
    fn start(&self, options: &[&str]) -> Running {
        let mut command = softnet();
        command.arg("run").arg(self.scratch.path("config.toml"));
        command.args(options).arg("--socket");
        Running::start(command.arg(self.scratch.path("socket")))
    }

    fn ask(&self, words: &str) -> Result<String, String> {
        let words: Vec<&str> = words.split(' ').collect();
        ask(&self.scratch.path("socket"), &words)
    }

    /// Waits until nothing moves: by then every packet is accounted for.
    fn rest(&self) {
        let mut last = Value::Null;
        wait_for("conservation at rest", || {
            let Ok(shown) = self.ask("stats --json") else {
                return false;
            };
            let stats: Value = serde_json::from_str(&shown).expect("JSON");
            let sums = stats["conservation"].clone();
            let sum = |key: &str| sums[key].as_u64().expect("a number");
            let holds = sum("rx") + sum("copied") == sum("tx") + sum("dropped");
            let is_over = sum("queued") == 0 && holds && sums == last;
            last = sums;
            is_over
        });
    }

    /// Starts a capture of a tenant, or ends the one that runs. A daemon that ended has taken it
    /// along.
    fn toggle_capture(&self, capture: &mut Option<Running>) {
        if let Some(running) = capture.take() {
            running.signal(Signal::INT);
            running.finish();
            return;
        }
        let mut command = softnet();
        command.args(["capture", "t0", "udp", "-w"]);
        command.arg(self.scratch.path("capture")).arg("--socket");
        *capture = Some(Running::start(command.arg(self.scratch.path("socket"))));
    }
}

/// Metrics, unless the daemon ends meanwhile.
fn scrape(path: &Path) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(path)?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Scrapes until `stop`, also while a daemon ends or starts. Returns how often metrics came.
fn scraper(path: PathBuf, stop: &Arc<AtomicBool>) -> JoinHandle<usize> {
    let stop = stop.clone();
    thread::spawn(move || {
        let mut came = 0;
        while !stop.load(Ordering::Relaxed) {
            let answer = scrape(&path).unwrap_or_default();
            came += usize::from(answer.contains("softnetd_build_info"));
            thread::sleep(Duration::from_millis(50));
        }
        came
    })
}

#[test]
fn soak_of_commands_replacements_and_deaths() {
    if !may_make_networks() || !has_program("tc") {
        return;
    }
    let seconds = std::env::var("SOFTNET_SOAK_SECONDS").ok();
    let seconds = seconds.and_then(|text| text.parse().ok()).unwrap_or(12);
    let place = Place {
        scratch: Scratch::new("soak"),
    };
    let mut tenants = [0, 1].map(Tenant::new);
    let limits = [
        "qdisc = { kind = \"tbf\", rate = \"8mbit\", burst = \"20k\", latency = \"20ms\" }",
        "rate_group = \"g\"",
    ];
    let (state, metrics) = (place.scratch.path("state"), place.scratch.path("metrics"));
    let mut file = format!(
        "[engine]\nworkers = 2\nbuffers = 4096\nstate = {state:?}\nmetrics = {metrics:?}\n\
         [[rate_group]]\nname = \"g\"\nrate = \"16mbit\"\nburst = \"20k\"\n"
    );
    for (number, tenant) in tenants.iter().enumerate() {
        file += &tenant.config(number, limits[number]);
    }
    place.scratch.file("config.toml", &file);
    let mut daemon = place.start(&[]);
    let is_up = |daemon: &mut Running| {
        wait_for("the daemon", || {
            daemon.assert_running();
            place.ask("stats").is_ok()
        });
    };
    is_up(&mut daemon);
    let (stop, rest): (Arc<AtomicBool>, Arc<AtomicBool>) = Default::default();
    let scrapes = scraper(metrics.clone(), &stop);
    for (number, tenant) in tenants.iter_mut().enumerate() {
        tenant.start(number, &stop, &rest);
    }
    let (mut draws, mut starts, mut steps) = (Draws(7), 1_u64, 0_u64);
    let (mut window, mut capture) = (Window::open(&tenants), None);
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end {
        steps += 1;
        let words = match draws.below(9) {
            0 => "port add x driver=null bridge=br0 qdisc.kind=fq_codel".to_owned(),
            1 => "port del x".to_owned(),
            2 => "rate-group add h rate=1mbit".to_owned(),
            3 => "rate-group del h".to_owned(),
            4 => "port set x mtu=1400 rate_group=h".to_owned(),
            5 => format!("rate-group set g rate={}mbit", 12 + 4 * draws.below(2)),
            6 => "tc qdisc replace dev s0 root fq_codel".to_owned(),
            7 => "tc qdisc del dev s0 root".to_owned(),
            _ => {
                let rate = 4 + 4 * draws.below(2);
                format!("tc qdisc change dev t0 root tbf rate {rate}mbit burst 20k latency 20ms")
            }
        };
        // Some are refused: what they name is not there, or there already.
        let _ = place.ask(&words);
        // Who is slow to ask is left without an answer.
        if let Ok(answer) = scrape(&metrics) {
            let is_whole = answer.is_empty() || answer.contains("softnetd_build_info");
            assert!(is_whole, "{answer}");
        }
        if draws.below(3) == 0 {
            place.toggle_capture(&mut capture);
        }
        window.check(&tenants);
        if steps % 4 == 0 {
            let mut next = place.start(&["--replace"]);
            let output = daemon.finish();
            let log = text(&output.stderr);
            assert_eq!(
                output.status.code(),
                Some(0),
                "all packets are accounted for: {log}"
            );
            is_up(&mut next);
            daemon = next;
            (starts, window) = (starts + 1, Window::open(&tenants));
        } else if steps % 10 == 0 {
            rest.store(true, Ordering::Relaxed);
            place.rest();
            rest.store(false, Ordering::Relaxed);
            daemon.signal(Signal::KILL);
            drop(daemon);
            daemon = place.start(&[]);
            is_up(&mut daemon);
            (starts, window) = (starts + 1, Window::open(&tenants));
        }
        let shown = place.ask("dump-config").expect("it runs");
        let document: toml::Table = shown.parse().expect("a configuration");
        let ports = document["port"].as_array().expect("ports");
        let port = |name: &str| {
            let mut ports = ports.iter();
            ports
                .find(|port| port["name"].as_str() == Some(name))
                .expect("a tenant's port")
        };
        assert_eq!(port("t1")["rate_group"].as_str(), Some("g"), "{shown}");
        assert!(port("t0")["qdisc"].to_string().contains("tbf"), "{shown}");
    }
    let before = received(&tenants);
    wait_for("all tenants", || {
        let mut both = received(&tenants).into_iter().zip(before);
        both.all(|(after, before)| after > before + 10 * FRAME)
    });
    window.check(&tenants);
    if capture.is_some() {
        place.toggle_capture(&mut capture);
    }
    rest.store(true, Ordering::Relaxed);
    place.rest();
    stop.store(true, Ordering::Relaxed);
    for tenant in &mut tenants {
        for thread in tenant.threads.drain(..) {
            thread.join().expect("no packet of another");
        }
    }
    let scrapes = scrapes.join().expect("its count");
    assert!(scrapes > 0, "no metrics came");
    daemon.stop();
    println!("{steps} steps, {starts} daemons, {scrapes} scrapes");
}
