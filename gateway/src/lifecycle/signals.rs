//! SIGTERM and SIGINT end the gateway, SIGHUP reloads its exports, SIGUSR1 logs what it has done; now and then
//! names are looked up again.

use std::{io, sync::Arc, time::Duration};

use tokio::{
    signal::unix::{SignalKind, signal},
    task::spawn_blocking,
    time::{Instant, MissedTickBehavior, interval},
};

use super::{
    hosts::{self, REFRESH_INTERVAL},
    reload::Reloader,
    statistics,
};
use crate::dispatch::Shared;

/// A signal to end that comes so soon after the first is the same wish: a terminal and `cargo`, or a service
/// manager and a script, send one each.
const SAME_WISH: Duration = Duration::from_millis(200);

/// The signals, caught from the moment this is made.
#[derive(Debug)]
pub struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    hang_up: tokio::signal::unix::Signal,
    user: tokio::signal::unix::Signal,
}

impl Signals {
    /// Catch them. Must be called within a runtime, and before anybody may rely on a reload.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn catch() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
            user: signal(SignalKind::user_defined1())?,
        })
    }

    /// Serve reloads, look-ups and questions until asked to end.
    pub async fn until_end(&mut self, reloader: Reloader, shared: &Shared) {
        let mut look_ups = interval(REFRESH_INTERVAL);
        look_ups.set_missed_tick_behavior(MissedTickBehavior::Delay);
        look_ups.tick().await;
        let mut reloader = Some(reloader);
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return tracing::info!("SIGTERM"),
                _ = self.interrupt.recv() => return tracing::info!("SIGINT"),
                _ = self.hang_up.recv() => reloader = reload(reloader.take()).await,
                _ = self.user.recv() => statistics::log(&shared.metrics),
                _ = look_ups.tick() => {
                    let exports = Arc::clone(&shared.exports);
                    let _ = spawn_blocking(move || hosts::refresh(&exports)).await;
                }
            }
        }
    }

    /// Wait for another SIGTERM or SIGINT: somebody has no patience. To be called when the first has come.
    pub async fn again(&mut self) {
        self.again_after(Instant::now()).await;
    }

    /// The same, when the first came at `first`.
    async fn again_after(&mut self, first: Instant) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => {}
                _ = self.interrupt.recv() => {}
            }
            if first.elapsed() >= SAME_WISH {
                return;
            }
        }
    }
}

/// Reload on a thread of its own: directories and name servers can be slow.
async fn reload(reloader: Option<Reloader>) -> Option<Reloader> {
    let mut reloader = reloader?;
    let done = spawn_blocking(move || {
        if let Err(error) = reloader.reload() {
            tracing::error!("reload: nothing has changed, the old exports stay:\n{error}");
        }
        reloader
    });
    match done.await {
        Ok(reloader) => Some(reloader),
        Err(error) => {
            tracing::error!(%error, "a reload failed; no more reloads until a restart");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::{Signal, getpid, kill_process};
    use tokio::time::timeout;

    use super::*;

    /// Whether a signal ends at once, when the first one came at that time.
    async fn ends_at_once(first: Instant, patience: Duration) -> bool {
        let mut signals = Signals::catch().unwrap();
        kill_process(getpid(), Signal::TERM).unwrap();
        timeout(patience, signals.again_after(first)).await.is_ok()
    }

    #[tokio::test]
    async fn a_second_signal_within_milliseconds_does_not_end_at_once() {
        // However slow the machine is, less than nothing has passed since the first.
        let first = Instant::now() + Duration::from_secs(3600);
        assert!(!ends_at_once(first, Duration::from_millis(100)).await, "the same wish");
        assert!(ends_at_once(Instant::now() - SAME_WISH, Duration::from_secs(20)).await);
    }
}
