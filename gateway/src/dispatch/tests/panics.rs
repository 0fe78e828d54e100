//! A backend that panics with calls in hand.

use std::{
    io,
    sync::{Arc, Mutex},
};

use backends::{
    Backend, Capabilities, Completion, LaneBackend, LaneResources, ObjectHandle, Request,
    memory::MemoryBackend,
};
use bytes::Bytes;

use super::driver::{NFS, Results, Server, at, memory, sattr_mode, settings, table};

/// Where it panics, once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Attaching,
    Submitting,
    Reporting,
}

#[derive(Debug)]
struct Shaky(Arc<MemoryBackend>, Mutex<Option<At>>);

impl Shaky {
    fn plan(&self, at: At) {
        *self.1.lock().unwrap() = Some(at);
    }

    fn panics(&self, at: At) -> bool {
        self.1.lock().unwrap().take_if(|next| *next == at).is_some()
    }
}

impl Backend for Shaky {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn root(&self) -> ObjectHandle {
        self.0.root()
    }

    fn attach(self: Arc<Self>, _: &LaneResources) -> io::Result<Box<dyn LaneBackend>> {
        assert!(!self.panics(At::Attaching), "a planned panic");
        Ok(Box::new(ShakyLane(self, Vec::new())))
    }
}

#[derive(Debug)]
struct ShakyLane(Arc<Shaky>, Vec<Request>);

impl LaneBackend for ShakyLane {
    fn submit(&mut self, request: Request) -> Option<Completion> {
        self.1.push(request);
        None
    }

    /// The planned panic comes when one has been reported, and takes the others with it.
    fn completions(&mut self, out: &mut Vec<Completion>) {
        for request in std::mem::take(&mut self.1) {
            out.push(self.0.0.execute(request));
            assert!(!self.0.panics(At::Reporting), "a planned panic");
        }
    }

    fn flush(&mut self) {
        assert!(self.1.is_empty() || !self.0.panics(At::Submitting), "a planned panic");
    }
}

fn shaky() -> (Arc<Shaky>, Server, Bytes) {
    let shaky = Arc::new(Shaky(memory(), Mutex::new(None)));
    let server = Server::serving(vec![(settings(1, "/shaky"), shaky.clone())]);
    let root = server.root(1);
    (shaky, server, root)
}

#[test]
fn bug_calls_hung_for_ever_when_a_backend_panicked_with_them_in_hand() {
    for (planned, done) in [(At::Reporting, 1), (At::Submitting, 0)] {
        let (shaky, mut server, root) = shaky();
        assert!(server.mkdir(&root, b"before").is_ok());
        shaky.plan(planned);
        let mut tickets = Vec::new();
        for name in [b"a", b"b", b"c"] {
            let message = server.message(NFS, 3, 9, |w| {
                at(w, &root, name);
                sattr_mode(w, 0o755);
            });
            tickets.push(server.hand_over(message).0);
        }
        let mut replies = server.turn();
        replies.sort_by_key(|(ticket, _)| ticket.0);
        let status = |(ticket, rope)| (ticket, Results::of(rope).status());
        let replies: Vec<_> = replies.into_iter().map(status).collect();
        let expected = tickets.into_iter().enumerate();
        let expected = expected.map(|(n, ticket)| (ticket, if n < done { 0 } else { 10006 }));
        assert_eq!(replies, expected.collect::<Vec<_>>(), "{planned:?}");
        assert_eq!(server.shared.metrics.panics.get(), 1);
        assert_eq!(server.lane.in_flight(), 0);
        assert!(server.mkdir(&root, b"after").is_ok(), "served again after {planned:?}");
    }
}

#[test]
fn bug_a_backend_that_panicked_as_it_was_attached_ended_the_lane() {
    let (shaky, mut server, root) = shaky();
    server.exports.replace(table(vec![(settings(2, "/other"), memory())])).unwrap();
    assert!(server.turn().is_empty());
    shaky.plan(At::Attaching);
    server.exports.replace(table(vec![(settings(1, "/shaky"), shaky.clone())])).unwrap();
    assert!(server.turn().is_empty());
    assert!(server.mkdir(&root, b"after").is_ok());
}
