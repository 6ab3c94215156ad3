//! Disks that are no swap areas, and disks that fail. `./x test boot` runs these tests.

use faultless_tests::boot::{Ended, Machine, VERIFIED, archive, compile};

const PAGE: usize = 4096;
const DISK: &str = "if=none,id=swap,driver=raw,cache.no-flush=on";

/// The content of a swap area of so many pages, of which the header says that `last` is the last one.
fn area(pages: usize, last: u32) -> Vec<u8> {
    let mut disk = vec![0; pages * PAGE];
    disk[1024..1028].copy_from_slice(&1u32.to_le_bytes());
    disk[1028..1032].copy_from_slice(&last.to_le_bytes());
    disk[PAGE - 10..PAGE].copy_from_slice(b"SWAPSPACE2");
    disk
}

/// Boots `disk_errors` with a disk, or none. `fails` are options of QEMU's driver that injects errors.
fn boot(disk: Option<&[u8]>, fails: &str) -> Ended {
    let program = compile("disk_errors");
    let run = format!("{VERIFIED}exec=/bin/test\0argv=test\0swap=disk:0\0");
    let image = archive(&[("bin/test", &program), (".faultless/run", run.as_bytes())]);
    let machine = Machine::with_cpus(2);
    let Some(disk) = disk else {
        return machine.boot(&image);
    };
    let file = match fails {
        "" => "file.driver=file,file.filename=disk".to_owned(),
        fails => {
            format!("file.driver=blkdebug,file.image.driver=file,file.image.filename=disk,{fails}")
        }
    };
    let drive = format!("{DISK},{file}");
    let options = [
        "-drive",
        &drive,
        "-device",
        "virtio-blk-pci,drive=swap,disable-legacy=on",
    ];
    machine.boot_with(&image, &[("disk", disk)], &options)
}

fn said(ended: &Ended) -> &str {
    assert_eq!((ended.exit, &ended.error), (Some(0), &None), "{ended:?}");
    ended.assert_verified();
    &ended.stdout
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn a_disk_that_is_no_swap_area_is_refused() {
    let mut other = area(100, 99);
    other[1024] = 2;
    let mut bad = area(100, 99);
    bad[1032] = 1;
    let mut damaged = area(100, 99);
    damaged[PAGE - 1] = b'3';
    for (disk, why) in [
        (None, "the machine has no disk"),
        (Some(vec![0; 100 * PAGE]), "it has no signature"),
        (Some(damaged), "it has no signature"),
        (Some(other), "of another version"),
        (Some(bad), "has bad pages"),
        (Some(area(100, 0)), "is empty, or larger"),
        (Some(area(100, 100)), "is empty, or larger"),
        (Some(area(100, 50)), "is smaller than its disk"),
    ] {
        let ended = boot(disk.as_deref(), "");
        let error = ended.error.as_deref().unwrap_or_default();
        assert!(error.contains(why), "{why}: {ended:?}");
    }
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn a_disk_that_works_gives_all_pages_back() {
    let ended = boot(Some(&area(100, 99)), "");
    assert_eq!(
        said(&ended),
        "40 written, 40 right, 0 lost\nswapoff: done\n"
    );
    // More pages than slots: the others stay.
    let ended = boot(Some(&area(10, 9)), "");
    assert_eq!(said(&ended), "9 written, 40 right, 0 lost\nswapoff: done\n");
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn a_page_that_cannot_be_written_stays() {
    let fails = "file.inject-error.0.event=none,file.inject-error.0.iotype=write,file.inject-error.0.errno=5";
    let ended = boot(Some(&area(100, 99)), fails);
    assert_eq!(said(&ended), "0 written, 40 right, 0 lost\nswapoff: done\n");
}

/// The others come back, and so does swapping: the page is still there for a disk that works again.
#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn a_page_that_cannot_be_read_is_a_bus_error() {
    let fails = "file.inject-error.0.event=none,file.inject-error.0.iotype=read,file.inject-error.0.errno=5,file.inject-error.0.sector=32";
    let ended = boot(Some(&area(100, 99)), fails);
    assert_eq!(
        said(&ended),
        "40 written, 39 right, 1 lost\nswapoff: I/O error\n"
    );
}
