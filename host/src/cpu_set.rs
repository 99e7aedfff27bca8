//! Sets of CPUs in the kernel's list notation, for example `0-3,8`.

use std::collections::BTreeSet;
use std::fmt::{self, Display, Formatter};

use hugepages::cpu_list;

/// A set of CPUs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CpuSet(BTreeSet<u16>);

impl CpuSet {
    /// Parses the kernel's list notation; parts that are not CPU numbers, such as `(null)`, are
    /// left out.
    pub fn parse(text: &str) -> CpuSet {
        cpu_list(text).into_iter().collect()
    }

    /// Returns whether the set has no CPU.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of CPUs.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether the set has this CPU.
    pub fn contains(&self, cpu: u16) -> bool {
        self.0.contains(&cpu)
    }

    /// Returns whether the set has all CPUs of another one.
    pub fn includes(&self, other: &CpuSet) -> bool {
        other.0.is_subset(&self.0)
    }

    /// Returns the CPUs of this set that another one lacks.
    pub fn without(&self, other: &CpuSet) -> CpuSet {
        CpuSet(self.0.difference(&other.0).copied().collect())
    }

    /// Returns the CPUs that both sets have.
    pub fn intersection(&self, other: &CpuSet) -> CpuSet {
        CpuSet(self.0.intersection(&other.0).copied().collect())
    }

    /// Returns the CPUs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u16> {
        self.0.iter().copied()
    }

    /// Returns the mask of the set in the notation of `/proc/irq/default_smp_affinity`: groups of
    /// 32 bits in hexadecimal, the highest first.
    pub fn mask(&self) -> String {
        let groups = self.0.last().map_or(1, |last| usize::from(last / 32) + 1);
        let mut words = vec![0_u32; groups];
        for cpu in &self.0 {
            words[usize::from(cpu / 32)] |= 1 << (cpu % 32);
        }
        let (first, rest) = words.split_last().unwrap_or((&0, &[]));
        let rest = rest.iter().rev().map(|word| format!(",{word:08x}"));
        rest.fold(format!("{first:x}"), |text, group| text + &group)
    }

    /// Parses [`CpuSet::mask`]'s notation; `None` if the text is no mask.
    pub fn from_mask(text: &str) -> Option<CpuSet> {
        let mut cpus = BTreeSet::new();
        for (group, word) in text.trim().rsplit(',').enumerate() {
            let word = u32::from_str_radix(word, 16).ok()?;
            let first = u16::try_from(group * 32).ok()?;
            cpus.extend((0..32).filter(|bit| word >> bit & 1 == 1).map(|bit| first + bit));
        }
        Some(CpuSet(cpus))
    }
}

impl FromIterator<u16> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u16>>(cpus: I) -> CpuSet {
        CpuSet(cpus.into_iter().collect())
    }
}

impl Display for CpuSet {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut runs: Vec<(u16, u16)> = Vec::new();
        for cpu in self.iter() {
            match runs.last_mut() {
                Some((_, last)) if *last + 1 == cpu => *last = cpu,
                _ => runs.push((cpu, cpu)),
            }
        }
        let text = |(first, last): &(u16, u16)| match first == last {
            true => first.to_string(),
            false => format!("{first}-{last}"),
        };
        f.write_str(&runs.iter().map(text).collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_parsed_and_written_as_the_kernel_does() {
        for text in ["", "0", "0-3", "0-3,8", "1,3,5-6", "65535"] {
            assert_eq!(CpuSet::parse(text).to_string(), text);
        }
        assert_eq!(CpuSet::parse(" 2-3\n").to_string(), "2-3");
        assert!(CpuSet::parse("(null)\n").is_empty());
        let (all, some) = (CpuSet::parse("0-7"), CpuSet::parse("2,3,9"));
        assert_eq!(all.without(&some).to_string(), "0-1,4-7");
        assert_eq!(all.intersection(&some).to_string(), "2-3");
        assert!(all.includes(&CpuSet::parse("7")) && !all.includes(&some));
    }

    #[test]
    fn masks_have_groups_of_32_bits() {
        for (list, mask) in [
            ("0-1", "3"),
            ("1,31", "80000002"),
            ("0,33", "2,00000001"),
            ("64", "1,00000000,00000000"),
        ] {
            assert_eq!(CpuSet::parse(list).mask(), mask);
            assert_eq!(CpuSet::from_mask(mask), Some(CpuSet::parse(list)));
        }
        assert_eq!(CpuSet::default().mask(), "0");
        assert_eq!(CpuSet::from_mask("x"), None);
    }
}
