//! What the programs of the node do.

use mapwire_dsm::Access;
use mapwire_nic::Landing;
use mapwire_node::{ExportRequest, SharedMemory};
use mapwire_translation::PageRange;
use mapwire_vmmc::Importers;
use mapwire_wire::{Endpoint, ImportId, Key, NodeId, ProcessId, Rights};

use super::hostile::{Wanted, command, entry, near};
use super::messages::{THREADS, minipage, number};
use super::{Attack, Exported, FAIR, SHARED, VICTIM, WILD};

impl Attack {
    /// A program does something.
    pub(super) fn program(&mut self) {
        let process = [FAIR, FAIR, WILD][self.random.below(3) as usize];
        match self.random.below(20) {
            0..5 => self.command(),
            5..7 => self.write_anything(),
            7..10 => self.export(process),
            10 => self.unexport(),
            11 => self.redirect(),
            12 | 13 => self.ask_import(process),
            14 | 15 => self.end_import(),
            16 => self.release(),
            17 => self.memory.refusals = self.random.below(4),
            18 => {
                let on = self.random.chance(50);
                self.on(|node, _| {
                    node.set_tracing(on);
                    while node.poll_event().is_some() {}
                });
            }
            _ => self.reopen(),
        }
        self.drain(VICTIM, &[]);
    }

    fn export(&mut self, process: ProcessId) {
        let slot = self.random.below(3);
        let (address, length) =
            (0x10_0000 + slot * 0x1_0000 + self.random.below(600) * 8, self.random.within(1, 9_000));
        let key = Key([self.random.byte() | 1; 16]);
        let rights = [Rights::ALL, Rights::STORE, Rights::FETCH][self.random.below(3) as usize];
        let request = |importers| ExportRequest {
            name: ["a", "b", "c"][slot as usize].into(),
            key,
            address,
            length,
            rights,
            importers,
            direct: None,
            pins_late: false,
        };
        let made = self.on(|node, memory| {
            let made = node.export(process, memory, request(Importers::Job));
            made.ok()
        });
        self.exports.extend(made.map(|id| Exported {
            process,
            id,
            key,
            address,
            length,
            rights,
            landings: Vec::new(),
        }));
    }

    /// The number of an export.
    fn pick_export(&mut self) -> Option<usize> {
        let count = self.exports.len() as u64;
        (count > 0).then(|| self.random.below(count) as usize)
    }

    fn unexport(&mut self) {
        if let Some(at) = self.pick_export() {
            let export = self.exports.swap_remove(at);
            self.on(|node, _| node.unexport(export.process, export.id).unwrap());
        }
    }

    fn redirect(&mut self) {
        let Some(at) = self.pick_export() else {
            return;
        };
        let (process, id) = (self.exports[at].process, self.exports[at].id);
        let address = 0x20_0000 + self.random.below(4) * 0x1_0000 + self.random.below(99) * 8;
        let length = self.exports[at].length + self.random.below(3) - 1;
        let landing = self.random.chance(70).then_some(Landing { address, length });
        let done = self.on(|node, memory| node.redirect(process, memory, id, landing).is_ok());
        if done {
            let landings = &mut self.exports[at].landings;
            landings.extend(landing.map(|landing| landing.address));
        }
    }

    fn ask_import(&mut self, process: ProcessId) {
        if self.asked.len() + self.over.len() > 16 {
            return;
        }
        let from =
            Endpoint { node: NodeId(self.random.below(3) as u16), process: ProcessId(self.random.below(2) as u16) };
        let name = ["a", "b", "c"][self.random.below(3) as usize];
        let timeout_ns = self.random.below(1 << 36);
        let now_ns = self.now_ns;
        let asked = self.on(|node, _| {
            let rights = Rights::STORE;
            let asked = node.ask_import(now_ns, process, from, name, rights, None, timeout_ns);
            asked.ok()
        });
        self.asked.extend(asked.map(|request| (process, request)));
    }

    /// An import that has its outcome is entered, or not wanted any more.
    fn end_import(&mut self) {
        let Some((process, request)) = self.over.pop() else {
            return;
        };
        if self.random.chance(20) || self.imports.len() > 8 {
            return self.on(|node, _| node.abandon_import(process, request));
        }
        let entered = self.on(|node, _| node.enter_import(process, request).map(Result::ok));
        let entered = entered.expect("it has its outcome");
        self.imports.extend(entered.map(|(id, grant)| (process, id, grant)));
    }

    fn release(&mut self) {
        let count = self.imports.len() as u64;
        if count > 0 && self.pending.is_empty() {
            let at = self.random.below(count) as usize;
            let (process, id, grant) = self.imports.swap_remove(at);
            self.on(|node, _| node.release_import(process, id, &grant));
        }
    }

    /// An import of the process, or none.
    fn import_of(&mut self, process: ProcessId) -> (ImportId, u64) {
        let mut of_process = self.imports.iter().filter(|import| import.0 == process);
        let picked = of_process.next_back();
        picked.map_or((ImportId(3), 5_000), |(_, id, grant)| (*id, grant.length.clamp(16, 1 << 20)))
    }

    /// A command of the fair program, whose pages are held.
    fn command(&mut self) {
        let word = self.random.below(8) as u32;
        if self.pending.contains_key(&word) || !self.node.accepts_command(FAIR) {
            return;
        }
        let has_import = self.imports.iter().any(|import| import.0 == FAIR);
        if !has_import && self.random.chance(90) {
            self.ask_import(FAIR);
            return self.end_import();
        }
        let (import, import_bytes) = self.import_of(FAIR);
        let address = 0x40_0000 + u64::from(word) * 0x1_0000 + self.random.below(600) * 8;
        let length = self.random.below(import_bytes.min(9_000));
        let wanted = Wanted {
            import,
            import_bytes: import_bytes - length,
            address,
            length,
            completion: word,
            to: Endpoint::first_of(NodeId(self.random.below(3) as u16)),
        };
        let (command, data) = command(&mut self.random, &wanted);
        let Some((header, inline)) = entry(&mut self.random, 0, &command, &data) else {
            return;
        };
        if data.is_empty()
            && !matches!(
                command,
                mapwire_wire::CommandRepr::ShortSend { .. } | mapwire_wire::CommandRepr::Handler { .. }
            )
        {
            let held = PageRange::covering(address, wanted.length.max(8)).unwrap();
            if !self.on(|node, memory| node.hold(FAIR, memory, word, held).is_ok()) {
                return;
            }
            self.pending.insert(word, (address, wanted.length));
        }
        self.on(|node, _| node.handle_command(FAIR, &header, &inline));
        self.serve_misses();
    }

    /// The wild program writes anything into its queue, whether the NIC takes a command or not.
    fn write_anything(&mut self) {
        let (import, import_bytes) = self.import_of(WILD);
        let wanted = Wanted {
            import: match self.random.below(8) {
                0 => ImportId(self.random.next() as u32),
                _ => import,
            },
            import_bytes,
            address: near(&mut self.random, 0x4_0000).wrapping_add(0x10_0000),
            length: near(&mut self.random, 9_000),
            completion: match self.random.below(8) {
                0 => u32::MAX,
                _ => self.random.below(10) as u32,
            },
            to: Endpoint { node: NodeId(self.random.below(4) as u16), process: ProcessId(self.random.below(3) as u16) },
        };
        let (command, data) = command(&mut self.random, &wanted);
        let entry = entry(&mut self.random, 30, &command, &data);
        if let Some((header, inline)) = entry {
            self.written += 1;
            self.on(|node, _| node.handle_command(WILD, &header, &inline));
            self.serve_misses();
        }
    }

    /// The wild program ends, and another begins; or the shared memory is closed and opened again.
    fn reopen(&mut self) {
        let shared = self.node.service::<SharedMemory>(FAIR, SHARED);
        if shared.is_some_and(|shared| shared.end().is_some()) {
            return self.open_services();
        }
        if self.random.chance(70) {
            return;
        }
        let limit = self.limit;
        self.on(|node, _| node.close_process(WILD));
        self.drain(VICTIM, &[]);
        self.exports.retain(|export| export.process != WILD);
        self.imports.retain(|import| import.0 != WILD);
        self.asked.retain(|asked| asked.0 != WILD);
        self.over.retain(|over| over.0 != WILD);
        self.memory.give_back(WILD);
        self.on(|node, _| node.open_process(WILD, limit, 8).unwrap());
    }

    /// The fair program uses the shared memory.
    pub(super) fn share(&mut self) {
        let random = &mut self.random;
        let thread = random.below(u64::from(THREADS)) as u16;
        let place = minipage(random, &self.minipages);
        let (view, page) = (place.view, place.offset_bytes / 4096);
        let access = [Access::Read, Access::Write][random.below(2) as usize];
        let (which, lock, bytes) = (random.below(7), number(random, 3) as u32, number(random, 9_000));
        let now_ns = self.now_ns;
        self.on(|node, _| {
            node.call(FAIR, SHARED, |shared: &mut SharedMemory| {
                shared.take_outcome(thread);
                let dsm = shared.dsm_mut();
                match which {
                    0 | 1 => drop(dsm.handle_fault(now_ns, thread, view, page, access)),
                    2 => drop(dsm.alloc(thread, bytes)),
                    3 => drop(dsm.lock(thread, lock)),
                    4 => drop(dsm.unlock(thread, lock)),
                    5 => drop(dsm.prefetch(now_ns, thread, view, page, access)),
                    _ => drop(dsm.barrier(thread, lock)),
                }
            });
        });
        self.drain(VICTIM, &[]);
    }

    /// Time passes, at times much.
    pub(super) fn pass_time(&mut self) {
        let most = self.random.within(8, 34);
        let bits = self.random.below(most);
        self.now_ns += 1 + self.random.below(1 << bits);
        for _ in 0..100 {
            let now_ns = self.now_ns;
            if self.node.poll_at().is_none_or(|at| at > now_ns) {
                return;
            }
            self.on(|node, _| node.handle_time(now_ns));
            self.drain(VICTIM, &[]);
            self.transmit(8);
            if self.is_confined {
                return;
            }
        }
        panic!("the node has something to do at all times");
    }
}
