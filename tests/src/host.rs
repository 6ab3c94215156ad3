//! The host's kernel as the memory of scripts, in a child process.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::script::{Op, Window};
use crate::surroundings;

/// A child process that runs scripts.
pub struct Host {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    /// The start of the child's heap: scripts may call `brk` from there on.
    pub brk: u64,
    /// The host's memory in pages, which limits one mapping.
    pub commit_pages: u64,
    /// Bytes that the child may lock without privileges.
    pub locked: u64,
}

impl Host {
    /// Starts `program`, the binary `host-child`, for scripts in `window`.
    /// `sealed`: everything outside the window is mapped, so that the kernel
    /// can choose addresses in the window only.
    pub fn start(program: &str, window: &Window, sealed: bool) -> std::io::Result<Self> {
        let mut child = surroundings::fix(&mut Command::new(program))
            .arg(window.to_string())
            .args(sealed.then_some("sealed"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let broken = || std::io::Error::other("the child has no pipes");
        let to = child.stdin.take().ok_or_else(broken)?;
        let from = BufReader::new(child.stdout.take().ok_or_else(broken)?);
        let mut host = Self {
            child,
            to,
            from,
            brk: 0,
            commit_pages: 0,
            locked: 0,
        };
        let hello = host.line()?;
        let mut numbers = hello
            .split_whitespace()
            .filter_map(|word| u64::from_str_radix(word, 16).ok());
        host.brk = numbers.next().unwrap_or(0);
        host.commit_pages = numbers.next().unwrap_or(u64::MAX);
        host.locked = numbers.next().unwrap_or(0);
        Ok(host)
    }

    fn line(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        if self.from.read_line(&mut line)? == 0 {
            let status = self.child.wait()?;
            return Err(std::io::Error::other(format!("the child ended: {status}")));
        }
        line.truncate(line.trim_end().len());
        Ok(line)
    }

    /// Runs a script in the window, which is empty before, and returns its lines.
    ///
    /// # Errors
    /// When the child has died.
    pub fn run(&mut self, script: &[Op]) -> std::io::Result<Vec<String>> {
        let mut text: String = script.iter().map(|op| format!("{op}\n")).collect();
        text.push_str("end\n");
        self.to.write_all(text.as_bytes())?;
        self.to.flush()?;
        let mut lines = Vec::new();
        loop {
            match self.line()? {
                line if line == "end" => return Ok(lines),
                line => lines.push(line),
            }
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // Without input it exits by itself, unless a script has broken it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
