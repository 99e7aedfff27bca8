//! Items that every BPF object needs.

/// The panic handler that a `no_std` program must have. It is never called: the verifier rejects
/// programs that could call it.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// Each helper has its own license requirement; none that this program calls requires the GPL.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 11] = *b"Apache-2.0\0";
