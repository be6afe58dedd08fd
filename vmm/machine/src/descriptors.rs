//! Descriptors inherited from the parent process.

use crate::inherited::of_path;
use crate::net::{ExternalSource, Source, Spec, TapSource};
use crate::poll;
use crate::settings::VmConfig;
use crate::Failure;
use std::io;
use std::os::fd::RawFd;
use std::path::Path;

/// Closes all descriptors but the standard ones and those named in `config`, which must be open. Closed standard
/// descriptors become `/dev/null`, so that no file that is opened later takes their place.
///
/// # Errors
/// A named descriptor is closed.
pub fn close_others(config: &VmConfig) -> Result<(), Failure> {
    let mut named = named(config);
    named.sort_unstable();
    let standard = (libc::STDIN_FILENO..=libc::STDERR_FILENO).map(|fd| (fd, ""));
    let all: Vec<_> = standard.chain(named).collect();
    for (fd, option) in closed(&all)? {
        if !option.is_empty() {
            let message = format!("{option}: descriptor {fd} is not open; open it in the parent");
            return Err(Failure::Usage(message));
        }
        open_null()?;
    }
    let mut next = libc::STDERR_FILENO + 1;
    for (fd, _) in all.into_iter().filter(|(fd, _)| *fd > libc::STDERR_FILENO) {
        close_range(next, fd - 1);
        next = fd + 1;
    }
    close_range(next, RawFd::MAX);
    Ok(())
}

/// Returns the descriptors named in `config`, with their options. Files may be named by descriptor, too.
#[inline(never)]
fn named(config: &VmConfig) -> Vec<(RawFd, &'static str)> {
    let mut named = Vec::new();
    named.extend(config.events.map(|fd| (fd, "--events")));
    for card in &config.net {
        named.extend(descriptor_of(card).map(|fd| (fd, "--net")));
    }
    let mut add = |path: &Path, option| named.extend(of_path(path).map(|fd| (fd, option)));
    add(&config.image, "--image or --kernel");
    if let Some(path) = &config.initrd {
        add(path, "--initrd");
    }
    for disk in &config.disks {
        add(&disk.path, "--disk");
    }
    named
}

/// Returns the descriptor of a card's other side.
fn descriptor_of(card: &Spec) -> Option<RawFd> {
    let tap = match &card.source {
        Source::External(ExternalSource::VhostUser(path)) => return of_path(path),
        Source::External(ExternalSource::VhostNet(tap)) | Source::Tap(tap) => tap,
    };
    match tap {
        TapSource::Inherited(fd) => Some(*fd),
        TapSource::Named(_) => None,
    }
}

/// Returns those of `all` that are closed, by one system call.
fn closed<T: Copy>(all: &[(RawFd, T)]) -> Result<Vec<(RawFd, T)>, Failure> {
    let requests = all.iter().map(|&(fd, _)| poll::request(fd, 0));
    let mut requests: Vec<_> = requests.collect();
    // SAFETY: passes the array and its length; the kernel writes to `revents`.
    let status = unsafe { libc::poll(requests.as_mut_ptr(), requests.len() as u64, 0) };
    if status < 0 {
        let failed = Failure::system("check the inherited descriptors");
        return Err(failed(io::Error::last_os_error()));
    }
    let pairs = all.iter().zip(requests);
    let closed = pairs.filter(|(_, request)| request.revents & libc::POLLNVAL != 0);
    Ok(closed.map(|(pair, _)| *pair).collect())
}

/// Opens `/dev/null` as the lowest closed descriptor.
fn open_null() -> Result<(), Failure> {
    // SAFETY: a zero-terminated path and flags.
    match unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) } {
        0.. => Ok(()),
        _ => Err(Failure::system("open /dev/null")(io::Error::last_os_error())),
    }
}

/// Closes `first..=last`. Kernels before Linux 5.9 leave them open.
fn close_range(first: RawFd, last: RawFd) {
    if first <= last {
        // SAFETY: no object of this process owns a descriptor above the standard ones yet, except those named, which are
        // left out.
        unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    }
}
