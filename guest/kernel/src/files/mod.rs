//! Files of workload `files`: a ustar archive on the disk, behind a page cache.
//!
//! [`archive`] reads the headers of the archive, [`cache`] keeps pages of its files and writes changed ones, [`read_ahead`] decides which pages are
//! read before they are needed, [`mount`] combines them; [`image`] is the archive on the machine's disk. The archive is not
//! trusted: every field of a header is checked, and a wrong one is an error.
//!
//! Nothing here runs unless a job selects workload `files`.

mod archive;
mod cache;
#[cfg(trapline_image)]
mod image;
mod mount;
mod read_ahead;

#[cfg(trapline_image)]
pub use image::files;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod write_tests;
