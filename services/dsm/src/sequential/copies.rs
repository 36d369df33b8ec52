//! The copy holder's part of a fault.

use crate::address::Key;
use crate::context::Context;
use crate::{Message, Minipage, Protection, Views, Violation};

use super::{Order, SequentialConsistency, Work};

impl SequentialConsistency {
    /// The key of a minipage of which this rank must hold a copy.
    pub(super) fn known(&self, minipage: &Minipage) -> Result<Key, Violation> {
        if !minipage.is_well_formed(self.pages, self.views) {
            return Err(Violation::OutOfRange);
        }
        let key = minipage.key();
        if self.map.minipage(key) != Some(*minipage) {
            return Err(Violation::Minipage);
        }
        Ok(key)
    }

    pub(super) fn handle_order(&mut self, context: &mut Context, order: Order) -> Result<(), Violation> {
        if order.requester >= context.ranks()
            || order.requester == self.rank
            || usize::from(order.thread) >= self.requests.len()
        {
            return Err(Violation::OutOfRange);
        }
        if order.manager != self.spread.manager(order.key.page) {
            return Err(Violation::NotManager);
        }
        if self.map.protection(order.key) == Protection::None || self.holds.is_put_off(order.key) {
            return Err(Violation::NoCopy);
        }
        self.give_up_in_time(context, order);
        Ok(())
    }

    /// Reduces this rank's right, then passes the data on or tells the requester.
    pub(super) fn give_up(&mut self, context: &mut Context, order: Order) {
        let Order { key, manager, requester, thread, work } = order;
        let Some(minipage) = self.map.minipage(key) else {
            return;
        };
        self.reduce(context, key, minipage, work.leaves());
        match work {
            Work::Forward { access, acks } => {
                let message = Message::Grant {
                    minipage,
                    thread,
                    access,
                    acks,
                    data: true,
                    done: requester != manager,
                    views: Views::ONE,
                };
                context.send_minipage(requester, minipage, message);
            }
            Work::Invalidate => {
                let message = Message::InvalidateAck { thread, key, views: Views::ONE };
                context.send(requester, message);
            }
        }
    }

    /// Reduces the application's access here, before anybody else is told.
    pub(super) fn reduce(&mut self, context: &mut Context, key: Key, minipage: Minipage, protection: Protection) {
        if self.map.protection(key) > protection {
            self.map.set_protection(key, protection);
            context.protect(minipage, protection);
            match protection {
                Protection::None => {
                    context.counters_mut().invalidations += 1;
                    context.counters_mut().read_ahead_lost += u64::from(self.strides.note_lost(key));
                }
                _ => context.counters_mut().downgrades += 1,
            }
        }
    }
}
