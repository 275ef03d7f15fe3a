//! CPU time of the whole machine: every process, the kernel's own threads and interrupts.

use crate::error::BenchError;

/// Seconds that all CPUs together have been busy since the machine started, to a hundredth as a rule.
pub(super) fn busy() -> Result<f64, BenchError> {
    let path = "/proc/stat";
    let stat =
        std::fs::read_to_string(path).map_err(|e| BenchError::io(format!("reading {path}"), e))?;
    let ticks = ticks(&stat)
        .ok_or_else(|| BenchError::Measure(format!("{path} has no line for all CPUs")))?;
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// proc_stat(5): user, nice, system, idle, iowait, irq, softirq; what other virtual machines took (steal) is not ours.
fn ticks(stat: &str) -> Option<u64> {
    let numbers = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let fields: Vec<u64> = numbers
        .split_whitespace()
        .map_while(|n| n.parse().ok())
        .collect();
    [0, 1, 2, 5, 6]
        .iter()
        .map(|&i| fields.get(i).copied())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_waiting_and_stolen_time_is_not_busy() {
        let stat = "cpu  100 20 3 5000 600 7 8 9000 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        assert_eq!(ticks(stat), Some(138));
        assert_eq!(ticks("cpu  1 2 3\n"), None);
        assert_eq!(ticks("intr 5\n"), None);
    }
}
