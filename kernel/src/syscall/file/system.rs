//! File system information: `statfs` and `fstatfs`.

use linux_raw_sys::general as linux;

use super::path;
use crate::arch::uaccess;
use crate::errno::{Answer, Errno};
use crate::files::node::Node;
use crate::files::source::Kind;
use crate::files::walk::Last;
use crate::files::{content, descriptors, mapped, source};

const PROC_MAGIC: u64 = 0x9fa0;
const PIPE_MAGIC: u64 = 0x5049_5045;
const LONGEST_NAME: u64 = 255;

fn write(node: Option<&Node>, is_pooled: bool, to: u64) -> Result<(), Errno> {
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
            match is_pooled {
                true => {
                    words[1] = 2 << 20;
                    u64::from(linux::HUGETLBFS_MAGIC)
                }
                false => u64::from(linux::TMPFS_MAGIC),
            }
        }
        Some(Node::Proc(_)) => PROC_MAGIC,
        _ => PIPE_MAGIC,
    };
    uaccess::write(to, &words)
}

pub fn statfs(path: u64, to: u64) -> Answer {
    let node = path::find(path::HERE, path, Last::Follow)?;
    write(Some(&node), false, to).map(|()| 0)
}

pub fn fstatfs(fd: u64, to: u64) -> Answer {
    let description = descriptors::current().get(fd)?;
    let is_pooled = mapped::is_pooled(&description);
    write(description.node().as_ref(), is_pooled, to).map(|()| 0)
}
