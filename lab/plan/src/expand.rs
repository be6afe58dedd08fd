//! From a request to the boots that answer it.
