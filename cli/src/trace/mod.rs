//! Traces: events of a run, chosen and filtered, in a file that Perfetto opens, and what such a
//! file comes to.
//!
//! * `seen`: an event with the thread and the CPU it happened on, and its fields by name.
//! * `filter`: conditions on fields.
//! * `recorder`: from rings to a file; knows which thread each CPU runs.
//! * `perfetto`: the file.
//! * `reader`, `summary`: the way back.

pub mod filter;
pub mod perfetto;
pub mod reader;
pub mod recorder;
pub mod seen;
pub mod summary;
