//! Errors of the VMM and their exit status.

use std::io;
use std::path::PathBuf;
use thiserror::Error;
use trapline_interface::Missing;
use trapline_monitor::boot::{BootError, ImageError};

/// An error.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum Failure {
    #[error("{0}")]
    Usage(String),
    #[error("{path}: {source}", path = path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("image {path}: {source}", path = path.display())]
    Image { path: PathBuf, source: ImageError },
    #[error("kernel {path}: {source}", path = path.display())]
    Kernel { path: PathBuf, source: BootError },
    #[error("disk {path}: {reason}", path = path.display())]
    Disk { path: PathBuf, reason: String },
    #[error("--api {path}: {source}", path = path.display())]
    Api { path: PathBuf, source: io::Error },
    #[error("{0}")]
    Boot(#[from] BootError),
    #[error("{0}")]
    Missing(#[from] Missing),
    #[error("{0}")]
    Hypervisor(#[from] trapline_interface::Error),
    #[error("{0}")]
    Host(String),
    #[error("{}", trapline_monitor::StopReason::ConsoleClosed)]
    ConsoleClosed,
    #[error("cannot {what}: {source}")]
    System {
        what: &'static str,
        source: io::Error,
    },
}

impl From<Box<trapline_interface::Error>> for Failure {
    fn from(boxed: Box<trapline_interface::Error>) -> Failure {
        Failure::Hypervisor(*boxed)
    }
}

impl Failure {
    /// Returns a constructor of [`Failure::System`] for `map_err`.
    pub fn system(what: &'static str) -> impl FnOnce(io::Error) -> Failure {
        move |source| Failure::System { what, source }
    }

    /// Returns the exit status.
    pub fn status(&self) -> i32 {
        match self {
            Self::Usage(_) | Self::Host(_) | Self::Api { .. } => 2,
            Self::Unreadable { .. } | Self::Image { .. } | Self::Kernel { .. } => 3,
            Self::Disk { .. } => 3,
            Self::Boot(boot) => match boot {
                BootError::Image(_)
                | BootError::Kernel(_)
                | BootError::NoPvh
                | BootError::NoDirect => 3,
                BootError::OverlapsStartInfo { .. } => 3,
                _ => 2,
            },
            Self::Missing(_) => 4,
            Self::Hypervisor(_) | Self::System { .. } | Self::ConsoleClosed => 5,
        }
    }
}
