//! The lane's halves of the backends, one for each export.
//!
//! A reload may take an export away or give it another backend. What is under way there still finishes; only
//! then the lane's half is dropped.
//!
//! A half that panics while it reports or submits may have lost what it had taken in hand, and nobody can tell
//! what. It is dropped, all its calls under way are answered with a failure, and the next call gets a new one.

use std::{
    collections::BTreeMap,
    io,
    os::fd::OwnedFd,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use backends::{Backend, BackendError, Completion, ErrorKind, LaneBackend, LaneResources, Request};

use crate::exports::{Export, ExportTable};

#[derive(Debug)]
struct Attachment {
    backend: Arc<dyn Backend>,
    lane: Box<dyn LaneBackend>,
    in_flight: usize,
    retired: bool,
    /// It panicked: calls that it has may never come back.
    broken: bool,
}

impl Attachment {
    /// Let the lane's half do something; a panic in it breaks it.
    fn guarded(&mut self, doing: &'static str, step: impl FnOnce(&mut dyn LaneBackend)) {
        if self.broken {
            return;
        }
        let lane = &mut self.lane;
        if catch_unwind(AssertUnwindSafe(|| step(&mut **lane))).is_err() {
            tracing::error!(
                doing,
                "a backend panicked; its calls under way fail, and it is attached anew"
            );
            self.broken = true;
        }
    }
}

/// The lane's halves of all backends.
#[derive(Debug, Default)]
pub struct Attachments {
    slots: Vec<Option<Attachment>>,
    by_export: BTreeMap<u32, usize>,
}

impl Attachments {
    /// The lane's half for an export, made now if there is none.
    ///
    /// # Errors
    /// When the backend cannot be attached.
    pub fn of(&mut self, export: &Export, resources: &LaneResources) -> io::Result<usize> {
        if let Some(&index) = self.by_export.get(&export.id) {
            if self.serves(index, export) {
                return Ok(index);
            }
            self.retire(export.id);
        }
        let backend = Arc::clone(&export.backend);
        let attach = || Arc::clone(&backend).attach(resources);
        let attached = catch_unwind(AssertUnwindSafe(attach));
        let lane = attached.unwrap_or_else(|_| Err(io::Error::other("the backend panicked")))?;
        let attachment = Attachment { backend, lane, in_flight: 0, retired: false, broken: false };
        let index = match self.slots.iter().position(Option::is_none) {
            Some(index) => index,
            None => {
                self.slots.push(None);
                self.slots.len() - 1
            }
        };
        self.slots[index] = Some(attachment);
        self.by_export.insert(export.id, index);
        Ok(index)
    }

    /// Follow a new table: attach what is new, let go of what is gone.
    pub fn follow(&mut self, table: &ExportTable, resources: &LaneResources) {
        let stays = |id: &u32| table.by_id(*id).is_some();
        let gone: Vec<u32> = self.by_export.keys().copied().filter(|id| !stays(id)).collect();
        for id in gone {
            self.retire(id);
        }
        for export in table.iter() {
            if let Err(error) = self.of(export, resources) {
                let path = &export.path;
                tracing::warn!(%error, path, "export cannot be served on this lane yet; will be tried again");
            }
        }
    }

    /// Hand a request to a backend. A panic in it becomes a failure.
    pub fn submit(&mut self, index: usize, request: Request) -> Option<Completion> {
        let token = request.token;
        let name = request.operation.name();
        let attachment = self.slots.get_mut(index).and_then(Option::as_mut);
        let Some(attachment) = attachment.filter(|attachment| !attachment.broken) else {
            return Some(Completion::failed(
                token,
                BackendError::new(ErrorKind::ServerFault, name),
            ));
        };
        attachment.in_flight += 1;
        match catch_unwind(AssertUnwindSafe(|| attachment.lane.submit(request))) {
            Ok(completion) => completion,
            Err(_) => {
                tracing::error!(
                    operation = name,
                    "a backend panicked; the call fails, the rest goes on"
                );
                Some(Completion::failed(token, BackendError::new(ErrorKind::ServerFault, name)))
            }
        }
    }

    /// A call waits with a request for this one: a reload must not give its place to another export's. Ends
    /// with [`Self::finished`], as a request does.
    pub fn hold(&mut self, index: usize) {
        if let Some(attachment) = self.slots.get_mut(index).and_then(Option::as_mut) {
            attachment.in_flight += 1;
        }
    }

    /// A request that was handed over has come back.
    pub fn finished(&mut self, index: usize) {
        let Some(slot) = self.slots.get_mut(index) else { return };
        let Some(attachment) = slot else { return };
        attachment.in_flight = attachment.in_flight.saturating_sub(1);
        if attachment.retired && attachment.in_flight == 0 {
            *slot = None;
        }
    }

    /// Append what has finished on any of the backends.
    pub fn completions(&mut self, out: &mut Vec<Completion>) {
        for attachment in self.slots.iter_mut().flatten() {
            attachment.guarded("reporting", |lane| lane.completions(out));
        }
    }

    /// Let go of a half that panicked. Returns which it was: every call that is still under way there must be
    /// answered before anything else is attached.
    pub fn take_broken(&mut self) -> Option<usize> {
        let broken = |slot: &Option<Attachment>| slot.as_ref().is_some_and(|it| it.broken);
        let index = self.slots.iter().position(broken)?;
        let attachment = self.slots.get_mut(index).and_then(Option::take);
        self.by_export.retain(|_, other| *other != index);
        if catch_unwind(AssertUnwindSafe(|| drop(attachment))).is_err() {
            tracing::error!("a backend panicked once more as it was dropped");
        }
        Some(index)
    }

    /// Let the backends hand batched work to the kernel. True: one of them is broken, see
    /// [`Self::take_broken`].
    pub fn flush(&mut self) -> bool {
        let mut broken = false;
        for attachment in self.slots.iter_mut().flatten() {
            attachment.guarded("submitting", |lane| lane.flush());
            broken |= attachment.broken;
        }
        broken
    }

    /// File descriptors that the backends want to be woken by.
    pub fn wake_fds(&self) -> Vec<Arc<OwnedFd>> {
        let of = |attachment: &Attachment| {
            let fds = || attachment.lane.wake_fds();
            // Without its descriptors it is looked at whenever the lane turns.
            catch_unwind(AssertUnwindSafe(fds)).unwrap_or_default()
        };
        self.slots.iter().flatten().flat_map(of).collect()
    }

    fn serves(&self, index: usize, export: &Export) -> bool {
        let attachment = self.slots.get(index).and_then(Option::as_ref);
        attachment.is_some_and(|attachment| Arc::ptr_eq(&attachment.backend, &export.backend))
    }

    fn retire(&mut self, id: u32) {
        let Some(index) = self.by_export.remove(&id) else { return };
        let Some(slot) = self.slots.get_mut(index) else { return };
        match slot {
            Some(attachment) if attachment.in_flight > 0 => attachment.retired = true,
            _ => *slot = None,
        }
    }
}
