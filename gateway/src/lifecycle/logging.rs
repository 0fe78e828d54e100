//! The log: lines for people or for programs, on standard error.

use std::io;

use tracing_subscriber::{filter::Targets, fmt, layer::SubscriberExt, util::SubscriberInitExt};

use crate::config::schema::{Log, LogFormat};

/// Begin to log. A second call changes nothing.
pub fn begin(log: &Log) {
    // Checked when the configuration was read.
    let filter: Targets = log.level.parse().unwrap_or_default();
    let registry = tracing_subscriber::registry().with(filter);
    let colours = io::IsTerminal::is_terminal(&io::stderr());
    let layer = fmt::layer().with_writer(io::stderr).with_target(false);
    let begun = match log.format {
        LogFormat::Text => registry.with(layer.with_ansi(colours)).try_init(),
        LogFormat::Json => {
            registry.with(layer.json().flatten_event(true).with_target(true)).try_init()
        }
    };
    if begun.is_err() {
        tracing::debug!("the log had begun already");
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::{
        io::{self, Write},
        sync::{Arc, Mutex},
    };

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What `step` logs on this thread, from INFO on.
    pub(crate) fn logged(step: impl FnOnce()) -> String {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber =
            tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
        tracing::subscriber::with_default(subscriber, step);
        let bytes = lines.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }
}
