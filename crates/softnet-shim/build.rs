//! Compiles the preload library for the target, with the compiler alone: a program that is
//! installed as one file carries it inside.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// Architectures whose socket constants are those of `preload/c.rs`.
const ARCHITECTURES: [&str; 4] = ["x86_64", "aarch64", "riscv64", "loongarch64"];

fn main() {
    println!("cargo::rerun-if-changed=preload");
    let out = PathBuf::from(variable("OUT_DIR"));
    let library = out.join("libsoftnet_shim.so");
    let text = match build(&library) {
        Ok(()) => format!("Ok(include_bytes!({library:?}))"),
        Err(why) => {
            println!("cargo::warning=the preload library is left out: {why}");
            format!("Err({why:?})")
        }
    };
    fs::write(out.join("library.rs"), text).expect("OUT_DIR can be written");
}

/// A variable that cargo sets for a build script; empty if it does not.
fn variable(name: &str) -> String {
    env::var(name).unwrap_or_default()
}

fn build(library: &Path) -> Result<(), String> {
    if env::var_os("CARGO_CFG_MIRI").is_some() {
        return Err("Miri runs no foreign code".to_owned());
    }
    let target = variable("TARGET");
    let architecture = variable("CARGO_CFG_TARGET_ARCH");
    let known = variable("CARGO_CFG_TARGET_OS") == "linux"
        && variable("CARGO_CFG_TARGET_ENV") == "gnu"
        && ARCHITECTURES.contains(&architecture.as_str());
    if !known {
        return Err(format!("it does not know the C library of {target}"));
    }
    let mut rustc = Command::new(variable("RUSTC"));
    rustc.args([
        "--edition",
        "2024",
        "--crate-type",
        "cdylib",
        "--crate-name",
        "softnet_shim",
    ]);
    rustc.args([
        "-C",
        "panic=abort",
        "-C",
        "opt-level=s",
        "-C",
        "codegen-units=1",
    ]);
    rustc.args(["-C", "strip=symbols", "--target", &target, "-o"]);
    rustc.arg(library).arg("preload/lib.rs");
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        let mut argument = std::ffi::OsString::from("linker=");
        argument.push(linker);
        rustc.arg("-C").arg(argument);
    }
    let output = rustc
        .output()
        .map_err(|error| format!("{} cannot be run: {error}", variable("RUSTC")))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        for line in said.lines() {
            println!("cargo::warning={line}");
        }
        Ok(())
    } else {
        Err(format!(
            "it cannot be compiled for {target}: {}",
            said.trim()
        ))
    }
}
