//! What a handler of SIGSEGV may do, as far as the soft machine has one: it repairs and returns, and the
//! access is tried again.

use faultless_mm::Access::{Read, Write};
use faultless_mm::PROT_READ;
use faultless_mm::SegvCode::AccErr;

use super::check::{Failure, ensure, faults};
use super::pages::{NONE, RW, map_pages, protect, read, unmap};
use crate::system::{PAGE, Thread};
use std::sync::Mutex;

pub fn repair(t: &Thread<'_>) -> Result<(), Failure> {
    let p = map_pages(t, 1, PROT_READ)?;
    for i in 0..100 {
        let mut faults = 0;
        while t.attempt(|cpu| cpu.store_u8(p + i, i as u8 + 1))?.is_err() {
            faults += 1;
            protect(t, p, 1, RW)?;
        }
        ensure!(faults == 1, "{faults} faults on a write, not 1");
        let landed = read(t, p + i)? == i as u8 + 1;
        ensure!(landed, "the write did not land after the handler returned");
        protect(t, p, 1, PROT_READ)?;
    }
    unmap(t, p, 1)?;
    Ok(())
}

pub fn faulting_thread(t: &Thread<'_>) -> Result<(), Failure> {
    let p = map_pages(t, 2, NONE)?;
    let second = Mutex::new(Ok(()));
    let keep = |result| *second.lock().unwrap_or_else(|e| e.into_inner()) = result;
    t.team(|team| {
        let body = |t: &Thread<'_>| match faults(t, AccErr, Write, p + PAGE) {
            Err(Failure::Stop(stop)) => Err(stop),
            other => {
                keep(other);
                Ok(())
            }
        };
        team.start(1, body)
            .map_err(|e| t.die(format_args!("cannot start a thread: {e}")))?;
        faults(t, AccErr, Read, p)
    })?;
    second.into_inner().unwrap_or_else(|e| e.into_inner())?;
    unmap(t, p, 2)?;
    Ok(())
}
