//! The command line.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, Subcommand};

use softnet_rtnl::nl::Operation;

use crate::client::{self, Daemon};
use crate::failure::{Exit, Failure};
use crate::reload::Loaded;
use crate::{config, daemon, demo, exec, report, sim, stats};

const EXIT_CODES: &str = "Exit codes:
  0    success; `run` was stopped by SIGINT or SIGTERM and stopped cleanly
  1    it failed while running, or no daemon can be reached
  2    the command line or the configuration is wrong, or a port it asks for cannot be opened
  130  `demo` was interrupted before it was done, or a second signal ended `run` at once";

/// A software switch and traffic shaper in user space.
#[derive(Debug, Parser)]
#[command(name = "softnet", version, after_help = EXIT_CODES, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the ports and bridges of a configuration file until SIGINT or SIGTERM
    ///
    /// The devices exist while it runs. At the end it prints what each port received, sent and
    /// dropped. A port whose device is removed meanwhile is opened again as soon as that is
    /// possible.
    #[command(after_help = EXIT_CODES)]
    Run {
        /// Configuration file (TOML)
        config: PathBuf,
        /// Print the counters as one JSON object
        #[arg(long)]
        json: bool,
        /// Answer `tc`, `ip` and `bridge` on this socket, not on that of the configuration
        #[arg(long, value_name = "PATH")]
        socket: Option<PathBuf>,
    },
    /// Check a configuration file and say where it is wrong
    ///
    /// Only reads the file: whether its ports can be opened on this machine is seen by `run`.
    #[command(after_help = EXIT_CODES)]
    Check {
        /// Configuration file (TOML)
        config: PathBuf,
    },
    /// Show Softnet at work: two hosts, a switch, real traffic, then a rate limit
    ///
    /// Makes two hosts (unnamed network namespaces) joined by a switch, and measures TCP, UDP and
    /// pings between them with ordinary sockets, first through a plain port, then through one
    /// shaped to 100 Mb/s, then through a slow link with a long queue (bufferbloat) and with
    /// fq_codel. Works as root, and unprivileged where user namespaces are allowed.
    /// Leaves nothing behind.
    #[command(after_help = EXIT_CODES)]
    Demo {
        /// Seconds of measuring in all
        #[arg(
            long, value_name = "N", default_value_t = 15,
            value_parser = clap::value_parser!(u64).range(1..=86_400)
        )]
        seconds: u64,
        /// Print one JSON object instead of a table
        #[arg(long)]
        json: bool,
        /// Draw the pings under load, too, as an SVG picture
        #[arg(long, value_name = "FILE")]
        plot: Option<PathBuf>,
    },
    /// Run a tree of queueing disciplines (qdiscs) in virtual time
    ///
    /// Feeds a capture, generated flows or both through a tree of qdiscs, and prints for each
    /// class what left at which rate, what was dropped and why, and how long packets stayed. Takes
    /// as long as the computer needs, and gives the same result to the nanosecond on every run.
    #[command(after_help = sim::HELP)]
    Sim(sim::Options),
    /// Run a program such as tc, ip or bridge against the daemon instead of the kernel
    ///
    /// Its sockets of the family AF_NETLINK for NETLINK_ROUTE go to the daemon; all else of it is
    /// as ever. Example: `softnet exec -- tc -s qdisc show`.
    #[command(after_help = exec::HELP)]
    Exec(exec::Options),
    /// Show what the daemon counts, live: packets, drops by reason, queueing delay, qdiscs, workers
    ///
    /// The same as `run` prints at its end. Example: `softnet stats --watch`.
    #[command(after_help = EXIT_CODES)]
    Stats(stats::Options),
    /// Print the daemon's running state as a configuration file that builds the same again
    ///
    /// What tc, ip and bridge changed is in it.
    #[command(after_help = EXIT_CODES)]
    DumpConfig(client::Reach),
    /// Have the daemon apply its configuration file anew, as SIGHUP does, while packets flow
    ///
    /// All of the file is applied or nothing. What is as the file says stays as it is, with its
    /// queues and counters; what tc, ip and bridge made differ becomes as the file says.
    #[command(after_help = EXIT_CODES)]
    Reload(client::Reach),
}

/// Runs the program; `started` is when it was.
pub(crate) fn run(started: Instant) -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Run {
            config,
            json,
            socket,
        } => Loaded::load(&config, socket).and_then(|loaded| daemon::run(loaded, json)),
        Command::Check { config } => load(&config).and_then(|config| check(&config)),
        Command::Demo {
            seconds,
            json,
            plot,
        } => demo::run(&demo::Options {
            seconds,
            json,
            plot,
            started,
        }),
        Command::Sim(options) => sim::run(&options),
        Command::Exec(options) => exec::run(&options),
        Command::Stats(options) => stats::run(&options),
        Command::DumpConfig(daemon) => Daemon::connect(&daemon)
            .and_then(|daemon| daemon.ask(Operation::DumpConfig, ""))
            .and_then(|text| print(&text)),
        Command::Reload(daemon) => Daemon::connect(&daemon)
            .and_then(|daemon| daemon.ask(Operation::Reload, ""))
            .map(drop),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            report::note(&failure);
            failure.exit.into()
        }
    }
}

fn load(path: &Path) -> Result<config::Config, Failure> {
    config::load(path).map_err(|error| Failure::new(Exit::Config, error.to_string()))
}

fn check(config: &config::Config) -> Result<(), Failure> {
    let text = format!("{}: valid: {}\n", config.file, config.summary());
    print(&text)
}

fn print(text: &str) -> Result<(), Failure> {
    report::print(text)
        .map_err(|error| Failure::because(Exit::Failure, "cannot print the result", &error))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn seconds_are_limited() {
        let parse = |n: &str| Arguments::try_parse_from(["softnet", "demo", "--seconds", n]);
        assert!(parse("1").is_ok());
        for bad in ["0", "-1", "1.5", "86401", "x"] {
            assert_eq!(
                parse(bad).expect_err(bad).exit_code(),
                Exit::Config as i32,
                "{bad}"
            );
        }
    }
}
