//! What the gateway has done since it started: one line in the log on SIGUSR1 and at the end.

use std::fmt::Write as _;

use buffers::copies::{self, Why};

use crate::dispatch::Metrics;

/// Log the totals.
pub fn log(metrics: &Metrics) {
    let (mut calls, mut failures, mut procedures) = (0, 0, String::new());
    let others = [("mount", metrics.mount_calls.get(), 0), ("unserved", metrics.unserved.get(), 0)];
    let all = metrics.by_procedure().chain(others);
    for (name, called, failed) in all.filter(|(_, called, _)| *called > 0) {
        calls += called;
        failures += failed;
        let gap = if procedures.is_empty() { "" } else { " " };
        // Writing to a string does not fail.
        let _ = write!(procedures, "{gap}{name}:{called}");
    }
    tracing::info!(
        calls,
        failures,
        procedures,
        read_bytes = metrics.read_bytes.get(),
        written_bytes = metrics.written_bytes.get(),
        copied_bytes = copies::total(),
        copied_to_register = copies::copied(Why::Register),
        copied_to_align = copies::copied(Why::Align),
        copied_from_stream = copies::copied(Why::Stream),
        copied_by_backend = copies::copied(Why::Backend),
        copied_inline = copies::copied(Why::Inline),
        replays = metrics.replays.get(),
        starved_reads = metrics.starved_reads.get(),
        panics = metrics.panics.get(),
        "totals since the start"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::logging::tests::logged;

    #[test]
    fn one_line_says_what_was_called_moved_and_copied() {
        let metrics = Metrics::default();
        metrics.nfs3_call(0);
        metrics.mount_calls.add();
        metrics.unserved.add();
        metrics.nfs3_call(6);
        metrics.nfs3_call(7);
        metrics.nfs3_call(7);
        metrics.nfs3_failure(7);
        metrics.read_bytes.grow(4096);
        copies::count(Why::Align, 9);
        let text = logged(|| log(&metrics));
        assert_eq!(text.lines().count(), 1, "{text}");
        for field in [
            "INFO",
            " calls=6 ",
            " failures=1 ",
            r#" procedures="null:1 read:1 write:2 mount:1 unserved:1" "#,
            " read_bytes=4096 ",
            " written_bytes=0 ",
        ] {
            assert!(text.contains(field), "{field}: {text}");
        }
        let aligned = text.split("copied_to_align=").nth(1).and_then(|rest| rest.split(' ').next());
        assert!(aligned.unwrap().parse::<u64>().unwrap() >= 9, "{text}");
    }
}
