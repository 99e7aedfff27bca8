//! One frontend is said to the region: all of it, or it stays as it was.

use packet::addr::Addr;
use state::address::{Address, Reach};
use state::maps::{is_unspecified, is_wildcard, wildcard_of};
use state::plane::{Refusal, Wanted};
use tables::note::{Member, ServiceNote};
use tables::record::{self, FrontendKey, NONE};
use tables::writer;

use super::RegionPlane;
use super::backends::{Key, Wish};
use super::choice::{Asked, COPY, Choice, places, refuse_unknown};
use crate::targets::compile;

/// What the writer says to one step.
type Said<T = ()> = Result<T, writer::Refusal>;

/// How it was before a frontend was said.
struct Before {
    /// None where there was no such service.
    policy: Option<record::Service>,
    wishes: Vec<(Key, Wish)>,
    /// Service and note of each place.
    places: Vec<(FrontendKey, Option<(u32, u32)>)>,
}

impl RegionPlane<'_> {
    pub(super) fn say(&mut self, wanted: &Wanted) -> Result<(), Refusal> {
        wanted.check()?;
        refuse_unknown(&wanted.frontend)?;
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
            let (serving, all) = (choice.serving, choice.backends.len());
            let room = self.writer.slots_room(choice.table_size, serving, all);
            room.map_err(Refusal::new)?;
        }
        let before = Before {
            policy: known.and_then(|id| set.service(id)).copied(),
            wishes: known.filter(|_| !same).map(|id| self.wishes_of(id)).unwrap_or_default(),
            places: places.iter().map(|(key, _)| (*key, self.writer.frontend(key))).collect(),
        };
        let id = self.writer.put_service(&choice.name, &choice.policy).map_err(Refusal::new)?;
        let asked = (!same).then_some(choice.backends.as_slice());
        if let Err(refusal) = self.place(id, asked, &places, &before) {
            if let Err(worse) = self.undo(id, &choice, asked, before) {
                self.broken = Some(Refusal::new(worse));
            }
            return Err(Refusal::new(refusal));
        }
        if !same && let Err(refusal) = self.choose(id, &choice, wanted) {
            // There was room a moment ago.
            self.broken = Some(Refusal::new(&refusal));
            return Err(Refusal::new(refusal));
        }
        self.unmet.remove(&address);
        Ok(())
    }

    /// A copy of a wildcard gives way to a frontend that was told for just that place.
    fn free_places(&self, mut places: Vec<(FrontendKey, u32)>) -> Vec<(FrontendKey, u32)> {
        places.retain(|(key, note)| {
            let told = self.writer.frontend(key).is_some_and(|(_, note)| note & COPY == 0);
            note & COPY == 0 || !told
        });
        places
    }

    /// What can be refused: backends, where they changed, and frontends.
    fn place(
        &mut self,
        id: u32,
        asked: Option<&[Asked]>,
        places: &[(FrontendKey, u32)],
        before: &Before,
    ) -> Said {
        if let Some(asked) = asked {
            self.forget_wishes(id, before.wishes.iter().map(|(key, _)| key));
            self.remember_wishes(id, asked.iter().map(|asked| (&asked.key, &asked.wish)));
            for asked in asked {
                self.settle_backend(asked.key)?;
            }
            for (key, _) in &before.wishes {
                self.settle_backend(*key)?;
            }
        }
        for ((key, note), (_, old)) in places.iter().zip(&before.places) {
            self.writer.put_noted_frontend(key, id, *note)?;
            if let Some((old, _)) = old.filter(|(old, _)| *old != id) {
                self.forsaken.insert(old);
            }
        }
        Ok(())
    }

    /// Note and slots; room for both was made sure of.
    fn choose(&mut self, id: u32, choice: &Choice, wanted: &Wanted) -> Said {
        let mut members = Vec::with_capacity(choice.backends.len());
        for asked in &choice.backends {
            let backend = self.writer.backend_id(&asked.key.addr, asked.key.port).unwrap_or(NONE);
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
        let mut views = wanted.maglev();
        // One that leaves may have no weight, and serves where nothing else does.
        views.iter_mut().for_each(|view| view.weight = view.weight.max(1));
        let ids: Vec<u32> = members.iter().take(views.len()).map(|m| m.backend).collect();
        self.writer.set_table(id, &ids, &views, choice.table_size, 0)
    }

    /// As it was before `place` was refused.
    fn undo(&mut self, id: u32, choice: &Choice, asked: Option<&[Asked]>, before: Before) -> Said {
        for (key, old) in before.places {
            match old {
                Some((service, note)) => self.writer.put_noted_frontend(&key, service, note)?,
                None => self.writer.remove_frontend(&key)?,
            }
        }
        if let Some(asked) = asked {
            self.forget_wishes(id, asked.iter().map(|asked| &asked.key));
            self.remember_wishes(id, before.wishes.iter().map(|(key, wish)| (key, wish)));
            let old = before.wishes.iter().map(|(key, _)| *key);
            for key in old.chain(asked.iter().map(|asked| asked.key)) {
                self.settle_backend(key)?;
            }
        }
        match before.policy {
            Some(policy) => self.writer.put_service(&choice.name, &policy).map(drop),
            None => {
                self.forsaken.insert(id);
                Ok(())
            }
        }
    }

    /// Takes a frontend away. Where a wildcard had given way to it, its copy comes back.
    pub(super) fn unsay(&mut self, address: &Address) -> Result<(), Refusal> {
        self.unmet.remove(address);
        self.wildcards.remove(address);
        self.vacate_all(address).map_err(Refusal::new)?;
        let behind = wildcard_of(address).and_then(|all| self.wildcards.get(&all)).cloned();
        behind.map_or(Ok(()), |wildcard| self.say(&wildcard))
    }

    /// Takes a frontend's places away; the service may have lost its last one.
    fn vacate_all(&mut self, address: &Address) -> Said {
        // Those for packets from within have none: what is there is the other reach's.
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

    fn vacate(&mut self, key: &FrontendKey) -> Said {
        if let Some((service, _)) = self.writer.frontend(key) {
            self.writer.remove_frontend(key)?;
            self.forsaken.insert(service);
        }
        Ok(())
    }

    /// Removes the services that have no frontend any more; their backends begin to drain.
    pub(super) fn let_forsaken_go(&mut self) -> Said {
        for id in std::mem::take(&mut self.forsaken) {
            if self.writer.frontends_of(id) > 0 || self.writer.prepared().service(id).is_none() {
                continue;
            }
            let before = self.writer.changes();
            let keys: Vec<Key> = self.wishes_of(id).into_iter().map(|(key, _)| key).collect();
            self.forget_wishes(id, &keys);
            for key in keys {
                self.settle_backend(key)?;
            }
            self.writer.remove_service(id)?;
            if self.writer.committed().service(id).is_none() {
                // Nobody has seen it: it was made for a frontend that was refused.
                self.batch.1 += self.writer.changes() - before;
            }
        }
        Ok(())
    }

    /// Removes what is told of in the region and `wanted` by nobody.
    pub(super) fn sweep(&mut self, wanted: &dyn Fn(&Address) -> bool) -> Said {
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
        for key in gone {
            self.vacate(&key)?;
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
        Ok(())
    }
}
