//! Traces: selected events of a run in a file that Perfetto opens, and summaries of such files.
//!
//! * `seen`: an event with the thread and the CPU it happened on, and its fields by name.
//! * `filter`: conditions on fields.
//! * `recorder`: writes events from the rings to a file; tracks which thread each CPU runs.
//! * `perfetto`: the format of the file.
//! * `reader`, `summary`: read a file back.

pub mod filter;
pub mod perfetto;
pub mod reader;
pub mod recorder;
pub mod seen;
pub mod summary;
