//! nginx as proxy and as web server, each with its files in a directory of its own.

use std::net::{SocketAddrV4, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use super::on;
use crate::error::BenchError;
use crate::files;
use crate::hosts::Topology;
use crate::process::Process;

const PROXY: usize = 1;
const SERVER: usize = 2;
const PORT: u16 = 8080;
/// Time that a daemon gets to listen.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of the page that is asked for: with the header of the answer, one packet.
const PAGE: usize = 1000;

/// Where the proxy listens.
pub(super) fn proxy(topology: &Topology) -> SocketAddrV4 {
    SocketAddrV4::new(topology.hosts[PROXY].address, PORT)
}

/// Starts the web server, then the proxy in front of it; both listen when this returns.
pub(super) fn start(topology: &mut Topology) -> Result<(), BenchError> {
    let page = topology.directory.path().join("www");
    make_directory(&page)?;
    files::write(page.join("index.html"), &"x".repeat(PAGE))?;
    let server = format!(
        "root {};\nopen_file_cache max=8;\nsendfile on;\ntcp_nopush on;\n",
        page.display()
    );
    start_one(
        topology,
        SERVER,
        "server",
        &server_block(topology, SERVER, "", ""),
        &server,
    )?;
    let to = topology.hosts[SERVER].address;
    let upstream = format!(
        "upstream web {{ server {to}:{PORT}; keepalive 1024; keepalive_requests 1000000000; }}\n"
    );
    let location = "location / { proxy_pass http://web; proxy_http_version 1.1; proxy_set_header \
                    Connection \"\"; }";
    start_one(
        topology,
        PROXY,
        "proxy",
        &server_block(topology, PROXY, &upstream, location),
        "",
    )
}

fn server_block(topology: &Topology, host: usize, before: &str, inside: &str) -> String {
    let address = topology.hosts[host].address;
    format!("{before}server {{ listen {address}:{PORT} backlog=4096; {inside} }}\n")
}

/// One nginx on one host, with a worker process for each CPU.
fn start_one(
    topology: &mut Topology,
    host: usize,
    name: &str,
    server: &str,
    http: &str,
) -> Result<(), BenchError> {
    let directory = topology.directory.path().join(name);
    make_directory(&directory)?;
    let file = directory.join("nginx.conf");
    files::write(&file, &configuration(&directory, server, http))?;
    let mut command = on(topology, host, "nginx");
    command.arg("-p").arg(&directory).arg("-c").arg(&file);
    command.arg("-e").arg(directory.join("error.log"));
    let daemon = Process::start(&mut command)?;
    let listens = wait_for(topology, host, &daemon);
    // Before the switch: they are to be stopped first.
    topology.daemons.insert(0, daemon);
    listens.map_err(
        |e| match std::fs::read_to_string(directory.join("error.log")) {
            Ok(said) if !said.trim().is_empty() => BenchError::command("nginx", said.trim()),
            _ => e,
        },
    )
}

fn configuration(directory: &Path, server: &str, http: &str) -> String {
    let directory = directory.display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|kind| format!("{kind}_temp_path {directory}/{kind};\n"))
        .collect();
    format!(
        "daemon off;\nworker_processes auto;\nworker_rlimit_nofile 16384;\nuser nobody nogroup;\n\
         pid {directory}/nginx.pid;\nerror_log {directory}/error.log;\n\
         events {{ worker_connections 8192; }}\n\
         http {{\naccess_log off;\nkeepalive_requests 1000000000;\nkeepalive_timeout \
         600s;\n{temporary}{http}{server}}}\n"
    )
}

fn wait_for(topology: &Topology, host: usize, daemon: &Process) -> Result<(), BenchError> {
    let to = SocketAddrV4::new(topology.hosts[host].address, PORT);
    let deadline = Instant::now() + PATIENCE;
    topology.hosts[host].netns.run(|| {
        while TcpStream::connect(to).is_err() {
            daemon.check_running()?;
            if Instant::now() > deadline {
                return Err(BenchError::command("nginx", "does not listen"));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    })
}

fn make_directory(path: &Path) -> Result<(), BenchError> {
    std::fs::create_dir(path).map_err(|e| BenchError::io(format!("making {}", path.display()), e))
}
