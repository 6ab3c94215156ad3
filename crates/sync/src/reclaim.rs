//! Quiescent-state reclamation: decides when a retired object can be used again.
//!
//! A lock-free reader works inside a *section*. Outside it the CPU is quiescent and holds no pointer to
//! anything that can be retired. An object that a writer has unlinked is *retired* under the current epoch
//! and is released two epochs later. The epoch advances when every online CPU is quiescent or has entered its
//! section in the current epoch.
//!
//! * Why two epochs: a reader that can still see an object unlinked in epoch `e` has entered in `e` or before.
//!   The step to `e + 1` may happen during its section (it has the current epoch), the step to `e + 2` cannot.
//! * Several writers may unlink one object, each from other places, and count these places down. The writer
//!   that counts the last place retires the object. At that moment other writers may have counted their
//!   places and not unlinked them yet. Each writer does both inside one section. So if the object is retired
//!   in `e`, these writers have entered in `e` or before. Readers can find the object until the step to
//!   `e + 2`, which waits for the writers. The object therefore counts as retired in `e + 1`
//!   ([`Grace::Going`]).
//! * No call waits for readers: `retire` defers, and [`Domain::expedite`] releases early what can be released
//!   when memory is short.
//!
//! *Writes*: a reader writes its own [`Participant`] only, and reads the epoch. The epoch advances once per
//! batch of retired objects. A retiring CPU writes its own participant and the link words of the retired
//! objects.

use crate::atomic::{AtomicU64, Ordering, fence};
use crate::order::{Class, Held, Kind};
use crate::{Cpu, CpuSet, Mutant, SpinLock, Wait, fence_after_rmw, mutant};

/// Retirements of one CPU between two attempts to move the epoch.
const BATCH: u32 = if cfg!(loom) { 4 } else { 32 };

/// The owner of retired objects: chains them, and takes them back.
///
/// An object is named by a nonzero word.
pub trait Owner {
    /// Returns the link word of a retired object.
    fn next(&self, object: u64) -> u64;
    /// Sets the link word of a retired object. Readers may still read the rest of the object, never this word.
    fn set_next(&self, object: u64, next: u64);
    /// Takes an object back: no reader can reach it any more.
    fn release(&self, cpu: Cpu, object: u64);
}

/// Whether new readers can still find an object when it is retired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grace {
    /// No pointer leads to it any more.
    Gone,
    /// Other writers that have entered a section, and then announced to the caller that they unlink it, may not
    /// have done so yet.
    Going,
}

/// One CPU's part in a [`Domain`].
#[derive(Default)]
#[repr(align(128))]
pub struct Participant {
    /// The epoch at entry, or 0 outside a section. Written by its CPU only.
    section: AtomicU64,
    deferred: crate::Padded<SpinLock<Deferred>>,
}

/// The objects that a CPU has retired: three chains, one per epoch that still matters.
#[derive(Default)]
struct Deferred {
    chains: [Chain; 3],
    since_attempt: u32,
}

#[derive(Clone, Copy, Default)]
struct Chain {
    epoch: u64,
    head: u64,
    length: u64,
}

impl Default for SpinLock<Deferred> {
    fn default() -> Self {
        SpinLock::new(Deferred::default())
    }
}

impl Participant {
    /// Returns the part of a CPU that has retired nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether its CPU, which asks, is in a section.
    pub fn is_inside(&self) -> bool {
        self.section.load(Ordering::Relaxed) != 0
    }
}

/// The epoch, and the CPUs that take part.
#[derive(Debug)]
pub struct Domain {
    epoch: AtomicU64,
    online: CpuSet,
}

impl Default for Domain {
    fn default() -> Self {
        Self::new()
    }
}

/// A read section: until it is dropped, nothing retired after its entry is released.
#[must_use]
pub struct Section<'a> {
    participant: &'a Participant,
    /// A section is not waited for, but is checked like a spin lock: its CPU must not park or yield inside.
    _held: Held,
}

impl Drop for Section<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release: pairs with the acquire in `try_advance`. The section's reads precede the moment at which an
        // object that it has read is taken back.
        self.participant.section.store(0, Ordering::Release);
    }
}

impl Domain {
    /// Returns a domain without CPUs.
    pub fn new() -> Self {
        Self {
            epoch: AtomicU64::new(3),
            online: CpuSet::new(),
        }
    }

    /// Adds a CPU. To be called before its first section.
    pub fn online(&self, cpu: Cpu) {
        self.online.insert(cpu);
    }

    /// Removes a CPU, which enters no section until it is online again. The objects that it has retired stay
    /// with its participant, and are drained by other CPUs.
    pub fn offline(&self, cpu: Cpu) {
        self.online.remove(cpu);
    }

    /// Enters a section. Sections of one CPU do not nest.
    #[inline]
    pub fn enter<'a>(&self, participant: &'a Participant) -> Section<'a> {
        debug_assert_eq!(
            participant.section.load(Ordering::Relaxed),
            0,
            "sections do not nest"
        );
        let epoch = self.epoch.load(Ordering::Relaxed);
        // The full fence after this write pairs with the one in `retire`: either this reader sees the object
        // unlinked, or the object's epoch is not older than the section.
        participant.section.swap(epoch, Ordering::AcqRel);
        let has_fence = !mutant(Mutant::EnterWithoutFence)
            && !mutant(Mutant::ValidationWithoutFence)
            && !mutant(Mutant::TruncateWithoutFence);
        if has_fence {
            fence_after_rmw();
        }
        Section {
            participant,
            _held: Class::new(Kind::Spin).hold(),
        }
    }

    /// Retires an object that is unlinked, or being unlinked. It is released once every section that could have
    /// found it has ended.
    pub fn retire<O: Owner, W: Wait>(
        &self,
        cpu: Cpu,
        participants: &[Participant],
        (object, links): (u64, Grace),
        owner: &O,
        machine: &W,
    ) {
        // Keeps the unlinking before the lock, because the read-modify-write of the lock only acquires. So the
        // unlinking also precedes the full fence after the lock, which pairs with the one in `enter`.
        core::sync::atomic::compiler_fence(Ordering::SeqCst);
        let mut deferred = participants[cpu.index()].deferred.lock(machine);
        fence_after_rmw();
        // Acquire: as in `drain`, for the chain that `push` may return.
        let epoch = self.epoch.load(Ordering::Acquire);
        let is_late = links == Grace::Going && !mutant(Mutant::RetiredTooEarly);
        let old = deferred.push(epoch + u64::from(is_late), object, owner);
        deferred.since_attempt += 1;
        let attempt = deferred.since_attempt >= BATCH;
        if attempt {
            deferred.since_attempt = 0;
        }
        drop(deferred);
        release_all(cpu, old, owner);
        if attempt {
            self.try_advance(participants);
            self.drain(cpu, cpu, participants, owner, machine);
        }
    }

    /// Advances the epoch as far as readers allow, and releases what all CPUs have deferred for long enough.
    /// To be called when memory is short, and at the end.
    pub fn expedite<O: Owner, W: Wait>(
        &self,
        cpu: Cpu,
        participants: &[Participant],
        owner: &O,
        machine: &W,
    ) {
        // Two steps for objects retired in this epoch, a third for those that count as retired in the next.
        for _ in 0..3 {
            self.try_advance(participants);
        }
        for other in 0..participants.len() {
            self.drain(cpu, Cpu(other as u32), participants, owner, machine);
        }
    }

    /// Returns the number of objects that wait for their grace period.
    pub fn deferred<W: Wait>(&self, participants: &[Participant], machine: &W) -> u64 {
        participants
            .iter()
            .map(|p| {
                p.deferred
                    .lock(machine)
                    .chains
                    .iter()
                    .map(|c| c.length)
                    .sum::<u64>()
            })
            .sum()
    }

    /// Advances the epoch if no reader is left from an earlier one. Returns whether it has advanced it.
    fn try_advance(&self, participants: &[Participant]) -> bool {
        let epoch = self.epoch.load(Ordering::Relaxed);
        // Pairs with the fence in `enter`.
        fence(Ordering::SeqCst);
        for cpu in self.online.iter() {
            // Acquire: pairs with the release at the end of a section.
            let section = participants[cpu.index()].section.load(Ordering::Acquire);
            if section != 0 && section != epoch {
                return false;
            }
        }
        self.epoch
            .compare_exchange(epoch, epoch + 1, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Releases the objects that `of` has deferred for long enough.
    fn drain<O: Owner, W: Wait>(
        &self,
        cpu: Cpu,
        of: Cpu,
        participants: &[Participant],
        owner: &O,
        machine: &W,
    ) {
        // Acquire: pairs with the release in `try_advance`, which follows every reader's last access.
        let epoch = self.epoch.load(Ordering::Acquire);
        let mut deferred = participants[of.index()].deferred.lock(machine);
        let mut heads = [0; 3];
        for (chain, head) in deferred.chains.iter_mut().zip(&mut heads) {
            let grace = if mutant(Mutant::OneEpoch) { 1 } else { 2 };
            if chain.head != 0 && chain.epoch + grace <= epoch {
                *head = core::mem::take(chain).head;
            }
        }
        drop(deferred);
        for head in heads {
            release_all(cpu, head, owner);
        }
    }
}

impl Deferred {
    /// Adds an object. Returns a chain that is old enough to be released, or 0.
    fn push<O: Owner>(&mut self, epoch: u64, object: u64, owner: &O) -> u64 {
        let chain = &mut self.chains[(epoch % 3) as usize];
        let mut old = 0;
        if chain.epoch != epoch {
            // The chain of three epochs before: released already, or ripe now, even if `epoch` is the next
            // epoch.
            old = core::mem::replace(
                chain,
                Chain {
                    epoch,
                    ..Chain::default()
                },
            )
            .head;
        }
        owner.set_next(object, chain.head);
        chain.head = object;
        chain.length += 1;
        old
    }
}

fn release_all<O: Owner>(cpu: Cpu, mut head: u64, owner: &O) {
    while head != 0 {
        let next = owner.next(head);
        owner.release(cpu, head);
        head = next;
    }
}
