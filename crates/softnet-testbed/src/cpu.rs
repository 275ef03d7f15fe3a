//! CPU time: of the whole machine (every process, the kernel's own threads and interrupts), and of
//! some of our threads.

use crate::error::TestbedError;
use crate::files;

/// Seconds that all CPUs together have been busy since the machine started, to a hundredth as a
/// rule.
pub fn busy() -> Result<f64, TestbedError> {
    let path = "/proc/stat";
    let stat = files::read(path)?;
    let ticks = ticks(&stat)
        .ok_or_else(|| TestbedError::Measure(format!("{path} has no line for all CPUs")))?;
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// proc_stat(5): user, nice, system, idle, iowait, irq, softirq; what other virtual machines took
/// (steal) is not ours.
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

/// Seconds that the threads of this process whose name starts with `prefix` have run, to the
/// nanosecond.
pub fn of_threads(prefix: &str) -> Result<f64, TestbedError> {
    // sched-stats(5): time on the CPU, time waiting for it, slices run.
    let times = threads(prefix, "schedstat", |time| {
        time.split(' ').next()?.parse::<f64>().ok()
    })?;
    Ok(times.into_iter().sum::<f64>() / 1e9)
}

/// Results of `find` in `file` of each thread of this process whose name starts with `prefix`.
fn threads<T>(
    prefix: &str,
    file: &str,
    find: impl Fn(&str) -> Option<T>,
) -> Result<Vec<T>, TestbedError> {
    let tasks = "/proc/self/task";
    let entries = std::fs::read_dir(tasks)
        .map_err(|e| TestbedError::io(format!("reading {tasks}"), e))?
        .flatten();
    let found = entries.filter_map(|task| {
        // A thread may end meanwhile, and has then no files any more.
        let read =
            |file: &str| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
        if read("comm").starts_with(prefix) {
            find(&read(file))
        } else {
            None
        }
    });
    Ok(found.collect())
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

    #[test]
    fn a_thread_s_time_is_counted_by_its_name() {
        let busy = std::thread::Builder::new()
            .name("cpu-test/0".to_owned())
            .spawn(|| {
                let end = std::time::Instant::now() + std::time::Duration::from_millis(20);
                while std::time::Instant::now() < end {
                    std::hint::spin_loop();
                }
                of_threads("cpu-test/").ok()
            })
            .expect("a thread can be made");
        let time = busy.join().expect("it does not panic");
        // A kernel without CONFIG_SCHED_INFO has no such file.
        let known = std::path::Path::new("/proc/self/schedstat").exists();
        assert!(time.is_some_and(|time| !known || time > 0.0));
        assert_eq!(of_threads("no-such-thread/").ok(), Some(0.0));
    }
}
