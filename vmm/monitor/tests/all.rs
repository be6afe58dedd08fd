//! All integration tests in one program, which is linked once.

mod corpus;
mod images;
mod kernels;
