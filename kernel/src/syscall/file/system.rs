//! File system information: `statfs` and `fstatfs`.

use linux_raw_sys::general as linux;

use super::path;
use crate::arch::uaccess;
use crate::errno::{Answer, Errno};
use crate::files::node::Node;
use crate::files::source::Kind;
use crate::files::walk::Last;
use crate::files::{content, descriptors, source};

const PROC_MAGIC: u64 = 0x9fa0;
const PIPE_MAGIC: u64 = 0x5049_5045;
const LONGEST_NAME: u64 = 255;

fn write(node: Option<&Node>, to: u64) -> Result<(), Errno> {
    let mut words = [0u64; 15];
    words[1] = content::PAGE;
    words[8] = LONGEST_NAME;
    words[9] = content::PAGE;
    words[0] = match node {
        Some(Node::Memory(_)) => {
            let (limit, used) = (source::limit(), source::used(Kind::Tree));
            words[2] = limit;
            words[3] = limit.saturating_sub(used);
            words[4] = limit.saturating_sub(used);
            u64::from(linux::TMPFS_MAGIC)
        }
        Some(Node::Proc(_)) => PROC_MAGIC,
        _ => PIPE_MAGIC,
    };
    uaccess::write(to, &words)
}

pub fn statfs(path: u64, to: u64) -> Answer {
    let node = path::find(path::HERE, path, Last::Follow)?;
    write(Some(&node), to).map(|()| 0)
}

pub fn fstatfs(fd: u64, to: u64) -> Answer {
    let description = descriptors::current().get(fd)?;
    write(description.node().as_ref(), to).map(|()| 0)
}
