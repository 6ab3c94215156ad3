//! The options of ebizzy 0.3, and `--true-random`.

use std::fmt;

use super::RECORD;
use crate::command_line::{Item, Syntax};
use crate::system::{MAX_THREADS, PAGE, Stop, Thread};

/// The parsed options.
#[derive(Clone, Copy)]
pub struct Options {
    pub always_mmap: bool,
    pub never_mmap: bool,
    pub use_permissions: bool,
    pub use_holes: bool,
    pub random_size: bool,
    pub true_random: bool,
    pub touch_pages: bool,
    pub own_memcpy: bool,
    pub linear: bool,
    pub verbose: u32,
    pub chunks: u64,
    pub chunk_size: u64,
    pub seconds: u64,
    pub threads: u64,
}

const INT_MAX: u64 = i32::MAX as u64;
const SSIZE_MAX: u64 = isize::MAX as u64;

const SYNTAX: Syntax = Syntax {
    letters: "TlmMn:pPRs:S:t:vz",
    words: &["true-random", "help"],
    usage,
};

/// Reads the options.
pub fn read(thread: &Thread<'_>, arguments: &[String]) -> Result<Options, Stop> {
    let mut o = Options {
        always_mmap: false,
        never_mmap: false,
        use_permissions: false,
        use_holes: false,
        random_size: false,
        true_random: false,
        touch_pages: false,
        own_memcpy: false,
        linear: false,
        verbose: 0,
        chunks: 10,
        chunk_size: 64 * 1024 * RECORD,
        seconds: 10,
        threads: 2 * thread.process().cpus() as u64,
    };
    let mut items = SYNTAX.read(arguments);
    for item in items.by_ref() {
        let number = |value, suffix, high| SYNTAX.number(thread, value, suffix, (1, high));
        match item.map_err(|why| SYNTAX.refuse(thread, why))? {
            Item::Letter('n', n) => o.chunks = number(('n', n), false, INT_MAX)?,
            Item::Letter('s', n) => o.chunk_size = number(('s', n), true, SSIZE_MAX)?,
            Item::Letter('S', n) => o.seconds = number(('S', n), false, INT_MAX)?,
            Item::Letter('t', n) => o.threads = number(('t', n), false, MAX_THREADS)?,
            Item::Letter('v', _) => o.verbose = o.verbose.saturating_add(1),
            Item::Letter(letter, _) => o.set(letter),
            Item::Word("true-random") => (o.true_random, o.random_size) = (true, true),
            Item::Word(_) => return Err(SYNTAX.help(thread)),
        }
    }
    SYNTAX.no_operands(thread, &items.operands())?;
    if o.always_mmap && o.never_mmap {
        return Err(SYNTAX.refuse(thread, "-m and -M exclude each other"));
    }
    if o.chunk_size < RECORD {
        let size = o.chunk_size;
        let why = format_args!("-s: a chunk of {size} bytes cannot hold a record of {RECORD}");
        return Err(SYNTAX.refuse(thread, why));
    }
    Ok(o)
}

impl Options {
    fn set(&mut self, letter: char) {
        match letter {
            'T' => self.touch_pages = true,
            'l' => self.own_memcpy = true,
            'm' => self.always_mmap = true,
            'M' => self.never_mmap = true,
            'p' => self.use_permissions = true,
            'P' => self.use_holes = true,
            'R' => self.random_size = true,
            'z' => self.linear = true,
            _ => {}
        }
    }
}

/// The output of `-v` at the start.
impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "ebizzy 0.3 (the implementation of Faultless)")?;
        writeln!(f, "always_mmap {}", u8::from(self.always_mmap))?;
        writeln!(f, "never_mmap {}", u8::from(self.never_mmap))?;
        writeln!(f, "chunks {}", self.chunks)?;
        let (permissions, holes) = (u8::from(self.use_permissions), u8::from(self.use_holes));
        writeln!(f, "prevent coalescing using permissions {permissions}")?;
        writeln!(f, "prevent coalescing using holes {holes}")?;
        writeln!(f, "random_size {}", u8::from(self.random_size))?;
        writeln!(f, "true_random {}", u8::from(self.true_random))?;
        writeln!(f, "chunk_size {}", self.chunk_size)?;
        writeln!(f, "seconds {}", self.seconds)?;
        writeln!(f, "threads {}", self.threads)?;
        writeln!(f, "verbose {}", self.verbose)?;
        writeln!(f, "linear {}", u8::from(self.linear))?;
        writeln!(f, "touch_pages {}", u8::from(self.touch_pages))?;
        writeln!(f, "page size {PAGE}")
    }
}

fn usage(name: &str) -> String {
    format!(
        "Usage: {name} [options]\n\
         -T\t\t Only touch each page of the copy: no copying, no search\n\
         -l\t\t Copy with a plain byte loop, not the library's memcpy\n\
         -m\t\t Always mmap and munmap, instead of malloc and free\n\
         -M\t\t Never mmap: take memory from the program break, reuse it\n\
         -n <num>\t Number of memory chunks to allocate (10)\n\
         -p\t\t Prevent mmap coalescing by permissions (every other chunk read-only)\n\
         -P\t\t Prevent mmap coalescing by holes (a page's gap after each chunk)\n\
         -R\t\t Randomize size of memory to copy and search;\n\
         \t\t as in ebizzy 0.3 this always yields the smallest size\n\
         -s <size>\t Size of memory chunks, in bytes; K, M, G allowed (512K)\n\
         -S <seconds>\t Number of seconds to run (10)\n\
         -t <num>\t Number of threads (2 * number of CPUs)\n\
         -v[v[v]]\t Be verbose (more v's for more)\n\
         -z\t\t Linear search instead of binary search\n\
         --true-random\t Random chunks, keys and sizes that are random; implies -R\n\
         --help\t\t Print this\n\
         Example: {name} -mTRp -S 5 -t 4\n"
    )
}
