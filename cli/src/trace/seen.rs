//! An event as users see it: with the thread and the CPU it happened on, and its fields by name.

use faultless_trace::{Event, Kind, Switch};

/// An event, with the CPU and the thread on which it happened.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// The event.
    pub event: Event,
    /// The CPU that recorded it.
    pub cpu: u32,
    /// The thread that ran there; `None` if that is not known.
    pub thread: Option<Switch>,
}

/// A field of events, as filters and files name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// The event's name.
    Event,
    /// How a fault ended.
    Kind,
    /// Why a fault fell back.
    Reason,
    /// The thread's name.
    Thread,
    /// ns that it took.
    Duration,
    /// ns of the machine's clock when it began.
    Start,
    /// The CPU.
    Cpu,
    /// The process.
    Pid,
    /// The thread.
    Tid,
    /// The address.
    Address,
    /// Bytes.
    Length,
    /// The number of the error; 0 for none.
    Error,
    /// 1 if a fault put a page table in place.
    Table,
    /// `brk`: the end that was asked for.
    Wanted,
    /// The CPU that a shootdown went to.
    Target,
    /// The number of a shootdown at its CPU.
    Request,
    /// The number of a guest's CPU.
    Vcpu,
    /// The error code of a guest's fault.
    ErrorCode,
    /// A guest's entry as a fault found it.
    OldEntry,
    /// The entry as the fast path left it.
    NewEntry,
    /// 1 if the entry allowed the access already.
    Spurious,
    /// 1 if the fast path restored the access.
    Fixed,
}

/// A field's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// A number.
    Number(u64),
    /// A word or a name.
    Text(&'a str),
}

impl Field {
    /// All of them.
    pub const ALL: [Field; 22] = [
        Field::Event,
        Field::Kind,
        Field::Reason,
        Field::Thread,
        Field::Duration,
        Field::Start,
        Field::Cpu,
        Field::Pid,
        Field::Tid,
        Field::Address,
        Field::Length,
        Field::Error,
        Field::Table,
        Field::Wanted,
        Field::Target,
        Field::Request,
        Field::Vcpu,
        Field::ErrorCode,
        Field::OldEntry,
        Field::NewEntry,
        Field::Spurious,
        Field::Fixed,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Field::Event => "event",
            Field::Kind => "kind",
            Field::Reason => "reason",
            Field::Thread => "thread",
            Field::Duration => "duration",
            Field::Start => "start",
            Field::Cpu => "cpu",
            Field::Pid => "pid",
            Field::Tid => "tid",
            Field::Address => "address",
            Field::Length => "length",
            Field::Error => "error",
            Field::Table => "table",
            Field::Wanted => "wanted",
            Field::Target => "target",
            Field::Request => "request",
            Field::Vcpu => "vcpu",
            Field::ErrorCode => "error_code",
            Field::OldEntry => "old_spte",
            Field::NewEntry => "new_spte",
            Field::Spurious => "spurious",
            Field::Fixed => "fixed",
        }
    }

    /// Whether its values are text.
    pub const fn is_text(self) -> bool {
        matches!(
            self,
            Field::Event | Field::Kind | Field::Reason | Field::Thread
        )
    }

    /// The fields of one kind of event, beside its name, time, thread and CPU.
    pub const fn of(kind: Kind) -> &'static [Field] {
        match kind {
            Kind::Fault => &[Field::Address, Field::Kind, Field::Reason, Field::Table],
            Kind::SpfPteLock
            | Kind::SpfVmaChanged
            | Kind::SpfVmaNoanon
            | Kind::SpfVmaNotsup
            | Kind::SpfVmaAccess
            | Kind::SpfPmdChanged
            | Kind::RmwFault => &[Field::Address],
            Kind::Flush | Kind::Zap | Kind::RangeWait | Kind::RangeHold | Kind::SwapIn => {
                &[Field::Address, Field::Length]
            }
            Kind::PageOut | Kind::Reclaim => &[Field::Length],
            Kind::ShootdownSent => &[Field::Target, Field::Request],
            Kind::ShootdownReceived => &[Field::Request],
            Kind::Brk => &[Field::Address, Field::Wanted],
            Kind::Mmap
            | Kind::Munmap
            | Kind::Mprotect
            | Kind::Madvise
            | Kind::Mremap
            | Kind::Fork => &[Field::Address, Field::Length, Field::Error],
            Kind::FastPageFault => &[
                Field::Vcpu,
                Field::Address,
                Field::ErrorCode,
                Field::OldEntry,
                Field::NewEntry,
                Field::Spurious,
                Field::Fixed,
            ],
            Kind::Switch => &[],
        }
    }
}

impl Seen {
    /// A field's value; `None` if this event has no such field.
    pub fn value(&self, field: Field) -> Option<Value<'_>> {
        use Value::{Number, Text};
        let event = &self.event;
        let own = || Field::of(event.kind).contains(&field);
        Some(match field {
            Field::Event => Text(event.kind.name()),
            Field::Duration => Number(event.duration()),
            Field::Start => Number(event.start),
            Field::Cpu => Number(self.cpu.into()),
            Field::Pid => Number(self.thread?.process.into()),
            Field::Tid => Number(self.thread?.thread.into()),
            Field::Thread => Text(name_of(self.thread.as_ref()?)),
            _ if !own() => return None,
            Field::Kind => Text(event.how().name()),
            Field::Reason => Text(event.reason().name()),
            Field::Address | Field::Target => Number(event.address),
            Field::Length | Field::Wanted | Field::Request => Number(event.value),
            Field::Error => Number(event.code().into()),
            Field::Table => Number(event.has_table().into()),
            Field::Vcpu => Number(event.to_fast_page_fault().vcpu.into()),
            Field::ErrorCode => Number(event.code().into()),
            Field::OldEntry => Number(event.value),
            Field::NewEntry => Number(event.to_fast_page_fault().new),
            Field::Spurious => Number(event.to_fast_page_fault().is_spurious.into()),
            Field::Fixed => Number(event.to_fast_page_fault().is_fixed.into()),
        })
    }
}

/// A thread's name.
pub fn name_of(thread: &Switch) -> &str {
    let name = thread.name.split(|&byte| byte == 0).next();
    let name = name.unwrap_or_default();
    match std::str::from_utf8(name) {
        Ok(name) => name,
        // A name that is cut within a character.
        Err(error) => std::str::from_utf8(&name[..error.valid_up_to()]).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Event, Field, Kind, Seen, Switch, Value, name_of};
    use faultless_trace::{How, Reason};

    #[test]
    fn a_fault_has_its_fields_and_no_others() {
        let seen = Seen {
            event: Event::fault(5, 8, 0x1000, How::Copy, true, Reason::None),
            cpu: 3,
            thread: None,
        };
        assert_eq!(seen.value(Field::Kind), Some(Value::Text("copy")));
        assert_eq!(seen.value(Field::Duration), Some(Value::Number(3)));
        assert_eq!(seen.value(Field::Table), Some(Value::Number(1)));
        for field in [Field::Length, Field::Request, Field::Tid, Field::Thread] {
            assert_eq!(seen.value(field), None, "{field:?}");
        }
        for kind in Kind::ALL {
            assert!(Field::of(*kind).len() < Field::ALL.len());
        }
    }

    #[test]
    fn a_name_that_is_cut_is_shown_as_far_as_it_goes() {
        let mut thread = Switch::idle();
        thread.name[..4].copy_from_slice(&[b'a', b'b', 0xc3, 0]);
        assert_eq!(name_of(&thread), "ab");
        thread.name = [b'x'; 16];
        assert_eq!(name_of(&thread).len(), 16);
    }
}
