//! All integration tests in one program, which is linked once.

mod corpus;
mod damaged;
mod images;
mod kernels;
