//! Engines with drivers of the tests' own, and filters of captures.

mod capture_fuzz;
mod drivers;
mod fairness;
mod ring_file;
