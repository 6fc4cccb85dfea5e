//! QEMU: its arguments, its process and its control socket.

pub mod process;
