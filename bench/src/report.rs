//! What came of a load, as one line of JSON.

use std::time::Duration;

use serde::Serialize;

use crate::histogram::Histogram;

/// The kernel's unit of CPU time towards user space (USER_HZ), which is fixed.
const TICKS_PER_SECOND: f64 = 100.0;

/// Latencies in microseconds.
#[derive(Debug, Clone, Serialize)]
pub struct Latency {
    /// Half of all calls were at least so fast.
    pub p50: f64,
    /// 99 in 100.
    pub p99: f64,
    /// 999 in 1000.
    #[serde(rename = "p99.9")]
    pub p999: f64,
    /// The slowest.
    pub max: f64,
}

impl From<&Histogram> for Latency {
    /// From a histogram of nanoseconds.
    fn from(histogram: &Histogram) -> Self {
        let us = |ns: u64| ns as f64 / 1e3;
        Self {
            p50: us(histogram.quantile(0.5)),
            p99: us(histogram.quantile(0.99)),
            p999: us(histogram.quantile(0.999)),
            max: us(histogram.largest()),
        }
    }
}

/// A finished load.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The server.
    pub target: String,
    /// What was done.
    pub op: String,
    /// Bytes of one read or write.
    pub size: usize,
    /// Calls under way on each connection.
    pub depth: usize,
    /// Connections, each with a thread.
    pub connections: usize,
    /// Whether offsets were random.
    pub random: bool,
    /// Whether data was checked.
    pub verify: bool,
    /// Whether the data of READs was thrown away as it came.
    pub discard: bool,
    /// Wall time.
    pub seconds: f64,
    /// Calls that succeeded in that time.
    pub calls: u64,
    /// Calls per second.
    pub ops_per_second: f64,
    /// Payload per second, in MiB.
    pub mib_per_second: f64,
    /// Latencies in microseconds.
    pub latency_us: Latency,
    /// Calls that failed.
    pub errors: u64,
    /// The first of them.
    pub first_error: Option<String>,
    /// CPU time of this process, in seconds (server included when it is in the process).
    pub process_cpu_seconds: f64,
    /// CPU time of the server's lanes per call, in microseconds, when they are in this process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lane_cpu_us_per_call: Option<f64>,
    /// Calls per second of lane CPU time: what one core would do, when the lanes are in this process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ops_per_lane_cpu_second: Option<f64>,
    /// Payload bytes that the server copied, when it is in this process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload_bytes_copied: Option<u64>,
}

/// CPU time of this process so far, in the kernel's ticks (10 ms); of threads that have ended too.
pub fn process_cpu() -> Duration {
    // Not from a clock: without libc that goes through the vDSO, which valgrind takes away.
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name of the program, in brackets, may contain blanks; utime and stime are the 12th and 13th behind it.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_ascii_whitespace();
    let ticks: u64 = fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    Duration::from_secs_f64(ticks as f64 / TICKS_PER_SECOND)
}

/// CPU time of the threads of this process whose name begins with `prefix`.
pub fn threads_cpu(prefix: &str) -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let nanoseconds = tasks.filter_map(|task| {
        let name = std::fs::read_to_string(task.path().join("comm")).ok()?;
        let stat = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        let on_cpu: u64 = stat.split(' ').next()?.parse().ok()?;
        name.starts_with(prefix).then_some(on_cpu)
    });
    Duration::from_nanos(nanoseconds.sum())
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn work_shows_as_cpu_time() {
        let (process, threads) = (process_cpu(), threads_cpu(""));
        let start = Instant::now();
        while process_cpu() < process + Duration::from_millis(30) {
            assert!(start.elapsed() < Duration::from_secs(30));
        }
        assert!(threads_cpu("") > threads);
        assert_eq!(threads_cpu("no thread has this name"), Duration::ZERO);
    }
}
