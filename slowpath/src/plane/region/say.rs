//! Writes one frontend to the region, all or nothing.

use std::net::IpAddr;

use config::services::Algorithm;
use foldhash::HashMap;
use packet::addr::Addr;
use state::address::{Address, Endpoint, Reach, is_unspecified, wildcard_of};
use state::frontend::is_wildcard;
use state::plane::{Refusal, Wanted, maglev_text};
use tables::maglev;
use tables::note::{Member, ServiceNote};
use tables::record::{self, FrontendKey, NONE};
use tables::writer;

use super::RegionPlane;
use super::choice::{Asked, COPY, Choice, places};
use super::desired::{Key, Known, Wish};
use crate::plane::compile;

/// Result of one step of the writer.
type FrontendSpec<T = ()> = Result<T, writer::Refusal>;

/// Maximum number of differing backends that are searched for linearly in a service's list.
const FEW: usize = 8;

/// From this number of backends on, a service's order is kept between Maglev tables.
const MANY: usize = 256;

/// What a service requires of backends.
type Wishes = Vec<(Key, Wish)>;

/// State before a frontend was written, for undo.
struct Before {
    /// `None` if the service did not exist.
    policy: Option<record::Service>,
    /// Requirements that the service no longer has, or has changed.
    wishes: Wishes,
    /// Requirements that are new or changed.
    news: Wishes,
    /// Service and note of each lookup key.
    places: Vec<(FrontendKey, Option<(u32, u32)>)>,
}

/// Returns the requirements that were removed or changed, and those that are new or changed. Most
/// backends of a large service are unchanged and in the same order, which is the fast case.
fn differences(before: &[Known], asked: &[Asked]) -> (Wishes, Wishes) {
    let told = |known: &Known| (known.key, known.wish.clone());
    let pair = |asked: &Asked| (asked.key, asked.wish.clone());
    let same =
        |(known, asked): &(&Known, &Asked)| known.key == asked.key && known.wish == asked.wish;
    let first = before.iter().zip(asked).take_while(same).count();
    let ends = before[first..].iter().rev().zip(asked[first..].iter().rev());
    let last = ends.take_while(same).count();
    let gone = &before[first..before.len() - last];
    let news = &asked[first..asked.len() - last];
    if gone.len() + news.len() <= FEW {
        let mut keys = gone.iter().map(|known| &known.key).chain(news.iter().map(|a| &a.key));
        let several = |key: &Key| {
            before.iter().filter(|other| other.key == *key).nth(1).is_some()
                || asked.iter().filter(|other| other.key == *key).nth(1).is_some()
        };
        if !keys.any(several) {
            return (gone.iter().map(told).collect(), news.iter().map(pair).collect());
        }
    }
    let was: HashMap<Key, &Wish> = before.iter().map(|known| (known.key, &known.wish)).collect();
    let is: HashMap<Key, &Wish> = asked.iter().map(|asked| (asked.key, &asked.wish)).collect();
    if was.len() < before.len() || is.len() < asked.len() {
        // Several protocols on one address have several requirements: apply all again.
        return (before.iter().map(told).collect(), asked.iter().map(pair).collect());
    }
    let news = asked.iter().filter(|asked| was.get(&asked.key) != Some(&&asked.wish)).map(pair);
    let news = news.collect();
    let gone = before.iter().filter(|known| is.get(&known.key) != Some(&&known.wish)).map(told);
    (gone.collect(), news)
}

/// Looks up ids of backends by key; mostly those that the service had before, in the same order.
struct Members<'b> {
    before: &'b [Known],
    at: usize,
}

impl Members<'_> {
    /// Returns the id of the next backend; `None` if it is not among the next few of those before.
    fn next(&mut self, key: &Key) -> Option<u32> {
        let left = self.before.get(self.at..)?;
        let passed = left.iter().take(FEW).position(|known| known.key == *key)?;
        self.at += passed + 1;
        Some(left[passed].backend)
    }
}

impl RegionPlane<'_> {
    pub(super) fn say(&mut self, wanted: &Wanted) -> Result<(), Refusal> {
        wanted.check()?;
        let address = *wanted.frontend.address();
        match is_wildcard(&wanted.frontend.said) {
            true => drop(self.wildcards.insert(address, wanted.clone())),
            false => drop(self.wildcards.remove(&address)),
        }
        let places = self.free_places(places(&wanted.frontend, &self.appliance));
        if places.is_empty() {
            self.vacate_all(&address).map_err(Refusal::new)?;
            self.unmet.insert(address, wanted.clone());
            return Ok(());
        }
        let choice = Choice::of(wanted, &self.config.tables);
        let set = self.writer.prepared();
        let known = self.writer.service_id(&choice.name).filter(|id| set.service(*id).is_some());
        let note = known.and_then(|id| set.service_note(id));
        let same = note.is_some_and(|note| note.made_of == choice.made_of);
        if !same {
            let (size, serving) = (choice.table_size, choice.serving);
            let room = self.writer.slots_room(size, serving, &choice.runs());
            room.map_err(Refusal::new)?;
        }
        let had = known.filter(|_| !same).map(|id| self.wishes_of(id)).unwrap_or_default();
        let (wishes, news) = match same {
            true => (Vec::new(), Vec::new()),
            false => differences(&had, &choice.backends),
        };
        let before = Before {
            policy: known.and_then(|id| set.service(id)).copied(),
            wishes,
            news,
            places: places.iter().map(|(key, _)| (*key, self.writer.frontend(key))).collect(),
        };
        let id = self.writer.put_service(&choice.name, &choice.policy).map_err(Refusal::new)?;
        if let Err(refusal) = self.place(id, &places, &before) {
            if let Err(worse) = self.undo(id, &choice, before) {
                self.broken = Some(Refusal::new(worse));
            }
            return Err(Refusal::new(refusal));
        }
        if !same && let Err(refusal) = self.choose(id, &choice, wanted, &had) {
            // `slots_room` has checked the capacity.
            self.broken = Some(Refusal::new(&refusal));
            return Err(Refusal::new(refusal));
        }
        self.unmet.remove(&address);
        Ok(())
    }

    /// Removes keys at which a wildcard's copy would replace a frontend on just that address.
    fn free_places(&self, mut places: Vec<(FrontendKey, u32)>) -> Vec<(FrontendKey, u32)> {
        places.retain(|(key, note)| {
            let told = self.writer.frontend(key).is_some_and(|(_, note)| note & COPY == 0);
            note & COPY == 0 || !told
        });
        places
    }

    /// Performs the steps that can fail: changed backends, and frontends.
    fn place(&mut self, id: u32, places: &[(FrontendKey, u32)], before: &Before) -> FrontendSpec {
        self.wish(id, &before.wishes, &before.news)?;
        for ((key, note), (_, old)) in places.iter().zip(&before.places) {
            self.writer.put_noted_frontend(key, id, *note)?;
            if let Some((old, _)) = old.filter(|(old, _)| *old != id) {
                self.forsaken.insert(old);
            }
        }
        Ok(())
    }

    /// Replaces requirements of a service, and updates the records of the backends concerned.
    fn wish(&mut self, id: u32, before: &[(Key, Wish)], now: &[(Key, Wish)]) -> FrontendSpec {
        self.forget_wishes(id, before.iter().map(|(key, _)| key));
        self.remember_wishes(id, now.iter().map(|(key, wish)| (key, wish)));
        for (key, _) in now.iter().chain(before) {
            self.settle_backend(*key)?;
        }
        Ok(())
    }

    /// Writes note, ranges and slots. The capacity for all has been checked.
    fn choose(&mut self, id: u32, choice: &Choice, wanted: &Wanted, had: &[Known]) -> FrontendSpec {
        let mut members = Vec::with_capacity(choice.backends.len());
        let mut known = Members { before: had, at: 0 };
        for asked in &choice.backends {
            let by_key = || self.writer.backend_id(&asked.key.addr, asked.key.port);
            let backend = known.next(&asked.key).or_else(by_key).unwrap_or(NONE);
            let Asked { weight, state, protocol, .. } = *asked;
            members.push(Member { backend, weight, state, protocol });
        }
        let note = ServiceNote {
            made_of: choice.made_of,
            serving: choice.serving as u32,
            table_size: choice.table_size,
            ..ServiceNote::default()
        };
        self.writer.put_note(id, &note, &members)?;
        self.writer.set_ranges(id, &choice.ranges, &choice.bounds)?;
        let stays = choice.backends.iter().zip(&members).filter(|(asked, _)| choice.stays(asked));
        let mut stays: Vec<u32> = stays.map(|(_, member)| member.backend).collect();
        stays.sort_unstable();
        self.writer.set_stays(id, &stays)?;
        // A proxy's service selects no backend.
        let serving = if choice.policy.proxy_port == 0 { choice.serving } else { 0 };
        let ids: Vec<u32> = members.iter().take(serving).map(|m| m.backend).collect();
        let (size, algorithm) = (choice.table_size, wanted.frontend.service.spec.algorithm);
        if algorithm != Algorithm::Maglev || serving < MANY {
            self.orders.remove(&id);
        }
        let orders = &mut self.orders;
        let table = |seed| {
            let serving = &choice.backends[..serving];
            // A terminating backend may have weight 0, and serves if no active backend exists.
            let weights: Vec<u32> = serving.iter().map(|b| u32::from(b.weight).max(1)).collect();
            match algorithm {
                Algorithm::Random => maglev::shares(&weights, size),
                Algorithm::Maglev if serving.len() < MANY => {
                    let mut views = wanted.maglev();
                    views.iter_mut().zip(weights).for_each(|(view, weight)| view.weight = weight);
                    maglev::build(&views, size, seed)
                }
                Algorithm::Maglev => {
                    let backend = |asked: &Asked| (asked.key, asked.protocol);
                    let backends: Vec<(Key, u8)> = serving.iter().map(backend).collect();
                    let text = |(Key { addr, port }, protocol): &(Key, u8)| {
                        let (addr, port, protocol) = (IpAddr::from(*addr), *port, *protocol);
                        maglev_text(&Endpoint { addr, port, protocol })
                    };
                    orders.entry(id).or_default().table(&backends, &weights, text, size, seed)
                }
            }
        };
        self.writer.set_table(id, &ids, table, size)
    }

    /// Restores the state before `place` failed.
    fn undo(&mut self, id: u32, choice: &Choice, before: Before) -> FrontendSpec {
        for (key, old) in before.places {
            match old {
                Some((service, note)) => self.writer.put_noted_frontend(&key, service, note)?,
                None => self.writer.remove_frontend(&key)?,
            }
        }
        self.wish(id, &before.news, &before.wishes)?;
        match before.policy {
            Some(policy) => self.writer.put_service(&choice.name, &policy).map(drop),
            None => {
                self.forsaken.insert(id);
                Ok(())
            }
        }
    }

    /// Removes a frontend. If a wildcard covers its address, the wildcard's copy is restored.
    pub(super) fn unsay(&mut self, address: &Address) -> Result<(), Refusal> {
        self.unmet.remove(address);
        self.wildcards.remove(address);
        self.vacate_all(address).map_err(Refusal::new)?;
        let behind = wildcard_of(address).and_then(|all| self.wildcards.get(&all)).cloned();
        behind.map_or(Ok(()), |wildcard| self.say(&wildcard))
    }

    /// Removes all lookup keys of a frontend. The service may have lost its last frontend.
    fn vacate_all(&mut self, address: &Address) -> FrontendSpec {
        // An internal frontend has no lookup key in the region: the key is that of the external
        // frontend, which is removed on its own.
        if address.reach == Reach::Internal {
            return Ok(());
        }
        let key = compile::key(address);
        if !is_unspecified(address) {
            return self.vacate(&key);
        }
        let of_family = |addr: &std::net::IpAddr| addr.is_ipv4() == address.is_ipv4();
        let own: Vec<_> = self.appliance.addresses.iter().filter(|a| of_family(a)).collect();
        let copies = own.into_iter().map(|addr| FrontendKey { addr: (*addr).into(), ..key });
        for copy in copies.collect::<Vec<_>>() {
            if self.writer.frontend(&copy).is_some_and(|(_, note)| note & COPY != 0) {
                self.vacate(&copy)?;
            }
        }
        Ok(())
    }

    fn vacate(&mut self, key: &FrontendKey) -> FrontendSpec {
        if let Some((service, _)) = self.writer.frontend(key) {
            self.writer.remove_frontend(key)?;
            self.forsaken.insert(service);
        }
        Ok(())
    }

    /// Removes the services without frontends; their backends begin to drain.
    pub(super) fn let_forsaken_go(&mut self) -> FrontendSpec {
        for id in std::mem::take(&mut self.forsaken) {
            if self.writer.frontends_of(id) > 0 || self.writer.prepared().service(id).is_none() {
                continue;
            }
            let before = self.writer.changes();
            let keys: Vec<Key> = self.wishes_of(id).into_iter().map(|known| known.key).collect();
            self.orders.remove(&id);
            self.forget_wishes(id, &keys);
            for key in keys {
                self.settle_backend(key)?;
            }
            self.writer.remove_service(id)?;
            if self.writer.committed().service(id).is_none() {
                // The service was never committed: it was created for a rejected frontend.
                self.batch.1 += self.writer.changes() - before;
            }
        }
        Ok(())
    }

    /// Removes frontends that are in the region and not `wanted`, up to `at_most` of them. Returns
    /// whether none is left.
    pub(super) fn sweep(
        &mut self,
        wanted: &dyn Fn(&Address) -> bool,
        at_most: usize,
    ) -> FrontendSpec<bool> {
        self.unmet.retain(|address, _| wanted(address));
        self.wildcards.retain(|address, _| wanted(address));
        let mut gone = Vec::new();
        let set = self.writer.prepared();
        for (key, _, note) in set.frontend_notes() {
            let address = super::dump::address(key, note);
            let own = self.appliance.addresses.iter().any(|addr| Addr::from(*addr) == key.addr);
            if !wanted(&address) || (note & COPY != 0 && !own) {
                gone.push(*key);
            }
        }
        for key in gone.iter().take(at_most) {
            self.vacate(key)?;
        }
        if gone.len() > at_most {
            return Ok(false);
        }
        for (id, _) in set.services() {
            if self.writer.frontends_of(id) == 0 {
                self.forsaken.insert(id);
            }
        }
        let keys = set.backends().map(|(_, b)| Key { addr: b.addr, port: b.port });
        for key in keys.collect::<Vec<_>>() {
            if !self.wishes.contains_key(&key) {
                self.settle_backend(key)?;
            }
        }
        Ok(true)
    }
}
