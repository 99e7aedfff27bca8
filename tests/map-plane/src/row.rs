//! One address: the order in which its rows are written and deleted.
//!
//! ```text
//!   backends, matches            not referenced yet
//!   slots of serving backends    refer to existing backends, the old or the new ones
//!   Maglev table, source ranges, reverse NAT
//!   master with both counts      makes new slots reachable, and old ones unreachable
//!   slots of non-serving backends, replacing some of serving ones
//!   surplus rows: table, matches, ranges, slots; backends without other holders
//! ```
//! So a new flow never finds a slot whose backend is missing, nor one that must not get new
//! flows. (Cilium deletes backends before the slots that refer to them.) If the map of backends
//! is full, the old ones have to be deleted first: then the address is written twice, and
//! temporarily lacks the new ones.

use std::hash::{DefaultHasher, Hash, Hasher};

use smallvec::SmallVec;
use tables::maglev;

use super::plane::{Book, MapPlane, Use};
use super::{Backend, Failure, Key, Map, Maps, Master, Slot, Table, Value};
use config::services::Algorithm;
use state::address::Address;
use state::backend::{Instance, State};
use state::dump::{Flags, Spread};
use state::object::FrontendSpec;
use state::plane::Wanted;
use state::room::give_back;

/// Identifiers of an address's backends in the order of slots.
type Ids = SmallVec<[u32; 4]>;

impl<M: Maps> MapPlane<M> {
    /// Writes the desired state of an address: a row of this address or of a wildcard.
    pub(super) fn write(&mut self, address: Address, wanted: &Wanted) -> Result<(), Failure> {
        let mut book = match self.books.remove(&address) {
            Some(book) => book,
            None => Book::new(self.services.take()?),
        };
        let result = match self.apply(&mut book, address, wanted) {
            Err(Failure::Full(Map::Backends, _) | Failure::Exhausted(_))
                if self.can_spare(&book, wanted) =>
            {
                let there = self.only_there(wanted);
                let first = self.apply(&mut book, address, &there);
                first.and_then(|()| self.apply(&mut book, address, wanted))
            }
            result => result,
        };
        self.books.insert(address, book);
        result
    }

    /// Deletes all rows of the address.
    pub(super) fn erase(&mut self, address: &Address) -> Result<(), Failure> {
        let Some(mut book) = self.books.remove(address) else { return Ok(()) };
        let result = self.take_down(address, &mut book);
        match result {
            Ok(()) => {
                self.services.release(book.id);
                give_back(&mut self.books);
            }
            Err(_) => {
                self.books.insert(*address, book);
            }
        }
        result
    }

    fn apply(&mut self, book: &mut Book, address: Address, wanted: &Wanted) -> Result<(), Failure> {
        let master = self.master(book.id, address, wanted);
        let before = match self.maps.get(&Key::Service(address, 0)) {
            Some(Value::Master(before)) => before.count,
            _ => 0,
        };
        let ids = self.hold(book, wanted)?;
        self.admit(book, &master, wanted, &ids)?;
        let early = |slot| slot <= master.count || slot > before;
        self.slots(book, address, wanted, &ids, early)?;
        let table = self.table(book, &master, wanted, &ids)?;
        self.admit_ranges(book, wanted)?;
        self.put(Key::Reverse(book.id), Value::Address(address))?;
        self.put(Key::Service(address, 0), Value::Master(master))?;
        self.slots(book, address, wanted, &ids, |slot| !early(slot))?;
        if !table {
            self.remove(Key::Maglev(book.id))?;
            book.table = 0;
        }
        if !master.flags.has(Flags::AFFINITY) {
            self.no_matches(book)?;
        }
        self.leave_ranges(book, wanted)?;
        self.leave_slots(book, &address, ids.len() as u32)?;
        self.leave_backends(book, &ids)
    }

    fn take_down(&mut self, address: &Address, book: &mut Book) -> Result<(), Failure> {
        self.remove(Key::Service(*address, 0))?;
        self.remove(Key::Maglev(book.id))?;
        book.table = 0;
        self.no_matches(book)?;
        self.leave_slots(book, address, 0)?;
        while let Some(prefix) = book.ranges.last().copied() {
            self.remove(Key::Range(book.id, prefix))?;
            book.ranges.pop();
        }
        self.leave_backends(book, &[])?;
        // Last, since after a restart this row shows that the identifier is in use.
        self.remove(Key::Reverse(book.id))
    }

    fn master(&self, id: u32, address: Address, wanted: &Wanted) -> Master {
        let service = &wanted.frontend.service;
        let said = FrontendSpec { address, ..wanted.frontend.said.clone() };
        let count = wanted.serving().len() as u32;
        Master {
            id,
            spread: Spread::of(&service.spec, said.service_port),
            count,
            rest: wanted.backends.len() as u32 - count,
            flags: Flags::of(&said, &service.spec, self.options.open_cluster),
        }
    }

    /// Writes the backends, each with an identifier that it keeps while it has holders.
    fn hold(&mut self, book: &mut Book, wanted: &Wanted) -> Result<Ids, Failure> {
        let mut ids = Ids::with_capacity(wanted.backends.len());
        for instance in &wanted.backends {
            let (endpoint, said) = (instance.endpoint, instance.state);
            let id = match self.ids.get(&endpoint) {
                Some(id) => *id,
                None => {
                    let id = self.backends.take()?;
                    self.ids.insert(endpoint, id);
                    id
                }
            };
            let of = self.uses.entry(id).or_insert_with(|| Use::of(endpoint));
            match book.held.binary_search_by_key(&id, |held| held.0) {
                Ok(at) if book.held[at].1 == said => {}
                Ok(at) => {
                    of.remove(book.held[at].1);
                    of.add(said);
                    book.held[at].1 = said;
                }
                Err(at) => {
                    of.add(said);
                    book.held.insert(at, (id, said));
                }
            }
            let state = of.state().unwrap_or_default();
            self.put(Key::Backend(id), Value::Backend(Backend { endpoint, state }))?;
            ids.push(id);
        }
        Ok(ids)
    }

    /// Writes affinity matches: clients stay with active backends only.
    fn admit(
        &mut self,
        book: &mut Book,
        master: &Master,
        wanted: &Wanted,
        ids: &[u32],
    ) -> Result<(), Failure> {
        if !master.flags.has(Flags::AFFINITY) {
            return Ok(());
        }
        book.matches = true;
        for (instance, id) in wanted.backends.iter().zip(ids) {
            let key = Key::Match(book.id, *id);
            match instance.effective() {
                State::Active => self.put(key, Value::There)?,
                _ => self.remove(key)?,
            }
        }
        Ok(())
    }

    fn no_matches(&mut self, book: &mut Book) -> Result<(), Failure> {
        if !book.matches {
            return Ok(());
        }
        for (id, _) in &book.held {
            self.remove(Key::Match(book.id, *id))?;
        }
        book.matches = false;
        Ok(())
    }

    fn slots(
        &mut self,
        book: &mut Book,
        address: Address,
        wanted: &Wanted,
        ids: &[u32],
        now: impl Fn(u32) -> bool,
    ) -> Result<(), Failure> {
        for (number, (instance, id)) in (1..).zip(wanted.backends.iter().zip(ids)) {
            if !now(number) {
                continue;
            }
            book.slots = book.slots.max(number);
            let quarantined = instance.effective() == State::Quarantined;
            let slot = Slot { backend: *id, quarantined };
            self.put(Key::Service(address, number), Value::Slot(slot))?;
        }
        Ok(())
    }

    /// Writes the Maglev table and returns whether there is to be one.
    fn table(
        &mut self,
        book: &mut Book,
        master: &Master,
        wanted: &Wanted,
        ids: &[u32],
    ) -> Result<bool, Failure> {
        let maglev = Spread::Backends { algorithm: Algorithm::Maglev, affinity_s: 0 };
        let spread = match master.spread {
            Spread::Backends { algorithm, .. } => Spread::Backends { algorithm, affinity_s: 0 },
            proxy => proxy,
        };
        if spread != maglev || !master.flags.has(Flags::ROUTABLE) || master.count == 0 {
            return Ok(false);
        }
        let size = match wanted.frontend.service.spec.table_size {
            0 => self.options.maglev_size,
            size => size,
        };
        let key = Key::Maglev(book.id);
        if let (1, Some(backend)) = (master.count, ids.first()) {
            self.put(key, Value::Table(Table::One { backend: *backend, size }))?;
            book.table = 0;
            return Ok(true);
        }
        let digest = digest(wanted.serving(), ids, size);
        if book.table != digest {
            let slots = maglev::build(&wanted.maglev(), size, self.options.seed);
            let of = |index: &u32| ids.get(*index as usize).copied().unwrap_or_default();
            let table = Table::Slots(slots.iter().map(of).collect());
            self.put(key, Value::Table(table))?;
            book.table = digest;
        }
        Ok(true)
    }

    fn admit_ranges(&mut self, book: &mut Book, wanted: &Wanted) -> Result<(), Failure> {
        let Some(ranges) = &wanted.frontend.service.spec.source_ranges else { return Ok(()) };
        for prefix in &ranges.prefixes {
            if !book.ranges.contains(prefix) {
                book.ranges.push(*prefix);
            }
            self.put(Key::Range(book.id, *prefix), Value::There)?;
        }
        Ok(())
    }

    fn leave_ranges(&mut self, book: &mut Book, wanted: &Wanted) -> Result<(), Failure> {
        let wanted = wanted.frontend.service.spec.source_ranges.as_ref();
        for at in (0..book.ranges.len()).rev() {
            let prefix = book.ranges[at];
            if !wanted.is_some_and(|ranges| ranges.prefixes.contains(&prefix)) {
                self.remove(Key::Range(book.id, prefix))?;
                book.ranges.swap_remove(at);
            }
        }
        Ok(())
    }

    fn leave_slots(
        &mut self,
        book: &mut Book,
        address: &Address,
        left: u32,
    ) -> Result<(), Failure> {
        while book.slots > left {
            self.remove(Key::Service(*address, book.slots))?;
            book.slots -= 1;
        }
        Ok(())
    }

    /// Releases backends that are not among these; deletes those without other holders.
    fn leave_backends(&mut self, book: &mut Book, ids: &[u32]) -> Result<(), Failure> {
        if book.held.len() == ids.len() {
            return Ok(());
        }
        let mut kept: Ids = ids.into();
        kept.sort_unstable();
        for at in (0..book.held.len()).rev() {
            let (id, said) = book.held[at];
            if kept.binary_search(&id).is_ok() {
                continue;
            }
            if book.matches {
                self.remove(Key::Match(book.id, id))?;
            }
            self.let_go(id, said)?;
            book.held.remove(at);
        }
        Ok(())
    }

    fn let_go(&mut self, id: u32, said: State) -> Result<(), Failure> {
        let Some(mut of) = self.uses.get(&id).cloned() else { return Ok(()) };
        of.remove(said);
        let Some(state) = of.state() else { return self.forget(id) };
        // It is missing if the map was full.
        if self.maps.get(&Key::Backend(id)).is_some() {
            let backend = Backend { endpoint: of.endpoint, state };
            self.put(Key::Backend(id), Value::Backend(backend))?;
        }
        self.uses.insert(id, of);
        Ok(())
    }

    /// Deletes a backend and frees its identifier.
    pub(super) fn forget(&mut self, id: u32) -> Result<(), Failure> {
        self.remove(Key::Backend(id))?;
        if let Some(of) = self.uses.remove(&id) {
            self.ids.remove(&of.endpoint);
            give_back(&mut self.ids);
            give_back(&mut self.uses);
        }
        self.backends.release(id);
        Ok(())
    }

    /// Returns whether capacity can be gained from backends that only this address holds and that
    /// are no longer desired.
    fn can_spare(&self, book: &Book, wanted: &Wanted) -> bool {
        let wants = |id| wanted.backends.iter().any(|b| self.ids.get(&b.endpoint) == Some(&id));
        let only_here = |id| self.uses.get(&id).is_some_and(|of| of.holders() == 1);
        book.held.iter().any(|(id, _)| only_here(*id) && !wants(*id))
    }

    /// Returns the desired state without the backends that are not in the map yet.
    fn only_there(&self, wanted: &Wanted) -> Wanted {
        let there = |instance: &Instance| {
            let id = self.ids.get(&instance.endpoint);
            id.is_some_and(|id| self.maps.get(&Key::Backend(*id)).is_some())
        };
        let serving = wanted.serving().iter().filter(|instance| there(instance)).count();
        let mut only = Wanted { serving, ..wanted.clone() };
        only.backends.retain(|instance| there(instance));
        only
    }
}

/// Returns a digest of a Maglev table's input; never 0.
fn digest(serving: &[std::sync::Arc<Instance>], ids: &[u32], size: u32) -> u64 {
    let mut hasher = DefaultHasher::new();
    size.hash(&mut hasher);
    for (instance, id) in serving.iter().zip(ids) {
        (id, instance.weight).hash(&mut hasher);
    }
    hasher.finish().max(1)
}
