//! What a NIC's driver demands, checked before DPDK opens the NIC: a clear error instead of a
//! driver's error number. The demands are in the table of crate `host`.

use config::checked::Arm;
use host::driver::{Answer, Driver, FastFree, Limit, Version};

/// The settings and versions that [`check`] compares with a driver's demands.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    /// Settings of the arm.
    pub arm: &'a Arm,
    /// Number of lcores, each of which has a transmit queue.
    pub lcores: u16,
    /// Version of the linked DPDK.
    pub dpdk: Version,
    /// Version of the running kernel.
    pub kernel: Version,
}

/// Checks a driver's demands.
///
/// # Errors
/// Returns an error text that names the key, what was found, and what to do.
pub fn check(driver: &Driver, setup: Setup<'_>) -> Result<(), String> {
    let Setup { arm, lcores, dpdk, kernel } = setup;
    let (name, title) = (driver.name, driver.title);
    if dpdk < driver.min_dpdk {
        return Err(format!(
            "{title} needs DPDK {} or later, fastpath is linked with DPDK {dpdk}: build it with \
             `make dpdk`, or set plane = \"xdp\"",
            driver.min_dpdk
        ));
    }
    if let Some(min) = driver.min_kernel.filter(|min| kernel < *min) {
        return Err(format!(
            "{title} needs Linux {min} or later with DPDK, this is Linux {kernel}: use a newer \
             kernel, or set plane = \"xdp\""
        ));
    }
    if driver.queues.equal == Answer::Yes && arm.queues != lcores {
        return Err(format!(
            "{name} needs as many receive as transmit queues, and each of the {lcores} lcores has \
             a transmit queue: set queues = 0 instead of {}",
            arm.queues
        ));
    }
    if driver.queues.power_of_two == Answer::Yes && !arm.queues.is_power_of_two() {
        return Err(format!(
            "{name} needs a power of two as the number of queues, not {}: change the number of \
             fastpath.lcores",
            arm.queues
        ));
    }
    if let Some(Limit::Fixed(max)) = driver.max_mtu.at(dpdk)
        && u32::from(arm.mtu) > *max
    {
        return Err(format!(
            "mtu = {}: {name} of DPDK {dpdk} supports at most {max}; lower mtu and inner_mtu",
            arm.mtu
        ));
    }
    Ok(())
}

/// Returns the driver arguments that Weir adds to `configured` ones: longer packet headers are
/// written to the device directly, since tunnel headers exceed the usual limit. Returns `None` if
/// the driver needs none, or if the configuration sets one of them.
pub fn large_headers(driver: &Driver, dpdk: Version, configured: &str) -> Option<&'static str> {
    let argument = driver.large_headers.at(dpdk)?.argument;
    let chosen = driver.large_headers.0.iter().any(|(_, other)| {
        let key = other.argument.split('=').next().unwrap_or_default();
        configured.split(',').any(|pair| pair.split('=').next() == Some(key))
    });
    (!chosen).then_some(argument)
}

/// Returns true if the driver offers to free sent buffers without checks (`MBUF_FAST_FREE`). Weir's
/// buffers meet its requirements: one pool, one owner, not attached to others.
pub fn frees_fast(driver: &Driver) -> bool {
    driver.fast_free == FastFree::Offered
}

/// Parses the first two numbers of a version, for example of `DPDK 22.11.11` or `6.1.0-40-cloud`.
pub fn version(text: &str) -> Option<Version> {
    let digits = text.trim_start_matches(|c: char| !c.is_ascii_digit());
    let mut numbers = digits.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().ok());
    Some(Version(numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::driver::by_name;

    fn arm(more: &str) -> Arm {
        let text = format!(
            "[fastpath]\nlcores = [1, 2, 3]\n[ingress]\ndevice = \"net_null0\"\n\
             address = \"10.0.1.10/24\"\n{more}"
        );
        config::from_toml(&text).unwrap_or_else(|error| panic!("{}", error.render())).ingress
    }

    fn error(driver: &str, arm: &Arm, lcores: u16, dpdk: Version, kernel: Version) -> String {
        let setup = Setup { arm, lcores, dpdk, kernel };
        check(by_name(driver).unwrap(), setup).err().unwrap_or_default()
    }

    #[test]
    fn mana_needs_a_newer_dpdk_kernel_and_equal_queues() {
        let of = |arm: &Arm, lcores, dpdk, kernel| error("net_mana", arm, lcores, dpdk, kernel);
        let (new, linux) = (Version(24, 11), Version(6, 12));
        let two = arm("queues = 2\nmtu = 1600");
        assert_eq!(of(&two, 2, new, linux), "");
        assert!(of(&two, 2, Version(22, 11), linux).contains("DPDK 23.11 or later"));
        let old_kernel = of(&two, 2, new, Version(6, 1));
        assert!(
            old_kernel.contains("Linux 6.2 or later") && old_kernel.contains("plane = \"xdp\"")
        );
        assert!(of(&two, 3, new, linux).contains("queues = 0 instead of 2"));
        let three = arm("queues = 3\nmtu = 1600");
        assert!(of(&three, 3, new, linux).contains("power of two"));
        let jumbo = of(&arm("queues = 2\nmtu = 9500"), 2, new, linux);
        assert!(jumbo.contains("mtu = 9500") && jumbo.contains("at most 9000"), "{jumbo}");
    }

    #[test]
    fn ena_gets_large_headers_by_the_argument_of_its_version() {
        let ena = by_name("net_ena").unwrap();
        let of = |dpdk, configured| large_headers(ena, dpdk, configured);
        assert_eq!(of(Version(22, 11), ""), Some("large_llq_hdr=1"));
        assert_eq!(of(Version(24, 11), ""), Some("llq_policy=3"));
        assert_eq!(of(Version(22, 11), "miss_txc_to=3,large_llq_hdr=0"), None);
        assert_eq!(of(Version(24, 11), "llq_policy=1"), None);
        assert_eq!(large_headers(by_name("net_virtio").unwrap(), Version(24, 11), ""), None);
        assert!(frees_fast(ena) && !frees_fast(by_name("net_mana").unwrap()));
        assert_eq!(error("net_ena", &arm("mtu = 9001"), 3, Version(22, 11), Version(6, 1)), "");
    }

    #[test]
    fn versions_are_those_of_dpdk_and_linux() {
        assert_eq!(version("DPDK 22.11.11"), Some(Version(22, 11)));
        assert_eq!(version("6.1.0-40-cloud-amd64"), Some(Version(6, 1)));
        assert_eq!(version("7.0"), Some(Version(7, 0)));
        assert_eq!(version("DPDK"), None);
    }
}
