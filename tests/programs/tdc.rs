//! The cases of the kernel's tc test suite that are beside the checkout, or where `SOFTNET_TDC`
//! says: they are not part of the repository.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::common::{has_program, text};

#[test]
fn given_cases_of_the_kernels_suite_pass() {
    if !["tc", "ip", "python3"].into_iter().all(has_program) {
        return;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let beside = || root.join("../shared/tdc");
    let folder = std::env::var_os("SOFTNET_TDC").map_or_else(beside, PathBuf::from);
    let given = folder.join("given");
    if !given.is_dir() {
        println!("no cases in {}", given.display());
        return;
    }
    let output = Command::new(root.join("tests/tdc/given.sh"))
        .arg(env!("CARGO_BIN_EXE_softnet"))
        .arg(given)
        .output()
        .expect("the script");
    let said = text(&output.stdout);
    println!("{said}");
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
}
