// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Included before programs for AArch64: a real vfork, and system calls that only
// older architectures have, with numbers that are none.

#ifndef PROGRAMS_AARCH64_H
#define PROGRAMS_AARCH64_H

#include "../../workloads/c/vfork.h"

#define SYS_access (20001UL)
#define SYS_alarm (20002UL)
#define SYS_arch_prctl (20003UL)
#define SYS_chmod (20004UL)
#define SYS_chown (20005UL)
#define SYS_creat (20006UL)
#define SYS_dup2 (20007UL)
#define SYS_epoll_wait (20008UL)
#define SYS_fork (20009UL)
#define SYS_getdents (20010UL)
#define SYS_link (20011UL)
#define SYS_lstat (20012UL)
#define SYS_mkdir (20013UL)
#define SYS_mknod (20014UL)
#define SYS_open (20015UL)
#define SYS_pause (20016UL)
#define SYS_pipe (20017UL)
#define SYS_poll (20018UL)
#define SYS_readlink (20019UL)
#define SYS_rename (20020UL)
#define SYS_rmdir (20021UL)
#define SYS_select (20022UL)
#define SYS_stat (20023UL)
#define SYS_symlink (20024UL)
#define SYS_time (20025UL)
#define SYS_unlink (20026UL)
#define SYS_utime (20027UL)
#define SYS_utimes (20028UL)
#define SYS_vfork (20029UL)

#endif
