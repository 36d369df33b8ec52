//! Arguments that have the form of C's pointers: present, or `NULL` and refused by name.

use core::mem::MaybeUninit;

use mapwire::Rights;

use crate::failure::{Failure, call};
use crate::status::mw_status_t;

/// An object, or a structure, that must not be `NULL`.
#[inline]
pub(crate) fn required<T>(argument: Option<T>, name: &str) -> Result<T, Failure> {
    argument.ok_or_else(|| null(name))
}

/// Writes a result for the program.
#[inline]
pub(crate) fn give<T>(place: Option<&mut MaybeUninit<T>>, name: &str, value: T) -> Result<(), Failure> {
    required(place, name)?.write(value);
    Ok(())
}

/// A call that returns a value.
#[inline]
pub(crate) fn get<T>(
    place: Option<&mut MaybeUninit<T>>,
    name: &str,
    value: impl FnOnce() -> Result<T, Failure>,
) -> mw_status_t {
    call(|| {
        let value = value()?;
        give(place, name, value)
    })
}

/// A call that makes an object.
pub(crate) fn make<T>(
    place: Option<&mut MaybeUninit<*mut T>>,
    name: &str,
    object: impl FnOnce() -> Result<T, Failure>,
) -> mw_status_t {
    call(|| {
        let place = new_object(place, name)?;
        *place = Box::into_raw(Box::new(object()?));
        Ok(())
    })
}

/// A call that frees an object, if there is one.
pub(crate) fn free<T>(object: Option<Box<T>>) -> mw_status_t {
    call(|| {
        drop(object);
        Ok(())
    })
}

/// Destination of the pointer to a new object: `NULL` until there is one.
#[inline]
pub(crate) fn new_object<'a, T>(
    argument: Option<&'a mut MaybeUninit<*mut T>>,
    name: &str,
) -> Result<&'a mut *mut T, Failure> {
    argument.map(|place| place.write(core::ptr::null_mut())).ok_or_else(|| null(name))
}

#[cold]
pub(crate) fn null(name: &str) -> Failure {
    Failure::argument(format!("`{name}` is NULL: it must point to something"))
}

/// Rights from their bits; 0 means `default`.
pub(crate) fn rights(bits: u32, default: Rights) -> Result<Rights, Failure> {
    if bits == 0 {
        return Ok(default);
    }
    Rights::from_bits(bits)
        .map_err(|_| Failure::argument(format!("unknown rights {bits:#x}: combine MW_RIGHT_STORE and MW_RIGHT_FETCH")))
}

/// A flag as C's 1 or 0.
#[inline]
pub(crate) fn flag(value: bool) -> i32 {
    i32::from(value)
}
