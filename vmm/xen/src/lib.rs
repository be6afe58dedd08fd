//! The backend for Xen: the VMM as the device model of a domain.
//!
//! The toolstack creates the domain, loads its image and leaves it paused: `xl create -p`. The backend registers an I/O
//! request server for all ports and for all addresses without memory ([`domain`]), unpauses the domain, and serves its
//! accesses: Xen writes a request to a shared page ([`slot`]) and raises an event channel; the backend returns the request
//! as an exit, writes the result and raises the channel in turn ([`vcpu`]). Xen itself emulates CPUID, the local APIC and
//! timers, and answers hypercalls.
//!
//! Creating the domain would need Xen's control interface (`XEN_DOMCTL`), which changes with every release. A device model
//! needs only stable interfaces: device model operations, foreign mappings and event channels; one request, which unpauses the
//! domain, is of the control interface, and has been the same in every release ([`privcmd`]). They are used through the
//! devices of the Linux kernel ([`privcmd`], [`events`]) instead of Xen's libraries, which are wrappers of the same
//! requests: the VMM stays a static program, and all requests of the run loop are in view.
//!
//! An event costs the first domain three system calls and two process switches. So after a response the backend yields the
//! CPU by one hypercall instead, and looks for the next request when it has the CPU again; only without one it waits for the
//! event. The descriptor that permits this would permit every hypercall: [`XenVm::only_hypercall`] describes the one request
//! to which a filter has to restrict it.
//!
//! A domain has its memory, its registers and its vCPUs from the toolstack: [`Vm::attach`](trapline_interface::Vm) and
//! [`Vcpu::state`](trapline_interface::Vcpu) are not supported, and the conformance suite, whose guests need both, cannot
//! run.

mod domain;
mod events;
mod ioctl;
mod privcmd;
mod slot;
mod transfer;
mod vcpu;
mod vm;

pub use vcpu::XenVcpu;
pub use vm::{Domain, DomainConfig, XenVm};
