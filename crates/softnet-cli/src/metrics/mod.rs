//! `[engine] metrics`: counters for Prometheus, over HTTP on a TCP address or a Unix socket.
//!
//! [`text`] writes what is counted in the text format 0.0.4, or as OpenMetrics 1.0.0 for who asks
//! for that; [`server`] answers requests. Names begin with `softnetd_`: node_exporter has
//! `node_softnet_` for the kernel's.

mod columns;
mod server;
mod text;

pub(crate) use server::Server;
pub(crate) use text::{Sample, render};

/// A format of the exposition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Prometheus text 0.0.4.
    Text,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
}

impl Format {
    /// The format for a request that accepts these types.
    fn accepted(accept: &str) -> Format {
        match accept.contains("application/openmetrics-text") {
            true => Format::OpenMetrics,
            false => Format::Text,
        }
    }

    /// Value of the header `Content-Type`.
    fn content_type(self) -> &'static str {
        match self {
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}
