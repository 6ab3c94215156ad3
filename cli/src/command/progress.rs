//! Shows progress on stderr: a spinner on a terminal, a line elsewhere.

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// A step that takes a while; the spinner disappears when it is dropped.
pub struct Progress(Option<ProgressBar>);

impl Progress {
    /// Shows that `what` starts.
    pub fn start(what: String) -> Self {
        if !io::stderr().is_terminal() {
            eprintln!("faultless: {what}");
            return Progress(None);
        }
        let spinner = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
            spinner.set_style(style);
        }
        spinner.set_message(what);
        spinner.enable_steady_tick(Duration::from_millis(100));
        Progress(Some(spinner))
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(spinner) = &self.0 {
            spinner.finish_and_clear();
        }
    }
}
